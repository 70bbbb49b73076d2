"""What roles, relations, sites and rules mean on a batch: positions, rows, and attention patterns.

Edits of a model, clamps in training and the circuit reader all use this module, so a rule is the same pattern for all.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models.interventions import Site
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
    weights_by,
)
from hopscope.tasks.batch import Batch

Patterns = Float[Tensor, "member batch query key"]

_LEAST_WEIGHT = 1e-30
"""Attention below this is as good as none; it keeps logarithms finite."""


def visible_keys(positions: int, causal: bool, device: torch.device) -> Bool[Tensor, "query key"]:
    """Keys that each query may see."""
    everything = torch.ones(positions, positions, dtype=torch.bool, device=device)
    return everything.tril() if causal else everything


def selected(batch: Batch, roles: Roles) -> Bool[Tensor, "member batch position"]:
    """Rows that have all these roles.

    Raises:
        ValueError: the batch has no such role.
    """
    rows = torch.ones(batch.inputs.shape[:3], dtype=torch.bool, device=batch.inputs.device)
    for name, value in roles.items():
        rows = rows & (role(batch, name) == value)
    return rows


def role(batch: Batch, name: str) -> Int[Tensor, "member batch position"]:
    """The role of this name, of every position.

    Raises:
        ValueError: the batch has no such role.
    """
    if name not in batch.roles:
        raise ValueError(f"role: expected one of {sorted(batch.roles)}, found {name!r}")
    return batch.roles[name]


def related(batch: Batch, relation: str) -> Int[Tensor, "member batch position"]:
    """Partner of every position under a relation.

    Raises:
        ValueError: the batch has no such relation.
    """
    if relation not in batch.relations:
        raise ValueError(f"relation: expected one of {sorted(batch.relations)}, found {relation!r}")
    return batch.relations[relation]


def located(batch: Batch, site: Site) -> Int[Tensor, "member batch"]:
    """Position of a site in every sample, -1 where its relation leads nowhere.

    Raises:
        ValueError: the roles do not pick exactly one position of every sample.
    """
    rows = selected(batch, site.roles)
    if not bool((rows.sum(-1) == 1).all()):
        raise ValueError(
            f"site: expected roles that exactly one position of every sample has, found {site.roles}"
        )
    position = rows.int().argmax(-1)
    if site.relation is None:
        return position
    return related(batch, site.relation).gather(-1, position[..., None])[..., 0]


class Resolved:
    """The patterns that rules stand for on one batch; those without mean weights are worked out once.

    Attributes:
        batch: annotated samples.
        visible: keys that each query may see.
    """

    def __init__(self, batch: Batch, *, causal: bool):
        self.batch = batch
        self.visible = visible_keys(batch.inputs.shape[2], causal, batch.inputs.device)
        self._known: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(
        self, rule: Rule, mean: Patterns | None = None
    ) -> tuple[Patterns, Bool[Tensor, "member batch query"]]:
        """The pattern of a rule, and on which rows it leads somewhere; the other rows read themselves.

        Args:
            rule: any but a head's own softmax.
            mean: the head's mean weights (`mean_weights`), for rules that take them (`weights_by`).

        Raises:
            ValueError: the rule is a head's own softmax, the mean weights are missing, or the batch lacks a role or
                relation.
        """
        name = rule.model_dump_json()
        if name in self._known:
            return self._known[name]
        keys = self._keys(rule, mean)
        total = keys.sum(-1, keepdim=True)
        exists = total[..., 0] > 0
        itself = torch.eye(keys.shape[-1], device=keys.device)
        found = torch.where(exists[..., None], keys / total.clamp(min=1e-9), itself), exists
        if weights_by(rule) is None:
            self._known[name] = found
        return found

    def _keys(self, rule: Rule, mean: Patterns | None) -> Patterns:
        """Keys that a rule reads, with weights; none where it leads nowhere."""
        batch, positions = self.batch, self.batch.inputs.shape[2]
        if isinstance(rule, Uniform):
            found = self.visible
        elif isinstance(rule, Identity):
            found = torch.eye(positions, dtype=torch.bool, device=self.visible.device)
        elif isinstance(rule, Related):
            key = related(batch, rule.relation)
            found = torch.arange(positions, device=key.device) == key[..., None]
        elif isinstance(rule, OverRole):
            found = selected(batch, rule.keys)[:, :, None, :]
        elif isinstance(rule, OwnChain):
            found = selected(batch, rule.keys)[:, :, None, :] & self.same_chain
        elif isinstance(rule, TwoTargets):
            (first, one), (second, other) = self(rule.first, mean), self(rule.second, mean)
            return (rule.share * first + (1.0 - rule.share) * second) * (one & other)[..., None]
        elif isinstance(rule, History | MeanMap) and mean is not None:
            # Mean weights are zero wherever a row sees nothing.
            keys = selected(batch, rule.keys if isinstance(rule, History) else {})
            return mean * keys[:, :, None, :]
        else:
            raise ValueError(f"rule: expected one that roles and relations tell, found {rule.kind!r}")
        return (found & self.visible).expand(*batch.inputs.shape[:2], -1, -1).float()

    @property
    def same_chain(self) -> Bool[Tensor, "member batch query key"]:
        """Whether two positions are of one chain."""
        chain = role(self.batch, "chain")
        return chain[..., :, None] == chain[..., None, :]


def mean_weights(
    by: By,
    own: Float[Tensor, "batch query key"],
    rows: Bool[Tensor, "batch query"],
    inputs: Int[Tensor, "batch position"] | Float[Tensor, "batch position feature"],
) -> Float[Tensor, "batch query key"]:
    """A head's mean weights, over the samples in which the row at a position is one of some; zeros for other rows.

    Args:
        by: whether keys with different symbols have weights of their own, or keys with the row's own symbol.
        own: the head's patterns.
        rows: the rows.
        inputs: of the same samples of one member; tokens, unless it is by position.
    """
    chosen = rows.float()
    if by == "position":
        mean = torch.einsum("bqk,bq->qk", own, chosen) / chosen.sum(0).clamp(min=1.0)[:, None]
        return mean * rows[..., None]
    if by == "match":
        return _weights_by_match(own, rows, inputs)
    holds = functional.one_hot(inputs).float()
    total = torch.einsum("bqk,bq,bks->qks", own, chosen, holds)
    table = total / torch.einsum("bq,bks->qks", chosen, holds).clamp(min=1.0)
    return torch.einsum("qks,bks,bq->bqk", table, holds, chosen)


def _weights_by_match(
    own: Float[Tensor, "batch query key"],
    rows: Bool[Tensor, "batch query"],
    inputs: Int[Tensor, "batch position"],
) -> Float[Tensor, "batch query key"]:
    """Weights from scores of (the row's position and symbol, the key's position, whether it has the same symbol).

    How much a row attends to one key depends on all its keys.  So scores are averaged and not weights: those that come
    nearest to the logarithm of the attention, up to a constant for each row, by least squares.
    """
    found = torch.zeros_like(own)
    samples, queries = rows.nonzero(as_tuple=True)
    kinds = torch.stack([queries, inputs[samples, queries]])
    for query, symbol in kinds.unique(dim=1).T.tolist():
        of = samples[(queries == query) & (inputs[samples, queries] == symbol)]
        attention = own[of, query].double()
        seen = (attention > 0).any(0).nonzero()[:, 0]
        same = (inputs[of][:, seen] == symbol).long()
        logs = attention[:, seen].clamp(min=_LEAST_WEIGHT).log()
        cells = functional.one_hot(2 * torch.arange(len(seen)) + same, 2 * len(seen)).double()
        # Centred over the keys of a row, its constant is gone.
        given, wanted = (each - each.mean(1, keepdim=True) for each in (cells, logs[..., None]))
        scores = torch.linalg.lstsq(given.flatten(0, 1), wanted.flatten(0, 1), driver="gelsd").solution
        weights = torch.softmax((cells @ scores)[..., 0], -1)
        found[of[:, None], query, seen] = weights.to(own.dtype)
    return found
