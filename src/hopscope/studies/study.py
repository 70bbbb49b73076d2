"""A study as a value: a task, a model, its training, a grid, and what is measured, claimed and drawn."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hopscope.claims import Claim
from hopscope.completion import COMPLETIONS, DEFAULT, CompletionName
from hopscope.config import (
    Config,
    check_seeds,
    given_of,
    in_words,
    unknown_field,
    validation_line,
    values_of,
)
from hopscope.errors import UserError
from hopscope.measures import Measure, as_measure
from hopscope.models.config import Model
from hopscope.studies.analysis import RunAnalysis, UnitAnalysis
from hopscope.tasks.task import Task
from hopscope.training.config import TrainingConfig, TrainJob

SECTIONS = ("task", "model", "training", "options")
"""Parts of a study whose fields can be varied and given on the command line, as `model.layers`."""

OF_THE_COMMAND = (
    "preset", "out", "device", "threads", "time_budget", "engine", "gpu_workers", "executor", "address", "tracker",
    "help",
)  # fmt: skip
"""Words that `hopscope run` keeps for itself, as flags: no option of a study has one of these names."""

SEEDS = ("init_seed", "data_seed")
"""Overrides of a configuration that are no fields: seeds of the weights and of the training samples."""


class Configuration(Config):
    """One cell of a study's grid.

    Attributes:
        label: what it is called in tables and figures.
        overrides: dotted field (`model.layers`) → value; `init_seed` and `data_seed` replace a member's seed.
        seeds: number of seeds, or the seeds; the study's own by default.
    """

    label: str
    overrides: dict[str, Any] = {}
    seeds: int | tuple[int, ...] | None = None

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: Any) -> Any:
        if isinstance(seeds, int):
            check_seeds("seeds", seeds)
        several = range(seeds) if isinstance(seeds, int) else seeds
        if several is not None and (not several or min(several) < 0 or len(set(several)) < len(several)):
            raise ValueError(f"a number of seeds from 1, or different seeds from 0, found {seeds}")
        return seeds


class Study(BaseModel):
    """A study: what is trained, over which grid and seeds, and what is measured, claimed and drawn.

    Attributes:
        name: names the folder of its runs.
        question: what it asks, in one sentence.
        task: what is learned; `None` if nothing is trained.
        completion: start of the weights, and warm-up, β₂, schedule and clipping of the training, in one word; fields
            that `model` and `training` give themselves win.
        model: the transformer; the task's shape is filled in.
        training: optimiser, steps and record keeping.
        vary: dotted field → values; the grid is their product.
        configurations: a function of the options that gives the grid, in place of `vary`.
        options: a frozen model of fields of its own; they are flags, and part of the run's identity.
        seeds: number of seeds 0 … seeds - 1 of every configuration.
        measures: what is measured of the members.
        claims: what is claimed of them, or a function of the options that says so.
        figures: what is drawn, or a function of the options that says so.
        presets: name → dotted fields that differ from what is written here, or the options with other values.
        costs: name of a preset → what it costs, in words.
        start: a function of a unit's job that gives the weights to begin from, by name, `[member, …]`; by default,
            and where it gives `None`, they are drawn.
        page: template of the page (Markdown with Jinja), or the name of its file beside the study's file.
        held_out: held-out samples of an evaluation.
        units: a function of the options that gives the units to train, of built-in tasks, in place of task, model,
            training, grid and seeds; the options alone are then the run's configuration.
        analyses: what is measured by code that keeps files of its own (`hopscope.studies.analysis`).
        page_names: a function of the page and the options that gives further names for the page's template.
        member_name: a function of the options and a member's number that gives what pages call it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=()
    )

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    question: str = ""
    task: Task | None = None
    completion: CompletionName = DEFAULT
    model: Model | None = None
    training: TrainingConfig | None = None
    vary: dict[str, tuple[Any, ...]] = {}
    configurations: Callable[[Any], Sequence[Configuration]] | None = None
    options: BaseModel | None = None
    seeds: int = Field(4, ge=1)
    measures: tuple[Any, ...] = ()
    claims: tuple[Claim, ...] | Callable[[Any], Sequence[Claim]] = ()
    figures: tuple[Any, ...] | Callable[[Any], Sequence[Any]] = ()
    presets: dict[str, dict[str, Any]] = {}
    costs: dict[str, str] = {}
    start: Callable[[Any], Mapping[str, Any] | None] | None = None
    page: str | None = None
    held_out: int = Field(1024, ge=1)
    units: Callable[[Any], Sequence[TrainJob]] | None = None
    analyses: tuple[Any, ...] = ()
    page_names: Callable[[Any, Any], Mapping[str, Any]] | None = None
    member_name: Callable[[Any, int], str] | None = None

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            known = type(self).model_fields
            raise UserError(f"study {fields.get('name', '')!r}: {validation_line(error, known)}") from None

    @field_validator("options", mode="before")
    @classmethod
    def _has_defaults(cls, options: Any) -> Any:
        return options() if isinstance(options, type) else options

    @field_validator("task", mode="before")
    @classmethod
    def _is_a_value(cls, task: Any) -> Any:
        if isinstance(task, type):
            raise ValueError(f"a task, found the class {task.__name__}; write {task.__name__}()")
        return task

    @field_validator("model", "training")
    @classmethod
    def _is_completed(
        cls, section: Model | TrainingConfig | None, info: ValidationInfo
    ) -> Model | TrainingConfig | None:
        return None if section is None else completed(section, info.data.get("completion", DEFAULT))

    @field_validator("figures")
    @classmethod
    def _are_figures(cls, figures: Any) -> Any:
        return figures if callable(figures) else _checked_figures(figures)

    @field_validator("analyses")
    @classmethod
    def _are_analyses(cls, analyses: tuple[Any, ...]) -> tuple[Any, ...]:
        for each in analyses:
            if not isinstance(each, UnitAnalysis | RunAnalysis):
                raise ValueError(f"values of hopscope.studies.analysis, found {each!r}")
        recording = sum(getattr(each, "evaluate", None) is not None for each in analyses)
        if recording > 1:
            raise ValueError(
                f"one analysis at most that says what is recorded in training, found {recording}"
            )
        return analyses

    @field_validator("presets", mode="before")
    @classmethod
    def _have_fields(cls, presets: Any) -> Any:
        if not isinstance(presets, Mapping):
            return presets
        return {
            name: given_of(each) if isinstance(each, BaseModel) else each for name, each in presets.items()
        }

    @field_validator("measures")
    @classmethod
    def _are_measures(cls, measures: tuple[Any, ...]) -> tuple[Measure, ...]:
        found = tuple(as_measure(each) for each in measures)
        names = [each.name for each in found]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"measures: expected measures with different names, found {name!r} twice")
        return found

    @model_validator(mode="after")
    def _has_options_of_its_own(self) -> "Study":
        sections = {name for name in SECTIONS if getattr(self, name) is not None}
        taken = {*self.plain_fields, *OF_THE_COMMAND} | sections
        for name in type(self.options).model_fields if self.options else ():
            if name in taken:
                raise ValueError(
                    f"options: expected names that neither the study nor `hopscope run` has, found {name!r}; "
                    "give this option another name"
                )
        return self

    @model_validator(mode="after")
    def _has_few_seeds(self) -> "Study":
        """Before any job is made: jobs have an entry for every seed."""
        check_seeds("seeds", self.seeds)
        for name, value in self.options or ():
            if name.endswith("seeds") and isinstance(value, int):
                check_seeds(name, value)
        return self

    @model_validator(mode="after")
    def _can_be_planned(self) -> "Study":
        if self.units is not None and (self.task is not None or self.vary or self.options is None):
            raise ValueError(
                "units: expected options, and neither a task nor vary, beside a function that gives the units"
            )
        if self.task is None:
            return self
        for name in ("model", "training"):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: expected one beside a task, found none")
        if self.vary and self.configurations is not None:
            raise ValueError("vary: expected either vary or configurations, found both")
        for name, values in self.vary.items():
            if not values:
                raise ValueError(f"vary: expected at least one value of {name}, found none")
        varied = {name: values for name, values in self.vary.items() if name != "completion"}
        for values in itertools.product(*varied.values()):
            self._replaced(dict(zip(varied, values, strict=True)))
        for preset, fields in self.presets.items():
            for name in fields:
                if name not in self.plain_fields:
                    self._split(name, f"preset {preset!r}: ")
        return self

    def changed(self, fields: Mapping[str, Any]) -> "Study":
        """The same study with other values of some fields.

        Args:
            fields: dotted field → value; a list replaces the values of a varied field, a single value pins it.

        Raises:
            UserError: there is no such field, or the value does not fit.
        """
        varied = dict(self.vary)
        plain: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in fields.items():
            if name in varied:
                several = isinstance(value, list | tuple | range)
                varied[name] = tuple(value) if several else (value,)
            elif name in self.plain_fields:
                plain[name] = value
            else:
                others[name] = value
        return type(self)(**{**dict(self), **plain, **self._replaced(others), "vary": varied})

    def _replaced(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The sections of some dotted fields, with these values, by the sections' names.

        Raises:
            UserError: there is no such field, or a value does not fit.
        """
        changes: dict[str, dict[str, Any]] = {}
        for name, value in fields.items():
            section, field = self._split(name)
            if field.endswith("seeds") and isinstance(value, int):
                check_seeds(field, value)  # options may plan every seed while they are validated
            changes.setdefault(section, {})[field] = value
        found = {}
        for section, values in changes.items():
            before = getattr(self, section)
            try:
                found[section] = type(before).model_validate({**given_of(before), **values})
            except ValidationError as error:
                prefix = "" if section == "options" else f"{section}."
                raise UserError(f"{prefix}{validation_line(error)}") from None
        return found

    @property
    def plain_fields(self) -> tuple[str, ...]:
        """Fields of the study itself that can be given another value."""
        return ("seeds", "held_out", "completion") if self.units is None else ()

    def _split(self, name: str, where: str = "") -> tuple[str, str]:
        """Section and field of a dotted name.

        Raises:
            UserError: there is no such field.
        """
        section, dot, field = name.partition(".")
        place = (section, field) if dot else ("options", name)
        if place not in self._places.values():
            raise UserError(f"study {self.name!r}: {where}{unknown_field(name, self.fields())}")
        return place

    @property
    def _places(self) -> dict[str, tuple[str, str]]:
        """Dotted name → section and field, of all sections; a field of the options is named by itself."""
        sections = {section: getattr(self, section) for section in SECTIONS}
        return {
            field if section == "options" else f"{section}.{field}": (section, field)
            for section, value in sections.items()
            if value is not None
            for field in type(value).model_fields
        }

    def fields(self) -> list[str]:
        """Dotted names of everything that can be varied or given on the command line."""
        return [*self.plain_fields, *self._places]

    def grid(self) -> list[Configuration]:
        """The configurations, in the order in which members are numbered.

        Raises:
            UserError: a varied field does not exist, a value does not fit, or two configurations have one label.
        """
        if self.configurations is not None:
            found = self._given()
        else:
            products = itertools.product(*self.vary.values())
            found = [self._cell(dict(zip(self.vary, values, strict=True))) for values in products]
        labels = [each.label for each in found]
        if not found or len(set(labels)) < len(labels):
            raise UserError(
                f"study {self.name!r}: expected configurations with different labels, found {labels}"
            )
        for each in found:
            self.of(each)
        return found

    def _given(self) -> list[Configuration]:
        """What the function of the configurations gives.

        Raises:
            UserError: it raises, or gives something else.
        """
        assert self.configurations is not None
        what = f"study {self.name!r}: configurations"
        try:
            return [Configuration.model_validate(dict(each)) for each in self.configurations(self.options)]
        except UserError as error:
            raise UserError(f"{what}: {error}") from None
        except ValidationError as error:
            raise UserError(f"{what}: {validation_line(error)}") from None
        except Exception as error:
            found = in_words(error)
            raise UserError(f"{what}: expected a list of hs.Configuration, found {found}") from None

    def _cell(self, overrides: dict[str, Any]) -> Configuration:
        short = {name: name.rpartition(".")[2] for name in overrides}
        told_apart = len(set(short.values())) == len(short)
        words = [
            f"{short[name] if told_apart else name} {_shown(value)}" for name, value in overrides.items()
        ]
        return Configuration(label=", ".join(words) or self.name, overrides=overrides)

    def of(self, configuration: Configuration) -> "Study":
        """The study with the fields of one configuration, its grid left out.

        Raises:
            UserError: a field does not exist, or its value does not fit.
        """
        fields = {name: value for name, value in configuration.overrides.items() if name not in SEEDS}
        return self.model_copy(update={"vary": {}, "configurations": None}).changed(fields)

    def check_open(self, fields: Iterable[str]) -> None:
        """Refuse a field that has no effect, because every configuration gives it a value of its own.

        Raises:
            UserError: names it.
        """
        fields = list(fields)
        # Without a field there is nothing to refuse, and a list of studies does not wait for the configurations.
        grid = self.grid() if fields and self.configurations is not None else []
        for name in fields:
            if grid and all(name in each.overrides for each in grid):
                raise UserError(
                    f"{name}: expected a field that the configurations of the study {self.name!r} leave open, found "
                    "one that every configuration gives its own value; change it there"
                )

    def seeds_of(self, configuration: Configuration) -> tuple[int, ...]:
        """Seeds of one configuration of the study."""
        seeds = self.seeds if configuration.seeds is None else configuration.seeds
        return tuple(range(seeds)) if isinstance(seeds, int) else seeds

    def all_claims(self) -> tuple[Claim, ...]:
        """The claims, those of a function included.

        Raises:
            UserError: two claims have one id.
        """
        claims = tuple(self.claims(self.options)) if callable(self.claims) else self.claims
        ids = [claim.id for claim in claims]
        if len(set(ids)) < len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise UserError(f"study {self.name!r}: expected claims with different ids, found {twice!r} twice")
        return claims

    def all_figures(self) -> tuple[Any, ...]:
        """The figures, those of a function included.

        Raises:
            UserError: the function gives something else.
        """
        if not callable(self.figures):
            return self.figures
        try:
            return _checked_figures(tuple(self.figures(self.options)))
        except ValueError as error:
            raise UserError(f"study {self.name!r}: figures: expected {error}") from None

    def run(self, preset: str | None = None, **arguments: Any) -> Any:
        """Run it, go on with it, or find it finished: see `hopscope.run`, whose result is returned."""
        import hopscope

        return hopscope.run(self, preset, **arguments)


def completed(section: Model | TrainingConfig, name: CompletionName) -> Model | TrainingConfig:
    """A model or a training with the values of a completion in the fields that it does not give itself."""
    completion = COMPLETIONS[name]
    if isinstance(section, Model):
        found: dict[str, Any] = {"init": completion.init}
    else:
        found = completion.values(section.steps)
        found["betas"] = (section.betas[0], found["beta2"])
    missing = {field: found[field] for field in type(section).model_fields if field in found}
    return type(section).model_construct(
        section.model_fields_set, **{**values_of(section), **missing, **given_of(section)}
    )


def _checked_figures(figures: tuple[Any, ...]) -> tuple[Any, ...]:
    """The figures.

    Raises:
        ValueError: one of them is none.
    """
    from hopscope.figures import Figure

    for each in figures:
        if not isinstance(each, Figure):
            raise ValueError(f"figures such as hs.figures.curves('loss'), found {each!r}")
    return figures


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
