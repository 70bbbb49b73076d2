"""What a run of a declared study is: everything that decides its numbers, and back to the study from that."""

from typing import Any

from hopscope.config import Config
from hopscope.models.config import Model
from hopscope.studies.study import Configuration, Study
from hopscope.training.config import TrainingConfig


class DeclaredConfig(Config):
    """The configuration of a run of a declared study, as `config.json` has it.

    Attributes:
        task: name and fields of the task; none if nothing is trained.
        model, training, options: their fields.
        vary: dotted field → values.
        varied: the fields of `vary` in the order in which members are numbered.
        configurations: the grid, as the study's function gave it; empty where it is the product of `vary`.
        seeds, held_out: as in `hopscope.Study`.
        source: hash of the source of the task and the helpers that it uses.
    """

    task: dict[str, Any] | None
    model: dict[str, Any] | None
    training: dict[str, Any] | None
    vary: dict[str, list[Any]]
    varied: list[str] = []
    configurations: list[Configuration]
    seeds: int
    options: dict[str, Any] | None
    held_out: int
    source: str | None


def described(study: Study, source: str | None) -> Any:
    """A study as the configuration of a run: its options alone where they decide the units.

    Args:
        study: the study.
        source: hash of the source of its task.
    """
    if study.units is not None:
        return study.options
    task = study.task
    return DeclaredConfig(
        task=None if task is None else {"name": type(task).__name__, "fields": task.model_dump(mode="json")},
        model=None if study.model is None else study.model.model_dump(mode="json"),
        training=None if study.training is None else study.training.model_dump(mode="json"),
        vary={name: list(values) for name, values in study.vary.items()},
        varied=list(study.vary),
        configurations=study.grid() if study.configurations is not None else [],
        seeds=study.seeds,
        options=None if study.options is None else study.options.model_dump(mode="json"),
        held_out=study.held_out,
        source=source,
    )


def kind_of(study: Study) -> type[Any]:
    """The class of the configurations of a study's runs."""
    return DeclaredConfig if study.units is None else type(study.options)


def as_run(own: Study, config: Any) -> Study:
    """The study with the fields of a run's configuration."""
    if own.units is not None:
        return own.model_copy(update={"options": config})
    listed = tuple(config.configurations)
    task = None if config.task is None or own.task is None else config.task["fields"]
    fields = {
        **dict(own),
        "task": None if task is None or own.task is None else type(own.task).model_validate(task),
        "model": None if config.model is None else Model.model_validate(config.model),
        "training": None if config.training is None else TrainingConfig.model_validate(config.training),
        "vary": {name: tuple(config.vary[name]) for name in config.varied or config.vary},
        "configurations": (lambda options: listed) if listed else None,
        "seeds": config.seeds,
        "options": None if own.options is None else type(own.options).model_validate(config.options),
        "held_out": config.held_out,
    }
    return Study(**fields)
