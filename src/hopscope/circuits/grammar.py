"""Rules on a batch: which there are for the rows of a role, and the attention patterns that they stand for."""

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.models.patterns import (
    By,
    History,
    Identity,
    MeanMap,
    OverRole,
    OwnChain,
    Related,
    Roles,
    Rule,
    TwoTargets,
    Uniform,
    description_length,
    weights_by,
)
from hopscope.models.resolving import Resolved, mean_weights, selected
from hopscope.tasks.batch import Batch

ROW_ROLES = ("kind", "step", "round", "node", "slot", "repeat")
"""Roles by which rows are told apart, of those that a batch has.  The chain and the place are not among them: what a
row does may not depend on which of the equal chains it is on."""

_LEAST_EXISTING = 0.9
"""Share of a role's rows on which a rule must lead somewhere.  (The very first token has no previous one.)"""

_LEAST_ROWS = 8
"""Rows with each symbol from which on weights may depend on the row's symbol: with few, any pattern would follow."""


class Grammar:
    """The rules for one batch of samples, with `member == 1`.

    Attributes:
        batch: the samples.
        roles: of the rows, in the order of their first row.
        rows: which rows have each of them.
    """

    def __init__(self, batch: Batch, *, causal: bool, words: Mapping[str, Sequence[str]]):
        """Find the roles.

        Args:
            batch: annotated samples of one member.
            causal: whether rows see earlier positions and themselves only.
            words: of roles whose numbers have names, as `Task.role_values`.
        """
        self.batch, self._words = batch, words
        self._resolved = Resolved(batch, causal=causal)
        self._names = self._row_names()
        self.roles = self._found_roles()
        self.rows: Bool[Tensor, "role batch query"] = torch.stack(
            [selected(batch, roles)[0] for roles in self.roles]
        )
        self._of_role: dict[int, list[Rule]] = {}

    def _row_names(self) -> list[str]:
        """Names of the roles by which rows are told apart."""
        return [name for name in ROW_ROLES if name in self.batch.roles]

    def _found_roles(self) -> list[Roles]:
        values = torch.stack([self.batch.roles[name][0] for name in self._names], -1)
        seen = dict.fromkeys(map(tuple, values.transpose(0, 1).flatten(0, 1).tolist()))
        return [dict(zip(self._names, combination, strict=True)) for combination in seen]

    # Patterns.

    def pattern(
        self, rule: Rule, mean: Float[Tensor, "batch query key"] | None = None
    ) -> Float[Tensor, "batch query key"]:
        """The attention pattern that a rule stands for; rows on which it leads nowhere read themselves.

        Args:
            rule: any but a head's own softmax.
            mean: the head's mean weights (`mean_map`), for rules that take them (`weights_by`).

        Raises:
            ValueError: the rule is a head's own softmax, or the mean pattern is missing.
        """
        return self._resolve(rule, mean)[0]

    def mean_map(
        self, role: int, own: Float[Tensor, "batch query key"], by: By
    ) -> Float[Tensor, "batch query key"]:
        """The mean weights of a head, whose own patterns are given, at the rows of a role; see `mean_weights`."""
        return mean_weights(by, own, self.rows[role], self.batch.inputs[0])

    def of_head(
        self, role: int, rule: Rule, own: Float[Tensor, "batch query key"]
    ) -> Float[Tensor, "batch query key"]:
        """The pattern of a rule for the rows of a role of a head, whose own patterns are given."""
        by = weights_by(rule)
        return self.pattern(rule, None if by is None else self.mean_map(role, own, by))

    def _resolve(
        self, rule: Rule, mean: Float[Tensor, "batch query key"] | None
    ) -> tuple[Float[Tensor, "batch query key"], Bool[Tensor, "batch query"]]:
        """The pattern, and on which rows the rule leads somewhere."""
        pattern, exists = self._resolved(rule, None if mean is None else mean[None])
        return pattern[0], exists[0]

    # Candidates.

    def rules(self, role: int) -> list[Rule]:
        """Rules for the rows of a role, without those of two targets: each read once, the simplest first."""
        if role not in self._of_role:
            self._of_role[role] = self._distinct(role, self._conceivable())
        return self._of_role[role]

    def _conceivable(self) -> list[Rule]:
        rules: list[Rule] = [Uniform(), Identity()]
        rules += [Related(relation=name) for name in self.batch.relations]
        rules += [OverRole(keys=roles) for roles in (*self.roles, *self.kinds)]
        if "chain" in self.batch.roles:
            rules += [OwnChain(keys=roles) for roles in self.roles if self._once_a_chain(roles)]
        return sorted(rules, key=description_length)

    @property
    def kinds(self) -> list[Roles]:
        """Kinds of tokens, where those of one kind can be read as one: where there are no chains to tell them apart."""
        if "chain" in self.batch.roles:
            return []
        return [{"kind": kind} for kind in self.batch.roles["kind"].unique().tolist()]

    @property
    def weighs(self) -> bool:
        """Whether mean weights are rules: not where there are chains, as tokens of one kind are not alike there."""
        return "chain" not in self.batch.roles

    def _once_a_chain(self, roles: Roles) -> bool:
        has = selected(self.batch, roles)[0]
        same = self._resolved.same_chain[0] & has[:, None, :]
        return bool((same.sum(-1)[has] == 1).all())

    def _distinct(self, role: int, rules: Sequence[Rule]) -> list[Rule]:
        rows = self.rows[role]
        kept: list[tuple[Rule, Tensor]] = []
        for rule in rules:
            pattern, exists = self._resolve(rule, None)
            here = pattern[rows]
            new = not any(torch.equal(here, other) for _, other in kept)
            if exists[rows].float().mean() >= _LEAST_EXISTING and new:
                kept.append((rule, here))
        return [rule for rule, _ in kept]

    def two_targets(
        self, role: int, own: Float[Tensor, "batch query key"], singles: Sequence[Rule]
    ) -> TwoTargets | None:
        """The best mixture of two single targets for a head's pattern, or `None` if it has no two."""
        rows = self.rows[role]
        masses = []
        for rule in singles:
            if not isinstance(rule, Uniform):
                wanted = self.pattern(rule)[rows]
                masses.append((float((own[rows] * (wanted > 0)).sum(-1).mean()), rule))
        best = sorted(masses, key=lambda pair: -pair[0])[:4]
        found: tuple[float, TwoTargets] | None = None
        for (_, first), (_, second) in product(best, best):
            mixed = self._mixed(rows, own, first, second)
            if mixed is not None:
                distance = self.distance(role, mixed, own)
                if found is None or distance < found[0]:
                    found = distance, mixed
        return None if found is None else found[1]

    def _mixed(self, rows: Tensor, own: Tensor, first: Rule, second: Rule) -> TwoTargets | None:
        if description_length(first) >= description_length(second):
            return None
        one, other = self.pattern(first)[rows], self.pattern(second)[rows]
        if bool(((one > 0) & (other > 0)).any()):
            return None
        mass = [float((own[rows] * (wanted > 0)).sum()) for wanted in (one, other)]
        share = round(mass[0] / max(sum(mass), 1e-9), 1)
        if not 0.0 < share < 1.0:
            return None
        return TwoTargets.model_validate({"first": first, "second": second, "share": share})

    def weighted(self, role: int, own: Float[Tensor, "batch query key"]) -> list[Rule]:
        """Rules with a head's mean weights: histories and mean maps, by position, symbol and match; see `weighs`."""
        if not self.weighs:
            return []
        mean = self.mean_map(role, own, "position")
        found: list[Rule] = []
        for by in self._weights_by(role):
            histories = [History(keys=kind, by=by) for kind in self._remembered()]
            found += [each for each in histories if bool(self._resolve(each, mean)[1][self.rows[role]].all())]
            found.append(MeanMap(by=by))
        return found

    def _weights_by(self, role: int) -> tuple[By, ...]:
        """On what mean weights of the rows of a role may depend: on symbols where there are tokens."""
        inputs = self.batch.inputs[0]
        if inputs.is_floating_point():
            return ("position",)
        alike = inputs[self.rows[role]].unique(return_counts=True)[1]
        return ("position", "symbol", "match") if alike.min() >= _LEAST_ROWS else ("position", "symbol")

    def _remembered(self) -> list[Roles]:
        """Roles of tokens that a history can be of."""
        return self.kinds

    def distance(self, role: int, rule: Rule, own: Float[Tensor, "batch query key"]) -> float:
        """Total variation between a head's pattern and a rule's, mean over the rows of a role: 0 … 1."""
        rows = self.rows[role]
        return float((own[rows] - self.of_head(role, rule, own)[rows]).abs().sum(-1).mean()) / 2.0

    # Words.

    def words(self, roles: Roles) -> str:
        """A role in words, such as `second 2` or `query`."""
        parts = [
            self._word(name, value) for name, value in roles.items() if name != "slot" or "node" not in roles
        ]
        return " ".join(part for part in parts if part not in ("0", ""))

    def _word(self, name: str, value: int) -> str:
        return self._words[name][value] if name in self._words else str(value)

    def target(self, role: int, rule: Rule) -> str:
        """What the rows of a role read under a rule, in words."""
        if isinstance(rule, TwoTargets):
            return f"{self.target(role, rule.first)} + {self.target(role, rule.second)}"
        if isinstance(rule, OverRole | History):
            return f"all {self.words(rule.keys)}"
        if not isinstance(rule, Related | OwnChain):
            return {"uniform": "all", "identity": "itself"}.get(rule.kind, "")
        rows, pattern = self.rows[role], self.pattern(rule)
        keys: Int[Tensor, " row"] = pattern[rows].argmax(-1)
        sample = rows.nonzero()[:, 0]
        of_keys = torch.stack([self.batch.roles[name][0][sample, keys] for name in self._names], -1)
        found = set(map(tuple, of_keys.tolist()))
        if len(found) > 1:
            return "any"
        return self.words(dict(zip(self._names, found.pop(), strict=True)))
