"""Plants that follow chains of vectors: by the token before, by equal symbols, forwards and backwards."""

from collections.abc import Iterator, Sequence

from .chains import Chains
from .machine import IDLE, Head, to_itself
from .plant import Plant, Read


def retrieval_plants() -> Iterator[Plant]:
    """All of them, always the same."""
    yield from _walks()
    yield from _gathers()
    yield from _copies()
    yield from _shortcuts()


def _padded(layers: Sequence[Sequence[Head]], heads: int, turn: int = 0) -> list[list[Head]]:
    """Idle heads beside the true ones, which move on by `turn` numbers in each layer."""
    found = []
    for layer, each in enumerate(layers):
        row = [*each, *[IDLE] * (heads - len(each))]
        shift = turn * layer % heads
        found.append([*row[-shift:], *row[:-shift]] if shift else row)
    return found


def _decoy(task: Chains, layer: int) -> Head:
    """Attends as sharply as any and writes what nobody reads."""
    if layer == 0:
        return Head(to_itself(task.seconds(), -1), copies=(("symbol", "unread", 1.0),))
    return task.asks("symbol", "mate", task.seconds(), ("symbol", "unread", 1.0))


def _mate_reads(steps: Sequence[int], layer: int, head: int) -> set[Read]:
    return {(layer, head, f"second {step}", f"first {step}") for step in steps}


# Walks: one hop after another, as whoever asks moves along.


def _walk_heads(task: Chains, keys: Sequence[int] | None = None) -> list[Head]:
    """Second tokens hold their mates; queries look for the mate that they hold the symbol of."""
    hops = [
        task.asks(
            "symbol" if step == 1 else f"x{step - 1}",
            "mate",
            keys or task.seconds(),
            ("symbol", f"x{step}", 1.0),
        )
        for step in range(1, task.steps + 1)
    ]
    return [task.mates(), *hops]


def _walk_reads(task: Chains, layers: Sequence[int], heads: Sequence[int]) -> set[Read]:
    steps = range(1, task.steps + 1)
    found = _mate_reads(steps, layers[0], heads[0])
    return found | {(layers[step], heads[step], "query", f"second {step}") for step in steps}


def _walks() -> Iterator[Plant]:
    task = Chains(1, 5, 22)
    yield task.plant(
        "walk, D = 1, one head", [[each] for each in _walk_heads(task)], [_walk_reads(task, (0, 1), (0, 0))]
    )
    task = Chains(1, 5, 26)
    heads = _padded([[each] for each in _walk_heads(task)], 2, 1)
    yield task.plant(
        "walk, D = 1, pre-norm, idle heads", heads, [_walk_reads(task, (0, 1), (0, 1))], norm="pre", seed=2
    )
    task = Chains(1, 7, 34)
    layers = [[_decoy(task, layer), each] for layer, each in enumerate(_walk_heads(task))]
    yield task.plant(
        "walk, D = 1, post-norm, decoys", layers, [_walk_reads(task, (0, 1), (1, 1))], norm="post", seed=3
    )
    task = Chains(2, 3, 26)
    yield task.plant(
        "walk, D = 2, deepest first", [[each] for each in _walk_heads(task)],
        [_walk_reads(task, (0, 1, 2), (0, 0, 0))], seed=5,
    )  # fmt: skip
    task = Chains(2, 5, 38, "random")
    heads = _padded([[each] for each in _walk_heads(task)], 2, 1)
    yield task.plant(
        "walk, D = 2, random order, no mask", heads, [_walk_reads(task, (0, 1, 2), (0, 1, 0))], causal=False,
        seed=7,
    )  # fmt: skip
    task = Chains(3, 3, 34)
    yield task.plant(
        "walk, D = 3", [[each] for each in _walk_heads(task)],
        [_walk_reads(task, (0, 1, 2, 3), (0, 0, 0, 0))], seed=11,
    )  # fmt: skip
    task = Chains(3, 3, 38, "random")
    yield task.plant(
        "walk, D = 3, random order, no mask, pre-norm", [[each] for each in _walk_heads(task)],
        [_walk_reads(task, (0, 1, 2, 3), (0, 0, 0, 0))], causal=False, norm="pre", seed=13,
    )  # fmt: skip
    yield _far_walk()


def _far_walk() -> Plant:
    """Layers that do nothing, and decoys, between those that build on each other."""
    task = Chains(2, 5, 34, "shallowest-first")
    mate, first, second = _walk_heads(task)
    decoys = [_decoy(task, layer) for layer in range(6)]
    layers = [
        [decoys[0], IDLE, mate],
        [IDLE, decoys[1], IDLE],
        [IDLE, IDLE, IDLE],
        [first, decoys[3], IDLE],
        [IDLE, IDLE, decoys[4]],
        [IDLE, second, decoys[5]],
    ]
    reads = _walk_reads(task, (0, 3, 5), (2, 0, 1))
    return task.plant(
        "walk, D = 2, layers and decoys between, pre-norm", layers, [reads], norm="pre", seed=17
    )


