"""The grammar of attention on a task that a user wrote: rules in the words of its roles, and in its own relations."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.circuits.declared_rows import CHAIN, PREVIOUS, Rows
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import (
    By,
    History,
    Identity,
    OverRole,
    OwnChain,
    Related,
    Rule,
    TwoTargets,
    Uniform,
)
from hopscope.models.edits import selected
from hopscope.models.interventions import Roles
from hopscope.tasks.batch import Batch

_MOST_SYMBOLS = 64
"""Vocabulary up to which a head's mean weights are told apart by symbol: every symbol must be seen often enough."""


class DeclaredGrammar(Grammar):
    """The rules for one batch of a user's task; see `Grammar`.

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

    def _weights_by(self) -> tuple[By, ...]:
        few = self.batch.inputs.is_floating_point() or int(self.batch.inputs.max()) < _MOST_SYMBOLS
        return super()._weights_by() if few else ("position",)

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
