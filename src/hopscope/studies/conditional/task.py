"""Chains and branching graphs with the same questions: the task of the study of conditional retrieval."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from hopscope.tasks import Floors, Node, Retrieval, Shape, Task

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks import Batch, Draws

Graph = Literal["chain", "two parents", "root and parent"]

PARENTS: Mapping[Graph, tuple[str, ...]] = {
    "chain": ("x",),
    "two parents": ("x", "y"),
    "root and parent": ("a", "x"),
}
"""Graph → the keys of z."""


class Branching(Task):
    """A query a has an x and a y; z is found by x alone, or by two keys together.

    Attributes:
        graph: what z is found by.
        chains: number of queries N.
        symbol_dim: dimensions K of a symbol, and of its position code.
        targets: `"ic"`: x, y and z are asked for; `"last"`: z alone.
        chain_share: share of the samples that show the chain instead of the graph, in training and held out.
        chain_until: training step before which all samples show the chain.
        easier_first: whether x and y count before that step.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "node", "slot")

    graph: Graph = "two parents"
    chains: int = 3
    symbol_dim: int = 4
    targets: Literal["ic", "last"] = "ic"
    chain_share: float = Field(0.0, ge=0.0, lt=1.0)
    chain_until: int = Field(0, ge=0)
    easier_first: bool = True

    def retrieval(self, graph: Graph) -> Retrieval:
        """The conditional retrieval problem of a graph."""
        parents = {"a": (), "x": ("a",), "y": ("a",), "z": PARENTS[graph]}
        nodes = tuple(Node(name=name, parents=keys) for name, keys in parents.items())
        fields = self.model_dump(include={"chains", "symbol_dim", "targets"})
        return Retrieval(nodes=nodes, position="pair", **fields)

    @property
    def words(self) -> Mapping[str, object]:
        """Words of the roles of the graph."""
        return self.retrieval(self.graph).words

    def shape(self) -> Shape:
        """Tuples with position codes, then the queries, which are asked."""
        return self.retrieval(self.graph).shape()

    def sample(self, draws: "Draws") -> "Batch":
        """Samples of the graph, of the chain in as many positions, or of both."""
        batch = self.retrieval(self.graph).sample(draws)
        return self._with_chains(draws, batch) if self.chain_share or self.chain_until else batch

    def _with_chains(self, draws: "Draws", batch: "Batch") -> "Batch":
        import torch
        from torch.nn.functional import pad

        from hopscope.tasks import Batch

        chain = self.retrieval("chain").sample(draws)
        before = batch.inputs.shape[2] - chain.inputs.shape[2]
        first = (draws.step < self.chain_until) & (draws.use == "train")
        shows_chain = (draws.uniform("graph") < self.chain_share) | first
        here, weights = shows_chain[..., None, None], None
        if self.chain_until and not self.easier_first and self.targets == "ic":
            # The loss is a mean over three symbols, of which z alone counts at first.
            z_alone = torch.tensor([0.0, 0.0, 3.0], device=draws.device).repeat_interleave(self.symbol_dim)
            weights = torch.where(first[:, None], z_alone, 1.0)[None, :, None]
        return Batch(
            # What stands before a chain, which is shorter than the branching graph, is 0.
            torch.where(here, pad(chain.inputs, (0, 0, before, 0)), batch.inputs),
            torch.where(here, chain.targets, batch.targets),
            weights=weights,
            groups={"chain": shows_chain, "branching": ~shows_chain} if self.chain_share else {},
        )

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error, in which weights count, and that of each symbol that is asked for."""
        return self.retrieval(self.graph).parts(predictions, batch)

    def floors(self) -> Floors:
        """What it costs to predict zero, the mean of a table, or the mean of what one of two keys leaves."""
        found = self.retrieval(self.graph).floors()
        return {name: floor for name, floor in found.items() if not name.startswith("accuracy")}
