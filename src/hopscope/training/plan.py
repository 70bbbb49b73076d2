"""The plan on record: apart from `restore`, so that concluding a run loads no torch."""

from hopscope.runs import UnitFolder
from hopscope.training.config import UnitPlan


def unit_plan(unit: UnitFolder) -> UnitPlan:
    """The plan that a unit was trained by."""
    return UnitPlan.model_validate(unit.record["plan"])
