"""What the studies of circuits and of emergence do alike: one model, many seeds, every member read and followed."""

from typing import TYPE_CHECKING

from hopscope.circuits.config import followed_names
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.measures import measurements

if TYPE_CHECKING:
    from hopscope.training.config import UnitPlan


def files(options: ChainsConfig, plan: "UnitPlan") -> dict[str, str]:
    """Circuits, and how their paths formed."""
    members = [member.member for member in plan.members]
    return followed_names(members, options.reader())


circuits_of_members = UnitAnalysis(files, deferred("hopscope.studies.chains.analysis:analyse"), measurements)
"""Every member read and followed through training."""


def member_name(options: ChainsConfig, member: int) -> str:
    """A member by its seed, or by the seeds of its weights and its data."""
    return options.names[member]
