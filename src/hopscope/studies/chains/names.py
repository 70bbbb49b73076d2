"""Names of the analyses of a unit.  Loads no torch."""

from hopscope.circuits.config import reading_name
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.recipe import RETRIEVAL
from hopscope.training.config import UnitPlan


def formation_name(member: int) -> str:
    """Name of the analysis that follows a member's paths."""
    return f"formation-{member}"


def maps_name(member: int) -> str:
    """Name of the analysis that holds a member's attention maps."""
    return f"maps-{member}"


def names(config: ChainsConfig, plan: UnitPlan) -> dict[str, str]:
    """Every analysis of a unit with the kind of its file."""
    members = [member.member for member in plan.members]
    return {
        RETRIEVAL: "json",
        **{reading_name(member, config.reader()): "json" for member in members},
        **{formation_name(member): "json" for member in members},
        **{maps_name(member): "npz" for member in members},
    }
