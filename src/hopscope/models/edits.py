"""Lowering: interventions and a batch in, tensors of fixed shape out.

Every kind of intervention has its tensors in every `Edits`, switched off where it is not used, so that the forward
pass holds no branch on what is being edited, many variants run in one pass, and compiled code stays compiled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    Intervention,
    ReplacePattern,
    Roles,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.tasks.batch import Batch

SYMBOL, POSITION, STREAM = range(3)
_COMPONENT = {"symbol": SYMBOL, "position": POSITION, "stream": STREAM}
KEPT, ZERO, MEAN, RESAMPLED = range(4)
_ABLATION = {"zero": ZERO, "mean": MEAN, "resample": RESAMPLED}


@dataclass(frozen=True)
class Means:
    """Means over a reference batch, position by position: what a mean ablation puts in place.

    Attributes:
        patterns: attention patterns.
        heads: head outputs before the output projection.
        mlps: MLP outputs.
    """

    patterns: Float[Tensor, "member layer head query key"]
    heads: Float[Tensor, "member layer head query head_dim"]
    mlps: Float[Tensor, "member layer query model"]


@dataclass(frozen=True)
class Edits:
    """Interventions, lowered.  A `#member` axis is 1 or full; where a switch is off its values are unused.

    The tensors of a kind that no variant uses are expanded from a single row: they have their shape, but no memory.

    Attributes:
        pattern_on, pattern: rows of attention patterns that are replaced, and by what.
        weight_source: key whose attention weight each key is given.
        equal: keys whose attention weights become their mean.
        value_on: heads that read edited values.
        value_source: position that stands in for each position in the value path; components symbol, position
            code, stream.
        head_by, mlp_by: what becomes of head and MLP outputs, row by row: `KEPT`, `ZERO`, `MEAN` or `RESAMPLED`.
        head_mean, mlp_mean: what stands in for the `MEAN` ones.
        donor: sample of the batch that a resample ablation reads from.
    """

    pattern_on: Bool[Tensor, "#member variant batch layer head query"]
    pattern: Float[Tensor, "#member variant batch layer head query key"]
    weight_source: Int[Tensor, "#member variant batch layer head query key"]
    equal: Bool[Tensor, "#member variant batch layer head query key"]
    value_on: Bool[Tensor, "variant layer head"]
    value_source: Int[Tensor, "#member variant batch layer 3 position"]
    head_by: Int[Tensor, "#member variant batch layer head query"]
    head_mean: Float[Tensor, "#member layer head query head_dim"]
    mlp_by: Int[Tensor, "#member variant batch layer query"]
    mlp_mean: Float[Tensor, "#member layer query model"]
    donor: Int[Tensor, "#member batch"]

    @property
    def variants(self) -> int:
        """Number of variants."""
        return self.value_on.shape[0]


def lower(
    variants: Sequence[Sequence[Intervention]],
    config: TransformerConfig,
    batch: Batch,
    *,
    means: Means | None = None,
    donor: Int[Tensor, "#member batch"] | None = None,
) -> Edits:
    """Turn lists of interventions, one list per variant, into tensors for this batch.

    Args:
        variants: what each variant changes; an empty list is the clean run.  Within one variant a later
            intervention on the same rows wins.
        config: of the transformer that will be edited.
        batch: the samples; its roles and relations say which rows are meant.
        means: needed by every `"mean"`.
        donor: sample that each sample resamples from; by default the next one of the batch.

    Raises:
        ValueError: a layer, head, role or relation does not exist, a site is not one position, means are missing,
            or one variant swaps different values for different heads of one layer.
    """
    if donor is None:
        donor = torch.arange(batch.inputs.shape[1], device=batch.inputs.device).roll(-1)[None]
    lowering = _Lowering(config, batch, means, len(variants))
    for number, interventions in enumerate(variants):
        for intervention in interventions:
            lowering.add(number, intervention)
    return lowering.edits(donor)


class _Lowering:
    """Edits under construction, all switches off at first."""

    def __init__(self, config: TransformerConfig, batch: Batch, means: Means | None, variants: int):
        self.config, self.batch, self.means = config, batch, means
        self._owned: set[str] = set()
        members, samples, positions = batch.inputs.shape[:3]
        device = batch.inputs.device
        lead = (members, variants, samples, config.layers)
        heads, size, width = config.heads, config.head_size, config.width
        most = members if means is None else max(members, means.heads.shape[0])
        off = torch.zeros((), dtype=torch.bool, device=device)
        kept = torch.tensor(KEPT, dtype=torch.int8, device=device)
        here = torch.arange(positions, device=device)
        self.pattern_on = off.expand(*lead, heads, positions)
        self.pattern = torch.zeros((), device=device).expand(most, *lead[1:], heads, positions, positions)
        self.weight_source = here.expand(*lead, heads, positions, positions)
        self.equal = off.expand(*lead, heads, positions, positions)
        self.value_on = torch.zeros(variants, config.layers, heads, dtype=torch.bool, device=device)
        self.value_source = here.expand(*lead, 3, positions)
        self.head_by = kept.expand(*lead, heads, positions)
        self.mlp_by = kept.expand(*lead, positions)
        if means is None:
            self.head_mean = torch.zeros(1, config.layers, heads, positions, size, device=device)
            self.mlp_mean = torch.zeros(1, config.layers, positions, width, device=device)
        else:
            self.head_mean, self.mlp_mean = means.heads, means.mlps

    def edits(self, donor: Tensor) -> Edits:
        return Edits(
            self.pattern_on, self.pattern, self.weight_source, self.equal, self.value_on, self.value_source,
            self.head_by, self.head_mean, self.mlp_by, self.mlp_mean, donor,
        )  # fmt: skip

    def _writable(self, name: str) -> Tensor:
        """The tensor of this name, with memory of its own from the first time on."""
        tensor: Tensor = getattr(self, name)
        if name not in self._owned:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            setattr(self, name, tensor)
            self._owned.add(name)
        return tensor

    def add(self, variant: int, intervention: Intervention) -> None:
        if intervention.layer >= self.config.layers:
            raise ValueError(f"layer: expected 0 to {self.config.layers - 1}, found {intervention.layer}")
        if isinstance(intervention, ReplacePattern):
            self._replace_pattern(variant, intervention)
        elif isinstance(intervention, SwapAttention):
            self._swap_attention(variant, intervention)
        elif isinstance(intervention, EqualizeAttention):
            self._equalize_attention(variant, intervention)
        elif isinstance(intervention, SwapValues):
            self._swap_values(variant, intervention)
        elif isinstance(intervention, AblateHead):
            self._ablate_head(variant, intervention)
        else:
            self._ablate_mlp(variant, intervention)

    def _heads(self, heads: tuple[int, ...] | None) -> list[int]:
        chosen = list(range(self.config.heads)) if heads is None else list(heads)
        if not chosen or not all(0 <= head < self.config.heads for head in chosen):
            raise ValueError(f"heads: expected some of 0 to {self.config.heads - 1}, found {heads}")
        return chosen

    def _replace_pattern(self, variant: int, by: ReplacePattern) -> None:
        rows = selected(self.batch, by.rows)
        if by.by == "mean":
            replacement = self._needed_means().patterns[:, by.layer, :, None].movedim(1, 0)
        else:
            replacement, exists = self._rows_of(by)
            rows = rows & exists
        on, pattern = self._writable("pattern_on"), self._writable("pattern")
        for head in self._heads(by.heads):
            where = (slice(None), variant, slice(None), by.layer, head)
            on[where] |= rows
            new = replacement[head] if by.by == "mean" else replacement
            pattern[where] = torch.where(rows[..., None], new, pattern[where])

    def _rows_of(self, by: ReplacePattern) -> tuple[Tensor, Tensor]:
        """Replacement `[member, batch, query, key]` and whether each row `[member, batch, query]` has one."""
        positions = self.batch.inputs.shape[2]
        everywhere = torch.ones(
            self.batch.inputs.shape[:3], dtype=torch.bool, device=self.batch.inputs.device
        )
        visible = self._visible()
        if by.by == "identity":
            return torch.eye(positions, device=everywhere.device).expand(*everywhere.shape, -1), everywhere
        if by.by == "matrix":
            matrix = torch.tensor(by.matrix, dtype=torch.float32, device=everywhere.device)
            if matrix.shape != (positions, positions):
                raise ValueError(
                    f"matrix: expected shape {(positions, positions)}, found {tuple(matrix.shape)}"
                )
            return matrix.expand(*everywhere.shape[:2], -1, -1), everywhere
        if by.by == "one_hot":
            key = related(self.batch, by.relation or "")
            seen = visible[torch.arange(positions, device=key.device), key.clamp(min=0)]
            return torch.nn.functional.one_hot(key.clamp(min=0), positions).float(), (key >= 0) & seen
        keys = (visible & selected(self.batch, by.keys)[:, :, None, :]).float()
        total = keys.sum(-1, keepdim=True)
        return keys / total.clamp(min=1.0), total[..., 0] > 0

    def _swap_attention(self, variant: int, swap: SwapAttention) -> None:
        first, second = located(self.batch, swap.first), located(self.batch, swap.second)
        both = ((first >= 0) & (second >= 0))[..., None]
        first, second = first.clamp(min=0), second.clamp(min=0)
        seen_by = self._visible().T
        rows = selected(self.batch, swap.rows) & both & seen_by[first] & seen_by[second]
        source = self._writable("weight_source")
        for head in self._heads(swap.heads):
            where = (slice(None), variant, slice(None), swap.layer, head)
            swapped = _exchanged(source[where], first[..., None], second[..., None])
            source[where] = torch.where(rows[..., None], swapped, source[where])

    def _equalize_attention(self, variant: int, equal: EqualizeAttention) -> None:
        keys = self._visible() & selected(self.batch, equal.keys)[:, :, None, :]
        rows = selected(self.batch, equal.rows) & keys.any(-1)
        on = self._writable("equal")
        for head in self._heads(equal.heads):
            where = (slice(None), variant, slice(None), equal.layer, head)
            on[where] = torch.where(rows[..., None], keys, on[where])

    def _visible(self) -> Tensor:
        return visible_keys(self.batch.inputs.shape[2], self.config.causal, self.batch.inputs.device)

    def _swap_values(self, variant: int, swap: SwapValues) -> None:
        heads = self._heads(swap.heads)
        chosen = torch.zeros(self.config.heads, dtype=torch.bool, device=self.value_on.device)
        chosen[heads] = True
        present = self.value_on[variant, swap.layer]
        if bool(present.any()) and not torch.equal(present, chosen):
            raise ValueError(
                f"swap_values: expected the same heads for every swap of layer {swap.layer} in one variant, "
                f"found {heads}; put the swaps into different variants"
            )
        self.value_on[variant, swap.layer] = chosen
        first, second = located(self.batch, swap.first), located(self.batch, swap.second)
        both = ((first >= 0) & (second >= 0))[..., None]
        where = (slice(None), variant, slice(None), swap.layer, _COMPONENT[swap.what])
        source = self._writable("value_source")
        swapped = _exchanged(source[where], first.clamp(min=0), second.clamp(min=0))
        source[where] = torch.where(both, swapped, source[where])

    def _ablate_head(self, variant: int, ablation: AblateHead) -> None:
        rows = selected(self.batch, ablation.rows)
        for head in self._heads(ablation.heads):
            self._ablate(self._writable("head_by")[:, variant, :, ablation.layer, head], rows, ablation.by)

    def _ablate_mlp(self, variant: int, ablation: AblateMLP) -> None:
        if not self.config.mlp_size:
            raise ValueError("ablate_mlp: expected a model with an MLP, found mlp_ratio = 0")
        rows = selected(self.batch, ablation.rows)
        self._ablate(self._writable("mlp_by")[:, variant, :, ablation.layer], rows, ablation.by)

    def _ablate(self, view: Tensor, rows: Tensor, by: str) -> None:
        if by == "mean":
            self._needed_means()
        view.masked_fill_(rows, _ABLATION[by])

    def _needed_means(self) -> Means:
        if self.means is None:
            raise ValueError("by = 'mean': expected means of a reference batch, found none; give means=")
        return self.means


def _exchanged(
    source: Int[Tensor, "member batch *row position"],
    first: Int[Tensor, "member batch *one"],
    second: Int[Tensor, "member batch *one"],
) -> Int[Tensor, "member batch *row position"]:
    """The entries of two places exchanged, in every row of a sample."""
    one, other = (place[..., None].expand(*source.shape[:-1], 1) for place in (first, second))
    return source.scatter(-1, one, source.gather(-1, other)).scatter(-1, other, source.gather(-1, one))


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
        if name not in batch.roles:
            raise ValueError(f"role: expected one of {sorted(batch.roles)}, found {name!r}")
        rows = rows & (batch.roles[name] == value)
    return rows


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
