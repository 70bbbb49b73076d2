"""Applying lowered interventions inside one layer: only `where` and gathers, no branch on what is edited."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models.edits import KEPT, MEAN, POSITION, RESAMPLED, STREAM, SYMBOL, Edits

Stream = Float[Tensor, "member rows position model"]


class LayerEditor:
    """The edits of one layer, for streams whose rows are `variant · batch`.

    Attributes:
        edits, layer: what to apply.
        symbol, position: the two parts of the embedded input (no position part where there is none).
        rows: query positions that the layer computes; `None` means all.
    """

    def __init__(
        self, edits: Edits, layer: int, symbol: Stream, position: Stream | None, rows: Tensor | None
    ):
        self.edits, self.layer = edits, layer
        self.symbol, self.position = symbol, position
        self.rows = rows

    def _queries(self, x: Tensor, axis: int) -> Tensor:
        """Keep the computed query rows; axis counts from the end."""
        return x if self.rows is None else x.index_select(x.ndim - axis, self.rows)

    def pattern(self, pattern: Float[Tensor, "member rows head query key"]) -> Tensor:
        """Attention patterns with rows replaced, then weights exchanged between keys, then made equal."""
        on = self._queries(self.edits.pattern_on[:, :, :, self.layer], 1).flatten(1, 2)
        new = self._queries(self.edits.pattern[:, :, :, self.layer], 2).flatten(1, 2)
        pattern = torch.where(on[..., None], new, pattern)
        source = self._queries(self.edits.weight_source[:, :, :, self.layer], 2).flatten(1, 2)
        pattern = torch.take_along_dim(pattern, source, dim=-1)
        equal = self._queries(self.edits.equal[:, :, :, self.layer], 2).flatten(1, 2)
        mass = torch.where(equal, pattern, 0.0).sum(-1, keepdim=True)
        return torch.where(equal, mass / equal.sum(-1, keepdim=True).clamp(min=1), pattern)

    def values(
        self,
        value: Float[Tensor, "member rows head position head_dim"],
        project: Callable[[Stream], Tensor],
        stream: Stream,
    ) -> Tensor:
        """Values of which the chosen heads read an edited stream; `project` turns a stream into values."""
        source = self.edits.value_source[:, :, :, self.layer].flatten(1, 2)
        edited = (
            _taken(stream, source[:, :, STREAM]) + _taken(self.symbol, source[:, :, SYMBOL]) - self.symbol
        )
        if self.position is not None:
            edited = edited + _taken(self.position, source[:, :, POSITION]) - self.position
        samples = source.shape[1] // self.edits.variants
        on = self.edits.value_on[:, self.layer].repeat_interleave(samples, 0)
        return torch.where(on[None, :, :, None, None], project(edited), value)

    def heads(self, out: Float[Tensor, "member rows head query head_dim"]) -> Tensor:
        """Head outputs with the ablated ones replaced."""
        by = self._queries(self.edits.head_by[:, :, :, self.layer], 1)
        return self._ablated(out, by, self._queries(self.edits.head_mean[:, self.layer], 2))

    def mlp(self, out: Float[Tensor, "member rows query model"]) -> Tensor:
        """MLP outputs with the ablated ones replaced."""
        by = self._queries(self.edits.mlp_by[:, :, :, self.layer], 1)
        return self._ablated(out, by, self._queries(self.edits.mlp_mean[:, self.layer], 2))

    def _ablated(
        self,
        out: Float[Tensor, "member rows *site size"],
        by: Int[Tensor, "#member variant batch *site"],
        mean: Float[Tensor, "#member *site size"],
    ) -> Float[Tensor, "member rows *site size"]:
        """Outputs as `by` says: kept, zero, the mean, or the donor sample's."""
        apart = out.unflatten(1, (self.edits.variants, -1))
        member, variant = (torch.arange(size, device=out.device) for size in apart.shape[:2])
        theirs = apart[member[:, None, None], variant[:, None], self.edits.donor[:, None]]
        by = by[..., None]
        new = torch.where(by == RESAMPLED, theirs, torch.where(by == MEAN, mean[:, None, None], 0.0))
        return torch.where(by == KEPT, apart, new).flatten(1, 2)


def _taken(x: Stream, source: Tensor) -> Stream:
    """Position p of the result is position `source[..., p]` of `x`."""
    members, rows, positions = x.shape[:3]
    first = torch.arange(members * rows, device=x.device).view(members, rows, 1) * positions
    # Whole vectors are copied, which is much faster than to gather their elements.
    return functional.embedding(first + source, x.flatten(0, 2))


class MemberEditor:
    """Lowered interventions on one plain module: the same layer editors, for tensors without a member axis.

    Attributes:
        edits: one variant of one member.
        layer: the layer that is running.
    """

    def __init__(self, edits: Edits):
        self.edits, self.layer = edits, 0

    def start(self, symbol: Tensor, position: Tensor) -> None:
        """Remember the two parts of the embedded input, `[batch, position, model]`."""
        self._symbol, self._position = symbol[None], position[None]

    def pattern(self, pattern: Float[Tensor, "batch head query key"]) -> Tensor:
        """Attention patterns after the edits."""
        return self._editor().pattern(pattern[None])[0]

    def values(
        self,
        value: Float[Tensor, "batch head position head_dim"],
        project: Callable[[Tensor], Tensor],
        stream: Float[Tensor, "batch position model"],
    ) -> Tensor:
        """Values of which the chosen heads read an edited stream; `project` turns a stream into values."""
        return self._editor().values(value[None], lambda x: project(x[0])[None], stream[None])[0]

    def heads(self, out: Float[Tensor, "batch head query head_dim"]) -> Tensor:
        """Head outputs after the edits."""
        return self._editor().heads(out[None])[0]

    def mlp(self, out: Float[Tensor, "batch query model"]) -> Tensor:
        """MLP outputs after the edits."""
        return self._editor().mlp(out[None])[0]

    def _editor(self) -> LayerEditor:
        return LayerEditor(self.edits, self.layer, self._symbol, self._position, None)
