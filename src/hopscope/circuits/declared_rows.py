"""How the rows of a task that a user wrote are told apart: by its roles, and where there are none by their positions.

What a row can do hangs on more than its author may have named: rows of one role are told apart where some are read out
and others are not, and where some have a partner under a relation and others have none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from hopscope.models.interventions import Roles
from hopscope.tasks.batch import Batch

POSITION, ASKED, PREVIOUS = "position", "asked", "previous"
"""Names that a task is given where it lacks them: the role of a position, of a readout; the relation to the token
before."""

CHAIN = "chain"
"""A role by which no rows are told apart: what a row does may not depend on which of several equal chains it is on."""

PARTNERED = "with "
"""Before a relation: whether a row has a partner under it."""

_MOST = 2
"""Rows may be told apart into so many roles for each position."""


@dataclass(frozen=True)
class Rows:
    """How rows are told apart.

    Attributes:
        named: roles of the task that do it; `position` where it has none.
        made: further ones that are worked out: `asked`, and `with RELATION`.
        roles: of the rows that there are, in the order of their first row.
        readout: positions that are read out.
    """

    named: tuple[str, ...]
    made: tuple[str, ...]
    roles: tuple[Roles, ...]
    readout: tuple[int, ...]

    @classmethod
    def of(cls, batch: Batch, readout: Sequence[int]) -> "Rows":
        """How the rows of some samples of one member are told apart: as finely as suits the number of positions."""
        most, every = _MOST * batch.inputs.shape[2], {name: batch.roles[name] for name in batch.roles}
        own = [name for name in every if name != CHAIN and len(_found(every, [name])) <= most]
        if not own:
            every[POSITION], own = _positions(batch), [POSITION]
        named = _telling(every, own[:1], own[1:], most)
        further = {name: values for name, values in _made(batch, readout).items() if name not in every}
        every |= further
        made = _telling(every, named, list(further), most)[len(named) :]
        roles = tuple(_found(every, [*named, *made]))
        return cls(tuple(named), tuple(made), roles, tuple(readout))

    def annotated(self, batch: Batch) -> Batch:
        """The samples with the roles that were worked out; the token before is a relation of every batch."""
        roles: dict[str, Any] = {name: batch.roles[name] for name in batch.roles}
        made = _made(batch, self.readout)
        roles |= {name: made[name] for name in self.made}
        if POSITION in self.named and POSITION not in roles:
            roles[POSITION] = _positions(batch)
        relations: dict[str, Any] = {name: batch.relations[name] for name in batch.relations}
        relations.setdefault(PREVIOUS, _positions(batch) - 1)
        return replace(batch, roles=roles, relations=relations)


def _telling(every: Mapping[str, Tensor], names: list[str], further: list[str], most: int) -> list[str]:
    """Some names, and of further ones those that tell rows apart which are alike so far, into so many roles at most."""
    for name in further:
        now, then = _found(every, names), _found(every, [*names, name])
        if len(now) < len(then) <= most:
            names = [*names, name]
    return names


def _found(every: Mapping[str, Tensor], names: Sequence[str]) -> list[Roles]:
    """Combinations of roles that rows have, in the order of their first row."""
    values = torch.stack([every[name][0] for name in names], -1)
    rows, inverse = values.transpose(0, 1).flatten(0, 1).unique(dim=0, return_inverse=True)
    order = dict.fromkeys(inverse.tolist())
    return [dict(zip(names, rows[number].tolist(), strict=True)) for number in order]


def _positions(batch: Batch) -> Int[Tensor, "1 batch position"]:
    members, samples, positions = batch.inputs.shape[:3]
    return torch.arange(positions, device=batch.inputs.device).expand(members, samples, positions)


def _made(batch: Batch, readout: Sequence[int]) -> dict[str, Tensor]:
    """Roles that are worked out."""
    position = _positions(batch)
    asked = torch.isin(position, torch.tensor(readout, device=position.device)).long()
    partnered = {
        f"{PARTNERED}{name}": (batch.relations[name] >= 0).long()
        for name in batch.relations
        if name != PREVIOUS
    }
    return {ASKED: asked, **partnered}
