"""What of a task a member has learned, and when: by the rule of the reader of circuits, over its training record.

A part of a loss is learned below a quarter of its lowest floor, a skill of permutation lookup from an accuracy of 0.9
on (`hopscope.circuits.criteria`).
"""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from hopscope.circuits.any_task import lowest_floors
from hopscope.circuits.built_in_tasks import SKILLS
from hopscope.circuits.config import LEARNED
from hopscope.circuits.criteria import ACCURATE
from hopscope.errors import UserError
from hopscope.tasks.config import EquationsConfig, PermutationConfig, VectorTaskConfig
from hopscope.tasks.device import GROUP, TaskOnDevice


class Part(NamedTuple):
    """A part of a task that can be learned.

    Attributes:
        metric: of the training record.
        bound: what it must reach.
        rises: whether larger is better: of accuracies.
    """

    metric: str
    bound: float
    rises: bool = False

    def reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.bound if self.rises else value < self.bound


def parts_of(task: TaskOnDevice) -> dict[str, Part]:
    """The parts of a task, by the names that the reader of circuits has for them.

    Raises:
        UserError: the task is of language models, which are not collected.
    """
    own = task.task
    if isinstance(own, EquationsConfig):
        raise UserError(
            "members: expected models of small tasks, found language models, which hopscope zoo build-members "
            "does not collect; hopscope run tiny-lm leaves them as Hugging Face folders"
        )
    if isinstance(own, PermutationConfig):  # recall is asked for where there are repeats
        asked = SKILLS if own.repeat_ratio > 0.0 else SKILLS[:1]
        return {name: Part(name, ACCURATE, rises=True) for name in asked}
    if isinstance(own, VectorTaskConfig):
        return {name: Part(f"loss_{name}", LEARNED) for name in own.floors_by_name}
    floors = lowest_floors(task, task.evaluation(512))
    return {name: Part(name, LEARNED * floor) for name, floor in floors.items()}


def record_of(metrics: pa.Table, member: int) -> dict[str, dict[int, float]]:
    """Metric → step → value of a member on held-out samples; of a group of samples `metric@group`.

    Args:
        metrics: of its unit, as `hopscope.runs.metrics.read_metrics` gives them.
        member: its number in the run.
    """
    table = metrics.to_pandas()
    table = table[(table["member"] == member) & (table["split"] == "held_out")]
    if "measure" in table:  # what a study measures besides has names of its own
        table = table[table["measure"].isna() | (table["measure"] == "training")]
    names = table["metric"]
    if "part" in table:
        names = names.where(table["part"].isna(), names + GROUP + table["part"].fillna(""))
    found: dict[str, dict[int, float]] = {}
    for name, step, value in zip(names, table["step"], table["value"], strict=True):
        found.setdefault(str(name), {})[int(step)] = float(value)
    return found


def learned_at(parts: Mapping[str, Part], record: Mapping[str, Mapping[int, float]]) -> dict[str, int | None]:
    """Part → the first evaluation from which on it was learned at every later one; `None` where it was not at the last.

    Args:
        parts: of the task.
        record: as `record_of` gives it.
    """
    found: dict[str, int | None] = {}
    for name, part in parts.items():
        first = None
        for step, value in sorted(record.get(part.metric, {}).items(), reverse=True):
            if not part.reached(value):
                break
            first = step
        found[name] = first
    return found
