"""The pattern language: what a row of attention reads, said in roles and relations.

One set of values says it everywhere: a `ReplacePattern` puts a rule in place of what a head does, a clamp keeps it
there while a model is trained, and a circuit that was read is a rule for every row (paper, appendix E, step 2).  Rules
never speak of absolute positions; on a batch they are *resolved* into patterns, sample by sample (`resolving`).  Two
rules that resolve to the same patterns on the rows of a role are the same read, and the simpler name is kept: on the
second token of a pair `previous` and `pair_mate` are one.

By description length: uniform, identity, previous token, pair mate, same symbol, uniform over a role, one token of the
own chain, two targets, all tokens with a role weighted by position, the head's mean map by position, both by position
and symbol, both by match, and the head's own softmax, which is no rule but the lack of one.
"""

from typing import Annotated, Literal, get_args

from pydantic import Field

from hopscope.config import Config

Roles = dict[str, int]
"""Rows by role: name → the integer that the role must have; an empty one means every row."""


class Uniform(Config):
    """All keys that the row may see, alike."""

    kind: Literal["uniform"] = "uniform"


class Identity(Config):
    """Each row reads itself and nothing else."""

    kind: Literal["identity"] = "identity"


class Related(Config):
    """The row's partner under a relation of the batch.

    Attributes:
        relation: its name, such as `previous`, `pair_mate`, `same_symbol` or `hop_2`.
    """

    kind: Literal["related"] = "related"
    relation: str


class OverRole(Config):
    """All visible tokens with certain roles, alike: what attention by position alone can do at best.

    Attributes:
        keys: their roles.
    """

    kind: Literal["over_role"] = "over_role"
    keys: Roles


class OwnChain(Config):
    """The token of the row's own chain that has certain roles.

    Attributes:
        keys: roles that exactly one token of a chain has.
    """

    kind: Literal["own_chain"] = "own_chain"
    keys: Roles


By = Literal["position", "symbol", "match"]
"""On what mean weights depend: on the positions of row and key alone; on the key's symbol too; or (`match`) on these
positions, the row's symbol, and whether the key holds that same symbol."""


class History(Config):
    """All visible tokens with certain roles, each with the head's own mean weight for it.

    Attributes:
        keys: their roles.
        by: what the weights depend on.
    """

    kind: Literal["history"] = "history"
    keys: Roles
    by: By = "position"


class MeanMap(Config):
    """The head's own mean pattern at the rows of a role, over a reference batch: what it does whatever the row holds.

    Attributes:
        by: what the weights depend on.
    """

    kind: Literal["mean_map"] = "mean_map"
    by: By = "position"


Single = Annotated[Related | OverRole | OwnChain | Identity, Field(discriminator="kind")]
"""What one of two targets can be."""


class TwoTargets(Config):
    """Two targets at once.

    Attributes:
        first, second: the targets.
        share: of the attention on the first; the rest is on the second.
    """

    kind: Literal["two_targets"] = "two_targets"
    first: Single
    second: Single
    share: float = Field(gt=0.0, lt=1.0)


class Learned(Config):
    """The head's own softmax, in the model as it is.  A circuit with such a path is not explained."""

    kind: Literal["learned"] = "learned"


Rule = Annotated[
    Uniform | Identity | Related | OverRole | OwnChain | TwoTargets | History | MeanMap | Learned,
    Field(discriminator="kind"),
]
"""A rule of any kind."""

NOTHING = (Uniform(), Identity())
"""What a row does that reads nothing in particular."""

_FIRST_RELATIONS = ("previous", "pair_mate", "same_symbol")


def description_length(rule: Rule) -> tuple[int, ...]:
    """A rank by which rules are ordered, the simplest first; see the module."""
    if isinstance(rule, Uniform):
        return (0,)
    if isinstance(rule, Identity):
        return (1,)
    if isinstance(rule, Related):
        if rule.relation in _FIRST_RELATIONS:
            return (2 + _FIRST_RELATIONS.index(rule.relation),)
        hops = rule.relation.removeprefix("hop_")
        return (6, int(hops)) if hops.isdecimal() else (7,)
    if isinstance(rule, OverRole):
        return (5,)
    if isinstance(rule, OwnChain):
        return (8,)
    if isinstance(rule, TwoTargets):
        return (9, *description_length(rule.first), *description_length(rule.second))
    if isinstance(rule, History | MeanMap):
        return (10 + isinstance(rule, MeanMap) + 2 * get_args(By).index(rule.by),)
    return (16,)


def weights_by(rule: Rule) -> By | None:
    """On what the weights depend that a rule takes from a head's mean pattern; `None` if it takes none."""
    return rule.by if isinstance(rule, History | MeanMap) else None


def reads_nothing(rule: Rule) -> bool:
    """Whether a row under this rule is outside of any circuit."""
    return isinstance(rule, Uniform | Identity)


def said(rule: Rule) -> str:
    """A rule in a word or two; what it reads is told by its target."""
    if isinstance(rule, Related):
        return rule.relation
    if isinstance(rule, TwoTargets):
        return f"{said(rule.first)} {rule.share:.0%} + {said(rule.second)}"
    by = weights_by(rule)
    return rule.kind if by in (None, "position") else f"{rule.kind} by {by}"
