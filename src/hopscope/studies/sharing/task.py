"""Chains of pairs in which less, or other things, tie two positions together: the task of the sharing study."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import hopscope as hs
from hopscope.tasks.vector_config import KINDS, SECOND, Targets, TimeOrder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hopscope.tasks.task import Floors

Codes = Literal["pair", "token", "one-hot", "drawn for pairs", "drawn for tokens"]
Second = Literal["same", "turned", "turned anew", "unrelated"]


class Sharing(hs.Task):
    """Follow chains of pairs, as in the retrieval problem.  What two positions share can be taken away.

    In the retrieval problem the tokens of a pair are tied by their position codes, and the two occurrences of a symbol
    (second token of its own pair, first token of the next pair) by being equal.  The answer x_k is the symbol as the
    second token of its pair shows it.

    Attributes:
        steps: retrieval steps D of a chain.
        chains: number of chains N of a sample.
        symbol_dim: dimensions K of a symbol.
        order: in which order the steps are shown, see `hopscope.tasks.Retrieval`.
        targets: steps that a query is asked for; `"ic"`: all of them, `"last"`: D alone.
        codes: `"pair"`: both tokens of a pair have one code.  `"token"`: every position has its own (paper, section 6).
            `"one-hot"`: likewise, and all are orthogonal.  `"drawn for pairs"`, `"drawn for tokens"`: normal vectors,
            new in every sample; of the latter, nothing says which tokens are a pair.
        second: how a symbol looks as a second token.  `"same"`: as everywhere.  `"turned"`: a quarter turn in each
            plane of two dimensions, so that it is orthogonal to itself.  `"turned anew"`: by an orthogonal matrix that
            is drawn for every sample.  `"unrelated"`: another symbol, so that no chain goes on.
    """

    steps: int = 2
    chains: int = 4
    symbol_dim: int = 4
    order: TimeOrder = "deepest-first"
    targets: Targets = "ic"
    codes: Codes = "pair"
    second: Second = "same"

    @property
    def retrieval(self) -> hs.tasks.Retrieval:
        """The retrieval problem that the samples come from."""
        return hs.tasks.Retrieval(
            steps=self.steps, chains=self.chains, symbol_dim=self.symbol_dim, order=self.order, targets=self.targets,
            position="pair" if self.codes == "pair" else "token",
        )  # fmt: skip

    @property
    def asked(self) -> tuple[int, ...]:
        """Steps that a prediction holds."""
        return self.retrieval.asked

    @property
    def words(self) -> "Mapping[str, object]":
        """Words of the role `kind`."""
        return {"roles": {"kind": KINDS}}

    def shape(self) -> hs.Shape:
        """Pairs with position codes, then the queries, which are asked."""
        inner = self.retrieval.shape()
        size = inner.positions if self.codes == "one-hot" else self.symbol_dim
        return inner.model_copy(update={"input_size": self.symbol_dim + size, "position_size": size})

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Samples of the retrieval problem, with other codes and other second tokens."""
        import torch

        batch = self.retrieval.sample(draws)
        symbols, codes = batch.inputs[..., : self.symbol_dim], batch.inputs[..., self.symbol_dim :]
        symbols, targets = self._second_tokens(draws, batch, symbols)
        return replace(batch, inputs=torch.cat((symbols, self._codes(draws, codes)), -1), targets=targets)

    def _codes(self, draws: "hs.Draws", plain: "Tensor") -> "Tensor":
        import torch

        positions = plain.shape[2]
        if self.codes == "one-hot":
            return torch.eye(positions, device=plain.device).expand(*plain.shape[:2], -1, -1)
        if not self.codes.startswith("drawn"):
            return plain
        drawn = draws.normal("codes", (positions, self.symbol_dim))
        if self.codes == "drawn for tokens":
            return drawn
        # Both tokens of a pair have the code of its first token; the queries have their own.
        place = torch.arange(positions, device=plain.device)
        return drawn[:, :, torch.where(place < positions - self.chains, place // 2 * 2, place)]

    def _second_tokens(
        self, draws: "hs.Draws", batch: "hs.Batch", symbols: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """Symbols of all tokens and targets, with other second tokens."""
        import torch

        if self.second == "same":
            return symbols, batch.targets
        second = (batch.roles["kind"] == SECOND)[..., None]
        if self.second == "unrelated":
            others = draws.normal("second", (self.chains, self.steps, self.symbol_dim)).flatten(2, 3)
            chain, step = batch.roles["chain"], batch.roles["step"]
            number = chain * self.steps + (step - 1).clamp(min=0)
            shown = _chosen(others, number)
            asked = torch.tensor(self.asked, device=symbols.device) - 1
            query = chain[:, :, -self.chains :, None] * self.steps + asked
            answers = _chosen(others, query.flatten(2))
        else:
            turn = self._turn(draws)
            # Queries and steps become one axis, over which all symbols are turned alike.
            shown, answers = (
                symbols @ turn,
                batch.targets.reshape(*symbols.shape[:2], -1, self.symbol_dim) @ turn,
            )
        return torch.where(second, shown, symbols), answers.reshape(batch.targets.shape)

    def _turn(self, draws: "hs.Draws") -> "Tensor":
        """An orthogonal matrix, for all samples or for each, `[…, dim, dim]`."""
        import torch

        if self.second == "turned anew":
            square = draws.normal("turn", (self.symbol_dim, self.symbol_dim))
            return torch.linalg.qr(square).Q
        quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], device=draws.device)
        return torch.block_diag(*[quarter] * (self.symbol_dim // 2))

    def parts(self, predictions: "Tensor", batch: "hs.Batch") -> "Mapping[str, Tensor]":
        """Mean squared error, and that of each step that is asked for."""
        squared = (predictions - batch.targets).square().unflatten(-1, (len(self.asked), -1))
        by_step = squared.mean((1, 2, 4))
        parts = {f"loss_step_{step}": by_step[:, place] for place, step in enumerate(self.asked)}
        return {"loss": squared.mean((1, 2, 3, 4)), **parts}

    def loss_gradient(self, predictions: "Tensor", batch: "hs.Batch") -> "Tensor":
        """Derivative of the loss by the predictions."""
        return super().loss_gradient(predictions, batch)

    def floors(self) -> "Floors":
        """What it costs to predict zero, and to predict the mean of the symbols that could be right."""
        found = self.retrieval.floors()
        return {name: value for name, value in found.items() if not name.startswith("accuracy")}


def _chosen(vectors: "Tensor", which: "Tensor") -> "Tensor":
    """Vectors `[member, batch, n, dim]` by number, `[member, batch, any]`."""
    return vectors.gather(2, which[..., None].expand(-1, -1, -1, vectors.shape[-1]))
