"""The retrieval problem (paper, sections 3 and 6): follow a chain from its first symbol, step by step.  No torch.

Every chain has a symbol, a fresh Gaussian vector, for each node of a directed acyclic graph.  A node with p parents is
shown as a block of N^p tuples (a symbol of each parent, a value), in random order: since every x meets every y, neither
alone tells the value.  Then come the queries in random order, which show the symbols of nodes without parents.  In the
paper's problem the graph is a path x₀ → x₁ → … → x_D: a block of N pairs (x_{k-1}, x_k) for each step k, and queries
x₀.  With `nodes` it is any graph: the conditional retrieval problem (section 3.1).
"""

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope_next.config import Config
from hopscope_next.tasks.layout import Layout
from hopscope_next.tasks.task import Floors, Shape, Task

if TYPE_CHECKING:
    from torch import Tensor, device

    from hopscope_next.tasks.batch import Batch
    from hopscope_next.tasks.draws import Draws

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
    def names(self) -> tuple[str | int, ...]:
        """What each node is called in `order` and `targets`: its step number, or its name."""
        return tuple(node.name for node in self.nodes) or tuple(range(self.steps + 1))

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Parents of every node, as numbers."""
        path = ((), *((step,) for step in range(self.steps)))
        return tuple(tuple(map(self.names.index, node.parents)) for node in self.nodes) or path

    @property
    def tables(self) -> tuple[int, ...]:
        """Numbers of the nodes with parents, each of which is shown as a table."""
        return tuple(number for number, parents in enumerate(self.parents) if parents)

    @property
    def stages(self) -> dict[int, tuple[int, ...]]:
        """From which training step on which nodes are the targets, ascending."""
        named: dict[Any, tuple[int, ...]] = {"ic": self.tables, "last": self.tables[-1:]}
        every = {0: self.targets, **dict(self.schedule)}.items()
        return {start: named.get(each) or tuple(sorted(map(self.names.index, each))) for start, each in every}

    @cached_property
    def asked(self) -> dict[str, int]:
        """Name and node of every symbol that a prediction holds, ascending: all that are a target at some time."""
        numbers = sorted({*chain.from_iterable(self.stages.values())})
        return {str(self.names[each]) if self.nodes else f"step_{each}": each for each in numbers}

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
        `node` and `slot` of a graph, `chain` (N: on none), `place` (rank in its block), `holds` (its symbol's node).
        Relations: `previous`, `pair_mate`, `same_symbol` (from a key to where its symbol is brought, from there to the
        first key with it on its chain), `hop_k` (from x_j to where x_{j+k} is brought, on a path) and, of a graph,
        `to_NODE` (to where the chain's value of that node is brought).
        """
        return _sampler(self, draws.device)(draws)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Mean squared error per dimension, in which weights count, and of each symbol apart (section 7)."""
        squared = (predictions - batch.targets).square()
        of_symbols = squared.unflatten(-1, (len(self.asked), -1)).mean((1, 2, 4))
        loss = of_symbols.mean(-1) if batch.weights is None else (squared * batch.weights).mean((1, 2, 3))
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
        """Symbols of each node, `x_NODE`, exchanged for those of another sample; `position`: codes moved by two."""
        import torch

        symbols, codes = batch.inputs[..., : self.symbol_dim], batch.inputs[..., self.symbol_dim :]
        holds, chain, found = batch.roles["holds"], batch.roles["chain"], dict[str, torch.Tensor]()
        for node in holds.unique().tolist():
            changed = symbols
            for number in range(self.chains):
                here = ((holds == node) & (chain == number))[..., None]
                symbol = symbols.take_along_dim(here.int().argmax(2, keepdim=True), 2)
                changed = torch.where(here, symbol.roll(1, 1), changed)
            found[f"x_{node}"] = torch.cat((changed, codes), -1)
        return {**found, "position": torch.cat((symbols, codes.roll(2, 2)), -1)}

    def floors(self) -> Floors:
        """Mean squared errors by what a prediction makes use of; of accuracies the guess.

        The mean of n independent symbols, of which one is right, misses it by 1 - 1/n.  `zero` predicts 0; `position`
        the mean of a whole table, which needs no key; `keys_j` that of the values beside j of the p right keys.
        """
        floors, guess = dict[str, Mapping[str, float]](), {"guess": 1.0 / self.chains}
        for name, node in self.asked.items():
            keys = len(self.parents[node])
            known = {f"keys_{known}": 1.0 - self.chains ** float(known - keys) for known in range(keys)}
            floors[f"loss_{name}"] = {"zero": 1.0, "position": known.pop("keys_0"), **known}
        position = sum(each["position"] for each in floors.values()) / len(floors)
        accuracies = {f"accuracy_{name}": guess for name in self.asked}
        return {"zero": 1.0, "position": position, **floors, **accuracies}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the roles `kind` and `node`."""
        kinds = Layout(self.parents, 1).kinds
        return {"roles": {"kind": kinds, **({"node": self.names} if self.nodes else {})}}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for number, node in enumerate(self.nodes):
            before = [each.name for each in self.nodes[:number]]
            if node.name in before:
                raise ValueError(f"nodes: expected different names, found {node.name} twice")
            if not {*node.parents} <= {*before} or len({*node.parents}) < len(node.parents):
                wanted = (
                    f"as parents of {node.name} different nodes before it ({', '.join(before) or 'none'})"
                )
                raise ValueError(f"nodes: expected {wanted}, found {[*node.parents]}")
        every = [self.names[number] for number in self.tables]
        if not every:
            raise ValueError("nodes: expected at least one with parents, found none")
        if self.nodes and self.length > _MOST_POSITIONS:
            wanted = f"at most {_MOST_POSITIONS} positions (N^p tuples of p + 1 tokens for p parents)"
            raise ValueError(f"nodes: expected {wanted}, found {self.length}; take fewer chains or parents")
        if isinstance(self.order, tuple) and sorted(map(str, self.order)) != sorted(map(str, every)):
            raise ValueError(f"order: expected a permutation of {every}, found {[*self.order]}")
        for targets in (self.targets, *(targets for _, targets in self.schedule)):
            if not isinstance(targets, str) and (not targets or len({*targets} & {*every}) < len(targets)):
                wanted = f"'ic', 'last' or different ones of {every}"
                raise ValueError(f"targets: expected {wanted}, found {[*targets]}")
        starts = [0, *(start for start, _ in self.schedule)]
        if starts != sorted({*starts}):
            raise ValueError(f"schedule: expected ascending training steps from 1, found {starts[1:]}")
        if self.shares or self.emphasis != "weights":
            if len(self.shares) != len(self.asked) or not any(self.shares):
                wanted = f"a number for each of {[*self.asked]}, not all 0"
                raise ValueError(f"shares: expected {wanted}, found {[*self.shares]}")
            if self.schedule:
                raise ValueError(f"schedule: expected none beside shares, found {[*self.schedule]}")
            if self.emphasis == "one" and not math.isclose(sum(self.shares), 1.0, abs_tol=1e-6):
                raise ValueError(f"shares: expected probabilities whose sum is 1, found {[*self.shares]}")
        return self


