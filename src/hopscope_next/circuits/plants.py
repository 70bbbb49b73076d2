"""Planted models: transformers whose circuit is known because it was built, to prove readers and finders on.

The truth of a plant is the set of reads on which its answer depends.  Around it stand heads that do nothing, decoys,
which attend as if they took part and write what nobody reads, and, in `hidden` plants, noise.

Those of retrieval are here; in the grammar of simple rules: *doubling* and *reflection*, the witnesses; *walk*, where
second tokens read their pair mate and a query follows its chain by one hop in every layer; *copies*, a walk whose last
symbol comes several times, each time with a share of the whole, so that one may be missing.  Outside of it: *relay*,
where every token copies what the second token some pairs earlier in time holds, and the query finds the copy, with a
token of any chain, by the key that was copied along; *leak*, where the last read gives the wanted token a share of the
attention other than a half or all, the rest goes to tokens whose symbol is known, and the readout makes up for both
(two unequal targets are a rule, the three of a single step are not); *leaking relay*, both.  A relay also works if
every token is *made* to copy what its own chain needs: who judges by the loss alone finds a circuit that the model does
not have.  Of a leaking relay no rules are a substitute.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hopscope_next.circuits.weights import (
    MATE,
    OWN_CODE,
    OWN_SYMBOL,
    UNREAD,
    Answer,
    Copy,
    Head,
    blank,
    build,
)
from hopscope_next.circuits.witnesses import Plan, Planned, answers_of, plan
from hopscope_next.models.layers import Layer, Linear
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Retrieval, Task, draw


class Read(NamedTuple):
    """Rows in a role, at one head, that read something.

    Attributes:
        layer, head: which head, from 0.
        rows: in words, such as `second 1` or `x 5 repeat`.
        target: what they read, in words; `None` where it is no one token of their own chain.
        rule: as `said` names it; `None` where the target says it all.
    """

    layer: int
    head: int
    rows: str
    target: str | None
    rule: str | None = None


@dataclass(frozen=True)
class Plant:
    """A planted model.

    Attributes:
        name: of no other plant.
        family: plants of one family do their task in the same way.
        task: what it solves.
        model: a single transformer that knows the task.
        circuits: every minimal circuit; several where there is redundancy.
        decoys: heads whose output nobody reads; their rule is `uniform`, `identity` or the name of a relation, and an
            empty word means all rows.
        explained: whether rules describe the mechanism.
    """

    name: str
    family: str
    task: Task
    model: Transformer
    circuits: tuple[frozenset[Read], ...]
    decoys: tuple[Read, ...] = ()
    explained: bool = True


def chain_plants() -> Iterator[Plant]:
    """All plants of retrieval, always the same ones in the same order; each is built when it is asked for."""
    for recipes, layouts in _families():
        for number, (recipe, layout) in enumerate(zip(recipes, cycle(layouts), strict=False), 1):
            yield _placed(recipe, layout, f"{recipe.family} {number}")


# Recipes.

_COPIED = 40  # added to the number of a slot for that of its copy in a relay
_COARSE = 2e3  # sharpness at which float32 can share out attention between equal symbols to a thousandth


@dataclass(frozen=True)
class _Recipe:
    family: str
    task: Retrieval
    layers: Plan
    answers: Sequence[Answer]
    causal: bool = True
    explained: bool = True


def _witness(task: Retrieval, causal: bool) -> _Recipe:
    layers = plan(task.steps, causal=causal)
    return _Recipe("doubling" if causal else "reflection", task, layers, answers_of(task), causal)


def _hop(steps: int, step: int, share: float = 1.0, route: int | None = None) -> Planned:
    head = Head((2 * (step - 1), MATE), (Copy(2 * steps, OWN_SYMBOL, share),), "unpaired")
    return Planned(head, {"query": f"second {step}"}, route)


def _walk(task: Retrieval) -> _Recipe:
    mates = Head((OWN_CODE, OWN_CODE), (Copy(MATE, OWN_SYMBOL),), "own symbol")
    steps = range(1, task.steps + 1)
    layers = [[Planned(mates, {f"second {step}": f"first {step}" for step in steps})]]
    return _Recipe("walk", task, layers + [[_hop(step, step)] for step in steps], answers_of(task))


def _copies(task: Retrieval, routes: Sequence[int]) -> _Recipe:
    """So many routes in each of the last layers."""
    walk, numbers = _walk(task), iter(range(sum(routes)))
    hop = partial(_hop, task.steps, task.steps, 1.0 / sum(routes))
    last = [[hop(next(numbers)) for _ in range(count)] for count in routes]
    return replace(walk, family="copies", layers=walk.layers[:-1] + last)


def _relay(task: Retrieval, shift: int) -> _Recipe:
    """The last read finds a copy, so many pairs later in time than the original."""
    *layers, [last] = plan(task.steps)
    step = int(str(last.reads["query"]).split()[1])
    taken = tuple(Copy(copy.mine, copy.theirs + _COPIED) for copy in last.head.copies)
    found = Planned(Head((2 * (step - 1), MATE + _COPIED), taken, "unpaired"), {"query": None})
    relay = _relaying(task, [copy.theirs for copy in last.head.copies], step, shift, ("second",))
    return _Recipe("relay", task, [*layers, [relay], [found]], answers_of(task), explained=False)


def _relaying(task: Retrieval, slots: Sequence[int], step: int, shift: int, kinds: Sequence[str]) -> Planned:
    """Tokens copy the key and some slots of the token so many pairs earlier in time; deepest steps come first."""
    later = sorted({step - (place + shift) // task.chains for place in range(task.chains)})
    copies = tuple(Copy(slot + _COPIED, slot) for slot in (MATE, *slots))
    rows = [f"{kind} {found}" for kind in kinds for found in later]
    return Planned(Head((OWN_CODE, OWN_CODE), copies, "other kind", -shift), dict.fromkeys(rows))


def _leak(task: Retrieval, share: float, shift: int = 0) -> _Recipe:
    """The last read, of an original or of a copy so many pairs later, gives the wanted token this share."""
    walk, steps, copied = _walk(task), task.steps, _COPIED if shift else 0
    relay = [[_relaying(task, [OWN_SYMBOL], steps, shift, ("second", "first"))]] if shift else []
    known, whole = 2 * (steps - 1), 2 * steps
    # The rest goes to the first token of the pair, and of a single step to the query as well.
    others = 2 if steps == 1 else 1
    unpaired = math.log(share * others / (1.0 - share)) / task.symbol_dim
    copy = Copy(whole, OWN_SYMBOL + copied, 1.0 / share)
    head = Head((known, MATE + copied), (copy,), "unpaired", sharpness=_COARSE, unpaired=unpaired)
    two = steps > 1 and not shift
    last = Planned(head, {"query": f"second {steps} + first {steps}" if two else None})
    answer = ((whole, 1.0), (known, -(1.0 - share) / share))
    layers, answers = [*walk.layers[:-1], *relay, [last]], [*walk.answers[:-1], answer]
    family = "leaking relay" if shift else "leak"
    return replace(walk, family=family, layers=layers, answers=answers, explained=two)


# Recipes in their places.


class _Layout(NamedTuple):
    heads: int  # of every layer, or more if the recipe needs them
    idle: tuple[int, ...]  # layers of the recipe with an idle one before each of them; 99: after the last
    turn: int  # by how much head numbers differ from those of the recipe, times the layer
    decoys: int  # as far as there is room


_LAYOUTS = (
    _Layout(1, (), 0, 0),
    _Layout(2, (), 1, 2),
    _Layout(3, (1,), 2, 4),
    _Layout(1, (0, 2), 0, 2),
    _Layout(2, (1, 99), 0, 4),
    _Layout(3, (0,), 1, 5),
)


def _families() -> Iterator[tuple[Iterable[_Recipe], Sequence[_Layout]]]:
    def task(steps: int, size: tuple[int, int], order: str = "deepest-first") -> Retrieval:
        return Retrieval(steps=steps, chains=size[0], symbol_dim=size[1], position="pair", order=order)

    some = ((4, 4), (3, 4), (2, 4), (5, 4), (3, 6))
    others, few = ((3, 4), (4, 6), (2, 6), (4, 4), (5, 4)), ((4, 4), (3, 6), (2, 4))
    orders = ("deepest-first", "shallowest-first", "random", "deepest-first")
    routes = [(n, way) for n in (3, 4, 5) for way in ((3,), (1, 1, 1))] + [(2, (2, 2)), (1, (3, 3))]
    # Of even D the deepest step is relayed: the relays of the last pairs alone must matter enough.
    shifts = (((4, 1), (3, 1), (5, 2)), ((4, 1), (3, 3), (2, 1)))
    leaks = ((4, 0.25), (3, 0.3), (2, 0.2))
    copied = ((4, 1, 0.25), (3, 2, 0.2), (2, 1, 0.25), (4, 3, 0.3))
    wide = [layout for layout in _LAYOUTS if layout.heads > 1]
    steps = range(2, 6)
    yield (_witness(task(1 + n // 6, some[n % 5]), True) for n in range(30)), _LAYOUTS
    yield (_witness(task(1 + n // 4, few[n % 3], orders[n % 4]), False) for n in range(20)), wide
    yield (_walk(task(2 + n // 3, others[n % 5])) for n in range(12)), _LAYOUTS[1:4]
    yield (_copies(task(n, (3 + n % 2, 4)), way) for n, way in routes), _LAYOUTS
    yield (_relay(task(n, (chains, 4)), by) for n in steps for chains, by in shifts[n % 2]), _LAYOUTS
    yield (_leak(task(n, (chains, 4)), share) for n in (1, *steps) for chains, share in leaks), _LAYOUTS
    yield (_leak(task(n, (chains, 4)), share, by) for n in steps for chains, by, share in copied), _LAYOUTS


def _placed(recipe: _Recipe, layout: _Layout, name: str) -> Plant:
    heads, count = max(layout.heads, *map(len, recipe.layers)), len(recipe.layers)
    at = [layer + sum(place <= layer for place in layout.idle) for layer in range(count)]
    grid: list[list[Head | None]] = [[None] * heads for _ in range(count + len(layout.idle))]
    routes = {each.route for layer in recipe.layers for each in layer} - {None}
    circuits: dict[int | None, set[Read]] = {missing: set() for missing in routes or (None,)}
    for layer, planned in enumerate(recipe.layers):
        for number, each in enumerate(planned):
            head = (number + layout.turn * (layer + 1)) % heads
            grid[at[layer]][head] = each.head
            for missing, circuit in circuits.items():
                if each.route is None or each.route != missing:
                    circuit |= {Read(at[layer], head, *read) for read in each.reads.items()}
    free = [(layer, n) for layer, row in enumerate(grid) for n, head in enumerate(row) if head is None]
    wanted = min(layout.decoys, len(free))
    decoys = []
    for number, (layer, head) in enumerate(free[place * len(free) // wanted] for place in range(wanted)):
        rows, attends, grid[layer][head] = _decoy(recipe, at, layer, number)
        decoys.append(Read(layer, head, rows, None, attends))
    model = build(recipe.task, grid, recipe.answers, causal=recipe.causal).knowing(recipe.task)
    minimal = tuple(map(frozenset, circuits.values()))
    return Plant(name, recipe.family, recipe.task, model, minimal, tuple(decoys), recipe.explained)


def _decoy(recipe: _Recipe, at: Sequence[int], layer: int, number: int) -> tuple[str, str, Head]:
    """Rows of a decoy, what they attend to, and how.  Every third is not sharp; the others vary as a layer permits."""
    steps, last = recipe.task.steps, (recipe.layers[-1][0].head.compares or (0,))[0] // 2 + 1
    mates, same = Head((OWN_CODE, OWN_CODE), (), "own symbol"), Head((OWN_SYMBOL, OWN_SYMBOL), (), "own code")
    previous = Head((OWN_CODE, OWN_CODE), (), "unpaired", -1)
    first, deepest = (Head((2 * (step - 1), MATE), (), "unpaired") for step in (1, last))
    kinds = [("second", "pair_mate", mates)]
    if not recipe.causal:
        kinds = [("query", "same_symbol", same), ("first", "pair_mate", mates), *kinds]
        kinds += [("second 1", "same_symbol", same)] if steps > 1 else []
    elif layer >= at[-1] and steps > 1:
        # The best of decoys: where the true one reads, or would if it did not read a copy.
        kinds = [("query", f"hop_{last}", deepest)]
    elif layer > at[0]:
        deeper = [("first 1", "previous", previous), ("second 1", "hop_1", first)] if steps > 1 else []
        kinds = [("query", "hop_1", first), ("query", "same_symbol", same), *deeper, *kinds]
    # Layer and steps are counted in, so that models of few decoys differ in them.
    rows, attends, head = kinds[(2 * number + 3 * layer + steps) % len(kinds)]
    loud = 1.0
    if number % 3 == 2 and (number + steps) % 2:
        # A mean of symbols is small; that of squares, from layer 1 on, is not.
        rows, attends, head, loud = "", "uniform", Head(None, ()), 2.0 if layer else 4.0
    elif number % 3 == 2:
        rows, attends, head = "", "identity", Head((OWN_CODE, OWN_CODE), (), "other symbol")
    return rows, attends, head._replace(copies=(Copy(UNREAD + 2 * number, OWN_SYMBOL, loud),))


# Noise.


@torch.no_grad()
def hidden(plant: Plant, width: int = 128, mlp_size: int = 512, seed: int = 0) -> Plant:
    """The same circuit in a wider pre-norm model, whose idle heads and hidden units are noise.

    Noise attends neither evenly nor with certainty, as trained heads do.  It reads the whole stream, and writes where
    nothing of the circuit reads: dimensions that the plant does not have.
    """
    old, generator = plant.model.config, torch.Generator().manual_seed(seed)
    model = blank(old.model_copy(update={"width": width, "mlp_ratio": mlp_size / width}))
    for (name, small), weight in zip(plant.model.weights().items(), model.weights().values(), strict=True):
        if "norm" in name:  # the stream is divided by its length over the root of the width
            weight.mul_(math.sqrt(old.width / width))
        else:
            weight[tuple(map(slice, small.shape))] = small

    def noise(linear: Linear, seen: Tensor, columns: Tensor, size: float = 1.0) -> None:
        """Columns read at random what varies in a stream; each then varies by `size`."""
        rows = seen.flatten(0, 1)
        drawn = torch.randn(width, len(columns), generator=generator)
        drawn *= size / ((rows - rows.mean(0)) @ drawn).std(0)
        linear.weight[:, columns], linear.bias[columns] = drawn, -rows.mean(0) @ drawn

    def aside(linear: Linear, rows: Tensor) -> None:
        drawn = torch.randn(len(rows), width - old.width, generator=generator)
        linear.weight[rows, old.width :] = drawn / len(linear.weight) ** 0.5

    stream = model.embedded(draw(plant.task, torch.tensor([seed]), "probe", 0, 64).inputs[0])
    for layer in cast(list[Layer], list(model.layers)):
        attention, read = layer.attention, layer.read(stream)
        idle = (attention.output.weight.unflatten(0, (old.heads, -1)) == 0).flatten(1).all(1)
        columns = idle.repeat_interleave(old.head_size).nonzero()[:, 0]
        for linear, size in ((attention.query, 2.0), (attention.key, 1.0), (attention.value, 1.0)):
            noise(linear, read, columns, size)
        aside(attention.output, columns)
        heads = layer.heads_under(stream, layer.pattern(stream))
        units = (layer.mlp.inner.weight == 0).all(0).nonzero()[:, 0]
        noise(layer.mlp.inner, layer.mlp_norm(stream + attention.joined(heads)), units)
        aside(layer.mlp.outer, units)
        stream = layer.after_heads(stream, heads)
    return replace(plant, name=f"hidden {plant.name}", model=model.knowing(plant.task))
