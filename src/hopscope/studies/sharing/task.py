"""Chains of pairs in which less, or other things, tie two positions together: the task of the sharing study."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hopscope.tasks import Floors, Retrieval, Shape, Task
from hopscope.tasks.retrieval import Order, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks import Batch, Draws


class Sharing(Task):
    """Follow chains of pairs, as in the retrieval problem.  What two positions share can be taken away.

    In the retrieval problem the tokens of a pair are tied by their position codes, and the two occurrences of a symbol
    (second token of its own pair, first token of the next pair) by being equal.  The answer x_k is the symbol as the
    second token of its pair shows it.

    Attributes:
        steps: retrieval steps D of a chain.
        chains: number of chains N of a sample.
        symbol_dim: dimensions K of a symbol.
        order, targets: as of `Retrieval`.
        codes: `"pair"`: both tokens of a pair have one code.  `"token"`: every position has its own (paper, section 6).
            `"one-hot"`: likewise, and all are orthogonal.  `"drawn for pairs"`, `"drawn for tokens"`: normal vectors,
            new in every sample; of the latter, nothing says which tokens are a pair.
        second: how a symbol looks as a second token.  `"same"`: as everywhere.  `"turned"`: a quarter turn in each
            plane of two dimensions, so that it is orthogonal to itself.  `"turned anew"`: by an orthogonal matrix that
            is drawn for every sample.  `"unrelated"`: another symbol, so that no chain goes on.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "step")

    steps: int = 2
    chains: int = 4
    symbol_dim: int = 4
    order: Order = "deepest-first"
    targets: Targets = "ic"
    codes: Literal["pair", "token", "one-hot", "drawn for pairs", "drawn for tokens"] = "pair"
    second: Literal["same", "turned", "turned anew", "unrelated"] = "same"

    @property
    def retrieval(self) -> Retrieval:
        """The retrieval problem that the samples come from."""
        fields = self.model_dump(include={"steps", "chains", "symbol_dim", "order", "targets"})
        return Retrieval(**fields, position="pair" if self.codes == "pair" else "token")

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`."""
        return self.retrieval.words

    def shape(self) -> Shape:
        """Pairs with position codes, then the queries, which are asked."""
        shape = self.retrieval.shape()
        size = shape.positions if self.codes == "one-hot" else self.symbol_dim
        return shape.model_copy(update={"input_size": self.symbol_dim + size, "position_size": size})

    def sample(self, draws: "Draws") -> "Batch":
        """Samples of the retrieval problem, with other codes and other second tokens."""
        import torch

        batch = self.retrieval.sample(draws)
        symbols, codes = batch.inputs.tensor_split((self.symbol_dim,), -1)
        symbols, targets = self._second_tokens(draws, batch, symbols)
        inputs = torch.cat((symbols, self._codes(draws, codes)), -1)
        return replace(batch, inputs=inputs, targets=targets)

    def _codes(self, draws: "Draws", plain: "Tensor") -> "Tensor":
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

    def _second_tokens(self, draws: "Draws", batch: "Batch", symbols: "Tensor") -> "tuple[Tensor, Tensor]":
        """Symbols of all tokens and targets, with other second tokens."""
        import torch

        from hopscope.tasks.vectors import selected

        if self.second == "same":
            return symbols, batch.targets
        if self.second == "unrelated":
            others = draws.normal("second", (self.chains * self.steps, self.symbol_dim))
            chain, step = batch.roles["chain"], batch.roles["step"]
            asked = torch.tensor([*self.retrieval.asked.values()], device=symbols.device) - 1
            query = chain[:, :, -self.chains :, None] * self.steps + asked
            shown = selected(others, chain * self.steps + (step - 1).clamp(min=0))
            answers = selected(others, query.flatten(2))
        else:
            # Queries and steps become one axis, over which all symbols are turned alike.
            turn = self._turn(draws)
            shown = symbols @ turn
            answers = batch.targets.reshape(*symbols.shape[:2], -1, self.symbol_dim) @ turn
        second = batch.roles["kind"] == self.words["roles"]["kind"].index("second")
        return torch.where(second[..., None], shown, symbols), answers.reshape(batch.targets.shape)

    def _turn(self, draws: "Draws") -> "Tensor":
        """An orthogonal matrix, for all samples or for each, `[…, dim, dim]`."""
        import torch

        if self.second == "turned anew":
            return torch.linalg.qr(draws.normal("turn", (self.symbol_dim, self.symbol_dim))).Q
        quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], device=draws.device)
        return torch.block_diag(*[quarter] * (self.symbol_dim // 2))

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error, and that of each step that is asked for."""
        return self.retrieval.parts(predictions, batch)

    def floors(self) -> Floors:
        """What it costs to predict zero, and to predict the mean of the symbols that could be right."""
        found = self.retrieval.floors()
        return {name: floor for name, floor in found.items() if not name.startswith("accuracy")}
