"""Training and analysing one unit, in whatever process."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.executors.pool import layout_of
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.runs import UnitFolder
from hopscope.studies.loading import naming
from hopscope.studies.program import Program
from hopscope.training import threads as arithmetic
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob, job_of
from hopscope.training.engines import ENGINES
from hopscope.training.trainer import Progress, Trainer


def train_unit(
    program: Program,
    unit: UnitFolder,
    budget: TimeBudget,
    say: Callable[[Mapping[str, Any]], None],
    patience: float = 10.0,
) -> None:
    """Train and analyse a unit in this process, with the layout on record, going on where it stopped.

    Args:
        program: the study.
        unit: its folder.
        budget: seconds that it may take.
        say: hears of the progress.
        patience: seconds to wait for another process that works on the unit.

    Raises:
        TimeBudgetReached, UserError: see `Trainer.run`.
    """
    layout = layout_of(unit)
    flushes = arithmetic.prepare(layout["threads"])
    with unit.lock(patience):
        job = job_of(unit)
        with naming(program):
            task = program.task(job, layout["device"])
        unit.event("unit started", unit=unit.hash, **layout, flushes_subnormals=flushes)

        def report(progress: Progress) -> None:
            say(
                {
                    "kind": "progress",
                    "step": progress.step,
                    "losses": [loss if loss == loss else None for loss in progress.losses],
                    "samples_per_second": progress.samples_per_second,
                    "frozen": progress.diverged,
                }
            )

        with naming(program):
            evaluate, initial = program.evaluator(unit, job, task), _start(program, job)
        trainer = Trainer(job, task, unit, evaluate, layout["device"], ENGINES[layout["engine"]], initial)
        with naming(program):
            trainer.run(budget, report)
        say({"kind": "phase", "name": "analysing"})
        with naming(program):
            program.analyse(unit, job, task, budget, layout["device"])
        unit.mark_done()
        unit.event("unit done", unit=unit.hash)


def _start(program: Program, job: TrainJob) -> Mapping[str, Tensor] | None:
    """Weights that a study begins from, checked; `None`: they are drawn.

    Raises:
        UserError: names or shapes are not those of the model.
    """
    if program.study.start is None:
        return None
    try:
        given = program.study.start(job)
        if given is None:
            return None
        weights = {name: torch.as_tensor(weight) for name, weight in given.items()}
        Parameters(parameter_specs(job.model), len(job.members)).load(weights)
    except HopscopeError:
        raise
    except Exception as error:
        words = in_words(error)
        raise UserError(
            f"start: expected the weights of {len(job.members)} members, found {words}"
        ) from error
    return weights
