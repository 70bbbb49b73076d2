"""The grammar of attention on any task: its rows, by roles or positions, and rules in its own relations.

What a row can do hangs on more than its author may have named: rows of one role are told apart where some are read out
and others are not, and where some have a partner under a relation and others have none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.circuits.grammar import Grammar
from hopscope.models.patterns import (
    By,
    History,
    Identity,
    OverRole,
    OwnChain,
    Related,
    Roles,
    Rule,
    TwoTargets,
    Uniform,
)
from hopscope.models.resolving import selected
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

_MOST_SYMBOLS = 64
"""Vocabulary up to which a head's mean weights are told apart by symbol: every symbol must be seen often enough."""


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


class RoleGrammar(Grammar):
    """The rules for one batch, in the words of a task's roles.

    The rows that are told apart are the same on every batch; a row that is none of them is left as it is.  A relation
    of the task has its own name in a circuit: `query → match (item)`.  Of two rules that are the same read, the task's
    own relation is kept.
    """

    def __init__(self, batch: Batch, *, causal: bool, words: Mapping[str, Sequence[str]], rows: Rows):
        """Take over the roles.

        Args:
            batch: samples of one member, as `Rows.annotated` gives them.
            causal: whether rows see earlier positions and themselves only.
            words: of roles whose numbers have names.
            rows: how rows are told apart.
        """
        self._rows = rows
        super().__init__(batch, causal=causal, words=words)

    def _row_names(self) -> list[str]:
        return [*self._rows.named, *self._rows.made]

    def _found_roles(self) -> list[Roles]:
        return list(self._rows.roles)

    # Candidates.

    @cached_property
    def kinds(self) -> list[Roles]:
        """Tokens that can be read as one: those alike in a single role of the task, or in the first few of them."""
        named = self._rows.named
        alike = dict.fromkeys(
            [*((name,) for name in named), *(named[:count] for count in range(2, len(named) + 1))]
        )
        return [dict(pairs) for names in alike for pairs in self._values(names)]

    def _values(self, names: Sequence[str]) -> list[tuple[tuple[str, int], ...]]:
        """Values of some roles that rows have together."""
        return list(dict.fromkeys(tuple((name, roles[name]) for name in names) for roles in self.roles))

    def _conceivable(self) -> list[Rule]:
        rules = super()._conceivable()
        if CHAIN in self.batch.roles:
            rules += [OwnChain(keys=roles) for roles in self.kinds if self._once_a_chain(roles)]
        first = [rule for rule in rules if isinstance(rule, Uniform | Identity)]
        own = [rule for rule in rules if isinstance(rule, Related) and rule.relation != PREVIOUS]
        return [*first, *own, *(rule for rule in rules if rule not in first and rule not in own)]

    def _weights_by(self, role: int) -> tuple[By, ...]:
        few = self.batch.inputs.is_floating_point() or int(self.batch.inputs.max()) < _MOST_SYMBOLS
        return super()._weights_by(role) if few else ("position",)

    def _remembered(self) -> list[Roles]:
        return self._several

    @cached_property
    def _several(self) -> list[Roles]:
        """Kinds of which a sample has several tokens: of a single one there is no history."""
        return [roles for roles in self.kinds if not self._single(roles)]

    def _single(self, roles: Roles) -> bool:
        """Whether no sample has two tokens with these roles."""
        return bool((selected(self.batch, roles).sum(-1) <= 1).all())

    def two_targets(
        self, role: int, own: Float[Tensor, "batch query key"], singles: Sequence[Rule]
    ) -> TwoTargets | None:
        """The best mixture of two targets; one may be the row itself, where a head leaves what it does not need."""
        return super().two_targets(role, own, [Identity(), *singles])

    # Words.

    def _word(self, name: str, value: int) -> str:
        words = self._words.get(name, ())
        return words[value] if 0 <= value < len(words) else f"{name} {value}"

    def words(self, roles: Roles) -> str:
        """A role in words, such as `query`, `item 3`, `position 7` or `token with copy`."""
        named = {name: value for name, value in roles.items() if name in self._rows.named}
        said = [self._word(name, value) for name, value in named.items()]
        # An author may leave a value without a word; a row needs some.
        plain = " ".join(filter(None, said)) or " ".join(f"{name} {value}" for name, value in named.items())
        made = [name for name in self._rows.made if roles.get(name) and self._differs(name, named)]
        return " ".join([plain, *made])

    def _differs(self, made: str, named: Roles) -> bool:
        """Whether there are rows of these roles with either value of one that was worked out."""
        return len({roles[made] for roles in self.roles if named.items() <= roles.items()}) > 1

    def target(self, role: int, rule: Rule) -> str:
        """What the rows of a role read under a rule, in words: a relation's name, and what it leads to."""
        if isinstance(rule, TwoTargets) and isinstance(rule.first, Identity):
            return f"{self.target(role, rule.second)} + {self.target(role, rule.first)}"
        if isinstance(rule, OverRole | History) and self._single(rule.keys):
            return self.words(rule.keys)
        if isinstance(rule, OwnChain):
            return f"own {self.words(rule.keys)}"
        if not isinstance(rule, Related):
            return super().target(role, rule)
        pattern, exists = self._resolve(rule, None)
        rows: Bool[Tensor, "batch query"] = self.rows[role] & exists
        keys, sample = pattern[rows].argmax(-1), rows.nonzero()[:, 0]
        # What the keys have in common: all of the task's roles, or the first few of them.
        for count in range(len(self._rows.named), 0, -1):
            named = self._rows.named[:count]
            found = torch.stack([self.batch.roles[name][0][sample, keys] for name in named], -1)
            led = found.unique(dim=0).tolist()
            if len(led) == 1:
                return f"{rule.relation} ({self.words(dict(zip(named, led[0], strict=True)))})"
        return rule.relation
