"""The one executor of interventions: values and a batch in, functions of named sites out.

`Edits` is a visit: a forward pass of an ensemble or of one member calls it at every site and goes on with what it
returns.  Evaluation and clamps in training run it as it is; the reader of circuits has a quicker way for patterns alone
(`hopscope.circuits.execution`), which is held to this one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    Intervention,
    ReplacePattern,
    SwapAttention,
    SwapValues,
)
from hopscope.models.patterns import By, Learned, weights_by
from hopscope.models.resolving import Resolved, located, mean_weights, selected
from hopscope.tasks.batch import Batch

KEPT, ZERO, MEAN, RESAMPLED = range(4)
_ABLATION = {"zero": ZERO, "mean": MEAN, "resample": RESAMPLED}


@runtime_checkable
class Editable(Protocol):
    """The part of a model that interventions use.

    Attributes:
        member_axis: whether tensors of its sites have one.
    """

    member_axis: bool

    @property
    def members(self) -> int:
        """How many members there are."""
        ...

    @property
    def config(self) -> TransformerConfig:
        """The configuration of the transformer."""
        ...

    def cache(self, inputs: Tensor) -> Mapping[str, Tensor]:
        """The tensors of every site."""
        ...

    def values(self, layer: int, stream: Float[Tensor, "*lead position model"]) -> Tensor:
        """Values `[*lead, position, head, head_dim]` that a layer makes of a stream."""
        ...


def sites_of(model: Editable, inputs: Tensor) -> dict[str, Tensor]:
    """The tensors of every site of the unedited model, all with a member axis, as the inputs have one."""
    if model.member_axis:
        return dict(model.cache(inputs))
    return {name: tensor[None] for name, tensor in model.cache(inputs[0]).items()}


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

    @classmethod
    def of(cls, model: Editable, inputs: Tensor) -> "Means":
        """Means of a model over inputs, which have a member axis."""
        found, layers = sites_of(model, inputs), range(model.config.layers)

        def each(site: str) -> Tensor:
            return torch.stack([found[f"blocks.{layer}.{site}"].mean(1) for layer in layers], 1)

        streams = each("hook_resid_post")
        mlps = each("hook_mlp_out") if model.config.mlp_size else torch.zeros_like(streams)
        return cls(each("attn.hook_pattern"), each("attn.hook_z").transpose(2, 3), mlps)


@dataclass(frozen=True)
class _SwappedValues:
    """Value swaps of one layer.

    Attributes:
        heads: those that read edited values.
        source: position that stands in for each position, by what is swapped.
    """

    heads: Bool[Tensor, " head"]
    source: dict[str, Int[Tensor, "member batch position"]]


class Edits:
    """Interventions on one batch, as a visit of a forward pass over that batch.

    Within one list a later intervention on the same rows wins.

    Attributes:
        sites: name of each site where something is changed, or must be remembered for that → what is done there.
        replaced: layer → rows of attention patterns that are replaced, `[member, batch, head, query]`, and by what,
            `[member, batch, head, query, key]`.
    """

    def __init__(
        self,
        model: Editable,
        interventions: Sequence[Intervention],
        batch: Batch,
        *,
        means: Means | None = None,
        donor: Int[Tensor, "#member batch"] | None = None,
    ):
        """Work out which rows are meant.

        Args:
            model: that will be edited.
            interventions: what to change.
            batch: the samples, with a member axis; roles and relations say which rows are meant.
            means: needed by every `"mean"`.
            donor: sample that each sample resamples from; by default the next one of the batch.

        Raises:
            ValueError: a layer, head, role or relation does not exist, a site is not one position, means are missing,
                or different values are swapped for different heads of one layer.
        """
        self.config, self._model, self._batch, self._means = model.config, model, batch, means
        device = batch.inputs.device
        self._donor = (
            torch.arange(batch.inputs.shape[1], device=device).roll(-1)[None] if donor is None else donor
        )
        self._resolved = Resolved(batch, causal=self.config.causal)
        self.replaced: dict[int, tuple[Tensor, Tensor]] = {}
        self._weight_source: dict[int, Tensor] = {}
        self._equal: dict[int, Tensor] = {}
        self._values: dict[int, _SwappedValues] = {}
        self._head_by: dict[int, Tensor] = {}
        self._mlp_by: dict[int, Tensor] = {}
        self._seen: dict[str, Tensor] = {}
        for intervention in interventions:
            self._add(intervention)
        self.sites = self._sites()

    # A forward pass.

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor of a site after the interventions there; see `hopscope.models.sites`."""
        if name not in self.sites:
            return tensor
        changed = self.sites[name](tensor if self._model.member_axis else tensor[None])
        return changed if self._model.member_axis else changed[0]

    def _sites(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The function of each site where something is changed or must be remembered."""
        found: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in {*self.replaced, *self._weight_source, *self._equal}:
            found[f"blocks.{layer}.attn.hook_pattern"] = partial(self._pattern, layer)
        for layer in self._values:
            found[f"blocks.{layer}.attn.hook_v"] = partial(self._value, layer)
            for name in ("hook_embed", "hook_pos_embed", f"blocks.{layer}.hook_resid_pre"):
                found[name] = partial(self._remembered, name)
        for layer in self._head_by:
            found[f"blocks.{layer}.attn.hook_z"] = partial(self._heads, layer)
        for layer in self._mlp_by:
            found[f"blocks.{layer}.hook_mlp_out"] = partial(self._mlp, layer)
        return found

    def _remembered(self, name: str, tensor: Tensor) -> Tensor:
        self._seen[name] = tensor
        return tensor

    def _pattern(
        self, layer: int, pattern: Float[Tensor, "member batch head row key"]
    ) -> Float[Tensor, "member batch head row key"]:
        """Rows replaced, then weights exchanged between keys, then made equal."""
        rows = self._rows(pattern.shape[3])
        if layer in self.replaced:
            on, new = self.replaced[layer]
            pattern = torch.where(on[..., rows, None], new[..., rows, :], pattern)
        if layer in self._weight_source:
            pattern = torch.take_along_dim(pattern, self._weight_source[layer][..., rows, :], dim=-1)
        if layer in self._equal:
            equal = self._equal[layer][..., rows, :]
            mass = torch.where(equal, pattern, 0.0).sum(-1, keepdim=True)
            pattern = torch.where(equal, mass / equal.sum(-1, keepdim=True).clamp(min=1), pattern)
        return pattern

    def _rows(self, count: int) -> slice | list[int]:
        """Positions that a site has: all, or in the last layer those that are read out."""
        every = count == self._batch.inputs.shape[2]
        return slice(None) if every else list(self.config.readout_positions)

    def _value(
        self, layer: int, value: Float[Tensor, "member batch position head head_dim"]
    ) -> Float[Tensor, "member batch position head head_dim"]:
        """Values of which the chosen heads read those of an edited stream."""
        swapped, seen = self._values[layer], self._seen
        stream, symbol = seen[f"blocks.{layer}.hook_resid_pre"], seen["hook_embed"]
        edited = _taken(stream, swapped.source["stream"]) + _taken(symbol, swapped.source["symbol"]) - symbol
        if "hook_pos_embed" in seen:
            position = seen["hook_pos_embed"]
            edited = edited + _taken(position, swapped.source["position"]) - position
        plain = not self._model.member_axis
        made = self._model.values(layer, edited[0])[None] if plain else self._model.values(layer, edited)
        return torch.where(swapped.heads[:, None], made, value)

    def _heads(
        self, layer: int, out: Float[Tensor, "member batch row head head_dim"]
    ) -> Float[Tensor, "member batch row head head_dim"]:
        mean = None if self._means is None else self._means.heads[:, layer].transpose(1, 2)
        return self._ablated(out, self._head_by[layer], mean)

    def _mlp(
        self, layer: int, out: Float[Tensor, "member batch row model"]
    ) -> Float[Tensor, "member batch row model"]:
        return self._ablated(
            out, self._mlp_by[layer], None if self._means is None else self._means.mlps[:, layer]
        )

    def _ablated(
        self,
        out: Float[Tensor, "member batch row *head size"],
        by: Int[Tensor, "#member batch query *head"],
        mean: Float[Tensor, "#member query *head size"] | None,
    ) -> Float[Tensor, "member batch row *head size"]:
        """Outputs as `by` says: kept, zero, the mean, or the donor sample's."""
        rows = self._rows(out.shape[2])
        by = by[:, :, rows][..., None]
        new = torch.where(
            by == RESAMPLED, out[torch.arange(len(out), device=out.device)[:, None], self._donor], 0.0
        )
        if mean is not None:
            new = torch.where(by == MEAN, mean[:, None, rows], new)
        return torch.where(by == KEPT, out, new)

    # Which rows are meant.

    def _add(self, intervention: Intervention) -> None:
        if intervention.layer >= self.config.layers:
            raise ValueError(f"layer: expected 0 to {self.config.layers - 1}, found {intervention.layer}")
        add: dict[type, Callable[[Any], None]] = {
            ReplacePattern: self._replace_pattern,
            SwapAttention: self._swap_attention,
            EqualizeAttention: self._equalize_attention,
            SwapValues: self._swap_values,
            AblateHead: self._ablate_head,
            AblateMLP: self._ablate_mlp,
        }
        add[type(intervention)](intervention)

    def _chosen(self, heads: tuple[int, ...] | None) -> Bool[Tensor, " head"]:
        """Mask of the chosen heads."""
        chosen = list(range(self.config.heads)) if heads is None else list(heads)
        if not chosen or not all(0 <= head < self.config.heads for head in chosen):
            raise ValueError(f"heads: expected some of 0 to {self.config.heads - 1}, found {heads}")
        return torch.isin(torch.arange(self.config.heads), torch.tensor(chosen)).to(self._batch.inputs.device)

    def _replace_pattern(self, by: ReplacePattern) -> None:
        heads, rows = self._chosen(by.heads), selected(self._batch, by.rows)
        pattern, exists = self._stand_in(by, rows)
        here = heads[:, None] & (rows[:, :, None] & exists)
        on, new = self.replaced.get(by.layer, (torch.zeros_like(here), torch.zeros_like(pattern)))
        self.replaced[by.layer] = on | here, torch.where(here[..., None], pattern, new)

    def _stand_in(
        self, by: ReplacePattern, rows: Bool[Tensor, "#member batch query"]
    ) -> tuple[Float[Tensor, "#member #batch #head query key"], Bool[Tensor, "#member #batch #head query"]]:
        """Pattern that rows of the heads get instead, and mask of the rows for which there is one."""
        positions = self._batch.inputs.shape[2]
        every = torch.ones(1, 1, 1, positions, dtype=torch.bool, device=rows.device)
        if by.by == "mean":
            return self._needed_means().patterns[:, by.layer, None], every
        if by.by == "matrix":
            matrix = torch.tensor(by.matrix, dtype=torch.float32, device=rows.device)
            if matrix.shape != (positions, positions):
                raise ValueError(
                    f"matrix: expected shape {(positions, positions)}, found {tuple(matrix.shape)}"
                )
            return matrix[None, None, None], every
        assert by.rule is not None
        if isinstance(by.rule, Learned):
            return self._own(by.layer), every
        weighted = weights_by(by.rule)
        if weighted is None:
            pattern, exists = self._resolved(by.rule)
            return pattern[:, :, None], exists[:, :, None]
        of_heads = [
            self._resolved(by.rule, mean) for mean in self._mean_weights(weighted, by.layer, rows).unbind(2)
        ]
        pattern, exists = (torch.stack(parts, 2) for parts in zip(*of_heads, strict=True))
        return pattern, exists

    def _mean_weights(
        self, by: By, layer: int, rows: Bool[Tensor, "#member batch query"]
    ) -> Float[Tensor, "member batch head query key"]:
        """Mean weights of every head in the unedited model, over the rows that are meant."""
        own, inputs = self._own(layer), self._batch.inputs
        rows, inputs = (x.expand(len(own), *x.shape[1:]) for x in (rows, inputs))
        of_members = [
            torch.stack([mean_weights(by, head, *of_samples) for head in heads.unbind(1)], 1)
            for heads, *of_samples in zip(own, rows, inputs, strict=True)
        ]
        return torch.stack(of_members)

    def _own(self, layer: int) -> Float[Tensor, "member batch head query key"]:
        """Patterns of the unedited model."""
        return sites_of(self._model, self._batch.inputs)[f"blocks.{layer}.attn.hook_pattern"]

    def _swap_attention(self, swap: SwapAttention) -> None:
        first, second = located(self._batch, swap.first), located(self._batch, swap.second)
        both = ((first >= 0) & (second >= 0))[..., None]
        first, second = first.clamp(min=0), second.clamp(min=0)
        seen_by = self._resolved.visible.T
        rows = selected(self._batch, swap.rows) & both & seen_by[first] & seen_by[second]
        here = self._chosen(swap.heads)[:, None] & rows[:, :, None]
        keys = torch.arange(here.shape[-1], device=here.device)
        source = self._weight_source.get(swap.layer, keys.expand(*here.shape, -1))
        swapped = _exchanged(source, first[..., None, None], second[..., None, None])
        self._weight_source[swap.layer] = torch.where(here[..., None], swapped, source)

    def _equalize_attention(self, equal: EqualizeAttention) -> None:
        keys = self._resolved.visible & selected(self._batch, equal.keys)[:, :, None, :]
        rows = selected(self._batch, equal.rows) & keys.any(-1)
        here = (self._chosen(equal.heads)[:, None] & rows[:, :, None])[..., None]
        on = self._equal.get(equal.layer, torch.zeros_like(here))
        self._equal[equal.layer] = torch.where(here, keys[:, :, None], on)

    def _swap_values(self, swap: SwapValues) -> None:
        heads, positions = self._chosen(swap.heads), self._batch.inputs.shape[2]
        if swap.layer not in self._values:
            here = torch.arange(positions, device=heads.device).expand(self._batch.inputs.shape[:3])
            every = dict.fromkeys(("symbol", "position", "stream"), here)
            self._values[swap.layer] = _SwappedValues(heads, every)
        present = self._values[swap.layer]
        if not torch.equal(present.heads, heads):
            raise ValueError(
                f"swap_values: expected the same heads for every swap of layer {swap.layer}, "
                f"found {heads.nonzero()[:, 0].tolist()}; intervene once for each"
            )
        first, second = located(self._batch, swap.first), located(self._batch, swap.second)
        both = ((first >= 0) & (second >= 0))[..., None]
        source = present.source[swap.what]
        swapped = _exchanged(source, first.clamp(min=0), second.clamp(min=0))
        present.source[swap.what] = torch.where(both, swapped, source)

    def _ablate_head(self, ablation: AblateHead) -> None:
        here = selected(self._batch, ablation.rows)[..., None] & self._chosen(ablation.heads)
        self._ablate(self._head_by, ablation, here)

    def _ablate_mlp(self, ablation: AblateMLP) -> None:
        if not self.config.mlp_size:
            raise ValueError("ablate_mlp: expected a model with an MLP, found mlp_ratio = 0")
        self._ablate(self._mlp_by, ablation, selected(self._batch, ablation.rows))

    def _ablate(self, of_layers: dict[int, Tensor], ablation: AblateHead | AblateMLP, here: Tensor) -> None:
        if ablation.by == "mean":
            self._needed_means()
        kept = torch.full(here.shape, KEPT, device=here.device)
        before = of_layers.get(ablation.layer, kept)
        of_layers[ablation.layer] = before.masked_fill(here, _ABLATION[ablation.by])

    def _needed_means(self) -> Means:
        if self._means is None:
            raise ValueError("by = 'mean': expected means of a reference batch, found none; give means=")
        return self._means


def _exchanged(
    source: Int[Tensor, "member batch *row position"],
    first: Int[Tensor, "member batch *one"],
    second: Int[Tensor, "member batch *one"],
) -> Int[Tensor, "member batch *row position"]:
    """The entries of two places exchanged, in every row of a sample."""
    one, other = (place[..., None].expand(*source.shape[:-1], 1) for place in (first, second))
    return source.scatter(-1, one, source.gather(-1, other)).scatter(-1, other, source.gather(-1, one))


def _taken(
    x: Float[Tensor, "member batch position model"], source: Int[Tensor, "#member batch position"]
) -> Float[Tensor, "member batch position model"]:
    """Position p of the result is position `source[..., p]` of `x`."""
    members, samples, positions = x.shape[:3]
    first = torch.arange(members * samples, device=x.device).view(members, samples, 1) * positions
    # Whole vectors are copied, which is much faster than to gather their elements.
    return functional.embedding(first + source, x.flatten(0, 2))
