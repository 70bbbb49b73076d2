"""Models whose weights are set by hand, so that what an intervention must do to their answers is known beforehand.

The residual stream has three parts: the token as a one-hot vector, the position as one, and a part that heads and MLPs
write to.  There are no norms.  Each answer is read from one part, or from the sum of two with different weights.
"""

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch

SYMBOLS, POSITIONS, HEADS, HEAD_DIM, WIDTH, OUTPUT, MLP = 5, 7, 3, 11, 19, 13, 23
SYMBOL, POSITION, WRITTEN = slice(0, 5), slice(5, 12), slice(12, 19)
"""Parts of the residual stream."""

_SHARP = 40.0 * HEAD_DIM**0.5


class Planted:
    """A blank ensemble to plant things in.

    Attributes:
        model: the ensemble; every weight but the embeddings is zero until something is planted.
    """

    def __init__(self, members: int = 1, layers: int = 1):
        shape = TransformerConfig(
            layers=layers,
            heads=HEADS,
            head_dim=HEAD_DIM,
            width=WIDTH,
            mlp_ratio=MLP / WIDTH,
            activation="relu",
            norm="none",
            length=POSITIONS,
            input_size=SYMBOLS,
            output_size=OUTPUT,
        )
        self.model = Transformer(shape, Parameters(parameter_specs(shape), members))
        self._weights = self.model.weights
        self._weights["embed.token.weight"][:, :, SYMBOL] = torch.eye(SYMBOLS)
        self._weights["embed.position.weight"][:, :, POSITION] = torch.eye(POSITIONS)

    def attend_to_position(self, member: int, layer: int, head: int, source: int) -> "Planted":
        """Rows from `source` on attend to it alone; earlier rows, which cannot see it, attend to themselves."""
        query, key = self._column(member, layer, head, "query"), self._column(member, layer, head, "key")
        key[POSITION, :POSITIONS] = torch.eye(POSITIONS)
        for row in range(POSITIONS):
            query[POSITION.start + row, source if row >= source else row] = _SHARP
        return self

    def attend_to_symbol(self, member: int, layer: int, head: int, symbol: int) -> "Planted":
        """Every row that sees the symbol attends to it."""
        query, key = self._column(member, layer, head, "query"), self._column(member, layer, head, "key")
        query[POSITION, 0] = _SHARP
        key[SYMBOL.start + symbol, 0] = 1.0
        return self

    def copy(self, member: int, layer: int, head: int, part: slice) -> "Planted":
        """The head writes one part of what it attends to into the written part."""
        size = part.stop - part.start
        self._column(member, layer, head, "value")[part, :size] = torch.eye(size)
        output = self._weights[f"layers.{layer}.attention.output.weight"][member]
        output[head * HEAD_DIM : head * HEAD_DIM + size, WRITTEN.start : WRITTEN.start + size] = torch.eye(
            size
        )
        return self

    def write_successor(self, member: int, layer: int) -> "Planted":
        """The MLP writes the symbol after the row's own, counted round."""
        inner = self._weights[f"layers.{layer}.mlp.inner.weight"][member]
        outer = self._weights[f"layers.{layer}.mlp.outer.weight"][member]
        inner[SYMBOL, :SYMBOLS] = torch.eye(SYMBOLS)
        for symbol in range(SYMBOLS):
            outer[symbol, WRITTEN.start + (symbol + 1) % SYMBOLS] = 1.0
        return self

    def answer(self, member: int, part: slice, weight: float = 1.0) -> "Planted":
        """The prediction is this part of the stream."""
        size = part.stop - part.start
        self._weights["readout.weight"][member, part, :size] += weight * torch.eye(size)
        return self

    def _column(self, member: int, layer: int, head: int, part: str) -> torch.Tensor:
        """One head's columns of a projection, `[model, head_dim]`."""
        weight = self._weights[f"layers.{layer}.attention.{part}.weight"][member]
        return weight[:, head * HEAD_DIM : (head + 1) * HEAD_DIM]


def shown(*tokens: tuple[int, ...], source: int = 0) -> Batch:
    """A batch of these samples; role `slot` is the position, relation `source` leads everywhere to one position."""
    inputs = torch.tensor(tokens)[None]
    slot = torch.arange(POSITIONS).expand_as(inputs)
    return Batch(inputs, inputs, roles={"slot": slot}, relations={"source": torch.full_like(inputs, source)})
