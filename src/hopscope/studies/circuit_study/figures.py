"""The figures that the studies of circuits and of emergence share, from the evidence table; loads no chart library."""

from functools import partial
from typing import TYPE_CHECKING

from hopscope.circuits.places import followed_paths
from hopscope.figures import Axis, Figure, Mark, Series, chart, lines
from hopscope.studies.analysis import deferred
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.circuit_study.config import FALLEN, ChainsConfig
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


def charts(config: ChainsConfig, *names: str, module: str = f"{__package__}.charts") -> tuple[Figure, ...]:
    """Charts by the names of their functions; the module that holds them is loaded when one is drawn."""
    return tuple(chart(name, partial(deferred(f"{module}:{name}"), config)) for name in names)


def timeline(config: ChainsConfig) -> Figure:
    """Losses, and attention on the paths, against training steps: a small chart for each independent member.

    The losses are those of both panels of the paper's Figure 6.
    """
    axis, levels = Axis("loss, or mean attention", (0.0, 1.05)), (Mark(FALLEN), Mark(config.task().plateau))
    return lines("timeline", partial(_timeline, config), axis, marks=levels, height=190).answers("fig-6")


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
