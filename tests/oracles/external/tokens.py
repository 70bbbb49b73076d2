"""Plants on tokens: mappings that are shown pair by pair.

x_1 y_1 … x_V with y = mapping(x); each x is asked for its y.  What was not shown yet is answered by what
is left; an x that was shown before, by the y that stood beside it.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .machine import IDLE, Head, Machine, Unit, among, to_itself
from .plant import Pairs, Plant, Read

SURE = 30.0
"""Logit that a value loses where it is used, and half of what it gains where it is recalled."""

MATCH = 10.0
"""Score of equal tokens: enough to tell them apart, too little to tell a small part of a mean."""


def permutation_plants() -> Iterator[Plant]:
    """All of them, always the same; the last is outside of simple rules."""
    yield _eliminating(5, 1, "none")
    yield _eliminating(7, 2, "post")
    yield _recalling(5, 0, "pre")
    yield _recalling(7, 1, "post")
    yield _by_own_symbol(5)


# Permutations.


def _samples(values: int, repeats: float) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    def samples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[sample, 2 V - 1]` and right answers `[sample, V]`."""
        random = np.random.default_rng(seed)
        texts = []
        for _ in range(count):
            mapping, order = random.permutation(values) + 1, random.permutation(values)
            if random.random() < repeats:
                order[-1] = order[random.integers(values - 1)]
            texts.append(np.stack((order + 1, mapping[order]), -1).reshape(-1))
        found = np.stack(texts)
        return found[:, :-1], found[:, 1::2]

    return samples


def _linked(tokens: np.ndarray, rows: str, keys: str) -> Pairs:
    """Places: `x` and `y` with numbers; `y before`: every y before the row; `repeat`: the last x if it is one, and
    `new` if not; `its y`: the y that stood beside its earlier copy; `other y`: all but that."""
    last = len(tokens) - 1
    copies = [place for place in range(0, last, 2) if tokens[place] == tokens[last]]
    if rows in ("repeat", "new"):
        if bool(copies) != (rows == "repeat"):
            return set()
        row = last
    else:
        kind, number = rows.split()
        row = 2 * int(number) - (2 if kind == "x" else 1)
    if keys == "its y":
        return {(row, copies[0] + 1)}
    if keys == "y before":
        return {(row, key) for key in range(1, row, 2)}
    kind, number = keys.split()
    return {(row, 2 * int(number) - (2 if kind == "x" else 1))}


def _permutation(
    name: str,
    values: int,
    layers: Sequence[Sequence[Head]],
    minimal: Sequence[set[Read]],
    readout: Sequence[tuple[str, float]],
    units: dict[int, list[Unit]],
    *,
    norm: str,
    seed: int,
    repeats: float,
    single: Sequence[str] = (),
    outside: Sequence[tuple[int, int]] = (),
) -> Plant:
    length = 2 * values - 1
    slots = {mine for heads in layers for head in heads for _, mine, _ in head.copies}
    slots |= {slot for each in units.values() for unit in each for slot, _, _ in unit.writes}
    sizes = {"symbol": values, "position": length, "one": 1, "is y": 1}
    sizes |= {slot: 1 if slot in single else values for slot in sorted(slots)}
    machine = Machine(sizes, layers, causal=True, norm=norm, seed=seed, units=units, typical=1.0)
    tokens, places = np.zeros((values + 1, machine.features)), np.zeros((length, machine.features))
    tokens[1:, machine.span("symbol")] = np.eye(values)
    places[:, machine.span("position")] = np.eye(length)
    places[:, machine.span("one")] = machine.constant
    places[1::2, machine.span("is y")] = 1.0
    logits = np.zeros((machine.features, values + 1))
    for slot, gain in readout:
        logits[machine.span(slot), 1:] += gain * np.eye(values)
    weights = machine.weights({"embed.token.weight": tokens, "embed.position.weight": places}, logits)
    # Token 0 is never an answer.
    weights["readout.bias"][0] = -4.0 * SURE
    shape = machine.shape | {
        "positions": "learned",
        "input_kind": "tokens",
        "input_size": values + 1,
        "output_size": values + 1,
        "readout": tuple(range(0, length, 2)),
    }

    def embed(inputs: np.ndarray) -> np.ndarray:
        return weights["embed.token.weight"][inputs] + weights["embed.position.weight"]

    task = {"kind": "permutation", "values": values, "repeat_ratio": repeats}
    return Plant(
        name, task, shape, weights, _samples(values, repeats), embed, _linked, tuple(map(frozenset, minimal)),
        tuple(outside),
    )  # fmt: skip


def _all_before(values: int) -> Head:
    """Every x but the first reads all y before it alike."""
    rows = {row: list(range(1, row, 2)) for row in range(2, 2 * values - 1, 2)}
    return Head(rows, copies=(("symbol", "seen", 1.0),))


