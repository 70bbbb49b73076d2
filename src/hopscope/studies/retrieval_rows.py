"""Losses and accuracies of the last checkpoint, on many held-out samples, as rows of the evidence table.

Measure `retrieval`.
    `checkpoint_loss`: of all that was asked; part `step_k`: of step k of the chain alone.
    `checkpoint_loss_error`: standard error of that loss over samples; parts likewise.
    `accuracy`: how often the right candidate is the nearest to the prediction of step k; part `step_k`.
"""

from collections.abc import Iterator
from functools import partial

from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder
from hopscope.runs.evidence import Row
from hopscope.studies.recipe import RETRIEVAL

OF_ALL = {"loss": "checkpoint_loss", "loss_error": "checkpoint_loss_error"}
OF_STEPS = {"partial": "checkpoint_loss", "partial_error": "checkpoint_loss_error", "accuracy": "accuracy"}


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
    path = unit.analysis_path(RETRIEVAL, step, "json")
    found = unit.read_analysis(RETRIEVAL, step)
    if not isinstance(found, dict) or not {"members", "names", *OF_ALL, *OF_STEPS} <= set(found):
        raise UserError(
            f"{path}: expected the measurements of a unit, found another record; delete it and run the same command "
            "again"
        )
    file = path.relative_to(run.path).as_posix()
    row = partial(Row, record.member, RETRIEVAL, step=step, file=file)
    for key, metric in OF_ALL.items():
        yield row(metric=metric, value=found[key][record.index])
    for key, metric in OF_STEPS.items():
        for name, value in zip(found["names"], found[key][record.index], strict=True):
            yield row(metric=metric, value=value, part=name)
