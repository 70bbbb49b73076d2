"""What is measured of every model that follows chains: losses and accuracies, during training and at its end.

All rows are held-out and stand at the last training step.

Measure `final`: losses at the end of training; null for a member that diverged.
    `final_loss`: mean over the evaluations of the final window; part `step_k`: of step k of the chain alone.

Measure `retrieval`: of the last checkpoint, on many samples.
    `checkpoint_loss`: of all that was asked; part `step_k`: of step k of the chain alone.
    `checkpoint_loss_error`: standard error of that loss over samples; parts likewise.
    `accuracy`: how often the right candidate is the nearest to the prediction of step k; part `step_k`.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.recipe import RecipeConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import TrainJob, job_of

if TYPE_CHECKING:
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.training.trainer import Evaluate

RETRIEVAL = "retrieval"
"""Name of the analysis that holds losses and accuracies of a unit's last checkpoint."""

OF_ALL = {"loss": "checkpoint_loss", "loss_error": "checkpoint_loss_error"}
OF_STEPS = {"partial": "checkpoint_loss", "partial_error": "checkpoint_loss_error", "accuracy": "accuracy"}


def evaluator(options: RecipeConfig, task: "RetrievalTask") -> "Evaluate":
    """Held-out losses and accuracies, for the curves."""
    from hopscope.probes.retrieval import held_out

    batch = task.evaluation(options.evaluation_samples, annotate=False)
    return lambda model, members: held_out(model, task, batch)


def analyse(
    options: RecipeConfig, unit: UnitFolder, job: TrainJob, task: "RetrievalTask", budget: Any, device: str
) -> None:
    """Measure the last checkpoint on more samples than the curves, unless that is done.

    Raises:
        UserError: the checkpoint is damaged, or the file cannot be written.
    """
    from hopscope.probes.retrieval import measure_retrieval
    from hopscope.training.restore import load_ensemble

    step = job.training.steps
    if not unit.analysis_path(RETRIEVAL, step, "json").is_file():
        found = measure_retrieval(load_ensemble(unit, step, device), task, options.analysis_samples)
        members = [member.member for member in job.members]
        unit.write_analysis(RETRIEVAL, step, {"members": members, "step": step, **found})


def measurements(run: RunFolder, options: RecipeConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    for record in run.members:
        job = job_of(run.unit(record.unit))
        # The record of a member that diverged ends before the final window.
        yield from _final_rows(record.member, job, None if record.member in diverged else metrics)
        yield from _retrieval_rows(run, record, job.training.steps)


def _final_rows(member: int, job: TrainJob, metrics: Metrics | None) -> Iterator[Row]:
    """Losses of a member at the end of training, from the curves of the run; without numbers if there are none."""
    assert isinstance(job.task, RetrievalConfig)
    training = job.training
    for part in (None, *(f"step_{step}" for step in job.task.asked)):
        name = "loss" if part is None else f"loss_{part}"
        loss = None if metrics is None else metrics.final(name, member, training.final_steps())
        yield Row(member, "final", "final_loss", loss, step=training.steps, part=part, file=GATHERED)


def _retrieval_rows(run: RunFolder, record: MemberRecord, step: int) -> Iterator[Row]:
    """Losses and accuracies of a member's last checkpoint.

    Raises:
        UserError: the analysis is missing, damaged, or another record.
    """
    unit = run.unit(record.unit)
    found = unit.read_analysis(RETRIEVAL, step)
    if not isinstance(found, dict) or not {"members", "names", *OF_ALL, *OF_STEPS} <= set(found):
        raise UserError(
            f"{unit.analysis_path(RETRIEVAL, step)}: expected the measurements of a unit, found another record; "
            "delete it and run the same command again"
        )
    row = partial(Row, record.member, RETRIEVAL, step=step, file=unit.file_of(RETRIEVAL, step))
    for key, metric in OF_ALL.items():
        yield row(metric=metric, value=found[key][record.index])
    for key, metric in OF_STEPS.items():
        for name, value in zip(found["names"], found[key][record.index], strict=True):
            yield row(metric=metric, value=value, part=name)


losses_at_the_end = UnitAnalysis(lambda options, job: {RETRIEVAL: "json"}, analyse, measurements, evaluator)
"""Losses and accuracies on held-out samples, during training and at its end."""
