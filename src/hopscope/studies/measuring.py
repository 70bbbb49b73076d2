"""Measuring the members of a declared study: during training, at checkpoints, and once for the whole run."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.measures import CHUNK, Measure
from hopscope.measures.context import Context
from hopscope.measures.rows import keep, measured, rows_of
from hopscope.measures.rows import recorded as training_record
from hopscope.models.ensemble import Ensemble
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.evidence import Row
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.plan import unit_plan
from hopscope.training.restore import load_ensemble
from hopscope.training.trainer import Evaluate

if TYPE_CHECKING:
    from hopscope.studies.program import Program

_FILES = ("checkpoints", "end")


def checked_task(program: "Program", plan: UnitPlan, device: str) -> Any:
    """The task of a unit on a device, after a look at a few of its samples.

    Raises:
        UserError: the task raises, or its samples do not have its shape.
    """
    task = program.declared_task(plan)
    name = type(task).__name__
    try:
        few = TaskOnDevice(task, device, plan.training.examples)
        seeds = torch.tensor([member.data_seed for member in plan.members], device=device)
        for annotate in (True, False):
            few.sample(seeds, "train", 0, 2, annotate=annotate)
        return task.on(device, plan.training.examples)
    except HopscopeError:
        raise
    except Exception as error:
        words = in_words(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"{name}.sample: expected an hs.Batch, found {words} ({Path(place.filename).name}, line {place.lineno})"
        ) from error


def evaluator(program: "Program", unit: UnitFolder, plan: UnitPlan) -> Evaluate:
    """What is recorded during training: the task's losses and accuracy on held-out samples, by group too.

    Raises:
        UserError: a measure does not fit the task.
    """
    held_out = program.as_run(program.recorded(unit.run)).held_out
    budget = TimeBudget(None)
    tasks: dict[str, Any] = {}
    for each in program.measures("training", *_FILES):
        each.check(_outputs(program, plan))

    def evaluate(model: Transformer, members: Sequence[int]) -> Mapping[Any, Tensor]:
        device = str(model.parameters.flat.device)
        if device not in tasks:
            task = program.measured_task(plan, device)
            tasks[device] = task, task.evaluation(held_out)
        task, batch = tasks[device]
        losses = task.losses(predict(model, batch), batch)
        found: dict[Any, Tensor] = {("held_out", name): values for name, values in losses.items()}
        for each in program.measures("training"):
            context = _context(each, unit, plan, model, members, task, None, batch, budget, {})
            found |= training_record(_rows(each, context), context.members)
        return found

    return evaluate


def predict(model: Transformer, batch: Batch) -> Tensor:
    """Predictions `[member, batch, readout, output]`, some samples at a time."""
    size = max(1, CHUNK // model.members)
    with torch.no_grad():
        parts = [model(part) for part in torch.split(batch.inputs, size, dim=1)]
    return torch.cat(parts, 1)


def analyse(program: "Program", unit: UnitFolder, plan: UnitPlan, budget: TimeBudget, device: str) -> None:
    """Measure a unit at its checkpoints; what is there already is kept.

    Raises:
        TimeBudgetReached: between two checkpoints.
        UserError: a measure has a fault.
    """
    task = program.measured_task(plan, device)
    batch: list[Batch] = []
    done: dict[str, dict[int, list[Row]]] = {}
    every = program.measures(*_FILES)
    held_out = program.as_run(program.recorded(unit.run)).held_out
    steps = plan.training.checkpoint_steps()
    for each in every:
        for step in steps if each.when == "checkpoints" else steps[-1:]:
            rows = measured(unit, each, step)
            if rows is None:
                budget.check()
                batch = batch or [task.evaluation(held_out)]
                model = load_ensemble(unit, step, device)
                needed = {name: _needed(done.get(name, {}), step) for name in each.needs}
                context = _context(
                    each, unit, plan, model, range(model.members), task, step, batch[0], budget, needed
                )
                rows = _rows(each, context)
                keep(unit, each, rows, step)
            done.setdefault(each.name, {})[step] = rows


def _needed(rows: Mapping[int, list[Row]], step: int) -> list[Row]:
    """Rows of a measure at a step, or at every step where that one has none."""
    return rows[step] if step in rows else [row for each in rows.values() for row in each]


def gather(
    program: "Program",
    run: RunFolder,
    config: Any,
    budget: TimeBudget,
    say: Callable[[str], None],
) -> None:
    """Do what is measured once for the whole run; what is there already is kept.

    Raises:
        TimeBudgetReached: what is done is kept.
        UserError: a measure has a fault.
    """
    held_out = program.as_run(config).held_out
    for each in program.measures("run"):
        if measured(run, each) is None:
            say(f"measuring {each.name}")
            needed = {name: _of_run(program, run, name) for name in each.needs}
            members = run.members
            context = Context(
                each,
                run,
                budget,
                members=[member.member for member in members],
                seeds=[member.seed for member in members],
                held_out=held_out,
                needed=needed,
                at=partial(_at, program, each, held_out, budget),
            )
            keep(run, each, _rows(each, context))


def _at(
    program: "Program",
    measure: Measure,
    held_out: int,
    budget: TimeBudget,
    unit: UnitFolder,
    step: int | None,
) -> Context:
    """The context of a unit's checkpoint, for a measure of the whole run."""
    plan = unit_plan(unit)
    task = program.measured_task(plan, "cpu")
    found = unit.checkpoint(step)[0]
    model, batch = load_ensemble(unit, found), task.evaluation(held_out)
    return _context(measure, unit, plan, model, range(model.members), task, found, batch, budget, {})


