"""The plan on record: apart from `restore`, so that concluding a run loads no torch."""

from hopscope.runs import UnitFolder
from hopscope.training.config import UnitPlan


def unit_plan(unit: UnitFolder) -> UnitPlan:
    """The plan that a unit was trained by."""
    return UnitPlan.model_validate(unit.record["plan"])


def is_trained(unit: UnitFolder) -> bool:
    """Whether a unit has the checkpoint of its last step (or is done, where that checkpoint was left out)."""
    if unit.is_done:
        return True
    return any(step == unit_plan(unit).training.steps for step, _ in unit.checkpoints())