class _Sampler:
    """Draws samples on a device: the position that each token of the layout is given.  All else stands in tables."""

    def __init__(self, task: Retrieval, device: "device"):
        import torch

        from hopscope_next.tasks.vectors import position_codes

        table, layout = partial(torch.tensor, device=device), Layout(task.parents, task.chains)
        tokens, blocks, symbols = layout.tokens, layout.blocks, layout.symbols
        self.task, self.count, self.query = task, len(symbols), blocks[0][1]
        # Where a token goes: its block, its tuple, its place in the tuple.
        self.block, self.row, self.slot = (table([token[field] for token in tokens]) for field in range(3))
        self.tuples, widths = (table(sizes) for sizes in zip(*blocks, strict=True))
        self.lengths, self.width = self.tuples * widths, widths[self.block]
        named = {"shallowest-first": task.tables, "deepest-first": task.tables[::-1], "random": ()}
        order = named[task.order] if isinstance(task.order, str) else [*map(task.names.index, task.order)]
        self.in_time = table([order.index(node) for node in task.tables]) if order else None
        self.groups = [tuples for tuples, _ in blocks] + [len(task.tables)] * (not order)
        # What it is.  Who has no partner has one beyond the last token, which is given the position NO_RELATION.
        self.holds = table([symbols[token.holds] for token in tokens])
        self.roles = {"kind": table([*map(layout.kind, tokens)])}
        for name in ("node", "slot", "chain") if task.nodes else ("step", "chain"):
            field = "node" if name == "step" else name
            self.roles[name] = table([getattr(token, field) for token in tokens])
        self.roles["holds"] = table([token.holds[0] for token in tokens])
        self.partners: dict[str, Tensor] = {}
        for name, numbers in layout.relations([node.name for node in task.nodes]).items():
            self.partners[name] = table([len(tokens) if each is None else each for each in numbers])
        # What is asked, and how much it counts.  However many targets do, the loss is a mean over those.
        asked, on_chain = [*task.asked.values()], layout.on_chain
        self.answers = table(
            [[symbols[on_chain(node, chain)] for node in asked] for chain in range(task.chains)]
        )
        self.starts, self.shares = table([*task.stages]), table(task.shares)
        stages = [task.shares or [float(node in nodes) for node in asked] for nodes in task.stages.values()]
        weights = table(stages).repeat_interleave(task.symbol_dim, -1)
        self.alike = not task.shares and bool((weights == 1.0).all())
        self.weights = weights / weights.mean(-1, keepdim=True)
        count = len(tokens) if task.position == "token" else sum(tuples for tuples, _ in blocks)
        base = task.frequency_base if task.frequencies == "geometric" else None
        self.codes = position_codes(count, task.symbol_dim, base).to(device)

    def __call__(self, draws: "Draws") -> "Batch":
        import torch

        from hopscope_next import rng
        from hopscope_next.tasks.batch import NO_RELATION, Batch
        from hopscope_next.tasks.vectors import inverse, ranks, selected

        count, dim = self.count, self.task.symbol_dim
        numbers = rng.normal(draws.words(count * dim, _SYMBOLS)).flatten(-2)
        symbols = numbers[..., : count * dim].unflatten(-1, (count, dim))
        found = ranks(draws.words(sum(self.groups), _SHUFFLES).flatten(-2), self.groups)
        in_time = found[..., -self.groups[-1] :] if self.in_time is None else self.in_time
        rank = found.index_select(-1, self.row)
        place = _starts(in_time, self.lengths).index_select(-1, self.block) + rank * self.width + self.slot
        token, codes = inverse(place), self.codes
        if self.task.position == "pair":
            first = _starts(in_time, self.tuples).index_select(-1, self.block)
            codes = codes[(first + rank).gather(-1, token)]
        held = selected(symbols, _of(self.holds, token))
        # The queries are the first tokens of the layout, chain by chain.
        chain = token[..., -self.task.chains * self.query :: self.query] // self.query
        right = selected(symbols, self.answers[chain].flatten(2))

        def before() -> "Tensor":
            return torch.arange(-1, token.shape[-1] - 1, device=token.device).expand(token.shape)

        def partner(name: str) -> "Tensor":
            positions = torch.nn.functional.pad(place, (0, 1), value=NO_RELATION)
            return positions.gather(-1, _of(self.partners[name], token))

        return Batch(
            torch.cat((held, codes.expand(*held.shape[:2], -1, -1)), -1),
            right.unflatten(2, (*chain.shape[2:], -1)).flatten(3),
            weights=self._weights(draws),
            roles={
                **{name: partial(_of, role, token) for name, role in self.roles.items()},
                "place": lambda: rank.gather(-1, token),
            },
            relations={"previous": before, **{name: partial(partner, name) for name in self.partners}},
        )

    def _weights(self, draws: "Draws") -> "Tensor | None":
        import torch

        if self.alike:
            return None
        if draws.stream != "train":
            return self.weights[None, :1, None]
        if self.task.emphasis == "weights":
            stage = (draws.step[:, None] >= self.starts).sum(-1) - 1
            return self.weights[stage][None, :, None]
        # What a sample asks for is drawn anew when an example of a finite pool comes again.
        if self.task.emphasis == "subsets":
            asked = draws.fresh.uniform("asked", (len(self.shares),)) < self.shares
        else:
            until = self.shares.cumsum(0)[:-1]
            one = (draws.fresh.uniform("asked")[..., None] >= until).sum(-1, keepdim=True)
            asked = one == torch.arange(len(self.shares), device=draws.device)
        return (asked / self.shares.mean()).repeat_interleave(self.task.symbol_dim, -1)[:, :, None]


def _of(table: "Tensor", token: "Tensor") -> "Tensor":
    """The entry of a table for the token at every position."""
    return table.expand(*token.shape[:-1], -1).gather(-1, token)


def _starts(in_time: "Tensor", sizes: "Tensor") -> "Tensor":
    """First position of every block: the tables by their rank in time, then the queries, which are block 0."""
    import torch

    tables = sizes[1:]
    earlier = in_time[..., None, :] < in_time[..., :, None]
    queries = tables.sum().expand(*in_time.shape[:-1], 1)
    return torch.cat((queries, (earlier * tables).sum(-1)), -1)


_sampler = lru_cache(maxsize=32)(_Sampler)
