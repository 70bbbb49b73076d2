"""What stands beside a circuit: bounds for each of its paths, and what it reaches in another model.

The effect of a path says little by itself.  Beside it stands what it costs to take the same rows away in heads that the
circuit does not name, and in all heads of the path's layer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hopscope_next.circuits.circuit import Circuit, Path
from hopscope_next.circuits.execution import Mode, Slot
from hopscope_next.circuits.reader import Reader
from hopscope_next.circuits.rules import Uniform, reads_nothing

MOST_OTHERS = 20
"""Heads outside of the circuit of which the rows of a path are taken away, at most."""

_STREAM = 9000  # number of the first random draw; the reader's own are lower


class Bounds(NamedTuple):
    """What one path costs, between two bounds: losses of the model itself over what it has learned.

    All other attention is the model's own, and follows what is changed below it.

    Attributes:
        path: which.
        removed: where its rows read uniformly.
        others: the same of the same rows in heads that the circuit does not name, drawn at random.
        layer: the same in all heads of the path's layer at once.
    """

    path: Path
    removed: float
    others: list[float]
    layer: float


def bounds(reader: Reader, circuit: Circuit) -> list[Bounds]:
    """The bounds of every path of a circuit.

    Args:
        reader: of a model that has learned something; its seed is that of the random draw of others.
        circuit: its own, or another one.

    Raises:
        UserError: the circuit does not fit the model.
    """
    fresh, known = reader.fresh, dict[tuple[Slot, ...], float]()
    rules = circuit.rules(fresh)
    outside = [slot for slot in fresh.reachable if reads_nothing(rules[slot])]

    def cost(*slots: Slot) -> float:  # each once: paths of the same rows share their others
        if slots not in known:
            gone = fresh.assigned(fresh.unedited, dict.fromkeys(slots, Uniform()))
            passed = fresh.run(gone, "recomputed", changed=fresh.changed(slots))
            known[slots] = reader.criterion.loss(passed.predictions)
        return known[slots]

    found = []
    for path in circuit.paths:
        role = fresh.grammar.roles.index(path.roles)
        others = [slot for slot in outside if slot[2] == role]
        if len(others) > MOST_OTHERS:
            others = reader.shuffled(others, _STREAM + role)[:MOST_OTHERS]
        whole = [(path.layer, head, role) for head in range(fresh.model.config.heads)]
        removed = cost((path.layer, path.head, role))
        found.append(Bounds(path, removed, [cost(slot) for slot in others], cost(*whole)))
    return found


def transferred(reader: Reader, circuits: Iterable[Circuit]) -> list[dict[Mode, float]]:
    """Losses that circuits, such as those read in other seeds, reach in a model over what it has learned, by mode.

    Args:
        reader: of the model.
        circuits: whose layers and heads are meant as they are numbered.

    Raises:
        UserError: a circuit does not fit the model.
    """
    modes: tuple[Mode, ...] = ("rules", "recomputed")
    loss = reader.criterion.loss
    return [{mode: loss(each.run(reader.fresh, mode).predictions) for mode in modes} for each in circuits]