# Without a mask first tokens can hold what comes behind them.


def _gathers() -> Iterator[Plant]:
    task = Chains(1, 5, 22)
    layers = [
        [task.forward_mates(slot="next")],
        [task.asks("symbol", "symbol", task.firsts(), ("next", "x1", 1.0))],
    ]
    reads = {(0, 0, "first 1", "second 1"), (1, 0, "query", "first 1")}
    yield task.plant("forwards, D = 1", layers, [reads], causal=False, seed=19)

    task = Chains(2, 3, 22)
    layers = [
        [IDLE, task.forward_mates(slot="next")],
        [task.asks("symbol", "symbol", task.firsts(), ("next", "x1", 1.0)), IDLE],
        [IDLE, task.asks("x1", "symbol", task.firsts(), ("next", "x2", 1.0))],
    ]
    reads = {
        (0, 1, "first 1", "second 1"),
        (0, 1, "first 2", "second 2"),
        (1, 0, "query", "first 1"),
        (2, 1, "query", "first 2"),
    }
    yield task.plant("forwards, D = 2, post-norm", layers, [reads], causal=False, norm="post", seed=23)

    task = Chains(2, 5, 26)
    layers = [
        [task.forward_mates(slot="next")],
        [task.matches(task.firsts(1), "next", "symbol", task.firsts(2), ("next", "after", 1.0))],
        [task.asks("symbol", "symbol", task.firsts(1), ("next", "x1", 1.0), ("after", "x2", 1.0))],
    ]
    reads = {
        (0, 0, "first 1", "second 1"),
        (0, 0, "first 2", "second 2"),
        (1, 0, "first 1", "first 2"),
        (2, 0, "query", "first 1"),
    }
    yield task.plant("doubling at first tokens, D = 2", layers, [reads], causal=False, seed=29)


# Several heads for one read.


def _copies() -> Iterator[Plant]:
    yield halves(causal=False)
    task = Chains(1, 5, 34)
    hop = task.asks("symbol", "mate", task.seconds(), ("symbol", "x1", 1.0))
    layers = [[task.mates(), IDLE, task.mates()], [IDLE, hop, IDLE]]
    asked: set[Read] = {(1, 1, "query", "second 1")}
    circuits = [_mate_reads([1], 0, head) | asked for head in (0, 2)]
    yield task.plant("two heads, either of which will do, no mask", layers, circuits, causal=False, seed=37)

    yield far_parts(causal=False)


def halves(*, causal: bool) -> Plant:
    """Two heads bring half of the answer each."""
    task = Chains(1, 5, 34)
    half = _shared(task, 0.5)
    reads = _mate_reads([1], 0, 0) | {(1, head, "query", "second 1") for head in (0, 1)}
    name = f"two halves of an answer, {masked(causal)}"
    return task.plant(name, [[task.mates(), IDLE], [half, half]], [reads], causal=causal, seed=31)


def far_parts(*, causal: bool) -> Plant:
    """Two heads bring a part of the answer each, layers behind the read that they build on."""
    task = Chains(1, 5, 46)
    layers = [
        [IDLE, _decoy(task, 0), task.mates()],
        [IDLE, IDLE, _decoy(task, 1)],
        [_decoy(task, 2), IDLE, IDLE],
        [_shared(task, 0.6), _decoy(task, 3), _shared(task, 0.4)],
    ]
    reads = _mate_reads([1], 0, 2) | {(3, 0, "query", "second 1"), (3, 2, "query", "second 1")}
    name = f"unequal parts of an answer, {masked(causal)}, pre-norm"
    return task.plant(name, layers, [reads], causal=causal, norm="pre", seed=41)


def masked(causal: bool) -> str:
    """Whether a row sees later keys, in words."""
    return "masked" if causal else "no mask"


def _shared(task: Chains, gain: float) -> Head:
    return task.asks("symbol", "mate", task.seconds(), ("symbol", "x1", gain))


# Tokens of pairs that look along the chain themselves.


def _shortcuts() -> Iterator[Plant]:
    yield _pushed()
    yield _rooted()
    yield _same_symbols()
    yield deep_doubling(causal=False)
    yield deep_roots(causal=False)


