"""Rules on a batch: which there are for the rows of a role, and the attention patterns that they stand for."""

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.circuits.rules import (
    Identity,
    OverRole,
    OwnChain,
    Related,
    Rule,
    TwoTargets,
    Uniform,
    description_length,
)
from hopscope.models.edits import selected, visible_keys
from hopscope.models.interventions import Roles
from hopscope.tasks.batch import Batch

ROW_ROLES = ("kind", "step", "node", "slot", "repeat")
"""Roles by which rows are told apart, of those that a batch has.  The chain and the place are not among them: what a
row does may not depend on which of the equal chains it is on."""

_LEAST_EXISTING = 0.9
"""Share of a role's rows on which a rule must lead somewhere.  (The very first token has no previous one.)"""


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
        self.visible: Bool[Tensor, "query key"] = visible_keys(
            batch.inputs.shape[2], causal, batch.inputs.device
        )
        self._names = [name for name in ROW_ROLES if name in batch.roles]
        self.roles = self._found_roles()
        self.rows: Bool[Tensor, "role batch query"] = torch.stack(
            [selected(batch, roles)[0] for roles in self.roles]
        )
        self._resolved: dict[str, tuple[Tensor, Tensor]] = {}
        self._of_role: dict[int, list[Rule]] = {}

    def _found_roles(self) -> list[Roles]:
        values = torch.stack([self.batch.roles[name][0] for name in self._names], -1)
        seen = dict.fromkeys(map(tuple, values.transpose(0, 1).flatten(0, 1).tolist()))
        return [dict(zip(self._names, combination, strict=True)) for combination in seen]

    # Patterns.

    def pattern(self, rule: Rule) -> Float[Tensor, "batch query key"]:
        """The attention pattern that a rule stands for; rows on which it leads nowhere read themselves.

        Raises:
            ValueError: the rule is a mean map or a head's own softmax, which depend on the head.
        """
        return self._resolve(rule)[0]

    def _resolve(self, rule: Rule) -> tuple[Float[Tensor, "batch query key"], Bool[Tensor, "batch query"]]:
        """The pattern, and on which rows the rule leads somewhere."""
        name = rule.model_dump_json()
        if name not in self._resolved:
            keys = self._keys(rule)
            total = keys.sum(-1, keepdim=True)
            exists = total[..., 0] > 0
            itself = torch.eye(keys.shape[-1], device=keys.device)
            self._resolved[name] = (
                torch.where(exists[..., None], keys / total.clamp(min=1e-9), itself),
                exists,
            )
        return self._resolved[name]

    def _keys(self, rule: Rule) -> Float[Tensor, "batch query key"]:
        """Keys that a rule reads, with weights; none where it leads nowhere."""
        samples, positions = self.batch.inputs.shape[1:3]
        if isinstance(rule, Uniform):
            found = self.visible
        elif isinstance(rule, Identity):
            found = torch.eye(positions, dtype=torch.bool, device=self.visible.device)
        elif isinstance(rule, Related):
            key = self.batch.relations[rule.relation][0]
            found = torch.arange(positions, device=key.device) == key[..., None]
        elif isinstance(rule, OverRole):
            found = selected(self.batch, rule.keys)[0][:, None, :]
        elif isinstance(rule, OwnChain):
            chain = self.batch.roles["chain"][0]
            found = selected(self.batch, rule.keys)[0][:, None, :] & (chain[:, :, None] == chain[:, None, :])
        elif isinstance(rule, TwoTargets):
            return self._both(rule)
        else:
            raise ValueError(f"rule: expected one that roles and relations tell, found {rule.kind!r}")
        return (found & self.visible).expand(samples, -1, -1).float()

    def _both(self, rule: TwoTargets) -> Float[Tensor, "batch query key"]:
        (first, one), (second, other) = self._resolve(rule.first), self._resolve(rule.second)
        return (rule.share * first + (1.0 - rule.share) * second) * (one & other)[..., None]

    # Candidates.

    def rules(self, role: int) -> list[Rule]:
        """Rules for the rows of a role, without those of two targets: each read once, the simplest first."""
        if role not in self._of_role:
            self._of_role[role] = self._distinct(role, self._conceivable())
        return self._of_role[role]

    def _conceivable(self) -> list[Rule]:
        rules: list[Rule] = [Uniform(), Identity()]
        rules += [Related(relation=name) for name in self.batch.relations]
        rules += [OverRole(keys=roles) for roles in self.roles]
        if "chain" in self.batch.roles:
            rules += [OwnChain(keys=roles) for roles in self.roles if self._once_a_chain(roles)]
        return sorted(rules, key=description_length)

    def _once_a_chain(self, roles: Roles) -> bool:
        chain = self.batch.roles["chain"][0]
        has = selected(self.batch, roles)[0]
        same = (chain[:, :, None] == chain[:, None, :]) & has[:, None, :]
        return bool((same.sum(-1)[has] == 1).all())

    def _distinct(self, role: int, rules: Sequence[Rule]) -> list[Rule]:
        rows = self.rows[role]
        kept: list[tuple[Rule, Tensor]] = []
        for rule in rules:
            pattern, exists = self._resolve(rule)
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

    def distance(self, role: int, rule: Rule, own: Float[Tensor, "batch query key"]) -> float:
        """Total variation between a head's pattern and a rule's, mean over the rows of a role: 0 … 1."""
        rows = self.rows[role]
        return float((own[rows] - self.pattern(rule)[rows]).abs().sum(-1).mean()) / 2.0

    # Words.

    def words(self, roles: Roles) -> str:
        """A role in words, such as `second 2` or `query`."""
        parts = [
            self._words[name][value] if name in self._words else str(value)
            for name, value in roles.items()
            if name != "slot" or "node" not in roles
        ]
        return " ".join(part for part in parts if part != "0")

    def target(self, role: int, rule: Rule) -> str:
        """What the rows of a role read under a rule, in words."""
        if isinstance(rule, TwoTargets):
            return f"{self.target(role, rule.first)} + {self.target(role, rule.second)}"
        if isinstance(rule, OverRole):
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
