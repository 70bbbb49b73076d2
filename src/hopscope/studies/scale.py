"""What a run of a declared study lacks of the study as it is written, in words, for `Claim.at_scale`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def at_scale(steps: int, width: int) -> "Callable[[Evidence], str]":
    """A function of the evidence that names what is smaller: `40 of 400 steps, width 64, not 512`; empty if nothing.

    Args:
        steps: training steps of the study.
        width: of its models.
    """

    def lacks(evidence: "Evidence") -> str:
        found, narrow = evidence.config["training"]["steps"], evidence.config["model"]["width"]
        words = [f"{found} of {steps} steps"] * (found < steps) + [f"width {narrow}, not {width}"] * (
            narrow < width
        )
        return ", ".join(words)

    return lacks
