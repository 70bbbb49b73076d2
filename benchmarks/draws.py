"""What named draws cost: a task written with `hs.Draws` beside the same task written by hand against `rng`.

Both ways draw the same batches in one process, in turn, and the ratio is taken round by round, of the time that this
process was at work: a machine's speed drifts.  By hand, all words of a draw come from one call with an axis of indices,
as the tasks of the package do it.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from compare import median_range, provenance, ratios, refuse, spread, write
from hopscope import rng
from hopscope.tasks.batch import Batch
from hopscope.tasks.draws import Draws

SCHEMA_VERSION = 1
ALLOWED = 1.15
"""Time by draws over time by hand, at most."""

LENGTH, VALUES, SIZE, THINGS, LONG = 31, 11, 8, 7, 23


def _indices(index: Tensor, count: int) -> Tensor:
    """Four words for each index of the last axis."""
    quads = -(-count // 4)
    return index[:, None] * quads + torch.arange(quads)


def tokens(draws: Draws) -> Batch:
    """Tokens of which one is asked for."""
    drawn = draws.integers("tokens", VALUES, (LENGTH,))
    return Batch(inputs=drawn, targets=drawn[..., 5:6])


def tokens_by_hand(seeds: Tensor, step: Tensor, index: Tensor) -> Batch:
    """The same without names."""
    words = rng.bits(seeds[:, None, None], "train", step[:, None], _indices(index, 2 * LENGTH))
    drawn = rng.integers(words[..., 0::2], words[..., 1::2], VALUES).flatten(-2)[..., :LENGTH]
    return Batch(inputs=drawn, targets=drawn[..., 5:6])


def vectors(draws: Draws) -> Batch:
    """Vectors in a random order, some of them switched off."""
    drawn = draws.normal("vectors", (THINGS, SIZE))
    order = draws.permutation("order", THINGS)
    shown = draws.uniform("shown", (THINGS,)) < 0.5
    inputs = drawn.gather(2, order[..., None].expand(drawn.shape)) * shown[..., None]
    return Batch(inputs=inputs, targets=inputs.mean(2, keepdim=True))


def vectors_by_hand(seeds: Tensor, step: Tensor, index: Tensor) -> Batch:
    """The same without names."""
    address = seeds[:, None, None], "train", step[:, None]
    count = THINGS * SIZE
    drawn = rng.normal(rng.bits(*address, _indices(index, count))).flatten(-2)[..., :count]
    drawn = drawn.unflatten(-1, (THINGS, SIZE))
    words = rng.bits(seeds[:, None], "train", step, index, 1)
    order = rng.permutation_from_index(rng.permutation_index(words[..., 0], words[..., 1], THINGS), THINGS)
    words = rng.bits(*address, _indices(index, THINGS), 2)
    shown = rng.uniform(words).flatten(-2)[..., :THINGS] < 0.5
    inputs = drawn.gather(2, order[..., None].expand(drawn.shape)) * shown[..., None]
    return Batch(inputs=inputs, targets=inputs.mean(2, keepdim=True))


def shuffled(draws: Draws) -> Batch:
    """A long permutation, and a place in it that is asked for."""
    order = draws.permutation("order", LONG)
    place = draws.integers("place", LONG)
    return Batch(inputs=order, targets=order.gather(-1, place[..., None]))


def shuffled_by_hand(seeds: Tensor, step: Tensor, index: Tensor) -> Batch:
    """The same without names."""
    words = rng.bits(seeds[:, None, None], "train", step[:, None], _indices(index, LONG))
    order = words.flatten(-2)[..., :LONG].argsort(dim=-1, stable=True)
    words = rng.bits(seeds[:, None], "train", step, index, 1)
    place = rng.integers(words[..., 0], words[..., 1], LONG)
    return Batch(inputs=order, targets=order.gather(-1, place[..., None]))


TASKS: dict[str, tuple[Callable[[Draws], Batch], Callable[[Tensor, Tensor, Tensor], Batch]]] = {
    "tokens": (tokens, tokens_by_hand),
    "vectors": (vectors, vectors_by_hand),
    "permutation": (shuffled, shuffled_by_hand),
}

SIZES = {"one step of 8 members": (8, 1, 64), "many steps of 4 members": (4, 64, 64)}
"""Name → members, steps drawn together, samples of each."""


def ways(task: str, size: str) -> dict[str, Callable[[], Batch]]:
    """Both ways to draw one batch."""
    named, by_hand = TASKS[task]
    members, steps, batch = SIZES[size]
    seeds = torch.arange(members)

    def hand() -> Batch:
        index = torch.arange(batch).repeat(steps)
        return by_hand(seeds, torch.arange(steps).repeat_interleave(batch), index)

    return {"draws": lambda: named(Draws.of(seeds, "train", range(steps), batch)), "hand": hand}


def cpu_seconds(work: Callable[[], Batch], calls: int) -> float:
    """Of one call."""
    begun = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - begun) / calls


def play(task: str, size: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of a batch by both ways, round by round; every other round goes backwards."""
    both = ways(task, size)
    shapes = {way: (work().inputs.shape, work().targets.shape) for way, work in both.items()}
    assert shapes["draws"] == shapes["hand"], shapes
    calls = max(1, round(seconds / max(cpu_seconds(both["hand"], 3), 1e-6)))
    found: dict[str, list[float]] = {way: [] for way in both}
    for number in range(rounds):
        for way in list(both)[:: 1 if number % 2 else -1]:
            found[way].append(cpu_seconds(both[way], calls))
    return found


def record(rounds: int, seconds: float) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    cells = []
    for task in TASKS:
        for size in SIZES:
            found = play(task, size, rounds, seconds)
            over = spread(ratios(found["draws"], found["hand"]))
            times = {f"{way}_seconds": spread(each) for way, each in found.items()}
            cells.append({"task": task, "size": size, **times, "draws_over_hand": over})
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "draws",
        "unit": "seconds of a core for one batch",
        "allowed": ALLOWED,
        "settings": {
            "rounds": rounds,
            "seconds": seconds,
            "sizes": {name: list(size) for name, size in SIZES.items()},
        },
        "provenance": provenance(),
        "cells": cells,
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Times, and the ratio."""
    table = Table("task", "batch", "by hand, ms", "by draws, ms", "ratio")
    for cell in result["cells"]:
        times = (cell[f"{way}_seconds"]["median"] * 1e3 for way in ("hand", "draws"))
        table.add_row(
            cell["task"],
            cell["size"],
            *(f"{each:.3f}" for each in times),
            median_range(cell["draws_over_hand"], ".3f"),
        )
    console.print(table)


def main(argv: Sequence[str] | None = None, allowed: float = ALLOWED) -> int:
    """Measure, print and write; 0, or 1 where draws cost more than they may, by hand being 1."""
    parser = argparse.ArgumentParser(prog="draws", allow_abbrev=False, description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each way in each round")
    parser.add_argument("--to", type=Path, help="a JSON file for what was measured")
    options = parser.parse_args(argv)
    if options.rounds < 1 or not options.seconds > 0:
        refuse("--rounds, --seconds: expected positive numbers; use for example --rounds 11 --seconds 0.3")
    torch.set_num_threads(1)
    result = record(options.rounds, options.seconds)
    show(result, Console())
    if options.to is not None:
        write(options.to, result)
    print(
        json.dumps(
            {f"{cell['task']}, {cell['size']}": cell["draws_over_hand"]["median"] for cell in result["cells"]}
        )
    )
    return int(any(cell["draws_over_hand"]["median"] > allowed for cell in result["cells"]))


if __name__ == "__main__":
    raise SystemExit(main())
