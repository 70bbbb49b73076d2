"""Measuring the members of a declared study: during training, at checkpoints, and once for the whole run."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.measures import CHUNK, Measure, stored_name
from hopscope.measures.context import Context
from hopscope.measures.rows import keep, measured, rows_of
from hopscope.measures.rows import recorded as training_record
from hopscope.models.ensemble import Ensemble
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.evidence import Row
from hopscope.runs.files import is_file
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob, job_of
from hopscope.training.restore import load_ensemble
from hopscope.training.trainer import Evaluate

if TYPE_CHECKING:
    from hopscope.studies.program import Program

_FILES = ("checkpoints", "end")


def checked_task(program: "Program", job: TrainJob, device: str) -> Any:
    """The task of a unit on a device, after a look at a few of its samples.

    Raises:
        UserError: the task raises, or its samples do not have its shape.
    """
    task = program.declared_task(job)
    try:
        few = TaskOnDevice(task, device, job.training.examples)
        seeds = torch.tensor([member.data_seed for member in job.members], device=device)
        for annotate in (True, False):
            few.sample(seeds, "train", 0, 2, annotate=annotate)
        return task.on(device, job.training.examples)
    except HopscopeError:
        raise
    except Exception as error:
        words = in_words(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(place.filename).name}, line {place.lineno}"
        raise UserError(
            f"{type(task).__name__}.sample: expected an hs.Batch, found {words} ({at})"
        ) from error


class MeasuredUnit:
    """A unit as measures see it.

    Attributes:
        unit, job: its folder, and what it was trained by.
        task: on the device.
        budget: seconds that are left.
    """

    def __init__(
        self, program: "Program", unit: UnitFolder, job: TrainJob, budget: TimeBudget, device: str = "cpu"
    ):
        self.unit, self.job, self.budget = unit, job, budget
        self.task = program.measured_task(job, device)
        self._samples = program.as_run(program.recorded(unit.run)).held_out

    @cached_property
    def held_out(self) -> Batch:
        """The held-out samples, drawn when they are first asked for."""
        return self.task.evaluation(self._samples)

    def context(
        self,
        measure: Measure,
        model: Transformer,
        step: int | None,
        indices: Sequence[int] | None = None,
        needed: Mapping[str, list[Row]] | None = None,
    ) -> Context:
        """What a measure is given of a model whose members have these places in the unit, by default all of them."""
        members = self.job.members if indices is None else [self.job.members[index] for index in indices]
        numbers = [member.member for member in members]
        data_seeds = [member.data_seed for member in members]
        return Context(
            measure,
            self.unit.run,
            self.budget,
            members=numbers,
            seeds=[member.seed for member in members],
            ensemble=Ensemble(model, self.task, members=numbers, seeds=data_seeds, step=step),
            unit=self.unit,
            step=step,
            samples=None if step is None else step * self.job.training.batch_size,
            held_out=self.held_out,
            needed=needed,
        )


def evaluator(program: "Program", unit: UnitFolder, job: TrainJob) -> Evaluate:
    """What is recorded during training: the task's losses and accuracy on held-out samples, by group too.

    Raises:
        UserError: a measure does not fit the task.
    """
    outputs = str(program.declared_task(job).shape().outputs)
    for each in program.measures("training", *_FILES):
        each.check(outputs)

    @cache
    def on(device: str) -> MeasuredUnit:
        return MeasuredUnit(program, unit, job, TimeBudget(None), device)

    def evaluate(model: Transformer, members: Sequence[int]) -> Mapping[Any, Tensor]:
        here = on(str(model.parameters.flat.device))
        losses = here.task.losses(predict(model, here.held_out), here.held_out)
        found: dict[Any, Tensor] = {("held_out", name): values for name, values in losses.items()}
        for each in program.measures("training"):
            context = here.context(each, model, None, members)
            found |= training_record(_rows(each, context), context.members)
        return found

    return evaluate


def predict(model: Transformer, batch: Batch) -> Tensor:
    """Predictions `[member, batch, readout, output]`, some samples at a time."""
    size = max(1, CHUNK // model.members)
    with torch.no_grad():
        parts = [model(part) for part in torch.split(batch.inputs, size, dim=1)]
    return torch.cat(parts, 1)


def analyse(program: "Program", unit: UnitFolder, job: TrainJob, budget: TimeBudget, device: str) -> None:
    """Measure a unit at its checkpoints; what is there already is kept.

    Raises:
        TimeBudgetReached: between two checkpoints.
        UserError: a measure has a fault.
    """
    here = MeasuredUnit(program, unit, job, budget, device)
    done: dict[str, dict[int, list[Row]]] = {}
    for each in program.measures(*_FILES):
        for step in _steps(each, job):
            rows = measured(unit, each, step)
            if rows is None or _lost_arrays(unit.run_path, rows):
                budget.check()
                needed = {name: _needed(done.get(name, {}), step) for name in each.needs}
                rows = _rows(each, here.context(each, load_ensemble(unit, step, device), step, needed=needed))
                keep(unit, each, rows, step)
            done.setdefault(each.name, {})[step] = rows


def _lost_arrays(run: Path, rows: Sequence[Row]) -> bool:
    """Whether arrays are gone that rows point to."""
    return any(row.file is not None and not is_file(run / row.file) for row in rows)


def _steps(measure: Measure, job: TrainJob) -> Sequence[int]:
    """Checkpoints at which a measure is taken."""
    steps = job.training.checkpoint_steps()
    return steps if measure.when == "checkpoints" else steps[-1:]


def _needed(rows: Mapping[int, list[Row]], step: int) -> list[Row]:
    """Rows of a measure at a step, or at every step where that one has none."""
    return rows[step] if step in rows else [row for each in rows.values() for row in each]


def gather(program: "Program", run: RunFolder, budget: TimeBudget, say: Callable[[str], None]) -> None:
    """Do what is measured once for the whole run; what is there already is kept.

    Raises:
        TimeBudgetReached: what is done is kept.
        UserError: a measure has a fault.
    """
    for each in program.measures("run"):
        if measured(run, each) is not None:
            continue
        say(f"measuring {each.name}")

        def at(unit: UnitFolder, step: int | None, measure: Measure = each) -> Context:
            found = unit.checkpoint(step)[0]
            here = MeasuredUnit(program, unit, job_of(unit), budget)
            return here.context(measure, load_ensemble(unit, found), found)

        context = Context(
            each,
            run,
            budget,
            members=[member.member for member in run.members],
            seeds=[member.seed for member in run.members],
            needed={
                name: [row for row in measurements(program, run) if row.measure == name]
                for name in each.needs
            },
            at=at,
        )
        keep(run, each, _rows(each, context))


def measurements(program: "Program", run: RunFolder) -> Iterator[Row]:
    """Every row that a measure has left; one that found nothing has left a file without rows.

    Raises:
        UserError: a file is damaged, or that of a unit is gone.
    """
    for unit in run.units:
        job = job_of(unit)
        for each in program.measures(*_FILES):
            for step in _steps(each, job):
                yield from _rows_of_unit(unit, each, step)
    for each in program.measures("run"):
        yield from measured(run, each) or ()


def _rows_of_unit(unit: UnitFolder, measure: Measure, step: int) -> list[Row]:
    """What was measured of a checkpoint.

    Raises:
        UserError: its file is damaged or gone: without its rows the run would conclude something else.
    """
    rows = measured(unit, measure, step)
    if rows is None:
        raise UserError(
            f"{unit.analysis_path(stored_name(measure), step)}: expected the rows of measure {measure.name} at step "
            f"{step}, found none: restore it from a copy of the run, or move {unit.path} away and run the same command "
            "again to train anew"
        )
    return rows


def _rows(measure: Measure, context: Context) -> list[Row]:
    """What a measure returns, as rows; a fault in it is a line that names it.

    Raises:
        UserError: the measure raises, or returns something else than numbers.
    """
    try:
        with torch.no_grad():
            return rows_of(measure, measure(context), context)
    except HopscopeError:
        raise
    except Exception as error:
        words = in_words(error)
        raise UserError(
            f"measure {measure.name}: expected numbers, found {words}; mend the measure: what was trained is kept"
        ) from error
