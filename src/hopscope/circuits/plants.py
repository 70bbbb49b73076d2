"""Planted models of retrieval: transformers whose circuit is known because it was built, to prove readers on.

The truth of a plant is the set of reads on which its answer depends.  Around it stand heads that do nothing, and
decoys, which attend as if they took part and write what nobody reads.

In the grammar of simple rules are two witnesses of the fewest layers (docs/witnesses.md).  *Doubling* (causal mask,
deepest pairs first): in layer t + 1 everybody knows 2^{t-1} - 1 symbols further on.  *Reflection* (no mask, any order,
two heads): whoever knew g pieces beyond its own symbol, and as many beyond its code, then knows any g' ≤ 3g + 1 with
g' - g odd.  Then *walk*: second tokens read their pair mate, and a query follows its chain by one hop in every layer;
and *copies*: a walk whose last symbol comes several times, each time with a share of the whole, so that one may be
missing.

Outside of it are *relay*: every token copies what the second token some pairs earlier in time holds, and the query
finds the copy, with a token of any chain, by the key that was copied along; *leak*: the last read gives the wanted
token a share of the attention other than a half or all, the rest goes to tokens whose symbol is known, and the readout
makes up for both (two unequal targets are a rule, the three of a single step are not); *leaking relay*: both.  A relay
also works if every token is *made* to copy what its own chain needs: who judges by the loss alone finds a circuit that
the model does not have.  Of a leaking relay no rules are a substitute.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, pairwise, product
from typing import NamedTuple

from hopscope.circuits.weights import CODE, MATE, SYMBOL, UNREAD, Copy, Design, Head, build
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks import Retrieval, Task

_COPIED = 40  # added to the number of a slot for that of its copy in a relay
_COARSE = 2e3  # sharpness at which float32 can share out attention between equal symbols to a thousandth
_BY_CODE, _BY_SYMBOL = (CODE, CODE), (SYMBOL, SYMBOL)
_MATES = Head(_BY_CODE, (Copy(MATE, SYMBOL),), "own symbol")


class Read(NamedTuple):
    """Rows of a head, in words such as `x 5 repeat` (no word: all), and what they read.

    That is a `target` such as `first 1`, if it is always one token of their chain, or what a `rule` (as `said`) names.
    """

    layer: int
    head: int
    rows: str
    target: str | None
    rule: str | None = None


class Plant(NamedTuple):
    """A single model that knows its task, and every minimal circuit of it: several where there is redundancy.

    Plants of one family work in the same way.  Decoys read by a rule (`uniform`, `identity`, or a relation's name).
    """

    name: str
    family: str
    task: Task
    model: Transformer
    circuits: tuple[frozenset[Read], ...]
    decoys: tuple[Read, ...] = ()

    @property
    def explained(self) -> bool:
        """Whether rules describe the mechanism."""
        return all(read.target is not None for circuit in self.circuits for read in circuit)


def witness(task: Retrieval, *, causal: bool = True) -> Transformer:
    """A model that solves the task in the fewest layers: under the causal mask 1 + ⌈log₂(D + 1)⌉ of one head, without
    the least t with (3^t - 1)/2 ≥ 2D, of two.  The mean squared error is below 0.01 for K of 4 to 12, N = 4, D ≤ 8;
    symbols that almost coincide are confused: without a mask, it is about 0.05 for K = 2, N = 5, D = 3.  `UserError`:
    position codes are not by pair, or too many to be told apart, or the causal mask lacks deepest first.
    """
    if causal and task.order not in ("deepest-first", tuple(range(task.steps, 0, -1))):
        raise UserError(f"order: expected 'deepest-first' under the causal mask, found {task.order!r}")
    return build(Design(task, plan(task.asked.values(), causal=causal), causal))


def plan(asked: Iterable[int], *, causal: bool = True) -> list[list[Head]]:
    """The heads of a witness for some steps, of whose reads and copies only those that answers depend on."""
    steps = max(asked := tuple(asked))
    # Positions of the chain, and slots in which they must hold the right piece.
    wanted, layers = {(0, 2 * step) for step in asked}, list[list[Head]]()
    for heads in reversed(_doubling(steps) if causal else _reflection(steps)):
        written = {copy.mine for head in heads for copy in head.copies}
        below, kept = {(position, slot) for position, slot in wanted if slot not in written}, list[Head]()
        for head in heads:
            mine, theirs = head.compares
            used = {(at, copy) for at, slot in wanted for copy in head.copies if copy.mine == slot}
            reads = {at: _partner(at, head) for at in sorted({at for at, _ in used})}
            for at, copy in used:
                below |= {(at, mine), (reads[at], theirs), (reads[at], copy.theirs)}
            said = {_words(at): _words(partner) for at, partner in reads.items()}
            kept.append(head._replace(copies=tuple(sorted({copy for _, copy in used})), reads=said))
        wanted, layers = below, [[head for head in kept if head.copies], *layers]
    return layers


def _partner(position: int, head: Head) -> int:
    # Second tokens (and the query) hold in slot a the piece a further on, first tokens the one a further back, and so
    # does what they read.  Where both compare the same slot it looks the other way: it is the mirror image.
    mine, theirs = head.compares
    ahead = 2 * mine + 1 if mine == theirs else mine - theirs
    return position - ahead if position % 2 else position + ahead


def _words(position: int) -> str:  # 0 is the query, 2k - 1 and 2k are the tokens of the pair of step k
    return f"{'first' if position % 2 else 'second'} {(position + 1) // 2}" if position else "query"


def _doubling(steps: int) -> list[list[Head]]:
    layers, known = [[_MATES]], 0
    while known < steps:
        copies = tuple(Copy(2 * (known + 1 + ahead), 2 * ahead) for ahead in range(known + 1))
        layers.append([Head((2 * known, MATE), copies, "unpaired")])
        known = 2 * known + 1
    return layers


def _reflection(steps: int) -> list[list[Head]]:
    layers = next(t for t in range(1, 99) if (3**t - 1) // 2 >= 2 * steps)
    grown = [2 * steps + layers % 2]
    for layer in range(layers - 1, -1, -1):
        # The smallest from which one layer can get there; of the layer's parity, since every layer adds an odd number.
        least = -(-(grown[0] - 1) // 3)
        grown.insert(0, least + (least + layer) % 2)
    return [[_mirror(g, (then - g - 1) // 2, side) for side in (1, -1)] for g, then in pairwise(grown)]


def _mirror(known: int, slot: int, side: int) -> Head:
    # Reads the mirror image about `slot`; about its counterpart on the code's side for side -1.
    mirror, first, last = slot if side > 0 else -slot - 1, known + 1, known + 2 * slot + 1
    written = range(first, last + 1) if side > 0 else range(-last - 1, -first)
    copies = tuple(Copy(mine, 2 * mirror - mine) for mine in written)
    return Head((mirror, mirror), copies, "own symbol" if mirror == CODE else "own code")


def _walk(task: Retrieval) -> list[list[Head]]:
    steps = range(1, task.steps + 1)
    mates = _MATES._replace(reads={f"second {step}": f"first {step}" for step in steps})
    return [[mates], *([_hop(step, step)] for step in steps)]


def _hop(step: int, slot: int, share: float = 1.0, route: int | None = None) -> Head:
    copies = (Copy(2 * slot, SYMBOL, share),)
    return Head((2 * (step - 1), MATE), copies, "unpaired", reads={"query": f"second {step}"}, route=route)


def _copies(task: Retrieval, routes: Sequence[int]) -> Design:
    # So many routes in each of the last layers.
    steps, count, numbers = task.steps, sum(routes), iter(range(sum(routes)))
    last = [[_hop(steps, steps, 1.0 / count, next(numbers)) for _ in range(n)] for n in routes]
    return Design(task, [*_walk(task)[:-1], *last])


def _relay(task: Retrieval, shift: int) -> Design:
    # The last read finds a copy, so many pairs later in time than the original.
    *layers, [last] = plan(task.asked.values())
    step = int(str(last.reads["query"]).split()[1])
    taken = tuple(Copy(copy.mine, copy.theirs + _COPIED) for copy in last.copies)
    found = Head((2 * (step - 1), MATE + _COPIED), taken, "unpaired", reads={"query": None})
    relaying = _relaying(task, [copy.theirs for copy in last.copies], step, shift, ["second"])
    return Design(task, [*layers, [relaying], [found]])


def _relaying(task: Retrieval, slots: Sequence[int], step: int, shift: int, kinds: Sequence[str]) -> Head:
    # Tokens copy the key and some slots of the token so many pairs earlier in time; deepest steps come first.
    later = sorted({step - (place + shift) // task.chains for place in range(task.chains)})
    copies = tuple(Copy(slot + _COPIED, slot) for slot in (MATE, *slots))
    rows = [f"{kind} {found}" for kind in kinds for found in later]
    return Head(_BY_CODE, copies, "other kind", -shift, reads=dict.fromkeys(rows))


def _leak(task: Retrieval, share: float, shift: int = 0) -> Design:
    # The last read, of an original or of a copy so many pairs later, gives the wanted token this share.  The rest goes
    # to the first token of the pair, and of a single step to the query as well.
    steps, known, copied = task.steps, 2 * (task.steps - 1), _COPIED if shift else 0
    relay = [[_relaying(task, [SYMBOL], steps, shift, ["second", "first"])]] if shift else []
    target = f"second {steps} + first {steps}" if steps > 1 and not shift else None
    unpaired = math.log(share * (2 if steps == 1 else 1) / (1.0 - share)) / task.symbol_dim
    copies = (Copy(2 * steps, SYMBOL + copied, 1.0 / share),)
    last = Head((known, MATE + copied), copies, "unpaired", 0, _COARSE, unpaired, {"query": target})
    answers = [((2 * step, 1.0),) for step in range(1, steps)]
    answer = ((2 * steps, 1.0), (known, -(1.0 - share) / share))
    return Design(task, [*_walk(task)[:-1], *relay, [last]], answers=[*answers, answer])


def chain_plants() -> Iterator[Plant]:
    """All plants of retrieval, always the same ones in the same order; each is built when it is asked for."""

    def task(steps: int, size: tuple[int, int], order: str = "deepest-first") -> Retrieval:
        return Retrieval(steps=steps, chains=size[0], symbol_dim=size[1], position="pair", order=order)

    some, few = ((4, 4), (3, 4), (2, 4), (5, 4), (3, 6)), ((4, 4), (3, 6), (2, 4))
    others = ((3, 4), (4, 6), (2, 6), (4, 4), (5, 4))
    orders = ("deepest-first", "shallowest-first", "random", "deepest-first")
    routes = [(n, way) for n in (3, 4, 5) for way in ((3,), (1, 1, 1))] + [(2, (2, 2)), (1, (3, 3))]
    # Of even D the deepest step is relayed: the relays of the last pairs alone must matter enough.
    shifts, steps = (((4, 1), (3, 1), (5, 2)), ((4, 1), (3, 3), (2, 1))), range(2, 6)
    leaks, copied = ((4, 0.25), (3, 0.3), (2, 0.2)), ((4, 1, 0.25), (3, 2, 0.2), (2, 1, 0.25), (4, 3, 0.3))
    doubled = (task(1 + n // 6, some[n % 5]) for n in range(30))
    reflected = (task(1 + n // 4, few[n % 3], orders[n % 4]) for n in range(20))
    walked = (task(2 + n // 3, others[n % 5]) for n in range(12))
    families: dict[str, Iterator[Design]] = {
        "doubling": (Design(each, plan(each.asked.values())) for each in doubled),
        "reflection": (Design(each, plan(each.asked.values(), causal=False), False) for each in reflected),
        "walk": (Design(each, _walk(each)) for each in walked),
        "copies": (_copies(task(n, (3 + n % 2, 4)), way) for n, way in routes),
        "relay": (_relay(task(n, (size, 4)), by) for n in steps for size, by in shifts[n % 2]),
        "leak": (_leak(task(n, (size, 4)), share) for n in (1, *steps) for size, share in leaks),
        "leaking relay": (_leak(task(n, (size, 4)), share, by) for n in steps for size, by, share in copied),
    }
    # Heads, idle layers, turn and decoys: see `_placed`.  Reflection needs two heads.
    layouts = (
        (1, (), 0, 0), (2, (), 1, 2), (3, (1,), 2, 4), (1, (0, 2), 0, 2), (2, (1, 99), 0, 4), (3, (0,), 1, 5),
    )  # fmt: skip
    for family, designs in families.items():
        fitting = {"reflection": layouts[1:3] + layouts[4:], "walk": layouts[1:4]}.get(family, layouts)
        for number, (design, layout) in enumerate(zip(designs, cycle(fitting), strict=False), 1):
            yield _plant(f"{family} {number}", family, _placed(design, *layout))


def _placed(design: Design, heads: int, idle: Sequence[int], turn: int, decoys: int) -> Design:
    # In layers of so many heads (or more), with an idle layer before each of some (99: after the last); head numbers
    # are turned by `turn` times the layer, and there are so many decoys, as far as there is room.
    heads, count = max(heads, *map(len, design.layers)), len(design.layers)
    at = [layer + sum(place <= layer for place in idle) for layer in range(count)]
    grid = [[Head()] * heads for _ in range(count + len(idle))]
    for layer, number, head in design.heads:
        grid[at[layer]][(number + turn * (layer + 1)) % heads] = head
    every = product(range(len(grid)), range(heads))
    free = [(layer, place) for layer, place in every if not grid[layer][place].copies]
    wanted = min(decoys, len(free))
    for number in range(wanted):
        layer, place = free[number * len(free) // wanted]
        grid[layer][place] = _decoy(design, at, layer, number)
    return design._replace(layers=grid)


def _decoy(design: Design, at: Sequence[int], layer: int, number: int) -> Head:
    # Every third is not sharp; the others vary as a layer permits.
    steps, last = design.task.steps, design.heads[-1][2].compares[0] // 2 + 1
    mates, same = Head(_BY_CODE, (), "own symbol"), Head(_BY_SYMBOL, (), "own code")
    first, deepest = _hop(1, 0), _hop(last, 0)
    kinds = [("second", "pair_mate", mates)]
    if not design.causal:
        kinds = [("query", "same_symbol", same), ("first", "pair_mate", mates), *kinds]
        kinds += [("second 1", "same_symbol", same)] if steps > 1 else []
    elif layer >= at[-1] and steps > 1:
        # The best of decoys: where the true one reads, or would if it did not read a copy.
        kinds = [("query", f"hop_{last}", deepest)]
    elif layer > at[0]:
        before = ("first 1", "previous", Head(_BY_CODE, (), "unpaired", -1))
        deeper = [before, ("second 1", "hop_1", first)] if steps > 1 else []
        kinds = [("query", "hop_1", first), ("query", "same_symbol", same), *deeper, *kinds]
    # Layer and steps are counted in, so that models of few decoys differ in them.
    (rows, attends, head), loud = kinds[(2 * number + 3 * layer + steps) % len(kinds)], 1.0
    if number % 3 == 2 and (number + steps) % 2:
        # A mean of symbols is small; that of squares, from layer 1 on, is not.
        rows, attends, head, loud = "", "uniform", Head(), 2.0 if layer else 4.0
    elif number % 3 == 2:
        rows, attends, head = "", "identity", Head(_BY_CODE, (), "other symbol")
    return head._replace(copies=(Copy(UNREAD + 2 * number, SYMBOL, loud),), reads={rows: attends})


def _plant(name: str, family: str, design: Design) -> Plant:
    every = [(head, Read(at, n, *each)) for at, n, head in design.heads for each in head.reads.items()]
    fake = [read for head, read in every if head.copies[0].mine >= UNREAD]
    true = [(head.route, read) for head, read in every if head.copies[0].mine < UNREAD]
    missing = sorted({route for route, _ in true if route is not None}) or [-1]
    circuits = (frozenset(read for route, read in true if route is None or route != each) for each in missing)
    decoys = (read._replace(target=None, rule=read.target) for read in fake)
    return Plant(name, family, design.task, build(design), tuple(circuits), tuple(decoys))
