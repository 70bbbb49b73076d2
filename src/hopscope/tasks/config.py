"""Configurations of the tasks: values without torch, so that plans and help texts load fast."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.tasks.text import TextConfig
from hopscope.tasks.text.tokens import equations_vocabulary, question_words

SMALLEST_VALUES, LARGEST_VALUES = 3, 12


def training_mappings(values: int, held_out_share: float) -> int:
    """How many of all V! mappings are used in training: the others are held out, at least one and not all."""
    total = math.factorial(values)
    return total - min(max(round(held_out_share * total), 1), total - 1)


class PermutationConfig(Config):
    """The permutation-lookup task (presentation, sections 1, 2 and 8).

    Attributes:
        values: number of values V, from 3 to 12; tokens are 1…V, a mapping is a permutation of them.
        repeat_ratio: probability that one x of a sequence copies an earlier one (0.3 in section 8).
        repeat_slots: slots (1…V) that may be the copy; empty means the last slot only, as in section 8.
        repeat_sources: slots that may be copied; empty means every slot before the copy.
        split_seed: seed of the split into training and held-out mappings.
        held_out_share: share of all V! mappings that training never sees (24 of 120 in section 2).
    """

    kind: Literal["permutation"] = "permutation"
    values: int = Field(5, ge=SMALLEST_VALUES, le=LARGEST_VALUES)
    repeat_ratio: float = Field(0.0, ge=0.0, le=1.0)
    repeat_slots: tuple[int, ...] = ()
    repeat_sources: tuple[int, ...] = ()
    split_seed: int = Field(0, ge=0, lt=1 << 63)
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)

    @property
    def positions(self) -> int:
        """Length of the input: x₁ y₁ … x_V, the last y is only ever a target."""
        return 2 * self.values - 1

    def repeat_pairs(self) -> list[tuple[int, int]]:
        """All allowed (slot, source) pairs, counted from 1, in lexicographic order."""
        slots = self.repeat_slots or (self.values,)
        sources = self.repeat_sources or tuple(range(1, self.values + 1))
        return [
            (slot, source) for slot in sorted(set(slots)) for source in sorted(set(sources)) if source < slot
        ]

    @model_validator(mode="after")
    def _slots_exist(self) -> Self:
        for name, slots in (("repeat_slots", self.repeat_slots), ("repeat_sources", self.repeat_sources)):
            outside = [slot for slot in slots if not 1 <= slot <= self.values]
            if outside:
                raise ValueError(f"{name}: expected slots from 1 to {self.values}, found {outside}")
        if not self.repeat_pairs():
            raise ValueError(
                f"repeat_slots and repeat_sources: expected at least one source before a slot, "
                f"found slots {self.repeat_slots} and sources {self.repeat_sources}"
            )
        return self


Targets = Literal["ic", "last"] | tuple[int, ...]
"""Which symbols of its chain a query is asked for: all of x₁ … x_D (`"ic"`, the paper's implicit curriculum), x_D alone
(`"last"`), or any steps."""

TimeOrder = Literal["deepest-first", "shallowest-first", "random"] | tuple[int, ...]
"""In which order the steps of the chains are shown: named, anew for every sample, or the step numbers in time order."""

LARGEST_CHAINS, LARGEST_STEPS, LARGEST_POSITIONS = 64, 64, 4096


class VectorTaskConfig(Config):
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


class RetrievalConfig(VectorTaskConfig):
    """The retrieval problem in its minimal formulation (paper, sections 3 and 6).

    Attributes:
        steps: retrieval steps D of a chain.
        order: in which order the steps are shown.
        targets: what the queries are asked for.
        schedule: changes of the targets: (first training step, targets), ascending; before the first of them, and
            in every evaluation, `targets` hold.
    """

    kind: Literal["retrieval"] = "retrieval"
    steps: int = Field(3, ge=1, le=LARGEST_STEPS)
    order: TimeOrder = "deepest-first"
    targets: Targets = "ic"
    schedule: tuple[tuple[int, Targets], ...] = ()

    @property
    def positions(self) -> int:
        """Length of the input: D blocks of N pairs, and N queries."""
        return self.chains * (2 * self.steps + 1)

    @property
    def symbols(self) -> int:
        """Different symbols of a sample."""
        return self.chains * (self.steps + 1)

    @property
    def floors(self) -> dict[str, dict[str, float]]:
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
        """Targets as step numbers."""
        if targets == "ic":
            return tuple(range(1, self.steps + 1))
        return (self.steps,) if targets == "last" else tuple(targets)

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
        _check_pool(self.pool, self.symbols * self.symbol_dim)
        return self


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
        """Names of the nodes."""
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
    def floors(self) -> dict[str, dict[str, float]]:
        """Mean squared errors for each node that is asked for, by what a prediction makes use of; see `floors_of`."""
        keys = {node.name: len(node.parents) for node in self.nodes}
        return {name: floors_of(self.chains, keys[name]) for name in self.asked}

    @property
    def plateau(self) -> float:
        """Mean squared error, over all that is asked for, of predicting the mean of each node's table."""
        found = [floors["position"] for floors in self.floors.values()]
        return sum(found) / len(found)

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


LARGEST_MAPPING = 6
"""Chains of equations, at most: a table of all their mappings is kept."""

LINE = 3
"""Tokens of a line of equations: a name, the sign, a name or value."""


class EquationsConfig(Config):
    """Questions in equations (paper, section 4 and Appendix A.1) as tokens, for a small language model.

    A training text is a question, its answer and an end mark, then the lines of the question once more in another
    order.  The model predicts the answer, the mark, and the right side of every repeated line.

    Attributes:
        chains: interleaved chains N.
        depths: how many rounds D a question may have, ascending.
        mixture: how often each of them is drawn: all alike, with a probability in proportion to 1 / D (Zipf), or in
            proportion to given weights, one for each depth.
        lines: what the right side of a line may be in training: a symbol of the round before, each once, as in the
            paper ("paper"), or any name of an earlier round or value ("earlier"), so that a question with D rounds
            takes 1 to D steps.  Held-out questions are the paper's always.
        asked: in training, what a question is about: a name of the last round, as in the paper, or any.
        repeated: whether the lines are repeated behind the answer in training.
        held_out_share: of all N! mappings of names to values, those that training never sees.
        split_seed: seed of that split.
    """

    kind: Literal["equations"] = "equations"
    chains: int = Field(4, ge=2, le=LARGEST_MAPPING)
    depths: tuple[int, ...] = (1, 2)
    mixture: Literal["uniform", "zipf"] | tuple[float, ...] = "uniform"
    lines: Literal["paper", "earlier"] = "earlier"
    asked: Literal["last", "any"] = "any"
    repeated: bool = True
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def shares(self) -> tuple[float, ...]:
        """Probability of each depth."""
        if isinstance(self.mixture, tuple):
            weights = self.mixture
        else:
            weights = tuple(1.0 if self.mixture == "uniform" else 1.0 / depth for depth in self.depths)
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Tokens by number."""
        return equations_vocabulary(self.chains, self.depths[-1])

    def prompt_length(self, depth: int) -> int:
        """Tokens of a question with so many rounds: lines, and the question sentence."""
        before, behind = question_words(self.chains, depth)
        return LINE * self.chains * depth + len(before) + 1 + len(behind)

    def answered(self, depth: int) -> tuple[int, ...]:
        """Positions where something is to be predicted: the question's last, the answer, the = of repeated lines."""
        end = self.prompt_length(depth)
        repeated = range(end + 3, end + 2 + LINE * self.chains * depth, LINE) if self.repeated else ()
        return (end - 1, end, *repeated)

    @property
    def positions(self) -> int:
        """Length of the input: all but the last token of the longest text."""
        return self.answered(self.depths[-1])[-1] + 1

    @property
    def readout(self) -> tuple[int, ...]:
        """Positions where something is to be predicted at some depth, ascending."""
        return tuple(sorted({position for depth in self.depths for position in self.answered(depth)}))

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if not self.depths or list(self.depths) != sorted(set(self.depths)) or self.depths[0] < 1:
            raise ValueError(f"depths: expected ascending numbers from 1, found {list(self.depths)}")
        if isinstance(self.mixture, tuple):
            _check_weights(self.mixture, self.depths)
        deepest = self.depths[-1]
        # Refuses what cannot be written.
        TextConfig(formulation="equations", depth=deepest, chains=self.chains)
        if (deepest * self.chains) ** self.chains >= 1 << 31:
            raise ValueError(
                f"depths: expected (depth · chains)^chains below 2^31, found ({deepest} · {self.chains})^"
                f"{self.chains}; take a smaller depth or fewer chains"
            )
        return self


def _check_weights(weights: tuple[float, ...], depths: tuple[int, ...]) -> None:
    """Refuse weights that leave out the deepest questions: those of a task without them are drawn otherwise."""
    if len(weights) != len(depths) or min(weights) < 0.0 or weights[-1] == 0.0:
        raise ValueError(
            f"mixture: expected a weight for each depth of {list(depths)}, none below 0 and the last above, "
            f"found {list(weights)}"
        )


TaskConfig = Annotated[
    PermutationConfig | RetrievalConfig | ConditionalConfig | EquationsConfig, Field(discriminator="kind")
]
"""Configuration of any task."""
