"""How well and how quickly finders of circuits do on planted models (docs/benchmark.md)."""

from collections.abc import Iterator
from itertools import chain

from hopscope.circuits.finders import FINDERS, benchmark
from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.circuits.plants import Plant, chain_plants
from hopscope.errors import UserError

from ._timing import Asked, Comparison, spread

SCORES = ("precision", "recall", "auroc", "faithfulness", "cpr", "cmd")


def measure(asked: Asked) -> Iterator[Comparison]:
    """A comparison for each group of plants; of every family the smallest ones, as many as rounds are asked for."""
    if asked.model is not None:
        raise UserError(f"model: expected none with suite finders, found {asked.model!r}; leave it out")
    for title, plants in groups(asked.rounds).items():
        rows = benchmark(plants, FINDERS)
        contestants = []
        for name in FINDERS:
            own = [row for row in rows if row["finder"] == name]
            means = {score: _mean([row[score] for row in own if row[score] is not None]) for score in SCORES}
            seconds = spread([row["seconds"] for row in own])
            contestants.append({"name": name, "rate": seconds, "ours_over_this": None, **means})
        yield {"title": f"{title} ({len(plants)} models)", "unit": "seconds of a core for a model",
               "contestants": contestants, "rows": rows}  # fmt: skip


def groups(each: int) -> dict[str, list[Plant]]:
    """Plants by what their circuits are: chains that rules describe or do not, and permutation lookup."""
    families: dict[str, list[Plant]] = {}
    for plant in chain(chain_plants(), permutation_plants()):
        families.setdefault(plant.family, []).append(plant)
    found: dict[str, list[Plant]] = {}
    for plants in families.values():
        for plant in sorted(plants, key=_size)[:each]:
            chains = "chains, rules describe them" if plant.explained else "chains, no rules do"
            title = "permutation lookup" if plant.task.shape().inputs == "tokens" else chains
            found.setdefault(title, []).append(plant)
    return found


def _size(plant: Plant) -> int:
    config = plant.model.config
    return (config.layers * config.heads) ** 2 * config.length


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
