"""What rows there are in the samples of a task, which rules they could follow, and how both are said in words.

A task may say by which roles its rows are told apart (`Task.row_roles`).  Where it does not, they are told apart by all
roles that do so in few enough ways, by whether they are read out, and by whether they have a partner under a relation;
without any role, every position is a row of its own.  No rows are told apart by their chain: what a row does may not
depend on which of several equal chains it is on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.circuits import rules
from hopscope.circuits.rules import NOTHING, Roles, Rule, description_length, selected
from hopscope.tasks import Batch, Task, draw
from hopscope.tasks.task import role_words

Pattern = Float[Tensor, "batch query key"]
Some = Float[Tensor, "row key"]

POSITION, ASKED, PREVIOUS, CHAIN = "position", "asked", "previous", "chain"

# Of the draw by which rows are told apart, and how many samples; if the task does not say how, at most so many roles
# for each position.
_STEP, _LOOKED_AT, _MOST = 2, 256, 2
# Mean weights are told apart by symbol up to this vocabulary, where each role's rows have each symbol at least so
# often: with few, any pattern would follow.
_MOST_SYMBOLS, _LEAST_ROWS = 64, 8
# Share of a role's rows on which a rule leads somewhere; the first token has no previous one.
_LEAST_EXISTING = 0.9
_CANDIDATES, _SHARES = 4, 20  # single targets, of which two are mixed; steps of their shares


class Rows(NamedTuple):
    """How the rows of a task are told apart, the same on all batches."""

    from_task: bool  # whether the task says by which roles
    named: tuple[str, ...]  # roles of the task that do it; `position` where it has none
    derived: tuple[str, ...]  # further ones that are worked out: `asked`, and `with RELATION`
    roles: tuple[Roles, ...]  # of the rows that there are, in the order of their first row
    readout: tuple[int, ...]  # positions that are read out

    @classmethod
    def drawn(cls, task: Task, seed: int, device: torch.device | str) -> "Rows":
        """How the rows of a task are told apart, from samples of their own."""
        batch = draw(task, torch.tensor([seed], device=device), "circuit", _STEP, _LOOKED_AT)
        readout, every = task.shape().readout, {name: batch.roles[name] for name in batch.roles}
        told = [name for name in task.row_roles if name in every]
        if told:
            return cls(True, tuple(told), (), tuple(_found(every, told)), readout)
        most = _MOST * batch.inputs.shape[2]
        own = [name for name in every if name != CHAIN and len(_found(every, [name])) <= most]
        if not own:
            every[POSITION], own = _positions(batch), [POSITION]
        named = _telling(every, own[:1], own[1:], most)
        made = {name: each for name, each in _derived(batch, readout).items() if name not in every}
        every |= made
        names = _telling(every, named, made, most)
        return cls(False, tuple(named), tuple(names[len(named) :]), tuple(_found(every, names)), readout)

    def annotated(self, batch: Batch) -> Batch:
        """The samples with the roles that were worked out, and the token before as a relation."""
        made = _derived(batch, self.readout) | {POSITION: _positions(batch)}
        roles = {name: made[name] for name in (*self.derived, *self.named) if name in made}
        before = {PREVIOUS: _positions(batch) - 1}
        return replace(batch, roles={**roles, **batch.roles}, relations={**before, **batch.relations})


def _telling(every: Mapping[str, Tensor], names: list[str], further: Iterable[str], most: int) -> list[str]:
    # Some names, and of further ones those that tell rows apart which are alike so far, into so many roles at most.
    for name in further:
        if len(_found(every, names)) < len(_found(every, [*names, name])) <= most:
            names = [*names, name]
    return names


def _found(every: Mapping[str, Tensor], names: Sequence[str]) -> list[Roles]:
    # Combinations of roles that rows have, in the order of their first row.
    values = torch.stack([every[name][0] for name in names], -1)
    rows, inverse = values.transpose(0, 1).flatten(0, 1).unique(dim=0, return_inverse=True)
    numbers = dict.fromkeys(inverse.tolist())
    return [dict(zip(names, rows[number].tolist(), strict=True)) for number in numbers]


def _positions(batch: Batch) -> Tensor:
    return torch.arange(batch.inputs.shape[2], device=batch.inputs.device).expand(batch.inputs.shape[:3])


def _derived(batch: Batch, readout: Sequence[int]) -> dict[str, Tensor]:
    position = _positions(batch)
    asked = torch.isin(position, torch.tensor(readout, device=position.device)).long()
    names = [name for name in batch.relations if name != PREVIOUS]
    return {ASKED: asked} | {f"with {name}": (batch.relations[name] >= 0).long() for name in names}


class Grammar:
    """The rules on one batch of samples.

    Attributes:
        batch: samples with a member axis of 1.
        roles: of the rows; `rows`: which rows have each of them.
        allows_mean_weights: whether mean weights are rules like others; not where chains tell tokens of one kind apart.
    """

    def __init__(self, task: Task, rows: Rows, batch: Batch, *, causal: bool):
        self.batch, self.causal, self.roles, self._how = rows.annotated(batch), causal, rows.roles, rows
        self._own, self._words = set(batch.relations), role_words(task)
        self.allows_mean_weights = not (rows.from_task and CHAIN in batch.roles)
        each = [selected(self.batch, roles)[0] for roles in self.roles]
        self.rows: Bool[Tensor, "role batch query"] = torch.stack(each)
        self._of_role: dict[int, list[tuple[Rule, Some]]] = {}
        self._known: dict[str, tuple[Tensor, Tensor]] = {}

    # Patterns.

    def pattern(self, role: int, rule: Rule, own: Pattern) -> Pattern:
        """The pattern of a rule for the rows of a role of a head, whose own patterns are given."""
        if isinstance(rule, rules.History):
            return rules.patterns(rule, self.batch, self.causal, own[None], self.rows[role][None])[0][0]
        return self._resolved(rule)[0]

    def _resolved(self, rule: Rule) -> tuple[Tensor, Tensor]:
        name = rule.model_dump_json()
        if name not in self._known:
            pattern, exists = rules.patterns(rule, self.batch, self.causal)
            self._known[name] = pattern[0], exists[0]
        return self._known[name]

    # Candidates.

    def candidates(self, role: int) -> list[tuple[Rule, Some]]:
        """Rules of one target for the rows of a role, each with its pattern there.

        Each read comes once, the task's own relations before all else.
        """
        if role not in self._of_role:
            rows, kept = self.rows[role], list[tuple[Rule, Some]]()
            for rule in self._conceivable:
                pattern, exists = self._resolved(rule)
                here = pattern[rows]
                new = not any(torch.equal(here, other) for _, other in kept)
                if new and exists[rows].float().mean() >= _LEAST_EXISTING:
                    kept.append((rule, here))
            self._of_role[role] = kept
        return self._of_role[role]

    @cached_property
    def _conceivable(self) -> list[Rule]:
        kinds = [*self.roles, *self._kinds]
        found: list[Rule] = [rules.OverRole(keys=roles) for roles in kinds]
        if CHAIN in self.batch.roles:
            chains = rules.same_chain(self.batch)[0]
            for roles in kinds:
                has = selected(self.batch, roles)[0] & chains.diagonal(0, 1, 2)
                once_a_chain = ((chains & has[:, None]).sum(-1)[has] == 1).all()
                found += [rules.OwnChain(keys=roles)] if once_a_chain else []
        found += [rules.Related(relation=name) for name in self.batch.relations]

        def place(rule: Rule) -> tuple[bool, tuple[int, ...]]:
            # The token before may be no relation of the task, but one that was added.
            return getattr(rule, "relation", None) not in self._own, description_length(rule)

        return [*NOTHING, *sorted(found, key=place)]

    @cached_property
    def _kinds(self) -> list[Roles]:
        # Tokens that can be read as one: those alike in a single role, or in the first few.
        named = self._how.named
        names: list[tuple[str, ...]] = [(name,) for name in (named[:1] if self._how.from_task else named)]
        names += [named[:count] for count in range(2, len(named) + 1)]
        every = [{name: roles[name] for name in some} for some in names for roles in self.roles]
        return list({str(roles): roles for roles in every}.values()) if self.allows_mean_weights else []

    def _single(self, roles: Roles) -> bool:
        return bool((selected(self.batch, roles).sum(-1) <= 1).all())

    def weighted(self, role: int) -> list[Rule]:
        """Rules with a head's mean weights: histories and mean maps, by position, symbol and match, where allowed."""
        if not self.allows_mean_weights:
            return []
        inputs, rows, ways = self.batch.inputs[0], self.rows[role], list[rules.By](["position"])
        if not inputs.is_floating_point() and int(inputs.max()) < _MOST_SYMBOLS:
            alike = inputs[rows].unique(return_counts=True)[1]
            ways += ["symbol", "match"] if alike.min() >= _LEAST_ROWS else ["symbol"]
        seen = [roles for roles in self._kinds if self._resolved(rules.OverRole(keys=roles))[1][rows].all()]
        several = [roles for roles in seen if not self._single(roles)]
        return [rules.History(keys=keys, by=by) for by in ways for keys in [*several, {}]]

    def two_targets(self, role: int, own: Some) -> rules.TwoTargets | None:
        """The best mixture of two single targets for a head's pattern, or `None` if it has no two.

        One may be the row itself, where a head leaves what it does not need, if the task tells no rows.
        """
        none = rules.Uniform | rules.Identity if self._how.from_task else rules.Uniform
        singles = [each for each in self.candidates(role) if not isinstance(each[0], none)]
        singles.sort(key=lambda each: -float((own * (each[1] > 0)).sum()))
        found: dict[float, rules.TwoTargets] = {}
        for pair in combinations(singles[:_CANDIDATES], 2):
            (first, one), (second, other) = sorted(pair, key=lambda each: description_length(each[0]))
            mass = [float((own * (each > 0)).sum()) for each in (one, other)]
            share = round(_SHARES * mass[0] / max(sum(mass), 1e-9)) / _SHARES
            alike = description_length(first) == description_length(second)
            if 0.0 < share < 1.0 and not alike and not ((one > 0) & (other > 0)).any():
                both = {"first": first, "second": second, "share": share}
                far = distance(share * one + (1.0 - share) * other, own)
                found.setdefault(far, rules.TwoTargets.model_validate(both))
        return found[min(found)] if found else None

    # Words.

    def words(self, roles: Roles) -> str:
        """A role in words, such as `second 2`, `query`, `item 3`, `position 7` or `token with copy`."""
        named = {name: value for name, value in roles.items() if name in self._how.named}
        said = filter(None, (self._word(name, value) for name, value in named.items()))
        # An author may leave a value without a word; a row needs some.
        plain = " ".join(said) or " ".join(f"{name} {value}" for name, value in named.items())
        alike = [each for each in self.roles if named.items() <= each.items()]
        made = (name for name in self._how.derived if roles.get(name))
        return " ".join([plain, *(name for name in made if not all(each[name] for each in alike))])

    def _word(self, name: str, value: int) -> str:
        words = self._words.get(name, ())
        if 0 <= value < len(words):
            return words[value]
        return f"{name} {value}" if not self._how.from_task else str(value) if value else ""

    def target(self, role: int, rule: Rule) -> str:
        """What the rows of a role read under a rule, in words: by roles, if the task tells them; else by the name of a
        relation, and what it leads to."""
        told = self._how.from_task
        if isinstance(rule, rules.TwoTargets):
            both = [self.target(role, each) for each in (rule.first, rule.second)]
            return " + ".join(both[::-1] if isinstance(rule.first, rules.Identity) else both)
        if isinstance(rule, rules.OverRole | rules.History) and rule.keys:
            alone = not told and self._single(rule.keys)
            return self.words(rule.keys) if alone else f"all {self.words(rule.keys)}"
        if isinstance(rule, rules.OwnChain) and not told:
            return f"own {self.words(rule.keys)}"
        if not isinstance(rule, rules.Related | rules.OwnChain):
            return {"uniform": "all", "identity": "itself"}.get(rule.kind, "")
        led = self._led_to(role, rule)
        if told:
            return self.words(led) if len(led) == len(self._how.named) else "any"
        relation = getattr(rule, "relation", "")
        return f"{relation} ({self.words(led)})" if led else relation

    def _led_to(self, role: int, rule: Rule) -> Roles:
        # What the keys that a rule leads to have in common: all of the task's roles, or the first few of them.
        pattern, exists = self._resolved(rule)
        rows = self.rows[role] if self._how.from_task else self.rows[role] & exists
        keys, sample = pattern[rows].argmax(-1), rows.nonzero()[:, 0]
        for count in range(len(self._how.named), 0, -1):
            named = self._how.named[:count]
            led = torch.stack([self.batch.roles[name][0][sample, keys] for name in named], -1).unique(dim=0)
            if len(led) == 1:
                return dict(zip(named, led[0].tolist(), strict=True))
        return {}


def distance(one: Some, other: Some) -> float:
    """Total variation between two patterns, mean over rows: 0 … 1."""
    return float((one - other).abs().sum(-1).mean()) / 2.0
