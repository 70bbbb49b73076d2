"""The study of circuits (paper, section 8): which circuits seeds learn, read and proven member by member."""

from typing import TYPE_CHECKING

from hopscope.studies.chains.study import ChainsStudy
from hopscope.studies.circuits.config import COSTS, PRESETS, CircuitsConfig

if TYPE_CHECKING:
    from hopscope.claims import Claim
    from hopscope.studies.figures import Figure


class CircuitsStudy(ChainsStudy):
    """See `hopscope.studies.base.Program`."""

    name = "circuits"
    summary = "models of many layers follow a chain: which heads do it, how, and whether seeds agree"
    presets = PRESETS
    costs = COSTS
    config_type = CircuitsConfig

    def figures(self, config: CircuitsConfig) -> "tuple[Figure, ...]":
        """The reads of every seed, their worth, learning, and attention maps."""
        from hopscope.studies.chains.figures import figures

        return figures(config, "reads", "controls", "modes", "timeline", "gallery")

    def claims(self, config: CircuitsConfig) -> "tuple[Claim, ...]":
        """R4 to R7."""
        from hopscope.studies.circuits.claims import claims

        return claims(config)
