"""What was measured of the models of a depth run, as rows of the evidence table.

Every row is held-out, has the file that it was taken from, and stands at the last training step.

Measure `final`: losses at the end of training.
    `final_loss`: mean over the evaluations of the final window; part `step_k`: of x_k alone.

Measure `retrieval`: the last checkpoint on many held-out samples.
    `checkpoint_loss`: of all that was asked; part `step_k`: of x_k alone.
    `checkpoint_loss_error`: standard error of that loss over samples; parts likewise.
    `accuracy`: how often the right candidate is the nearest to the prediction of x_k; part `step_k`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, diverged_members
from hopscope.runs.evidence import Row
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.metrics import Metrics
from hopscope.studies.recipe import RETRIEVAL

METRICS_FILE = "metrics.parquet"
"""Where the losses during training are."""

_OF_ALL = {"loss": "checkpoint_loss", "loss_error": "checkpoint_loss_error"}
_BY_STEP = {"partial": "checkpoint_loss", "partial_error": "checkpoint_loss_error", "accuracy": "accuracy"}


def measurements(run: RunFolder, config: DepthStudyConfig) -> Iterator[Row]:
    """A row for every number that was measured of a run's models after training.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    for record in run.members:
        configuration = Configuration.from_overrides(record.overrides)
        training, asked = config.training(configuration), config.task(configuration).asked
        for part in (None, *(f"step_{step}" for step in asked)):
            loss = None  # the record of a diverged member ends before the final window
            if record.member not in diverged:
                name = "loss" if part is None else f"loss_{part}"
                loss = metrics.final(name, record.member, training.final_steps())
            yield Row(
                record.member, "final", "final_loss", loss, step=training.steps, part=part, file=METRICS_FILE
            )
        file, found = analysis(run, record, training.steps)
        yield from _retrieval(record, found, file, training.steps)


def analysis(run: RunFolder, record: MemberRecord, step: int) -> tuple[str, dict[str, Any]]:
    """File, relative to the run, and content of the measurements of a member's unit.

    Raises:
        UserError: it is missing or damaged.
    """
    unit = run.unit(record.unit)
    path = unit.analysis_path(RETRIEVAL, step, "json")
    found = unit.read_analysis(RETRIEVAL, step)
    if not isinstance(found, dict) or not {"members", "names", *_OF_ALL, *_BY_STEP} <= set(found):
        raise UserError(
            f"{path}: expected the measurements of a unit, found another record; delete it and run the same "
            "command again"
        )
    return path.relative_to(run.path).as_posix(), found


def _retrieval(record: MemberRecord, found: dict[str, Any], file: str, step: int) -> Iterator[Row]:
    row = partial(Row, record.member, RETRIEVAL, step=step, file=file)
    for key, metric in _OF_ALL.items():
        yield row(metric=metric, value=found[key][record.index])
    for key, metric in _BY_STEP.items():
        for name, value in zip(found["names"], found[key][record.index], strict=True):
            yield row(metric=metric, value=value, part=name)
