"""What is measured of every model that follows chains: losses at the end of training, and of the last checkpoint.

All rows are held-out and stand at the last training step.

Measure `final`: losses at the end of training; null for a member that diverged.
    `final_loss`: mean over the evaluations of the final window; part `step_k`: of step k of the chain alone.

Measure `retrieval`: of the last checkpoint, on many samples.
    `checkpoint_loss`: of all that was asked; part `step_k`: of step k of the chain alone.
    `checkpoint_loss_error`: standard error of that loss over samples; parts likewise.
    `accuracy`: how often the right candidate is the nearest to the prediction of step k; part `step_k`.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, diverged_members
from hopscope.runs.curves import Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.analysis import UnitAnalysis, deferred
from hopscope.studies.recipe import RecipeConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import TrainingConfig
from hopscope.training.plan import unit_plan

RETRIEVAL = "retrieval"
"""Name of the analysis that holds losses and accuracies of a unit's last checkpoint."""

OF_ALL = {"loss": "checkpoint_loss", "loss_error": "checkpoint_loss_error"}
OF_STEPS = {"partial": "checkpoint_loss", "partial_error": "checkpoint_loss_error", "accuracy": "accuracy"}


def measurements(run: RunFolder, options: RecipeConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    for record in run.members:
        plan = unit_plan(run.unit(record.unit))
        assert isinstance(plan.task, RetrievalConfig)
        known = None if record.member in diverged else metrics
        yield from final_rows(record.member, plan.training, plan.task.asked, known)
        yield from retrieval_rows(run, record, plan.training.steps)


def final_rows(
    member: int, training: TrainingConfig, asked: Iterable[int], metrics: Metrics | None
) -> Iterator[Row]:
    """Losses of a member at the end of training.

    Args:
        member: its number.
        training: how it was trained.
        asked: steps of the chain that it was asked for.
        metrics: the curves of the run; none for a member that diverged, whose record ends before the final window.
    """
    for part in (None, *(f"step_{step}" for step in asked)):
        name = "loss" if part is None else f"loss_{part}"
        loss = None if metrics is None else metrics.final(name, member, training.final_steps())
        yield Row(member, "final", "final_loss", loss, step=training.steps, part=part, file=GATHERED)


def retrieval_rows(run: RunFolder, record: MemberRecord, step: int) -> Iterator[Row]:
    """The rows of one member.

    Args:
        run: the run.
        record: the member.
        step: of the last checkpoint.

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


losses_at_the_end = UnitAnalysis(
    files=lambda options, plan: {RETRIEVAL: "json"},
    work=deferred("hopscope.studies.retrieval:analyse"),
    rows=measurements,
    evaluate=deferred("hopscope.studies.retrieval:evaluator"),
)
"""Losses and accuracies on held-out samples, during training and at its end."""
