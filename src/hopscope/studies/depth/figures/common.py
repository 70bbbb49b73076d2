"""What the figures of the depth study share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.rows import Drawn

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults


@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn.

    Attributes:
        name: of its files.
        shown: whether a run has it, from the study's configuration.
        draw: from configuration and results to chart and data.
    """

    name: str
    shown: Callable[[DepthStudyConfig], bool]
    draw: "Callable[[DepthStudyConfig, AllResults], Drawn]"
