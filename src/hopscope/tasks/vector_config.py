"""Configurations of the tasks on vectors: values without torch."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.tasks.sequence_layout import SequenceLayout
from hopscope.tasks.task import BuiltInTask, Floors, Shape, made

if TYPE_CHECKING:
    import torch

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.conditional import ConditionalTask
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.tasks.vector_task import VectorTask

Targets = Literal["ic", "last"] | tuple[int, ...]
"""Which symbols of its chain a query is asked for: all of x₁ … x_D (`"ic"`, the paper's implicit curriculum), x_D alone
(`"last"`), or any steps."""

Emphasis = Literal["weights", "subsets", "one"]
"""What the shares of the steps are in training: weights of their losses in every sample; the probability with which a
sample asks for each step, independently; or the probability that it is the one step which a sample asks for."""

TimeOrder = Literal["deepest-first", "shallowest-first", "random"] | tuple[int, ...]
"""In which order the steps of the chains are shown: named, anew for every sample, or the step numbers in time order."""

LARGEST_CHAINS, LARGEST_STEPS, LARGEST_POSITIONS = 64, 64, 4096


class VectorTaskConfig(BuiltInTask):
    """What the tasks on vectors have in common (paper, section 6).

    Attributes:
        chains: number of chains N of a sample (4 in the paper).
        symbol_dim: dimensions K of a symbol, and of its position code (4 in the paper).
        position: whether every position has a code of its own (section 6), or all tokens of one pair share one
            (the proof of Theorem 1).
        frequencies: of the cosines and sines of a position code: `"harmonic"`, whole multiples of 2π over the number
            of codes, or `"geometric"`, `frequency_base` to the powers 0, -2/K, -4/K … (Su et al. 2023).
        frequency_base: base of the geometric frequencies.
        pool: number of training samples that each member ever sees; `None` draws fresh ones without end.
        split_seed: seed of the held-out samples, which are the same for all members.
    """

    chains: int = Field(4, ge=1, le=LARGEST_CHAINS)
    symbol_dim: int = Field(4, ge=2)
    position: Literal["token", "pair"] = "token"
    frequencies: Literal["harmonic", "geometric"] = "harmonic"
    frequency_base: float = Field(10_000.0, gt=1.0)
    pool: int | None = Field(None, ge=1)
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def floors_by_name(self) -> dict[str, dict[str, float]]:
        """Mean squared errors for each symbol that is asked for, by what a prediction makes use of."""
        return {}

    def floors(self) -> Floors:
        """Of the loss and of each symbol's part, by what a prediction makes use of; of accuracies the guess."""
        by_name = self.floors_by_name
        common = [name for name in ("zero", "position") if by_name]
        floors: dict[str, float | Mapping[str, float]] = {
            name: sum(floors[name] for floors in by_name.values()) / len(by_name) for name in common
        }
        guess = {"guess": self.guess}
        floors |= {f"loss_{name}": floors for name, floors in by_name.items()}
        return floors | {f"accuracy_{name}": guess for name in by_name}

    def parts(self, predictions: "torch.Tensor", batch: "Batch") -> "Mapping[str, torch.Tensor]":
        """Mean squared errors, and how often the nearest candidate is the right one."""
        task = self.on(predictions.device)
        return {**task.losses(predictions, batch), **task.accuracies(predictions.detach(), batch)}

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "VectorTask":
        """The task on a device; see `Task.on`."""
        raise NotImplementedError

    def _with_pool(self, examples: int | None) -> Self:
        """The same task with a finite pool of training samples."""
        if examples is None:
            return self
        return type(self).model_validate(self.model_dump() | {"pool": examples})

    def _shape(self, positions: int, readout: tuple[int, ...], asked: int) -> Shape:
        return Shape(
            inputs="vectors",
            input_size=2 * self.symbol_dim,
            positions=positions,
            readout=readout,
            output_size=asked * self.symbol_dim,
            position_size=self.symbol_dim,
        )

    @property
    def zero_floor(self) -> float:
        """Mean squared error of predicting zero: the variance of a symbol's components."""
        return 1.0

    @property
    def plateau(self) -> float:
        """Mean squared error of predicting the mean of the N symbols that a step could ask for: 1 - 1/N.

        That is what attention by position alone can reach; a model that is "stuck" is stuck there.
        """
        return 1.0 - 1.0 / self.chains

    @property
    def guess(self) -> float:
        """Nearest-candidate accuracy of a guess."""
        return 1.0 / self.chains

    @model_validator(mode="after")
    def _even(self) -> Self:
        if self.symbol_dim % 2:
            raise ValueError(
                f"symbol_dim: expected an even number, half cosines and half sines of the position code, "
                f"found {self.symbol_dim}"
            )
        return self


def floors_of(chains: int, keys: int) -> dict[str, float]:
    """Mean squared errors of predicting a value of a table of N^p by the mean of those that are left.

    The mean of n independent symbols, of which one is right, misses it by 1 - 1/n.

    Args:
        chains: number of chains N.
        keys: number of keys p of the table.

    Returns:
        `zero`, of predicting 0; `position`, of the mean of the whole table, which needs no key: 1 - N^-p; and
        `keys_j`, of the mean of those values that stand beside j of the right keys, for 0 < j < p: 1 - N^(j - p).
        (The mean of the N values that lie on chains needs no key either, and misses by as much as `keys_{p-1}`.)
    """
    names = ["position", *(f"keys_{known}" for known in range(1, keys))]
    return {"zero": 1.0, **{name: 1.0 - chains ** float(known - keys) for known, name in enumerate(names)}}


def _check_pool(pool: int | None, numbers: int) -> None:
    # Sample i of a pool has the indices i·quads … i·quads + quads - 1 of `rng.bits`, which are below 2³².
    largest = min((1 << 32) // -(-numbers // 4), (1 << 31) - 1)
    if pool is not None and pool > largest:
        raise ValueError(f"pool: expected at most {largest} samples of {numbers} numbers each, found {pool}")


def _in_time(order: str | tuple[Any, ...], shallowest_first: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """An order as what is shown, one after another; `None` where every sample has its own."""
    named = {"shallowest-first": shallowest_first, "deepest-first": shallowest_first[::-1], "random": None}
    return named[order] if isinstance(order, str) else order


KINDS = ("first", "second", "query")
FIRST, SECOND, QUERY = range(3)
"""What a token of the retrieval problem is."""


class RetrievalConfig(VectorTaskConfig):
    """The retrieval problem in its minimal formulation (paper, sections 3 and 6).

    Attributes:
        steps: retrieval steps D of a chain.
        order: in which order the steps are shown.
        targets: what the queries are asked for.
        schedule: changes of the targets: (first training step, targets), ascending; before the first of them, and
            in every evaluation, `targets` hold.
        shares: how much each step of `asked` counts in training, from 0 to 1; empty: all alike, in every sample.
        emphasis: what the shares are.
    """

    kind: Literal["retrieval"] = "retrieval"
    steps: int = Field(3, ge=1, le=LARGEST_STEPS)
    order: TimeOrder = "deepest-first"
    targets: Targets = "ic"
    schedule: tuple[tuple[int, Targets], ...] = ()
    # Left out of the record where they are not given, so that earlier runs keep their names.
    shares: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = Field(
        (), exclude_if=lambda shares: not shares
    )
    emphasis: Emphasis = Field("weights", exclude_if=lambda emphasis: emphasis == "weights")

    @property
    def positions(self) -> int:
        """Length of the input: D blocks of N pairs, and N queries."""
        return self.chains * (2 * self.steps + 1)

    @property
    def symbols(self) -> int:
        """Different symbols of a sample."""
        return self.chains * (self.steps + 1)

    @property
    def floors_by_name(self) -> dict[str, dict[str, float]]:
        """Mean squared errors for each step that is asked for, by what a prediction makes use of; see `floors_of`."""
        return {f"step_{step}": floors_of(self.chains, 1) for step in self.asked}

    @property
    def asked(self) -> tuple[int, ...]:
        """Steps that a prediction holds, ascending: all that are a target at some time."""
        everything = [self.targets, *(targets for _, targets in self.schedule)]
        return tuple(sorted({step for targets in everything for step in self.steps_of(targets)}))

    @property
    def steps_in_time(self) -> tuple[int, ...] | None:
        """Steps in the order in which they are shown, `None` where every sample has its own."""
        return _in_time(self.order, tuple(range(1, self.steps + 1)))

    def steps_of(self, targets: Targets) -> tuple[int, ...]:
        """Step numbers that a choice of targets means."""
        if targets == "ic":
            return tuple(range(1, self.steps + 1))
        return (self.steps,) if targets == "last" else tuple(targets)

    def shape(self) -> Shape:
        """Symbols with position codes; the queries, which stand last, are asked."""
        readout = tuple(range(self.positions - self.chains, self.positions))
        return self._shape(self.positions, readout, len(self.asked))

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "RetrievalTask":
        """The task on a device; see `Task.on`."""
        from hopscope.tasks.retrieval import RetrievalTask

        return made(RetrievalTask, self._with_pool(examples), device)

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`."""
        return {"roles": {"kind": KINDS}}

    @model_validator(mode="after")
    def _steps_exist(self) -> Self:
        every = list(range(1, self.steps + 1))
        if isinstance(self.order, tuple) and sorted(self.order) != every:
            raise ValueError(f"order: expected a permutation of 1 to {self.steps}, found {list(self.order)}")
        for targets in (self.targets, *(targets for _, targets in self.schedule)):
            chosen = self.steps_of(targets)
            if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(every):
                raise ValueError(
                    f"targets: expected 'ic', 'last' or different steps from 1 to {self.steps}, found {targets}"
                )
        starts = [start for start, _ in self.schedule]
        if starts != sorted(set(starts)) or any(start < 1 for start in starts):
            raise ValueError(f"schedule: expected ascending training steps from 1, found {starts}")
        self._check_shares()
        _check_pool(self.pool, self.symbols * self.symbol_dim)
        return self

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


class Node(Config):
    """One symbol of every chain of a conditional task.

    Attributes:
        name: what it is called, such as x.
        parents: nodes whose symbols together are its key; none for a query symbol.
    """

    name: str = Field(min_length=1)
    parents: tuple[str, ...] = ()


_PAPERS_NODES = (
    Node(name="a"),
    Node(name="x", parents=("a",)),
    Node(name="y", parents=("a",)),
    Node(name="z", parents=("x", "y")),
)


class ConditionalConfig(VectorTaskConfig):
    """The conditional retrieval problem: each step may depend on several earlier values (paper, section 3.1).

    A node with p parents is a table of N^p tuples, one for every combination of its parents' symbols, so that no key
    alone tells the value.

    Attributes:
        nodes: the symbols of a chain, each after its parents: a directed acyclic graph.  By default the paper's: the
            query is a, it has an x and a y, and z is found by x and y together.
        order: nodes with parents in the order of time in which their tables are shown, or a named order
            (`"deepest-first"` is the reverse of `nodes`, as the paper prints it).  Under `"random"`, tables with the
            same parents can be told apart only by what follows from them.
        targets: nodes that a query is asked for; `"ic"` all with parents, `"last"` the last of these.
    """

    kind: Literal["conditional"] = "conditional"
    nodes: tuple[Node, ...] = Field(_PAPERS_NODES, max_length=LARGEST_STEPS + 1)
    order: Literal["deepest-first", "shallowest-first", "random"] | tuple[str, ...] = "deepest-first"
    targets: Literal["ic", "last"] | tuple[str, ...] = "ic"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in their order."""
        return tuple(node.name for node in self.nodes)

    @property
    def tables(self) -> tuple[str, ...]:
        """Nodes with parents, in the order of `nodes`."""
        return tuple(node.name for node in self.nodes if node.parents)

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Parents of every node, as numbers."""
        return tuple(tuple(self.names.index(parent) for parent in node.parents) for node in self.nodes)

    @property
    def positions(self) -> int:
        """Length of the input: N^p tuples of p + 1 tokens for a node with p parents, N queries for one without."""
        arity = [len(node.parents) for node in self.nodes]
        return sum(self.chains ** max(1, keys) * (keys + 1) for keys in arity)

    @property
    def symbols(self) -> int:
        """Different symbols of a sample."""
        return sum(self.chains ** max(1, len(node.parents)) for node in self.nodes)

    @property
    def is_path(self) -> bool:
        """Whether every node but the first follows from the one before alone, as in the retrieval problem."""
        return self.parents == ((), *((node,) for node in range(len(self.nodes) - 1)))

    @property
    def asked(self) -> tuple[str, ...]:
        """Nodes that a prediction holds, in the order of `nodes`."""
        named = {"ic": self.tables, "last": self.tables[-1:]}
        chosen = named[self.targets] if isinstance(self.targets, str) else self.targets
        return tuple(name for name in self.tables if name in chosen)

    @property
    def tables_in_time(self) -> tuple[str, ...] | None:
        """Nodes with parents in the order in which they are shown, `None` where every sample has its own."""
        return _in_time(self.order, self.tables)

    @property
    def floors_by_name(self) -> dict[str, dict[str, float]]:
        """Mean squared errors for each node that is asked for, by what a prediction makes use of; see `floors_of`."""
        keys = {node.name: len(node.parents) for node in self.nodes}
        return {name: floors_of(self.chains, keys[name]) for name in self.asked}

    @property
    def plateau(self) -> float:
        """Mean squared error, over all that is asked for, of predicting the mean of each node's table."""
        found = [floors["position"] for floors in self.floors_by_name.values()]
        return sum(found) / len(found)

    def shape(self) -> Shape:
        """Symbols with position codes; the last symbol of each query is asked."""
        query = sum(not node.parents for node in self.nodes)
        first = self.positions - self.chains * query
        readout = tuple(first + (place + 1) * query - 1 for place in range(self.chains))
        return self._shape(self.positions, readout, len(self.asked))

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "ConditionalTask":
        """The task on a device; see `Task.on`."""
        from hopscope.tasks.conditional import ConditionalTask

        return made(ConditionalTask, self._with_pool(examples), device)

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the roles `kind` and `node`."""
        return {"roles": {"kind": SequenceLayout(self.parents, self.chains).kinds, "node": self.names}}

    @model_validator(mode="after")
    def _nodes_exist(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"nodes: expected different names, found {', '.join(self.names)}")
        for number, node in enumerate(self.nodes):
            before = self.names[:number]
            if not set(node.parents) <= set(before) or len(set(node.parents)) < len(node.parents):
                raise ValueError(
                    f"nodes: expected as parents of {node.name} different nodes before it "
                    f"({', '.join(before) or 'none'}), found {', '.join(node.parents)}"
                )
        if not self.tables:
            raise ValueError(
                f"nodes: expected at least one with parents, found {', '.join(self.names) or 'none'}"
            )
        if self.positions > LARGEST_POSITIONS:
            raise ValueError(
                f"nodes: expected at most {LARGEST_POSITIONS} positions (N^p tuples of p + 1 tokens for each node "
                f"with p parents), found {self.positions}; take fewer chains or fewer parents"
            )
        _check_pool(self.pool, self.symbols * self.symbol_dim)
        return self

    @model_validator(mode="after")
    def _choices_exist(self) -> Self:
        every = ", ".join(self.tables)
        if isinstance(self.order, tuple) and sorted(self.order) != sorted(self.tables):
            raise ValueError(
                f"order: expected a permutation of {every}, found {', '.join(self.order) or 'none'}"
            )
        chosen = self.tables if isinstance(self.targets, str) else self.targets
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(self.tables):
            raise ValueError(
                f"targets: expected 'ic', 'last' or different nodes of {every}, found {', '.join(chosen) or 'none'}"
            )
        return self