def _used(values: int) -> list[Unit]:
    """Whether a value was read at all; nothing was at the first row, which can read only itself."""
    steep = 2.0 * values
    found = []
    for value in range(values):
        reads = (("seen", value, steep), ("position", 0, -2.0 * steep))
        found += [Unit(reads, 0.0, (("used", value, 1.0),)), Unit(reads, -1.0, (("used", value, -1.0),))]
    return found


def _elimination_reads(values: int, layer: int, head: int, last: str) -> set[Read]:
    inner: set[Read] = {(layer, head, f"x {step}", "y before") for step in range(2, values)}
    return inner | {(layer, head, last, "y before")}


def _eliminating(values: int, heads: int, norm: str) -> Plant:
    layers = [[*[IDLE] * (heads - 1), _all_before(values)]]
    reads = _elimination_reads(values, 0, heads - 1, f"x {values}")
    return _permutation(
        f"elimination, V = {values}, {heads} heads, {norm}-norm", values, layers, [reads], [("used", -SURE)],
        {0: _used(values)}, norm=norm, seed=107, repeats=0.0,
    )  # fmt: skip


def _recall_heads(values: int) -> tuple[Head, Head]:
    """Each y reads its x; the last x reads the y that holds it, or itself where there is none."""
    last, ys = 2 * values - 2, list(range(1, 2 * values - 2, 2))
    mates = Head(to_itself(ys, -1), copies=(("symbol", "mate", 1.0),))
    finds = Head(
        among([last], [*ys, last]),
        (("symbol", "held", MATCH),),
        (("symbol", "found", 1.0), ("is y", "is found", 1.0)),
        {(last, last): MATCH / 2.0},
    )
    return mates, finds


def _held(values: int) -> list[Unit]:
    """What a y has read; nothing at an x."""
    return [
        Unit((("mate", value, 1.0), ("is y", 0, 4.0)), -4.0, (("held", value, 1.0),))
        for value in range(values)
    ]


def _recalled(values: int) -> list[Unit]:
    """The value that was found, where one was."""
    return [
        Unit((("found", value, 1.0), ("is found", 0, 4.0)), -4.0, (("recalled", value, 1.0),))
        for value in range(values)
    ]


def _recalling(values: int, turn: int, norm: str) -> Plant:
    """Two layers: hold the x, then find it; beside it elimination, idle heads and a decoy."""
    mates, finds = _recall_heads(values)
    decoy = Head(mates.reads, copies=(("symbol", "unread", 1.0),))
    layers = [[mates, IDLE, decoy], [finds, _all_before(values), IDLE]]
    if turn:
        layers = [[decoy, mates, IDLE], [IDLE, finds, _all_before(values)]]
    reads = {
        *((0, turn, f"y {step}", f"x {step}") for step in range(1, values)),
        (1, turn, "repeat", "its y"),
        *_elimination_reads(values, 1, 1 + turn, "new"),
    }
    return _permutation(
        f"recall, V = {values}, {norm}-norm", values, layers, [reads], [("used", -SURE), ("recalled", 2.0 * SURE)],
        {0: _held(values), 1: _used(values) + _recalled(values)}, norm=norm, seed=109, repeats=0.5, single=["is found"],
    )  # fmt: skip


def _by_own_symbol(values: int) -> Plant:
    """The last x finds its y if its symbol is odd; if it is even it reads all other y, and what is missing is its y."""
    last = 2 * values - 2
    mates, finds = _recall_heads(values)
    even = range(1, values, 2)
    sought = [
        Unit((("symbol", value, 1.0),), 0.0, (("sought", value, -1.0 if value in even else 1.0),))
        for value in range(values)
    ]
    sought.append(Unit(tuple(("symbol", value, 1.0) for value in even), 0.0, (("is even", 0, 1.0),)))
    compares = (("sought", "held", MATCH), ("is even", "is y", 2.0 * MATCH))
    seeks = Head(finds.reads, compares, finds.copies, finds.bias)
    parity = tuple(("symbol", value, 4.0) for value in even)
    there = ("position", last, 4.0)
    recalled = []
    for value in range(values):
        odd = (("found", value, 1.0), ("is found", 0, 4.0), *((n, v, -w) for n, v, w in parity))
        recalled.append(Unit(odd, -4.0, (("recalled", value, 1.0),)))
        missing = (("seen", value, 1.0), ("found", value, -1.0), *parity, there)
        recalled.append(Unit(missing, -8.0, (("recalled", value, float(values - 1)),)))
    return _permutation(
        "recall in two ways, by the symbol of the row", values, [[mates, IDLE], [seeks, _all_before(values)]], [],
        [("used", -SURE), ("recalled", 2.0 * SURE)],
        {0: sought + _held(values), 1: _used(values) + recalled}, norm="none",
        seed=113, repeats=0.5, single=["is even", "is found"], outside=[(1, 0)],
    )  # fmt: skip