def measurements(program: "Program", run: RunFolder) -> Iterator[Row]:
    """Every row that a measure has left.

    Raises:
        UserError: a file is damaged.
    """
    for unit in run.units:
        steps = unit_plan(unit).training.checkpoint_steps()
        for each in program.measures(*_FILES):
            for step in steps if each.when == "checkpoints" else steps[-1:]:
                yield from measured(unit, each, step) or ()
    for each in program.measures("run"):
        yield from measured(run, each) or ()


def _of_run(program: "Program", run: RunFolder, name: str) -> list[Row]:
    """Rows of a measure, of all units or of the run."""
    return [row for row in measurements(program, run) if row.measure == name]


def _rows(measure: Measure, context: Context) -> list[Row]:
    """What a measure returns, as rows; a fault in it is a line that names it.

    Raises:
        UserError: the measure raises, or returns something else than numbers.
    """
    try:
        with torch.no_grad():
            returned = measure(context)
            return rows_of(measure, returned, context)
    except HopscopeError:
        raise
    except Exception as error:
        words = in_words(error)
        raise UserError(
            f"measure {measure.name}: expected numbers, found {words}; mend the measure: what was trained is kept"
        ) from error


def _context(
    measure: Measure,
    unit: UnitFolder,
    plan: UnitPlan,
    model: Transformer,
    indices: Sequence[int],
    task: TaskOnDevice,
    step: int | None,
    held_out: Batch,
    budget: TimeBudget,
    needed: Mapping[str, list[Row]],
) -> Context:
    plans = [plan.members[index] for index in indices]
    numbers = [member.member for member in plans]
    members = Ensemble(
        model,
        task,
        members=numbers,
        seeds=[member.data_seed for member in plans],
        step=step,
    )
    return Context(
        measure,
        unit.run,
        budget,
        members=numbers,
        seeds=[member.seed for member in plans],
        ensemble=members,
        unit=unit,
        step=step,
        samples=None if step is None else step * plan.training.batch_size,
        held_out=held_out,
        needed=needed,
    )


def _outputs(program: "Program", plan: UnitPlan) -> str:
    return str(program.declared_task(plan).shape().outputs)
