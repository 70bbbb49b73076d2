"""The figures of the study of a small language model."""

from functools import partial
from typing import TYPE_CHECKING

from hopscope.figures import Figure, lines, sweep
from hopscope.figures.series import SHARE, Axis, Mark, Series
from hopscope.studies.tiny_lm.config import EXAM, TinyLmConfig, part_of

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def figures(config: TinyLmConfig) -> tuple[Figure, ...]:
    """The right panel of the paper's Figure 2, of models of our own; and accuracy during training."""
    guess = (Mark(1.0 / config.chains, "a guess"),)
    return (
        sweep("accuracy", partial(_accuracy, config), Axis("accuracy", SHARE, "%"),
               across=Axis("steps D of the question"), marks=guess),
        lines("curves", partial(_curves, config), Axis("held-out accuracy", SHARE, "%"), marks=guess, columns=3),
    )  # fmt: skip


def _accuracy(config: TinyLmConfig, evidence: "Evidence") -> list[Series]:
    return [
        Series(
            "accuracy",
            mixture,
            x=f"{depth}",
            ends=("accuracy_low", "accuracy_high"),
            where={"measure": EXAM, "part": part_of(depth), "configuration": mixture},
        )
        for mixture in config.drawn
        for depth in config.depths
    ]


def _curves(config: TinyLmConfig, evidence: "Evidence") -> list[Series]:
    return [
        Series(f"accuracy_depth_{depth}", f"D = {depth}", panel="{configuration}, seed {seed}")
        for depth in config.depths
    ]
