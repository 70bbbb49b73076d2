"""Applying lowered interventions inside one layer: only `where` and gathers, no branch on what is edited."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.edits import POSITION, STREAM, SYMBOL, Edits

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
        """Attention patterns with the edited rows replaced."""
        on = self._queries(self.edits.pattern_on[:, :, :, self.layer], 1).flatten(1, 2)
        new = self._queries(self.edits.pattern[:, :, :, self.layer], 2).flatten(1, 2)
        return torch.where(on[..., None], new, pattern)

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
        edits, layer = self.edits, self.layer
        on = self._queries(edits.head_on[:, :, :, layer], 1)
        constant = self._queries(edits.head[:, :, :, layer], 2)
        return self._replaced(out, on, constant, edits.head_donated[:, layer, :, None, None])

    def mlp(self, out: Float[Tensor, "member rows query model"]) -> Tensor:
        """MLP outputs with the ablated ones replaced."""
        edits, layer = self.edits, self.layer
        on = self._queries(edits.mlp_on[:, :, :, layer], 1)
        constant = self._queries(edits.mlp[:, :, :, layer], 2)
        return self._replaced(out, on, constant, edits.mlp_donated[:, layer, None, None])

    def _replaced(self, out: Tensor, on: Tensor, constant: Tensor, donated: Tensor) -> Tensor:
        """`out` where not `on`; else the donor sample's (`donated`, with the variant axis first) or the constant."""
        apart = out.unflatten(1, (self.edits.variants, -1))
        donor = self.edits.donor.reshape(-1, 1, apart.shape[2], *[1] * (apart.ndim - 3))
        theirs = torch.take_along_dim(apart, donor, dim=2)
        new = torch.where(donated.unsqueeze(1), theirs, constant)
        return torch.where(on[..., None], new, apart).flatten(1, 2)


def _taken(x: Stream, source: Tensor) -> Stream:
    """Position p of the result is position `source[..., p]` of `x`."""
    return torch.take_along_dim(x, source[..., None], dim=2)
