"""Chains of pairs, and ways to ask for their steps: the task of the curriculum study."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import model_validator

from hopscope.tasks import Retrieval, Shape
from hopscope.tasks.task import expect

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks import Batch, Draws


class Curriculum(Retrieval):
    """The retrieval problem, in which every step may be asked for at a position of its own.

    Attributes:
        own_positions: whether D positions stand for every query, all with its symbol, of which the k-th is asked for
            x_k alone.
        padded: whether a training sample shows no pairs beyond the last step that it asks for: there, symbols are 0.
    """

    standard_loss: ClassVar[bool] = True

    own_positions: bool = False
    padded: bool = False

    @model_validator(mode="after")
    def _is_of_pairs(self) -> Self:
        plain = not self.nodes and (self.position == "pair" or not self.own_positions)
        expect(
            plain, "own_positions", "chains whose pairs share a position code", f"position {self.position!r}"
        )
        return self

    def shape(self) -> Shape:
        """Pairs with position codes, then the queries, which are asked."""
        shape = super().shape()
        if not self.own_positions:
            return shape
        first = shape.readout[0]
        last = first + len(shape.readout) * len(self.asked)
        sizes = {"positions": last, "readout": tuple(range(first, last)), "output_size": self.symbol_dim}
        return shape.model_copy(update=sizes)

    def sample(self, draws: "Draws") -> "Batch":
        """Samples of the retrieval problem; with positions of their own, every query is written out."""
        batch = super().sample(draws)
        if self.padded and draws.use == "train" and batch.weights is not None:
            batch = self._shortened(batch, batch.weights)
        return self._written_out(batch) if self.own_positions else batch

    def _shortened(self, batch: "Batch", weights: "Tensor") -> "Batch":
        import torch

        steps = torch.tensor([*self.asked.values()], device=weights.device)
        last = torch.where(weights[:, :, 0, :: self.symbol_dim] > 0, steps, 0).amax(-1)
        beyond = batch.roles["step"] > last[..., None]
        symbols = torch.arange(2 * self.symbol_dim, device=weights.device) < self.symbol_dim
        return replace(batch, inputs=batch.inputs.masked_fill(beyond[..., None] & symbols, 0.0))

    def _written_out(self, batch: "Batch") -> "Batch":
        import torch

        from hopscope.tasks import Batch
        from hopscope.tasks.vectors import position_codes

        asked, pairs = len(self.asked), batch.inputs.shape[2] - self.chains
        shown, queries = batch.inputs[..., : self.symbol_dim].tensor_split((pairs,), 2)
        symbols = torch.cat((shown, queries.repeat_interleave(asked, 2)), 2)
        # Both tokens of a pair share a code; every position of a query has one.
        own = pairs // 2 + self.chains * asked
        numbers = [*(place // 2 for place in range(pairs)), *range(pairs // 2, own)]
        base = self.frequency_base if self.frequencies == "geometric" else None
        codes = position_codes(own, self.symbol_dim, base)[numbers].to(symbols.device)
        weights = batch.weights
        if weights is not None:
            by_step = weights.reshape(*weights.shape[:2], asked, self.symbol_dim)
            weights = by_step.repeat(1, 1, self.chains, 1)
        inputs = torch.cat((symbols, codes.expand(*symbols.shape[:2], -1, -1)), -1)
        targets = batch.targets.reshape(*batch.targets.shape[:2], -1, self.symbol_dim)
        return Batch(inputs, targets, weights=weights)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error, in which weights count, and that of each step that is asked for."""
        return super().parts(*self._by_query(predictions, batch))

    def scores(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """How often the right symbol of each step is the nearest; see `Retrieval`."""
        return super().scores(*self._by_query(predictions, batch))

    def _by_query(self, predictions: "Tensor", batch: "Batch") -> "tuple[Tensor, Batch]":
        if not self.own_positions:
            return predictions, batch
        asked = len(self.asked)
        every = (predictions, batch.targets, batch.weights)
        joined: list[Any] = [
            each if each is None else each.unflatten(2, (-1, asked)).flatten(3) for each in every
        ]
        return joined[0], replace(batch, targets=joined[1], weights=joined[2])

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor] | None":  # type: ignore[override]
        """As of `Retrieval`; positions of their own have no roles by which symbols could be exchanged."""
        return None if self.own_positions else super().counterfactuals(batch)
