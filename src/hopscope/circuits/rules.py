"""Rules of attention: which keys a row reads, said in roles and relations (paper, appendix E, step 2).

No rule but a matrix speaks of absolute positions.  `patterns` turns any rule into the attention patterns that it stands
for on a batch, for interventions and for the reader of circuits alike.
"""

from typing import Annotated, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.tasks import Batch

Roles = dict[str, int]
"""Rows by role: name → the integer that the role must have; an empty one means every row."""

Pattern = Float[Tensor, "member batch query key"]
Queries = Bool[Tensor, "member batch query"]

By = Literal["position", "symbol", "match"]
"""On what mean weights depend: on the positions of row and key alone; on the key's symbol too; or (`match`) on these
positions, the row's symbol, and whether the key holds that same symbol."""


class Uniform(Config):
    """All keys that the row may see, alike."""

    kind: Literal["uniform"] = "uniform"


class Identity(Config):
    """The row itself and nothing else."""

    kind: Literal["identity"] = "identity"


class Related(Config):
    """The row's partner under a relation of the batch, such as `previous` or `hop_2`."""

    kind: Literal["related"] = "related"
    relation: str


class OverRole(Config):
    """All visible tokens with the roles `keys`, alike: what attention by position alone can do at best."""

    kind: Literal["over_role"] = "over_role"
    keys: Roles


class OwnChain(Config):
    """The token of the row's own chain that has the roles `keys`, which exactly one token of a chain has."""

    kind: Literal["own_chain"] = "own_chain"
    keys: Roles


Single = Annotated[Related | OverRole | OwnChain | Identity, Field(discriminator="kind")]


class TwoTargets(Config):
    """Two targets at once; `share` of the attention is on the first."""

    kind: Literal["two_targets"] = "two_targets"
    first: Single
    second: Single
    share: float = Field(gt=0.0, lt=1.0)


class History(Config):
    """All visible tokens with the roles `keys`, each with the head's own mean weight for it, which depends on `by`.

    Without `keys` it is a *mean map*: the head's mean pattern at the rows of a role.
    """

    kind: Literal["history"] = "history"
    keys: Roles = {}
    by: By = "position"


class Matrix(Config):
    """Weights `[query][key]`; each row is scaled to a sum of 1 over the keys that it may see."""

    kind: Literal["matrix"] = "matrix"
    weights: tuple[tuple[Annotated[float, Field(ge=0.0)], ...], ...]


class Learned(Config):
    """The head's own softmax in the model as it is: no rule, but the lack of one ("unexplained")."""

    kind: Literal["learned"] = "learned"


Rule = Annotated[
    Uniform | Identity | Related | OverRole | OwnChain | TwoTargets | History | Matrix | Learned,
    Field(discriminator="kind"),
]

NOTHING = (Uniform(), Identity())
"""What a row does that reads nothing in particular."""

_FIRST_RELATIONS = ("previous", "pair_mate", "same_symbol")
_RANKS = {"uniform": 0, "identity": 1, "over_role": 5, "own_chain": 8, "matrix": 16, "learned": 17}
_LEAST_WEIGHT = 1e-30  # attention below this is as good as none; it keeps logarithms finite


def description_length(rule: Rule) -> tuple[int, ...]:
    """A rank by which rules are ordered, the simplest first."""
    if isinstance(rule, Related):
        if rule.relation in _FIRST_RELATIONS:
            return (2 + _FIRST_RELATIONS.index(rule.relation),)
        hops = rule.relation.removeprefix("hop_")
        return (6, int(hops)) if hops.isdecimal() else (7,)
    if isinstance(rule, TwoTargets):
        return (9, *description_length(rule.first), *description_length(rule.second))
    if isinstance(rule, History):
        return (10 + 2 * get_args(By).index(rule.by) + (not rule.keys),)
    return (_RANKS[rule.kind],)


def reads_nothing(rule: Rule) -> bool:
    """Whether a row under this rule is outside of any circuit."""
    return isinstance(rule, Uniform | Identity)


def is_sharp(rule: Rule) -> bool:
    """Whether a row reads some keys rather than others: something in particular, and not by a mean map."""
    return not reads_nothing(rule) and (not isinstance(rule, History) or bool(rule.keys))


def said(rule: Rule) -> str:
    """A rule in a word or two, such as `hop_2` or `history by symbol`."""
    if isinstance(rule, Related):
        return rule.relation
    if isinstance(rule, TwoTargets):
        return f"{said(rule.first)} {rule.share:.0%} + {said(rule.second)}"
    if isinstance(rule, History):
        name = rule.kind if rule.keys else "mean_map"
        return name if rule.by == "position" else f"{name} by {rule.by}"
    return rule.kind


# On a batch.


def selected(batch: Batch, roles: Roles) -> Bool[Tensor, "member batch position"]:
    """Rows that have all these roles; an unknown role is a `UserError`."""
    rows = torch.ones(batch.inputs.shape[:3], dtype=torch.bool, device=batch.inputs.device)
    for name, value in roles.items():
        if name not in batch.roles:
            raise UserError(f"role: expected one of {sorted(batch.roles)}, found {name!r}")
        rows = rows & (batch.roles[name] == value)
    return rows


def related(batch: Batch, relation: str) -> Int[Tensor, "member batch position"]:
    """Partner of every position under a relation; an unknown one is a `UserError`."""
    if relation not in batch.relations:
        raise UserError(f"relation: expected one of {sorted(batch.relations)}, found {relation!r}")
    return batch.relations[relation]


