"""Which positions share information, layer by layer: the paper's Figure 3, carried on to the end."""

from typing import TYPE_CHECKING

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures.common import Figure
from hopscope.studies.depth.figures.information_flow import information_flow_chart
from hopscope.studies.rows import Drawn
from hopscope.studies.theory import mask_and_order

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults

LARGEST_DRAWN = 8
"""Longest chain whose positions are told apart in the picture."""


def _shown(config: DepthStudyConfig) -> bool:
    return bool(config.layers) and config.steps <= LARGEST_DRAWN


def _draw(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    return information_flow_chart(config.steps, *mask_and_order(config))


INFORMATION_FLOW = Figure("information_flow", _shown, _draw)
