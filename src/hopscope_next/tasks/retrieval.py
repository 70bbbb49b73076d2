"""The retrieval problem (paper, sections 3 and 6): follow a chain from its first symbol, step by step.  No torch.

Every chain has a symbol, a fresh Gaussian vector, for each node of a directed acyclic graph.  A node with p parents is
shown as a block of N^p tuples (a symbol of each parent, a value), in random order: since every x meets every y, neither
alone tells the value.  Then come the queries in random order, which show the symbols of nodes without parents.  In the
paper's problem the graph is a path x₀ → x₁ → … → x_D: a block of N pairs (x_{k-1}, x_k) for each step k, and queries
x₀.  With `nodes` it is any graph: the conditional retrieval problem (section 3.1).
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope_next.config import Config
from hopscope_next.tasks.layout import Layout
from hopscope_next.tasks.task import Floors, Shape, Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hopscope_next.tasks.batch import Batch
    from hopscope_next.tasks.draws import Draws
    from hopscope_next.tasks.vectors import Sampler

Order = Literal["deepest-first", "shallowest-first", "random"] | tuple[int, ...] | tuple[str, ...]
Targets = Literal["ic", "last"] | tuple[int, ...] | tuple[str, ...]

_MOST, _MOST_POSITIONS = 64, 4096


class Node(Config):
    """One symbol of every chain.

    Attributes:
        name: what it is called, such as x.
        parents: nodes whose symbols together are its key; none for a query symbol.
    """

    name: str = Field(min_length=1)
    parents: tuple[str, ...] = ()


class Retrieval(Task):
    """The retrieval problem: a chain of `steps`, or a graph of `nodes`.

    Attributes:
        steps: retrieval steps D of a chain.
        nodes: the symbols of a chain, each after its parents, in place of `steps`.
        chains: number of chains N of a sample (4 in the paper).
        symbol_dim: dimensions K of a symbol, and of its position code (4 in the paper).
        position: whether every position has a code of its own (section 6), or all tokens of one tuple share one (the
            proof of Theorem 1).
        frequencies: of the cosines and sines of a position code: `"harmonic"`, whole multiples of 2π over the number
            of codes, or `"geometric"`, `frequency_base` to the powers 0, -2/K, -4/K … (Su et al. 2023).
        frequency_base: base of the geometric frequencies.
        order: in which order the tables of the steps (or nodes) are shown: named, anew for every sample, or in time.
        targets: what the queries are asked for: all of x₁ … x_D (`"ic"`, the paper's implicit curriculum), x_D alone
            (`"last"`), or any steps (or nodes).
        schedule: changes of the targets: (first training step, targets), ascending; before the first of them, and in
            every evaluation, `targets` hold.
        shares: how much each step of `asked` counts in training, from 0 to 1; empty: all alike, in every sample.
        emphasis: what the shares are: weights of their losses in every sample; the probability with which a sample
            asks for each step, independently; or the probability that it is the one step which a sample asks for.
        split_seed: seed of the held-out samples, which are the same for all members.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "step", "node", "slot")

    steps: int = Field(3, ge=1, le=_MOST)
    nodes: tuple[Node, ...] = Field((), max_length=_MOST + 1)
    chains: int = Field(4, ge=1, le=_MOST)
    symbol_dim: int = Field(4, ge=2)
    position: Literal["token", "pair"] = "token"
    frequencies: Literal["harmonic", "geometric"] = "harmonic"
    frequency_base: float = Field(10_000.0, gt=1.0)
    order: Order = "deepest-first"
    targets: Targets = "ic"
    schedule: tuple[tuple[int, Targets], ...] = ()
    shares: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = ()
    emphasis: Literal["weights", "subsets", "one"] = "weights"
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def names(self) -> tuple[str | int, ...]:
        """What each node is called in `order` and `targets`: its step number, or its name."""
        return tuple(node.name for node in self.nodes) or tuple(range(self.steps + 1))

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Parents of every node, as numbers."""
        if not self.nodes:
            return ((), *((step,) for step in range(self.steps)))
        return tuple(tuple(self.names.index(parent) for parent in node.parents) for node in self.nodes)

    @property
    def layout(self) -> Layout:
        """The tokens of a sample before anything is shuffled."""
        return Layout(self.parents, self.chains)

    @property
    def tables(self) -> tuple[int, ...]:
        """Numbers of the nodes with parents, each of which is shown as a table."""
        return tuple(number for number, parents in enumerate(self.parents) if parents)

    def chosen(self, targets: Targets) -> tuple[int, ...]:
        """Numbers of the nodes that a choice of targets means, ascending."""
        named: dict[Any, tuple[int, ...]] = {"ic": self.tables, "last": self.tables[-1:]}
        known = {name: number for number, name in enumerate(self.names)}
        return named[targets] if isinstance(targets, str) else tuple(sorted(known[name] for name in targets))

    @property
    def stages(self) -> tuple[tuple[int, Targets], ...]:
        """First training step of every choice of targets, and the choice."""
        return ((0, self.targets), *self.schedule)

    @property
    def asked(self) -> dict[str, int]:
        """Name and node of every symbol that a prediction holds, ascending: all that are a target at some time."""
        numbers = sorted({number for _, targets in self.stages for number in self.chosen(targets)})
        return {str(self.names[each]) if self.nodes else f"step_{each}": each for each in numbers}

    @property
    def in_time(self) -> tuple[int, ...] | None:
        """Nodes with parents in the order in which their tables are shown; `None` where every sample has its own."""
        named = {"shallowest-first": self.tables, "deepest-first": self.tables[::-1], "random": None}
        return named[self.order] if isinstance(self.order, str) else tuple(map(self.names.index, self.order))

    def shape(self) -> Shape:
        """Symbols with position codes; the last symbol of each query is asked."""
        layout = self.layout
        positions, query = len(layout.tokens), len(layout.roots)
        return Shape(
            inputs="vectors",
            input_size=2 * self.symbol_dim,
            positions=positions,
            readout=tuple(
                positions - query * (self.chains - place) + query - 1 for place in range(self.chains)
            ),
            output_size=len(self.asked) * self.symbol_dim,
            position_size=self.symbol_dim,
        )

    def sample(self, draws: "Draws") -> "Batch":
        """Samples at the addresses of some draws.

        Roles: `kind` (what a token is in its tuple, or `query`), `step` of a chain (whose pair it is; 0 for a query) or
        `node` and `slot` of a graph, `chain` (N: on none), `place` (rank in its block), `holds` (its symbol's node).
        Relations: `previous`, `pair_mate`, `same_symbol` (from a key to where its symbol is brought, from there to the
        first key with it on its chain), `hop_k` (from x_j to where x_{j+k} is brought, on a path) and, of a graph,
        `to_NODE` (to where the chain's value of that node is brought).
        """
        return _sampler(self, draws.device)(draws)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error per dimension, in which weights count, and of each symbol apart (section 7)."""
        from hopscope_next.tasks.vectors import parts

        return parts([*self.asked], predictions, batch)

    def scores(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """How often the right symbol is the nearest of the N that the chains have there; a guess has 1/N."""
        from hopscope_next.tasks.vectors import accuracies

        return accuracies([*self.asked], predictions, batch)

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Symbols of each node, `x_NODE`, exchanged for those of another sample; `position`: codes moved by two."""
        from hopscope_next.tasks.vectors import exchanged

        return exchanged(self.symbol_dim, self.chains, batch)

    def floors(self) -> Floors:
        """Mean squared errors by what a prediction makes use of; of accuracies the guess.

        The mean of n independent symbols, of which one is right, misses it by 1 - 1/n.  `zero` predicts 0; `position`
        the mean of a whole table, which needs no key; `keys_j` that of the values beside j of the p right keys.
        """
        by_name = {name: self._floors_of(len(self.parents[node])) for name, node in self.asked.items()}
        floors: dict[str, float | Mapping[str, float]] = {
            name: sum(each[name] for each in by_name.values()) / len(by_name) for name in ("zero", "position")
        }
        floors |= {f"loss_{name}": each for name, each in by_name.items()}
        return floors | {f"accuracy_{name}": {"guess": 1.0 / self.chains} for name in by_name}

    def _floors_of(self, keys: int) -> dict[str, float]:
        names = ["position", *(f"keys_{known}" for known in range(1, keys))]
        return {
            "zero": 1.0,
            **{name: 1.0 - self.chains ** float(known - keys) for known, name in enumerate(names)},
        }

    @property
    def plateau(self) -> float:
        """Mean squared error that attention by position alone can reach; a model that is "stuck" is stuck there."""
        floors = [self._floors_of(len(self.parents[node]))["position"] for node in self.asked.values()]
        return sum(floors) / len(floors)

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the roles `kind` and `node`."""
        return {"roles": {"kind": self.layout.kinds, **({"node": self.names} if self.nodes else {})}}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.symbol_dim % 2:
            raise ValueError(
                f"symbol_dim: expected an even number, half cosines and half sines of the position code, "
                f"found {self.symbol_dim}"
            )
        self._check_nodes()
        every = self.names[1:] if not self.nodes else tuple(self.names[number] for number in self.tables)
        words = f"1 to {self.steps}" if not self.nodes else ", ".join(map(str, every))
        if isinstance(self.order, tuple) and sorted(map(str, self.order)) != sorted(map(str, every)):
            raise ValueError(f"order: expected a permutation of {words}, found {list(self.order)}")
        for targets in (targets for _, targets in self.stages if not isinstance(targets, str)):
            if not targets or len({*targets}) < len(targets) or not {*targets} <= {*every}:
                raise ValueError(
                    f"targets: expected 'ic', 'last' or different ones of {words}, found {targets}"
                )
        starts = [start for start, _ in self.schedule]
        if starts != sorted(set(starts)) or any(start < 1 for start in starts):
            raise ValueError(f"schedule: expected ascending training steps from 1, found {starts}")
        self._check_shares()
        return self

    def _check_nodes(self) -> None:
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            raise ValueError(f"nodes: expected different names, found {', '.join(names)}")
        for number, node in enumerate(self.nodes):
            before = names[:number]
            if not set(node.parents) <= set(before) or len(set(node.parents)) < len(node.parents):
                raise ValueError(
                    f"nodes: expected as parents of {node.name} different nodes before it "
                    f"({', '.join(before) or 'none'}), found {', '.join(node.parents)}"
                )
        if not self.tables:
            raise ValueError(f"nodes: expected at least one with parents, found {', '.join(names) or 'none'}")
        positions = sum(self.chains ** max(1, len(keys)) * (len(keys) + 1) for keys in self.parents)
        if positions > _MOST_POSITIONS and self.nodes:
            raise ValueError(
                f"nodes: expected at most {_MOST_POSITIONS} positions (N^p tuples of p + 1 tokens for each node "
                f"with p parents), found {positions}; take fewer chains or fewer parents"
            )

    def _check_shares(self) -> None:
        if not self.shares and self.emphasis == "weights":
            return
        if len(self.shares) != len(self.asked) or not any(self.shares):
            raise ValueError(
                f"shares: expected a number for each step that is asked for ({len(self.asked)}), not all 0, "
                f"found {list(self.shares)}"
            )
        if self.schedule:
            raise ValueError(f"schedule: expected none beside shares, found {list(self.schedule)}")
        if self.emphasis == "one" and not math.isclose(sum(self.shares), 1.0, abs_tol=1e-6):
            raise ValueError(
                f"shares: expected probabilities of the one step that is asked for, whose sum is 1, "
                f"found {list(self.shares)}"
            )


@lru_cache(maxsize=32)
def _sampler(task: Retrieval, device: "torch.device") -> "Sampler":
    from hopscope_next.tasks.vectors import Sampler, position_codes

    layout = task.layout
    count = sum(tuples for tuples, _ in layout.blocks) if task.position == "pair" else len(layout.tokens)
    base = None if task.frequencies == "harmonic" else task.frequency_base
    wanted = ((start, task.chosen(targets)) for start, targets in task.stages)
    return Sampler(
        layout,
        device,
        asked=[*task.asked.values()],
        in_time=task.in_time,
        codes=position_codes(count, task.symbol_dim, base),
        stages=[
            (start, task.shares or [float(each in nodes) for each in task.asked.values()])
            for start, nodes in wanted
        ],
        emphasis=task.emphasis,
        node_names=[node.name for node in task.nodes],
    )
