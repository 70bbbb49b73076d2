"""The retrieval problem (paper, sections 3 and 6): follow a chain from its first symbol, step by step.  No torch.

Every chain has a symbol, a fresh Gaussian vector, for each node of a directed acyclic graph.  A node with p parents is
shown as a block of N^p tuples (a symbol of each parent, a value), in random order: since every x meets every y, neither
alone tells the value.  Then come the queries in random order, which show the symbols of nodes without parents.  In the
paper's problem the graph is a path x₀ → x₁ → … → x_D: a block of N pairs (x_{k-1}, x_k) for each step k, and queries
x₀.  With `nodes` it is any graph: the conditional retrieval problem (section 3.1).
"""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.tasks.task import Floors, Shape, Task, expect

if TYPE_CHECKING:
    from torch import Tensor, device

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws

Order = Literal["deepest-first", "shallowest-first", "random"] | tuple[int, ...] | tuple[str, ...]
Targets = Literal["ic", "last"] | tuple[int, ...] | tuple[str, ...]

_MOST, _MOST_POSITIONS = 64, 4096

_SYMBOLS, _SHUFFLES = range(2)
"""Blocks of the random words of one sample; the next one says which example of a pool it is."""


class Node(Config):
    """One symbol of every chain: its name, such as x, and the nodes whose symbols together are its key."""

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
        frequency_base: of geometric frequencies.
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
    symbol_dim: int = Field(4, ge=2, multiple_of=2)
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
    def names(self) -> tuple[str, ...]:
        """What each node is called in `order` and `targets`: its name, or on a chain the number of its step."""
        return tuple(node.name for node in self.nodes) or tuple(map(str, range(self.steps + 1)))

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Parents of every node, as numbers."""
        path = ((), *((step,) for step in range(self.steps)))
        return tuple(tuple(self.numbers(node.parents)) for node in self.nodes) or path

    def numbers(self, names: Iterable[int | str]) -> list[int]:
        """Numbers of the nodes that are called so."""
        return [self.names.index(str(name)) for name in names]

    @property
    def tables(self) -> tuple[int, ...]:
        """Numbers of the nodes with parents, each of which is shown as a table."""
        return tuple(number for number, parents in enumerate(self.parents) if parents)

    @property
    def stages(self) -> dict[int, tuple[int, ...]]:
        """From which training step on which nodes are the targets, ascending."""
        named: dict[Any, tuple[int, ...]] = {"ic": self.tables, "last": self.tables[-1:]}
        every = {0: self.targets, **dict(self.schedule)}.items()
        return {start: named.get(each) or tuple(sorted(self.numbers(each))) for start, each in every}

    @cached_property
    def asked(self) -> dict[str, int]:
        """Name and node of every symbol that a prediction holds, ascending: all that are a target at some time."""
        numbers = sorted({*chain.from_iterable(self.stages.values())})
        return {self.names[each] if self.nodes else f"step_{each}": each for each in numbers}

    @property
    def length(self) -> int:
        """Positions: N^p tuples of p + 1 tokens for each node with p parents, N queries for one without."""
        return sum(self.chains ** max(1, len(keys)) * (len(keys) + 1) for keys in self.parents)

    def shape(self) -> Shape:
        """Symbols with position codes; the last symbol of each query is asked."""
        query, length = len(self.parents) - len(self.tables), self.length
        return Shape(
            inputs="vectors",
            input_size=2 * self.symbol_dim,
            positions=length,
            readout=tuple(range(length - query * (self.chains - 1) - 1, length, query)),
            output_size=len(self.asked) * self.symbol_dim,
            position_size=self.symbol_dim,
        )

    def sample(self, draws: "Draws") -> "Batch":
        """Samples at the addresses of some draws.

        Roles: `kind` (what a token is in its tuple, or `query`), `step` of a chain (whose pair it is; 0 for a query) or
        `node` and `slot` of a graph, `chain` (-1: on none), `place` (rank in its block), `holds` (its symbol's node).
        Relations: `previous`, `pair_mate`, `same_symbol` (from a key to where its symbol is brought, from there to the
        first key with it on its chain), `hop_k` (from x_j to where x_{j+k} is brought, on a path) and, of a graph,
        `to_NODE` (to where the chain's value of that node is brought).
        """
        return _sampler(self, draws.device)(draws)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error per dimension, in which weights count, and of each symbol apart (section 7)."""
        from hopscope.tasks.batch import weighted

        squared = (predictions - batch.targets).square()
        of_symbols = squared.unflatten(-1, (len(self.asked), -1)).mean((1, 2, 4))
        loss = of_symbols.mean(-1) if batch.weights is None else weighted(squared, batch).mean((1, 2, 3))
        parts = zip(self.asked, of_symbols.unbind(1), strict=True)
        return {"loss": loss, **{f"loss_{name}": part for name, part in parts}}

    def scores(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """How often the right symbol is the nearest of the N that the chains have there; a guess has 1/N."""
        import torch

        sizes, both = (len(self.asked), -1), (predictions, batch.targets)
        predicted, right = (each.unflatten(-1, sizes).movedim(3, 2) for each in both)
        # |p - c|² without |p|², which is the same for all candidates of a prediction.
        distance = right.square().sum(-1)[..., None, :] - 2.0 * predicted @ right.transpose(-1, -2)
        own = torch.arange(right.shape[-2], device=right.device)
        found = (distance.argmin(-1) == own).double().mean((1, 3))
        return {f"accuracy_{name}": share for name, share in zip(self.asked, found.unbind(1), strict=True)}

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Symbols of each node, `x_NODE`, exchanged for those of another sample; `position`: codes moved by two.

        Of a graph, the rows of its tables that are on no chain keep their symbols.
        """
        import torch

        symbols, codes = batch.inputs.tensor_split((self.symbol_dim,), -1)
        holds, chain, found = batch.roles["holds"], batch.roles["chain"], dict[str, torch.Tensor]()
        for node in holds.unique().tolist():
            changed = symbols
            for number in range(self.chains):
                here = ((holds == node) & (chain == number))[..., None]
                symbol = symbols.take_along_dim(here.int().argmax(2, keepdim=True), 2)
                changed = symbol.roll(1, 1).where(here, changed)
            found[f"x_{node}"] = torch.cat((changed, codes), -1)
        return {**found, "position": torch.cat((symbols, codes.roll(2, 2)), -1)}

    def floors(self) -> Floors:
        """Mean squared errors by what a prediction makes use of; of accuracies the guess.

        The mean of n independent symbols, of which one is right, misses it by 1 - 1/n.  `zero` predicts 0; `position`
        the mean of a whole table, which needs no key; `keys_j` that of the values beside j of the p right keys.
        """
        floors = dict[str, Mapping[str, float]]()
        for name, node in self.asked.items():
            keys = len(self.parents[node])
            known = {f"keys_{known}": 1.0 - self.chains ** float(known - keys) for known in range(keys)}
            floors[f"loss_{name}"] = {"zero": 1.0, "position": known.pop("keys_0"), **known}
        first = self.stages[min(self.stages)]
        counts = self.shares or [float(node in first) for node in self.asked.values()]
        each = zip(counts, floors.values(), strict=True)
        no_key = sum(count * of["position"] for count, of in each) / sum(counts)
        accuracies = {f"accuracy_{name}": {"guess": 1.0 / self.chains} for name in self.asked}
        return {"zero": 1.0, "position": no_key, **floors, **accuracies}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the roles `kind` and `node`."""
        every = sorted({*map(len, self.parents)}, reverse=True)
        kinds = tuple(dict.fromkeys(_kind(keys, slot) for keys in every for slot in range(keys + 1)))
        return {"roles": {"kind": kinds, **({"node": self.names} if self.nodes else {})}}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for number, node in enumerate(self.nodes):
            before = [each.name for each in self.nodes[:number]]
            expect(node.name not in before, "nodes", "different names", f"{node.name} twice")
            fit = {*node.parents} <= {*before} and len({*node.parents}) == len(node.parents)
            wanted = f"as parents of {node.name} different nodes before it ({', '.join(before) or 'none'})"
            expect(fit, "nodes", wanted, [*node.parents])
        every = [self.names[number] for number in self.tables]
        expect(bool(every), "nodes", "at least one with parents", "none")
        wanted = f"at most {_MOST_POSITIONS} positions (N^p tuples of p + 1 tokens for p parents)"
        found = f"{self.length}; take fewer chains or parents"
        expect(not self.nodes or self.length <= _MOST_POSITIONS, "nodes", wanted, found)
        if isinstance(self.order, tuple):
            same = sorted(map(str, self.order)) == sorted(every)
            expect(same, "order", f"a permutation of {', '.join(every)}", [*self.order])
        for targets in (self.targets, *(targets for _, targets in self.schedule)):
            if not isinstance(targets, str):
                fit = 0 < len(targets) == len({*map(str, targets)} & {*every})
                expect(fit, "targets", f"'ic', 'last' or different ones of {', '.join(every)}", [*targets])
        starts = [0, *(start for start, _ in self.schedule)]
        expect(starts == sorted({*starts}), "schedule", "ascending training steps from 1", starts[1:])
        if self.shares or self.emphasis != "weights":
            shares, one = [*self.shares], self.emphasis == "one"
            fit = len(shares) == len(self.asked) and any(shares)
            expect(fit, "shares", f"a number for each of {[*self.asked]}, not all 0", shares)
            expect(not self.schedule, "schedule", "none beside shares", [*self.schedule])
            whole = math.isclose(sum(shares), 1.0, abs_tol=1e-6)
            expect(whole or not one, "shares", "probabilities whose sum is 1", shares)
        return self


def _kind(keys: int, slot: int) -> str:
    if keys < 2:
        return ("first", "second")[slot] if keys else "query"
    return "value" if slot == keys else f"key{slot + 1}"


class _Sampler:
    """Draws samples on a device: which token of the layout stands at each position.  All else stands in tables."""

    def __init__(self, task: Retrieval):
        import torch

        from hopscope.tasks.vectors import Layout, position_codes

        self.task = task
        self.layout = layout = Layout(task.parents, task.chains, [node.name for node in task.nodes])
        kinds, keys = task.words["roles"]["kind"], [*map(len, task.parents)]
        places = zip(layout.node.tolist(), layout.slot.tolist(), strict=True)
        kind = torch.tensor([kinds.index(_kind(keys[node], slot)) for node, slot in places])
        own = {"node": layout.node, "slot": layout.slot} if task.nodes else {"step": layout.node}
        self.roles = {"kind": kind, **own, "chain": layout.chain, "holds": layout.holds}
        named = {"shallowest-first": task.tables, "deepest-first": task.tables[::-1], "random": ()}
        order = named[task.order] if isinstance(task.order, str) else task.numbers(task.order)
        # When the block of a token is shown: the queries last.
        times = [len(order), *(order.index(node) for node in task.tables if order)]
        self.time = torch.tensor(times)[layout.block] if order else None
        # What is asked, and how much it counts.  However many targets do, the loss is a mean over those.
        asked = [*task.asked.values()]
        self.readout = slice(task.shape().readout[0], None, keys.count(0))
        self.answers = torch.tensor([layout.on_chain[node] for node in asked]).T
        self.starts, self.shares = torch.tensor([*task.stages]), torch.tensor(task.shares)
        self.every_asked = torch.arange(len(asked))
        stages = [task.shares or [float(node in nodes) for node in asked] for nodes in task.stages.values()]
        weights = torch.tensor(stages).repeat_interleave(task.symbol_dim, -1)
        self.alike = not task.shares and bool((weights == 1.0).all())
        self.weights = weights / weights.mean(-1, keepdim=True)
        base = task.frequency_base if task.frequencies == "geometric" else None
        self.tuples = int(layout.tuple_of[-1]) + 1
        count = len(layout.tuple_of) if task.position == "token" else self.tuples
        self.codes = position_codes(count, task.symbol_dim, base)

    def __call__(self, draws: "Draws") -> "Batch":
        import torch

        from hopscope import rng
        from hopscope.tasks.batch import NO_RELATION, Batch
        from hopscope.tasks.vectors import selected

        task, layout, time = self.task, self.layout, self.time
        count, tables = layout.symbols * task.symbol_dim, len(task.tables)
        numbers = rng.normal(draws.quads(count, _SYMBOLS)).flatten(-2)[..., :count]
        symbols = numbers.unflatten(-1, (-1, task.symbol_dim))
        random = draws.quads(self.tuples + (tables if time is None else 0), _SHUFFLES).flatten(-2)
        if time is None:
            by_time = random[..., self.tuples : self.tuples + tables].argsort(dim=-1, stable=True)
            times = torch.nn.functional.pad(by_time.argsort(-1), (1, 0), value=tables)
            time = times.index_select(-1, layout.block)
        # Blocks in time, their tuples by a random word; the sort keeps the tokens of a tuple together.
        token = ((time << 32) + random.index_select(-1, layout.tuple_of)).argsort(dim=-1, stable=True)
        held = selected(symbols, _of(layout.symbol, token))
        chain = _of(layout.chain, token[..., self.readout])
        right = selected(symbols, self.answers[chain].flatten(2))

        def tuples_before() -> "Tensor":
            return (_of(layout.slot, token) == 0).cumsum(-1) - 1

        def place() -> "Tensor":
            block, before = _of(layout.block, token), tuples_before()
            return before - (before * (block != block.roll(1, -1))).cummax(-1).values

        def previous() -> "Tensor":
            return torch.arange(-1, token.shape[-1] - 1, device=token.device).expand(token.shape)

        def partner(name: str) -> "Tensor":
            positions = torch.nn.functional.pad(token.argsort(-1), (0, 1), value=NO_RELATION)
            return positions.gather(-1, _of(layout.relations[name], token))

        codes = torch.embedding(self.codes, tuples_before()) if task.position == "pair" else self.codes
        return Batch(
            torch.cat((held, codes.expand(*held.shape[:2], -1, -1)), -1),
            right.unflatten(2, (*chain.shape[2:], -1)).flatten(3),
            weights=self._weights(draws),
            roles={"place": place, **{name: partial(_of, role, token) for name, role in self.roles.items()}},
            relations={"previous": previous, **{name: partial(partner, name) for name in layout.relations}},
        )

    def _weights(self, draws: "Draws") -> "Tensor | None":
        if self.alike:
            return None
        if draws.stream != "train":
            return self.weights[None, :1, None].clone()  # the caller's own
        if self.task.emphasis == "weights":
            stage = (draws.step[:, None] >= self.starts).sum(-1) - 1
            return self.weights[stage][None, :, None]
        # What a sample asks for is drawn anew when an example of a finite pool comes again.
        if self.task.emphasis == "subsets":
            asked = draws.fresh.uniform("asked", (len(self.shares),)) < self.shares
        else:
            until = self.shares.cumsum(0)[:-1]
            one = (draws.fresh.uniform("asked")[..., None] >= until).sum(-1, keepdim=True)
            asked = one == self.every_asked
        return (asked / self.shares.mean()).repeat_interleave(self.task.symbol_dim, -1)[:, :, None]


def _of(table: "Tensor", token: "Tensor") -> "Tensor":
    # As `table[token]`, but quicker.
    return table.expand(*token.shape[:-1], -1).gather(-1, token)


@lru_cache(maxsize=8)
def _sampler(task: Retrieval, device: "device") -> _Sampler:
    with device:
        return _Sampler(task)
