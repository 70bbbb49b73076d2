"""Plants that solve their task by what no rule of relations, roles and fixed shares describes."""

from collections.abc import Iterator

import numpy as np

from .chains import Chains, gate_units, step_units
from .machine import IDLE, Head, Unit, among, to_itself
from .plant import Plant

STEEP = 1000.0
"""How sharply a sign decides."""


def outside_plants() -> Iterator[Plant]:
    """All of them, always the same."""
    for chains, size in ((5, 26), (7, 34)):
        yield _mailboxes(chains, size)
    yield _other_chain()
    for norm, chains in (("none", 3), ("pre", 5)):
        yield _by_sign(norm, chains)
    yield _by_two_signs()
    yield _three_parts()


def _mailboxes(chains: int, size: int) -> Plant:
    """Every pair hands its content to a fixed other place, the same in all samples, where the query finds it."""
    task = Chains(1, chains, size)
    seconds = task.seconds()
    order = np.random.default_rng(67).permutation(chains)
    elsewhere = {seconds[order[n]]: [seconds[order[(n + 2) % chains]]] for n in range(chains)}
    layers = [
        [task.mates(), IDLE],
        [IDLE, Head(elsewhere, copies=(("symbol", "there", 1.0), ("mate", "their mate", 1.0)))],
        [task.asks("symbol", "their mate", seconds, ("there", "x1", 1.0)), IDLE],
    ]
    name = f"content at a place drawn at random, N = {chains}"
    return task.plant(name, layers, [], causal=False, seed=71, outside=[(2, 0)])


def _other_chain() -> Plant:
    """Of two chains each holds the content of the other, found by its being unlike."""
    task = Chains(1, 2, 46)
    seconds = task.seconds()
    unlike = Head(
        among(seconds, seconds),
        (("symbol", "symbol", -task.sharp),),
        (("symbol", "there", 1.0), ("mate", "their mate", 1.0)),
    )
    layers = [
        [task.mates()],
        [unlike],
        [task.asks("symbol", "their mate", seconds, ("there", "x1", 1.0))],
    ]
    return task.plant("content at the other chain", layers, [], causal=False, seed=73, outside=[(2, 0)])


# Which of two tokens is read depends on the sign of a component of what the row holds; so does what is made of it.


def _choice(task: Chains, step: int, mine: str) -> Head:
    """Queries read the first token of the pair where the flag is up, and the second token where it is down."""
    first, second = task.firsts(step), task.seconds(step)
    turn = STEEP / 4.0
    # Flag 1: firsts gain twice the turn; flag 0: seconds gain the turn over them.
    compares = ((mine, "symbol", task.sharp), (mine, "mate", task.sharp), ("flag", "is first", 2.0 * turn))
    bias = {(row, key): turn for row in task.queries for key in second}
    return Head(
        among(task.queries, [*first, *second]),
        compares,
        (("symbol", "read", 1.0), ("mate", "read mate", 1.0)),
        bias,
    )


def _chosen(task: Chains, answer: str) -> list[Unit]:
    """What was read itself where the flag is down, and its mate where it is up."""
    down = gate_units(task.size, "read", answer, [("flag", 0, -1.0)])
    return down + gate_units(task.size, "read mate", answer, [("flag", 0, 1.0)], shift=-1.0)


def _is_first(task: Chains) -> list[Unit]:
    """A mark on first tokens, made of their positions."""
    return [Unit(tuple(("position", place, 1.0) for place in task.firsts()), 0.0, (("is first", 0, 1.0),))]


def _both_mates(task: Chains) -> Head:
    """Each token of a pair reads the other."""
    rows = {**to_itself(task.seconds(), -1), **to_itself(task.firsts(), 1)}
    return Head(rows, copies=(("symbol", "mate", 1.0),))


def _direction(task: Chains, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=task.size)
    return found / np.linalg.norm(found)


def _by_sign(norm: str, chains: int) -> Plant:
    task = Chains(1, chains, 46 if chains == 3 else 58)
    units = {
        0: step_units("symbol", _direction(task, 79), "flag", STEEP) + _is_first(task),
        1: _chosen(task, "x1"),
    }
    name = f"one of two tokens by the sign of the query, N = {chains}"
    return task.plant(
        name, [[_both_mates(task)], [_choice(task, 1, "symbol")]], [], causal=False, norm=norm, seed=83, units=units,
        outside=[(1, 0)], single=["flag", "is first"],
    )  # fmt: skip


def _by_two_signs() -> Plant:
    """The flag is up where the signs of x_0 and x_1 differ."""
    task = Chains(2, 3, 26)
    unequal = [
        Unit((("sign 0", 0, sign), ("sign 1", 0, -sign)), 0.0, (("flag", 0, 1.0),)) for sign in (1.0, -1.0)
    ]
    units = {
        0: step_units("symbol", _direction(task, 89), "sign 0", STEEP) + _is_first(task),
        1: step_units("x1", _direction(task, 97), "sign 1", STEEP),
        2: unequal,
        3: _chosen(task, "x2"),
    }
    layers = [
        [_both_mates(task), IDLE],
        [IDLE, task.asks("symbol", "mate", task.seconds(1), ("symbol", "x1", 1.0))],
        [IDLE, IDLE],
        [_choice(task, 2, "x1"), IDLE],
    ]
    return task.plant(
        "one of two tokens by the signs of two symbols", layers, [], causal=False, seed=101, units=units,
        outside=[(3, 0)], single=["flag", "is first", "sign 0", "sign 1"],
    )  # fmt: skip


# Three tokens at once, in parts that must be right.


def _gated(task: Chains, source: str, target: str, places: list[int], gain: float = 1.0) -> list[Unit]:
    """A feature of some positions, and zero at all others."""
    others = [("position", place, -1.0) for place in range(task.length) if place not in places]
    return gate_units(task.size, source, target, others, gain=gain)


def _three_parts() -> Plant:
    """The query reads second 1, first 2 and second 2 of its chain with 50, 20 and 30 %."""
    task = Chains(2, 3, 22, "shallowest-first")
    parts = {"second 1": 0.5, "first 2": 0.2, "second 2": 0.3}
    places = {"second 1": task.seconds(1), "first 2": task.firsts(2), "second 2": task.seconds(2)}
    units = {
        0: [
            *_gated(task, "mate", "origin", places["second 1"]),
            *_gated(task, "symbol", "part 1", places["second 1"]),
            *_gated(task, "symbol", "part 1", places["first 2"], 2.5),
            *_gated(task, "symbol", "part 2", places["second 2"], 1.0 / parts["second 2"]),
        ]
    }
    bias = {
        (row, key): float(np.log(parts[place]))
        for row in task.queries
        for place, keys in places.items()
        for key in keys
    }
    keys = sorted(key for each in places.values() for key in each)
    layers = [
        [task.mates()],
        [task.matches(task.firsts(2), "symbol", "symbol", task.seconds(1), ("origin", "root", 1.0))],
        [Head(to_itself(task.seconds(2), -1), copies=(("root", "begin", 1.0),))],
        [
            Head(
                among(task.queries, keys),
                (("symbol", "begin", task.sharp),),
                (("part 1", "x1", 1.0), ("part 2", "x2", 1.0)),
                bias,
            )
        ],
    ]
    return task.plant("three tokens in unequal parts", layers, [], seed=103, units=units, outside=[(3, 0)])