def visible(batch: Batch, causal: bool) -> Bool[Tensor, "query key"]:
    """Keys that each query may see."""
    positions = batch.inputs.shape[2]
    everything = torch.ones(positions, positions, dtype=torch.bool, device=batch.inputs.device)
    return everything.tril() if causal else everything


def same_chain(batch: Batch) -> Bool[Tensor, "member batch query key"]:
    """Whether two positions are of one chain (below 0: of none); a batch without chains is a `UserError`."""
    if "chain" not in batch.roles:
        raise UserError(f"role: expected 'chain' among {sorted(batch.roles)}, found none; own_chain needs it")
    chain = batch.roles["chain"]
    return (chain[..., :, None] == chain[..., None, :]) & (chain >= 0)[..., None]


def patterns(
    rule: Rule, batch: Batch, causal: bool, own: Pattern | None = None, rows: Queries | None = None
) -> tuple[Pattern, Queries]:
    """The attention patterns of a rule, and on which rows it leads somewhere; the other rows read themselves.

    `UserError`: the batch lacks a role or relation, or has another length than a matrix.

    Args:
        batch: samples with a member axis, whose roles and relations are meant.
        causal: whether rows see earlier positions and themselves only.
        own: patterns of one head in the model as it is, which `Learned` and `History` need.
        rows: over which mean weights are taken; needed with `own`.
    """
    keys = _keys(rule, batch, causal, own, rows)
    total = keys.sum(-1, keepdim=True)
    exists = total[..., 0] > 0
    itself = torch.eye(keys.shape[-1], device=keys.device)
    return torch.where(exists[..., None], keys / torch.where(total > 0, total, 1.0), itself), exists


def _keys(rule: Rule, batch: Batch, causal: bool, own: Tensor | None, rows: Tensor | None) -> Tensor:
    # Keys that a rule reads, with weights; none where it leads nowhere.
    if isinstance(rule, TwoTargets):
        (first, one), (second, other) = (patterns(each, batch, causal) for each in (rule.first, rule.second))
        return (rule.share * first + (1.0 - rule.share) * second) * (one & other)[..., None]
    if isinstance(rule, Learned | History):
        assert own is not None and rows is not None
        if isinstance(rule, Learned):
            return own
        of_members = zip(own, rows, batch.inputs.expand(len(own), *batch.inputs.shape[1:]), strict=True)
        weights = torch.stack([_mean_weights(rule.by, *each) for each in of_members])
        return weights * selected(batch, rule.keys)[:, :, None]
    found, length = visible(batch, causal), batch.inputs.shape[2]
    here = torch.arange(length, device=found.device)
    if isinstance(rule, Matrix):
        sizes = [len(row) for row in rule.weights]
        if sizes != [length] * length:
            raise UserError(f"matrix: expected shape {(length, length)}, found rows of {sizes} numbers")
        found = torch.tensor(rule.weights, device=found.device).where(found, 0.0)
    elif isinstance(rule, Identity):
        found = found & (here[:, None] == here)
    elif isinstance(rule, Related):
        found = found & (related(batch, rule.relation)[..., None] == here)
    elif isinstance(rule, OverRole | OwnChain):
        found = found & selected(batch, rule.keys)[:, :, None]
        found = found & same_chain(batch) if isinstance(rule, OwnChain) else found
    return found.expand(*batch.inputs.shape[:2], -1, -1).float()


def _mean_weights(by: By, own: Tensor, rows: Tensor, inputs: Tensor) -> Tensor:
    # Of one member, over the samples in which the row at a position is one of `rows`; zeros for other rows.
    symbols = torch.zeros_like(rows, dtype=torch.int64) if by == "position" else inputs
    if symbols.is_floating_point():
        raise UserError(f"by: expected 'position' for inputs that are vectors, found {by!r}")
    if by == "match":
        return _weights_by_match(own, rows, symbols)
    chosen, holds = rows.to(own.dtype), functional.one_hot(symbols).to(own.dtype)
    total = torch.einsum("bqk,bq,bks->qks", own, chosen, holds)
    table = total / torch.einsum("bq,bks->qks", chosen, holds).clamp(min=1.0)
    return torch.einsum("qks,bks,bq->bqk", table, holds, chosen)


def _weights_by_match(own: Tensor, rows: Tensor, inputs: Tensor) -> Tensor:
    # How much a row attends to one key depends on all its keys.  So scores of (the row's position and symbol, the key's
    # position, whether it has the same symbol) are averaged and not weights: those that come nearest to the logarithm
    # of the attention, up to a constant for each row, by least squares.
    found, (samples, queries) = torch.zeros_like(own), rows.nonzero(as_tuple=True)
    kinds = torch.stack([queries, inputs[samples, queries]])
    for query, symbol in kinds.unique(dim=1).T.tolist():
        of = samples[(queries == query) & (inputs[samples, queries] == symbol)]
        attention = own[of, query].double()
        seen = (attention > 0).any(0).nonzero()[:, 0]
        cells = 2 * torch.arange(len(seen), device=own.device) + (inputs[of][:, seen] == symbol)
        cells = functional.one_hot(cells, 2 * len(seen)).double()
        logs = attention[:, seen, None].clamp(min=_LEAST_WEIGHT).log()
        given, wanted = ((each - each.mean(1, keepdim=True)).flatten(0, 1) for each in (cells, logs))
        scores = torch.linalg.pinv(given.T @ given, rtol=1e-9, hermitian=True) @ (given.T @ wanted)
        found[of[:, None], query, seen] = torch.softmax((cells @ scores)[..., 0], -1).to(own.dtype)
    return found
