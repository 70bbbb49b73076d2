"""Planted models: transformers whose circuit is known because it was built, to prove a reader of circuits on.

The truth of a planted model is the set of reads on which its answer depends: rows in a role, of one head, that read a
token in another role of their own chain.  Around it stand heads that do nothing and decoys, which attend as if they
took part and write what nobody reads; `recipes` says what the mechanisms are, and which of them lie outside of what
simple rules can describe.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, cycle
from typing import NamedTuple

from hopscope.models.interventions import Roles
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import FIRST, SECOND
from hopscope.zoo.hand_built import MATE, OWN_CODE, OWN_SYMBOL, Copy, Design, HeadDesign, build
from hopscope.zoo.recipes import (
    Recipe,
    copies_recipe,
    detour_recipe,
    leak_recipe,
    leaking_relay_recipe,
    relay_recipe,
    walk_recipe,
    witness_recipe,
)
from hopscope.zoo.witnesses import first_of, query, second_of

_UNREAD = 200
"""First of the slots that nobody reads, one for each decoy; recipes use smaller numbers."""


@dataclass(frozen=True)
class PlantedRead:
    """Rows that all read the token with certain roles in their own chain.

    Like `witnesses.Read`, but with its place in a model, and hashable: circuits are sets of reads.

    Attributes:
        layer, head: which head, counted from 0.
        rows: kind and step of the rows.
        target: kind and step of what they read; `None` where that is no such token of their own chain.
    """

    layer: int
    head: int
    rows: Roles
    target: Roles | None

    def __hash__(self) -> int:
        target = None if self.target is None else tuple(sorted(self.target.items()))
        return hash((self.layer, self.head, tuple(sorted(self.rows.items())), target))


@dataclass(frozen=True)
class PlantedDecoy:
    """A head whose output nobody reads.

    Attributes:
        layer, head: where it is.
        attends: what it attends to: `"uniform"` (all visible keys alike), `"identity"` (the row itself), or the name of
            a relation of the batch.
        rows: roles of the rows that do so; those without a partner under the relation excepted.
    """

    layer: int
    head: int
    attends: str
    rows: Roles

    @property
    def sharp(self) -> bool:
        """Whether it attends to another token in a role, as true heads do."""
        return self.attends not in ("uniform", "identity")


@dataclass(frozen=True)
class Planted:
    """A planted model.

    Attributes:
        name: of no other planted model.
        model: one member.
        task: what it solves.
        minimal: every minimal circuit; one where there is no redundancy.
        decoys: heads whose output nobody reads.
        explained: whether simple rules describe the mechanism, with equal shares where there are two targets.
        uneven: whether unequal shares are all that those rules lack: a read of the second token of the last pair, which
            gets the lesser share, and of the first.
    """

    name: str
    model: Transformer
    task: RetrievalConfig
    minimal: tuple[frozenset[PlantedRead], ...]
    decoys: tuple[PlantedDecoy, ...]
    explained: bool
    uneven: bool


def planted_models() -> Iterator[Planted]:
    """All planted models, always the same ones in the same order; each is built when it is asked for."""
    for make in makers():
        yield make()


def makers() -> Iterator[Callable[[], Planted]]:
    """What builds each planted model, in the order of `planted_models`."""
    for recipe, layout in _everything():
        yield partial(_planted, recipe, layout)


class _Layout(NamedTuple):
    """The place of a recipe in a model.

    Attributes:
        heads: heads of every layer (more if the recipe needs them).
        idle: layers of the recipe before each of which there is an idle one; after the last for numbers beyond.
        turn: by how much head numbers differ from those of the recipe, times the layer of the recipe.
        decoys: number of decoys, as far as there is room.
    """

    heads: int
    idle: tuple[int, ...]
    turn: int
    decoys: int


_LAST = 99
"""Beyond all layers of a recipe."""

_LAYOUTS = (
    _Layout(1, (), 0, 0),
    _Layout(2, (), 1, 2),
    _Layout(3, (1,), 2, 4),
    _Layout(1, (0, 2), 0, 2),
    _Layout(2, (1, _LAST), 0, 4),
    _Layout(3, (0,), 1, 5),
)

_WIDE = tuple(layout for layout in _LAYOUTS if layout.heads > 1)


def _everything() -> Iterator[tuple[Recipe, _Layout]]:
    yield from _doublings()
    yield from _reflections()
    yield from _walks()
    yield from _copies()
    yield from _relays()
    yield from _detours()
    yield from _leaks()
    yield from _leaking_relays()


def _task(steps: int, chains: int, dim: int = 4, order: str = "deepest-first") -> RetrievalConfig:
    return RetrievalConfig.model_validate(
        {"steps": steps, "chains": chains, "symbol_dim": dim, "position": "pair", "order": order}
    )


def _doublings() -> Iterator[tuple[Recipe, _Layout]]:
    sizes = cycle(((4, 4), (3, 4), (2, 4), (5, 4), (3, 6)))
    for steps in range(1, 6):
        for layout in _LAYOUTS:
            yield witness_recipe(_task(steps, *next(sizes)), "causal"), layout


def _reflections() -> Iterator[tuple[Recipe, _Layout]]:
    sizes = cycle(((4, 4), (3, 6), (2, 4)))
    orders = cycle(("deepest-first", "shallowest-first", "random", "deepest-first"))
    for steps in range(1, 6):
        for layout in _WIDE:
            yield witness_recipe(_task(steps, *next(sizes), next(orders)), "none"), layout


def _walks() -> Iterator[tuple[Recipe, _Layout]]:
    sizes = cycle(((3, 4), (4, 6), (2, 6), (4, 4), (5, 4)))
    for steps in range(2, 6):
        for layout in _LAYOUTS[1:4]:
            yield walk_recipe(_task(steps, *next(sizes))), layout


_Routes = tuple[tuple[str, ...], ...]


def _copies() -> Iterator[tuple[Recipe, _Layout]]:
    straight, gathered = "straight", "gathered"
    thirds: tuple[_Routes, ...] = (
        ((straight,) * 3,),
        ((straight,), (straight,), (straight,)),
        ((straight, gathered), (straight,)),
        ((straight, gathered, gathered),),
    )
    layouts = cycle(_LAYOUTS)
    for steps in (3, 4, 5):
        for routes in thirds:
            yield copies_recipe(_task(steps, 3 + steps % 2), routes), next(layouts)
    quarters: tuple[_Routes, ...] = (
        ((straight, straight), (straight, straight)),
        ((straight, straight, straight), (gathered,)),
    )
    for routes in quarters:
        yield copies_recipe(_task(2, 4), routes), next(layouts)
    yield copies_recipe(_task(1, 4), ((straight,) * 3,) * 2), _LAYOUTS[2]


def _relays() -> Iterator[tuple[Recipe, _Layout]]:
    layouts = cycle(_LAYOUTS)
    odd = ((4, 1), (3, 3), (2, 1))
    # Of even D the deepest step is relayed: the relays of the last pairs alone must matter enough for the whole loss,
    # and those of the very first pair, which see little else, must not be bystanders.
    even = ((4, 1), (3, 1), (5, 2))
    for steps in range(2, 6):
        for chains, shift in odd if steps % 2 else even:
            yield relay_recipe(_task(steps, chains), shift), next(layouts)


def _detours() -> Iterator[tuple[Recipe, _Layout]]:
    layouts = cycle(_LAYOUTS)
    for steps, step in ((4, 3), (5, 3), (5, 4)):
        for chains, shift in ((4, 1), (3, 3)):
            yield detour_recipe(_task(steps, chains), step, shift), next(layouts)


def _leaks() -> Iterator[tuple[Recipe, _Layout]]:
    layouts = cycle(_LAYOUTS)
    for steps in range(1, 6):
        for chains, share in ((4, 0.25), (3, 0.3), (2, 0.2)):
            yield leak_recipe(_task(steps, chains), share), next(layouts)


def _leaking_relays() -> Iterator[tuple[Recipe, _Layout]]:
    layouts = cycle(_LAYOUTS)
    for steps in range(2, 6):
        for chains, shift, share in ((4, 1, 0.25), (3, 2, 0.2), (2, 1, 0.25), (4, 3, 0.3)):
            yield leaking_relay_recipe(_task(steps, chains), shift, share), next(layouts)


# A recipe in its place.


def _planted(recipe: Recipe, layout: _Layout) -> Planted:
    heads = max(layout.heads, *map(len, recipe.layers))
    at = _places(len(recipe.layers), layout.idle)
    depth = at[-1] + 1 + sum(place >= len(recipe.layers) for place in layout.idle)
    grid: list[list[HeadDesign | None]] = [[None] * heads for _ in range(depth)]
    numbers = [
        [(number + layout.turn * (layer + 1)) % heads for number in range(len(each))]
        for layer, each in enumerate(recipe.layers)
    ]
    for layer, each in enumerate(recipe.layers):
        for number, head in zip(numbers[layer], each, strict=True):
            grid[at[layer]][number] = head.design
    decoys = []
    for number, (layer, head_number) in enumerate(_free(grid, layout.decoys)):
        found, grid[layer][head_number] = _decoy(recipe, at, (layer, head_number), number)
        decoys.append(found)
    design = Design(recipe.mask, tuple(map(tuple, grid)), recipe.answers)
    return Planted(
        name=_name(recipe, at, numbers, design, decoys),
        model=build(recipe.task, design),
        task=recipe.task,
        minimal=tuple(_circuit(recipe, at, numbers, kept) for kept in _kept(recipe.routes)),
        decoys=tuple(decoys),
        explained=recipe.explained,
        uneven=recipe.uneven,
    )


def _places(count: int, idle: tuple[int, ...]) -> tuple[int, ...]:
    """Layers of the model that hold the layers of a recipe."""
    return tuple(layer + sum(place <= layer for place in idle) for layer in range(count))


def _free(grid: list[list[HeadDesign | None]], count: int) -> list[tuple[int, int]]:
    """Places without a head, evenly over the model, at most so many."""
    free = [
        (layer, number)
        for layer, heads in enumerate(grid)
        for number, head in enumerate(heads)
        if head is None
    ]
    count = min(count, len(free))
    return [free[place * len(free) // count] for place in range(count)]


def _kept(routes: int) -> list[frozenset[int]]:
    """Routes that are enough: all but any one."""
    if not routes:
        return [frozenset()]
    return [frozenset(kept) for kept in combinations(range(routes), routes - 1)]


def _circuit(
    recipe: Recipe, at: tuple[int, ...], numbers: list[list[int]], kept: frozenset[int]
) -> frozenset[PlantedRead]:
    """Every read that the answer needs, if it comes by these routes."""
    return frozenset(
        PlantedRead(at[layer], number, read.rows, read.target)
        for layer, heads in enumerate(recipe.layers)
        for number, head in zip(numbers[layer], heads, strict=True)
        for read in head.reads
        if not read.routes or read.routes & kept
    )


def _name(
    recipe: Recipe, at: tuple[int, ...], numbers: list[list[int]], design: Design, decoys: list[PlantedDecoy]
) -> str:
    task = recipe.task
    true = [f"{layer}.{number}" for layer, each in zip(at, numbers, strict=True) for number in each]
    fakes = [f"{each.layer}.{each.head} {each.attends}" for each in decoys]
    parts = [
        f"{recipe.name}: N = {task.chains}, K = {task.symbol_dim}",
        *([] if recipe.mask == "causal" else [f"unmasked {task.order}"]),
        f"{len(design.layers)} layers of {len(design.layers[0])}, true heads {' '.join(true)}",
        f"decoys {', '.join(fakes) or 'none'}",
    ]
    return "; ".join(parts)


# Decoys.

_Sharp = tuple[str, Roles, HeadDesign]
"""What a decoy attends to, at which rows, and how."""

_MATES = HeadDesign((OWN_CODE, OWN_CODE), (), "own symbol")
_SAME = HeadDesign((OWN_SYMBOL, OWN_SYMBOL), (), "own code")


def _hopping(step: int) -> HeadDesign:
    """Rows that hold the symbol of the step before read this step's second token."""
    return HeadDesign((2 * (step - 1), MATE), (), "unpaired")