def _pushed() -> Plant:
    """The pairs of step 1, shown last, look up step 2; whoever asks reads them alone."""
    task = Chains(2, 5, 34)
    layers = [
        [task.mates()],
        [task.matches(task.seconds(1), "symbol", "mate", task.seconds(2), ("symbol", "after", 1.0))],
        [task.asks("symbol", "mate", task.seconds(1), ("symbol", "x1", 1.0), ("after", "x2", 1.0))],
    ]
    reads = {*_mate_reads([1, 2], 0, 0), (1, 0, "second 1", "second 2"), (2, 0, "query", "second 1")}
    return task.plant("doubling, D = 2", layers, [reads], seed=43)


def _rooted() -> Plant:
    """The pairs of step 2, shown last, find the beginning of their chain; both heads look for that."""
    task = Chains(2, 5, 26, "shallowest-first")
    layers = [
        [IDLE, task.mates()],
        [task.matches(task.seconds(2), "mate", "symbol", task.seconds(1), ("mate", "root", 1.0)), IDLE],
        [
            task.asks("symbol", "root", task.seconds(2), ("symbol", "x2", 1.0)),
            task.asks("symbol", "mate", task.seconds(1), ("symbol", "x1", 1.0)),
        ],
    ]
    reads = {
        *_mate_reads([1, 2], 0, 1),
        (1, 0, "second 2", "second 1"),
        (2, 0, "query", "second 2"),
        (2, 1, "query", "second 1"),
    }
    return task.plant("roots, D = 2", layers, [reads], seed=47)


def _same_symbols() -> Plant:
    """First tokens of step 2 find the same symbol in step 1, and hand on what they got there to their mates."""
    task = Chains(2, 5, 26, "shallowest-first")
    layers = [
        [task.mates(1), IDLE],
        [IDLE, task.matches(task.firsts(2), "symbol", "symbol", task.seconds(1), ("mate", "root", 1.0))],
        [task.mates(2, feature="root", slot="origin"), IDLE],
        [
            task.asks("symbol", "mate", task.seconds(1), ("symbol", "x1", 1.0)),
            task.asks("symbol", "origin", task.seconds(2), ("symbol", "x2", 1.0)),
        ],
    ]
    reads = {
        (0, 0, "second 1", "first 1"),
        (1, 1, "first 2", "second 1"),
        (2, 0, "second 2", "first 2"),
        (3, 0, "query", "second 1"),
        (3, 1, "query", "second 2"),
    }
    return task.plant("same symbols, D = 2", layers, [reads], seed=53)


def deep_doubling(*, causal: bool) -> Plant:
    """Three steps in three layers: step 2 looks up step 3 while the query looks up step 1."""
    task = Chains(3, 5, 38)
    rows = [*task.seconds(2), *task.queries]
    both = Head(
        {row: task.seconds(3) if row in task.seconds(2) else task.seconds(1) for row in rows},
        (("symbol", "mate", task.sharp),),
        (("symbol", "x1", 1.0),),
    )
    layers = [
        [task.mates()],
        [both],
        [task.asks("x1", "mate", task.seconds(2), ("symbol", "x2", 1.0), ("x1", "x3", 1.0))],
    ]
    reads = {
        *_mate_reads([1, 2, 3], 0, 0),
        (1, 0, "second 2", "second 3"),
        (1, 0, "query", "second 1"),
        (2, 0, "query", "second 2"),
    }
    return task.plant(f"doubling, D = 3, {masked(causal)}", layers, [reads], causal=causal, seed=59)


def deep_roots(*, causal: bool) -> Plant:
    """Step 3 goes back to step 2, and then to step 1, so that three heads of one layer find all answers."""
    task = Chains(3, 5, 38, "shallowest-first")
    layers = [
        [task.mates(), IDLE, IDLE],
        [
            IDLE,
            task.matches(task.seconds(3), "mate", "symbol", task.seconds(2), ("mate", "back", 1.0)),
            task.matches(task.seconds(2), "mate", "symbol", task.seconds(1), ("mate", "root", 1.0)),
        ],
        [
            IDLE,
            IDLE,
            task.matches(task.seconds(3), "back", "symbol", task.seconds(1), ("mate", "origin", 1.0)),
        ],
        [
            task.asks("symbol", "mate", task.seconds(1), ("symbol", "x1", 1.0)),
            task.asks("symbol", "root", task.seconds(2), ("symbol", "x2", 1.0)),
            task.asks("symbol", "origin", task.seconds(3), ("symbol", "x3", 1.0)),
        ],
    ]
    reads = {
        *_mate_reads([1, 2, 3], 0, 0),
        (1, 1, "second 3", "second 2"),
        (1, 2, "second 2", "second 1"),
        (2, 2, "second 3", "second 1"),
        (3, 0, "query", "second 1"),
        (3, 1, "query", "second 2"),
        (3, 2, "query", "second 3"),
    }
    return task.plant(f"roots, D = 3, {masked(causal)}", layers, [reads], causal=causal, seed=61)
