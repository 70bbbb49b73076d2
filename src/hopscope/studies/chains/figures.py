"""The figures that the studies of circuits and of emergence share, from the evidence table; loads no chart library."""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from hopscope.circuits.places import followed_paths
from hopscope.figures import Drawing, Figure, chart, lines
from hopscope.figures.series import Axis, Mark, Series
from hopscope.studies.chains.claims import independent
from hopscope.studies.chains.config import FALLEN, ChainsConfig
from hopscope.words import symbol

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

PARTIAL, PATH = "partial loss", "attention on a path"
WHOLE, NO_STEP = "all targets", "none alone"

SHOWN_FROM = 8
"""255ths of attention under which a cell of a map is as good as white, and left out."""

MODE_WORDS = {
    "rules": "rules: all patterns given",
    "clean": "clean: all else as it was",
    "recomputed": "recomputed: the rest follows",
}
"""How a path is taken away, as legends say it."""


def figures(config: ChainsConfig, *names: str) -> tuple[Figure, ...]:
    """Some figures of a run: `timeline`, or a function of `hopscope.studies.chains.charts`."""
    return tuple(
        timeline(config) if name == "timeline" else drawn(__package__, name, config) for name in names
    )


def drawn(package: str, name: str, config: ChainsConfig) -> Figure:
    """A chart of one's own: the function of its name in the package's `charts`, which is loaded when it is drawn."""

    def draw(evidence: "Evidence") -> Drawing:
        found: Drawing = getattr(import_module(f"{package}.charts"), name)(config, evidence)
        return found

    return chart(name, draw)


def timeline(config: ChainsConfig) -> Figure:
    """Losses, and attention on the paths, against training steps: a small chart for each independent member."""
    levels = (Mark(FALLEN), Mark(config.task().plateau))
    return lines(
        "timeline",
        partial(_timeline, config),
        Axis("loss, or mean attention", (0.0, 1.05)),
        marks=levels,
        height=190,
    )


def _timeline(config: ChainsConfig, evidence: "Evidence") -> list[Series]:
    seeds, panel = independent(evidence), "seed {seed}"
    found = [
        Series(f"loss_step_{step}", symbol(step), panel=panel, where={"member": seeds}, dash=PARTIAL)
        for step in config.task().asked
    ]
    for place, values in followed_paths(evidence).items():
        if place.member in seeds:
            name = step_of_path(values)
            found.append(
                Series("attention", name, panel=panel, where=place.columns, dash=PATH, line=place.name)
            )
    for split in ("held_out", "train"):
        where = {"member": seeds, "split": split}
        dash = "training loss" if split == "train" else "held-out loss"
        found.append(Series("loss", WHOLE, panel=panel, where=where, dash=dash))
    return found


def step_of_path(values: "dict[str, float]") -> str:
    """The symbol that is the first to be lost without a path, in words."""
    return symbol(int(values["needed_for"])) if "needed_for" in values else NO_STEP