def _decoy(
    recipe: Recipe, at: tuple[int, ...], place: tuple[int, int], number: int
) -> tuple[PlantedDecoy, HeadDesign]:
    """Decoy number `number` of a model.  Every third is not sharp; the others vary as far as a layer permits.

    Args:
        recipe: what the model does.
        at: layers of the model in which the layers of the recipe are.
        place: layer and head of the decoy.
        number: which decoy it is.
    """
    layer, head = place
    kinds = _masked(recipe, at, layer) if recipe.mask == "causal" else _unmasked(recipe)
    # Layer and steps are counted in, so that models of few decoys differ in them.
    attends, rows, design = kinds[(2 * number + 3 * layer + recipe.task.steps) % len(kinds)]
    loudness = 1.0
    if number % 3 == 2 and (number + recipe.task.steps) % 2:
        attends, rows, design = "uniform", {}, HeadDesign(None, ())
        # A mean of symbols is small; that of squares, from layer 1 on, is not.
        loudness = 2.0 if layer else 4.0
    elif number % 3 == 2:
        attends, rows, design = "identity", {}, HeadDesign((OWN_CODE, OWN_CODE), (), "other symbol")
    copies = (Copy(_UNREAD + 2 * number, OWN_SYMBOL, loudness),)
    return PlantedDecoy(layer, head, attends, rows), replace(design, copies=copies)


