"""What the reader of circuits asks of a model: layer by layer, under attention patterns that it gives.

Two forms of a model answer: the `Transformer` itself, and for some shapes a `VirtualModel`, which is quicker.  What
they hand from layer to layer is their own affair: the reader never looks into it.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.virtual_model import VirtualModel, fits
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer

Stream = Any
"""What a model hands from layer to layer: a tensor `[1, batch, position, model]`, or a `VirtualStream`."""

Pattern = Float[Tensor, "1 batch head row key"]
Heads = Float[Tensor, "1 batch head row head_dim"]
Rows = slice | Tensor | None
"""Positions that are wanted; `None` means all."""


@runtime_checkable
class ReadBlock(Protocol):
    """One layer; the methods are those of `hopscope.models.block.Block`, and are described there."""

    def pattern(
        self,
        queries: Stream,
        keys: Stream | None = None,
        rows: Rows = None,
        heads: Sequence[int] | None = None,
    ) -> Pattern:
        """Attention patterns of all heads, or of some."""
        ...

    def under(self, stream: Stream, pattern: Pattern, rows: Rows = None) -> Stream:
        """The stream after this layer under given attention patterns."""
        ...

    def heads_under(self, stream: Stream, pattern: Pattern, heads: Sequence[int] | None = None) -> Heads:
        """Outputs of all heads, or of some, under their attention patterns."""
        ...

    def after_heads(self, stream: Stream, heads: Heads, rows: Rows = None) -> Stream:
        """The stream after this layer, from the stream before it and the heads' outputs."""
        ...


@runtime_checkable
class ReadModel(Protocol):
    """One model, `member == 1`."""

    @property
    def config(self) -> TransformerConfig:
        """The shape of the model: layers, heads and widths."""
        ...

    @property
    def blocks(self) -> Sequence[ReadBlock]:
        """The layers of the model, first to last."""
        ...

    @property
    def rows(self) -> slice | Tensor:
        """Positions at which the model is read out."""
        ...

    def embedded(self, inputs: Tensor) -> Stream:
        """The stream before the first layer."""
        ...

    def read_out(self, stream: Stream) -> Float[Tensor, "1 batch position output"]:
        """Predictions from the stream after the last layer."""
        ...


def quickest(model: Transformer) -> ReadModel:
    """The form of a model that the reader runs fastest."""
    return VirtualModel(model) if fits(model) else model
