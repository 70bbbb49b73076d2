"""The units of a declared study: its grid and seeds, with every task, model and training fitted to each other."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hopscope.config import in_words, validation_line
from hopscope.errors import UserError
from hopscope.studies.study import Configuration, Study
from hopscope.tasks.config import TaskReference
from hopscope.tasks.task import Shape, Task
from hopscope.training.config import Cell, TrainJob, units_of

MOST_MEMBERS = 32
"""Members of one unit; a configuration with more seeds is cut."""


def grid_units(study: Study, source: str) -> list[TrainJob]:
    """Units of the grid, members numbered through the run.

    Args:
        study: the study.
        source: hash of the source of its task.

    Raises:
        UserError: a configuration cannot be trained.
    """
    grid = study.grid()
    return units_of(_cell(study, each, source, alone=len(grid) == 1) for each in grid)


def _cell(study: Study, configuration: Configuration, source: str, alone: bool) -> Cell:
    here, seeds = study.of(configuration), study.seeds_of(configuration)
    task, model, training = here.task, here.model, here.training
    assert task is not None and model is not None and training is not None, (
        "a study with a task has all of them"
    )
    shape = _shape_of(task)
    try:
        fitted = model.for_task(shape)
    except ValidationError as error:
        raise UserError(f"study {here.name!r}: model.{validation_line(error)}") from None
    # A configuration that is alone is cut in two, so that two cores share it.
    most = min(MOST_MEMBERS, -(-len(seeds) // 2) if alone else len(seeds))
    recorded = _recorded(task, shape, source)
    return Cell(configuration.label, seeds, configuration.overrides, recorded, fitted, training, most)


def _recorded(task: Task, shape: Shape, source: str) -> Task | TaskReference:
    """A task as a unit's record has it: a built-in one by its configuration, another by name and fields."""
    if type(task).__module__.startswith("hopscope.tasks."):
        return task
    return TaskReference(
        reference=type(task).__name__,
        fields=task.model_dump(mode="json"),
        source=source,
        shape=shape,
        gradient=task.differentiable_without_autograd,
    )


def _shape_of(task: Task) -> Shape:
    """The shape of a task.

    Raises:
        UserError: it cannot be told, or is none.
    """
    name = type(task).__name__
    try:
        shape = task.shape()
    except ValidationError as error:
        raise UserError(f"{name}.shape: {validation_line(error)}") from None
    except Exception as error:
        found = in_words(error)
        raise UserError(f"{name}.shape: expected a hopscope.Shape, found {found}") from None
    if not isinstance(shape, Shape):
        raise UserError(
            f"task {name}: expected shape() to give a hopscope.Shape, found {type(shape).__name__}"
        )
    return shape


def floors_of(task: Task) -> Mapping[str, Any]:
    """The floors of a task.

    Raises:
        UserError: they cannot be told, or are no mapping.
    """
    try:
        floors: Any = task.floors()
        found = type(floors).__name__
    except Exception as error:
        floors, found = None, in_words(error)
    if not isinstance(floors, Mapping):
        raise UserError(f"{type(task).__name__}.floors: expected floors by name, found {found}")
    return floors
