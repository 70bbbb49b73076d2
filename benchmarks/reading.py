"""Seconds that it takes to read the circuit of one model: planted ones of several depths."""

from collections.abc import Iterator
from functools import partial

from hopscope.circuits.plants import Plant, chain_plants
from hopscope.circuits.reader import READ, Reading, read
from hopscope.errors import UserError

from ._timing import Asked, Comparison, in_turn, spread

NAMES = ("doubling 3", "doubling 9", "doubling 18", "doubling 24")
"""Doubling of 1 to 4 steps, with three heads in each layer."""


def measure(asked: Asked) -> Iterator[Comparison]:
    """One comparison; a reading counts only if it finds a circuit that holds."""
    if asked.model is not None:
        raise UserError(f"model: expected none with suite reading, found {asked.model!r}; leave it out")
    plants, found = chosen(), dict[str, Reading]()

    def once(plant: Plant) -> None:
        found[plant.name] = read(plant.model, plant.task)
        if found[plant.name].verdict != READ:
            raise UserError(f"{plant.name}: expected a circuit, found {found[plant.name].verdict!r}")

    turns = in_turn({plant.name: partial(once, plant) for plant in plants}, asked.rounds, 0.0)
    rows = []
    for plant in plants:
        turn, config = turns[plant.name], plant.model.config
        about = {"layers": config.layers, "heads": config.heads, "width": config.width}
        told = {"share_of_core": turn.share, "paths": len(found[plant.name].circuit.paths), **about}
        rows.append({"name": plant.name, "rate": spread(turn.seconds), "ours_over_this": None, **told})
    yield {"title": "planted models", "unit": "seconds to read one", "contestants": rows}


def chosen() -> list[Plant]:
    """The plants that are read."""
    return [plant for plant in chain_plants() if plant.name in NAMES]