def _masked(recipe: Recipe, at: tuple[int, ...], layer: int) -> list[_Sharp]:
    """The reads that are possible in a layer of a model with the causal mask."""
    deep = recipe.task.steps > 1
    if layer >= at[-1] and recipe.last_hop is not None and deep:
        # The best of decoys: where the true one reads, or would if it did not read a copy.
        return [(f"hop_{recipe.last_hop}", query(), _hopping(recipe.last_hop))]
    kinds: list[_Sharp] = []
    if layer > at[0]:
        kinds += [("hop_1", query(), _hopping(1)), ("same_symbol", query(), _SAME)]
    if layer > at[0] and deep:
        previous = HeadDesign((OWN_CODE, OWN_CODE), (), "unpaired", -1)
        kinds += [("previous", first_of(1), previous), ("hop_1", second_of(1), _hopping(1))]
    return [*kinds, ("pair_mate", {"kind": SECOND}, _MATES)]


def _unmasked(recipe: Recipe) -> list[_Sharp]:
    """The reads that are possible in any layer of a model without a mask."""
    deeper: list[_Sharp] = [("same_symbol", second_of(1), _SAME)] if recipe.task.steps > 1 else []
    mates: list[_Sharp] = [("pair_mate", {"kind": kind}, _MATES) for kind in (FIRST, SECOND)]
    return [("same_symbol", query(), _SAME), *mates, *deeper]
