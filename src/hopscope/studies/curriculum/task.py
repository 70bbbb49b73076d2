"""Chains of pairs, and ways to ask for their steps: the task of the curriculum study."""

from dataclasses import replace
from typing import TYPE_CHECKING

import hopscope as hs
from hopscope.tasks.vector_config import Emphasis, Targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hopscope.tasks.task import Floors


class Curriculum(hs.Task):
    """Follow chains of pairs, as in the retrieval problem; the queries are asked for some steps of their chain.

    Attributes:
        steps: retrieval steps D of a chain.
        chains: number of chains N of a sample.
        symbol_dim: dimensions K of a symbol, and of its position code.
        targets: steps that a query is asked for; `"ic"`: all of them, `"last"`: D alone.
        schedule: changes of the targets: (first training step, targets), ascending.
        shares, emphasis: how much each step counts in training, see `hopscope.tasks.Retrieval`.
        own_positions: whether each step is asked for at a position of its own.  Then D positions stand for every query,
            all with its symbol, and the k-th of them is asked for x_k alone.
        padded: whether a training sample shows no pairs beyond the last step that it asks for: there, symbols are 0.
    """

    steps: int = 2
    chains: int = 4
    symbol_dim: int = 4
    targets: Targets = "ic"
    schedule: tuple[tuple[int, Targets], ...] = ()
    shares: tuple[float, ...] = ()
    emphasis: Emphasis = "weights"
    own_positions: bool = False
    padded: bool = False

    @property
    def retrieval(self) -> hs.tasks.Retrieval:
        """The retrieval problem that the samples come from."""
        return hs.tasks.Retrieval(
            steps=self.steps, chains=self.chains, symbol_dim=self.symbol_dim, position="pair", targets=self.targets,
            schedule=self.schedule, shares=self.shares, emphasis=self.emphasis,
        )  # fmt: skip

    @property
    def asked(self) -> tuple[int, ...]:
        """Steps that a prediction holds."""
        return self.retrieval.asked

    def shape(self) -> hs.Shape:
        """Pairs with position codes, then the queries, which are asked."""
        inner = self.retrieval.shape()
        if not self.own_positions:
            return inner
        pairs = inner.positions - self.chains
        positions = pairs + self.chains * len(self.asked)
        return inner.model_copy(
            update={
                "positions": positions,
                "readout": tuple(range(pairs, positions)),
                "output_size": self.symbol_dim,
            }
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Samples of the retrieval problem; with positions of their own, every query is written out."""
        batch = self.retrieval.sample(draws)
        if self.padded and draws.use == "train" and batch.weights is not None:
            batch = self._shortened(batch)
        return self._written_out(batch) if self.own_positions else batch

    def _shortened(self, batch: "hs.Batch") -> "hs.Batch":
        import torch

        assert batch.weights is not None
        steps = torch.tensor(self.asked, device=batch.inputs.device)
        counts = batch.weights[:, :, 0, :: self.symbol_dim] > 0
        last = torch.where(counts, steps, 0).amax(-1)
        beyond = batch.roles["step"] > last[..., None]
        features = torch.arange(2 * self.symbol_dim, device=batch.inputs.device) < self.symbol_dim
        return replace(batch, inputs=batch.inputs.masked_fill(beyond[..., None] & features, 0.0))

    def _written_out(self, batch: "hs.Batch") -> "hs.Batch":
        import torch

        from hopscope.tasks.vectors import position_codes

        asked, pairs = len(self.asked), batch.inputs.shape[2] - self.chains
        queries = batch.inputs[:, :, pairs:, : self.symbol_dim].repeat_interleave(asked, 2)
        symbols = torch.cat((batch.inputs[:, :, :pairs, : self.symbol_dim], queries), 2)
        # Both tokens of a pair share a code; every position of a query has one.
        numbers = [*(place // 2 for place in range(pairs)), *range(pairs // 2, pairs // 2 + queries.shape[2])]
        codes = position_codes(self.retrieval, numbers[-1] + 1)[numbers].to(symbols.device)
        inputs = torch.cat((symbols, codes.expand(*symbols.shape[:2], -1, -1)), -1)
        targets = batch.targets.reshape(*batch.targets.shape[:2], -1, self.symbol_dim)
        weights = batch.weights
        if weights is not None:
            by_step = weights.reshape(*weights.shape[:2], asked, self.symbol_dim)
            weights = by_step.repeat(1, 1, self.chains, 1)
        return hs.Batch(inputs=inputs, targets=targets, weights=weights)

    def parts(self, predictions: "Tensor", batch: "hs.Batch") -> "Mapping[str, Tensor]":
        """Mean squared error, and that of each step that is asked for."""
        import torch

        squared = (predictions - batch.targets).square()
        steps = squared.unflatten(2, (self.chains, -1)) if self.own_positions else squared.unsqueeze(3)
        by_step = steps.unflatten(-1, (-1, self.symbol_dim)).flatten(3, 4).mean((1, 2, 4))
        weighted = squared if batch.weights is None else squared * batch.weights
        parts = {f"loss_step_{step}": by_step[:, place] for place, step in enumerate(self.asked)}
        return {"loss": torch.mean(weighted, (1, 2, 3)), **parts}

    def loss_gradient(self, predictions: "Tensor", batch: "hs.Batch") -> "Tensor":
        """Derivative of the loss by the predictions."""
        return super().loss_gradient(predictions, batch)

    def floors(self) -> "Floors":
        """What it costs to predict zero, and to predict the mean of the symbols that could be right."""
        found = self.retrieval.floors()
        return {name: value for name, value in found.items() if not name.startswith("accuracy")}
