"""A study as a value: task, model, training, grid, what is measured, claimed and drawn (free of torch)."""

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hopscope.claims.claim import Claim
from hopscope.config import Config, OneLine, check_seeds, given_of, in_words, unknown_field, validation_line
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.runs.evidence import COLUMNS
from hopscope.study.measure import in_order, takes_one_argument
from hopscope.tasks.task import Task
from hopscope.training.config import DEFAULT, CompletionName, Training, completed

SECTIONS = ("task", "model", "training", "options")
"""Parts of a study whose fields can be varied and given on the command line, as `model.layers`."""

PLAIN = ("seeds", "held_out", "completion", "members_per_unit")
"""Fields of the study itself that can be given another value; the first and the last of them cannot be varied."""

SEEDS = ("init_seed", "data_seed")
"""Overrides of a configuration that are no fields: seeds of the weights and of the training samples."""

OF_THE_COMMAND = (
    "preset", "out", "device", "threads", "time_budget", "executor", "address", "tracker", "help",
)  # fmt: skip
"""Words that `hopscope run` keeps for itself, as flags: no option of a study has one of these names."""

DEFAULT_PRESET = "laptop"
"""Preset of a run that names none, where the study has it; otherwise the study runs as it is written."""


class Configuration(Config):
    """One cell of a study's grid.

    Attributes:
        overrides: dotted field (`model.layers`, `completion`) → value; `init_seed` and `data_seed` there replace a
            member's seed for the weights, and for the training samples.
        label: what it is called in tables and figures; by default its overrides in words.
        seeds: number of seeds, or the seeds; the study's own by default.
    """

    overrides: dict[str, Any] = {}
    label: str = Field(default_factory=lambda given: _label(given.get("overrides", {})))
    seeds: int | tuple[int, ...] | None = None

    @field_validator("overrides")
    @classmethod
    def _are_plain(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        """Numbers of numpy as Python's."""
        return {name: each.tolist() if hasattr(each, "tolist") else each for name, each in overrides.items()}

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: Any) -> Any:
        if isinstance(seeds, int):
            check_seeds("seeds", seeds)
        several = range(seeds) if isinstance(seeds, int) else seeds
        if several is not None and (not several or min(several) < 0 or len(set(several)) < len(several)):
            raise ValueError("a number of seeds from 1, or different seeds from 0")
        return seeds


class Flag(NamedTuple):
    """A field of a study that can be given another value, or several where it is varied.

    Its name is dotted, but for fields of the options; `type` has pydantic's constraints, and the docstring of `owner`
    says what it is.
    """

    name: str
    type: Any
    default: Any
    varied: bool
    owner: type


class Study(BaseModel, metaclass=OneLine):
    """A study: what is trained, over which grid and seeds, and what is measured, claimed and drawn.

    Attributes:
        name, question: names the folder of its runs; what it asks, in one sentence.
        task: what is learned; `None` if nothing is trained: then all measures are of the whole run.
        completion: start of the weights, and warm-up, β₂, schedule and clipping of the training, in one word; fields
            that `model` and `training` give themselves win.
        model, training: the transformer, whose shape the task fills in; optimiser, steps and record keeping.
        vary: dotted field → values; the grid is their product.
        configurations: a function of the options (and of the study, if it takes a second argument) that gives the
            grid, in place of `vary`.  It is called before anything is written, also where nothing is trained: it may
            refuse options by a `UserError`.
        options: a frozen model of fields of its own; they are flags, and part of the run's identity.
        fixed: dotted fields that labels, claims or the page count on: no flags, though a preset may change them.
        seeds: number of seeds 0 … seeds - 1 of every configuration.
        measures: what is measured of the members.
        claims, figures: what is claimed of them, and functions from evidence to a chart; or a function (likewise) that
            gives them in a list.
        presets, costs: name → dotted fields that differ from what is written here; and what that costs, in words.
        start: a function of a unit's `Job` that gives the weights to begin from, by name, `[member, …]`; by default,
            and where it gives `None`, they are drawn.
        page: template of the page (Markdown with Jinja), or the name of its file beside the study's file.
        held_out: held-out samples of an evaluation.
        members_per_unit: most members that are trained as one program, in place of the rule of `plan`; changes nothing
            but rounding, and is no part of the run's identity.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    question: str = ""
    task: Task | None = None
    completion: CompletionName = DEFAULT
    model: Model | None = None
    training: Training | None = None
    vary: dict[str, tuple[Any, ...]] = {}
    configurations: Callable[..., Iterable[Configuration]] | None = None
    options: BaseModel | None = None
    fixed: tuple[str, ...] = ()
    seeds: int = Field(4, ge=1)
    measures: tuple[Any, ...] = ()
    claims: tuple[Claim, ...] | Callable[[Any], Iterable[Claim]] = ()
    figures: tuple[Callable[[Any], Any], ...] | Callable[[Any], Iterable[Callable[[Any], Any]]] = ()
    presets: dict[str, dict[str, Any]] = {}
    costs: dict[str, str] = {}
    start: Callable[[Any], Mapping[str, Any] | None] | None = None
    page: str | None = None
    held_out: int = Field(1024, ge=1)
    members_per_unit: int | None = Field(None, ge=1)

    @field_validator("task", "options", mode="before")
    @classmethod
    def _is_a_value(cls, value: Any) -> Any:
        if isinstance(value, type) and issubclass(value, Task):
            raise ValueError(f"a task, found the class {value.__name__}; write {value.__name__}()")
        return value() if isinstance(value, type) else value

    @field_validator("vary", mode="before")
    @classmethod
    def _has_an_order(cls, vary: Any) -> Any:
        for name, values in vary.items() if isinstance(vary, dict) else ():
            if isinstance(values, set | frozenset):
                raise ValueError(f"values in an order, found a set for {name}; write a list")
        return vary

    @field_validator("measures")
    @classmethod
    def _can_be_ordered(cls, measures: tuple[Any, ...]) -> tuple[Any, ...]:
        return in_order(measures)

    @field_validator("start")
    @classmethod
    def _is_told_the_job(cls, start: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        if start is not None and not takes_one_argument(start):
            raise ValueError("a function of one argument, the job")
        return start

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_seeds("seeds", self.seeds)
        taken = {*OF_THE_COMMAND, *(name for name in SECTIONS if getattr(self, name) is not None)}
        taken |= set() if self.task is None else {*PLAIN}
        for name in type(self.options).model_fields if self.options is not None else ():
            if name in taken:
                wanted = "names that neither the study nor `hopscope run` has"
                raise ValueError(f"options: expected {wanted}, found {name!r}; give this option another name")
            if name.endswith("seeds") and isinstance(value := getattr(self.options, name), int):
                check_seeds(name, value)
        if self.task is None:
            of_members = [each.name for each in self.measures if each.when != "run"]
            if self.vary or of_members:
                found = "vary" if self.vary else f"the measure {of_members[0]!r} of members"
                raise ValueError(f"task: expected one beside {found}, found none")
            return self
        if self.model is None or self.training is None:
            lacking = "model" if self.model is None else "training"
            raise ValueError(f"{lacking}: expected one beside a task, found none")
        whole = completed(self.completion, self.model, self.training)
        vars(self).update(zip(("model", "training"), whole, strict=True))
        for preset, fields in self.presets.items():
            for name in fields:
                self._place(name, f"preset {preset!r}: ")
        for name in self.fixed:
            self._place(name, "fixed: ")
        if self.vary and self.configurations is not None:
            raise ValueError("vary: expected either vary or configurations, found both")
        if empty := [name for name, values in self.vary.items() if not values]:
            raise ValueError(f"vary: expected at least one value of {empty[0]}, found none")
        if self.vary:
            self.grid()  # whatever is wrong with a value is said where it is written
        return self

    # Fields, and studies with other values of them.

    def fields(self) -> list[Flag]:
        """Fields that the command line can change: all but those that every configuration sets."""
        varied, pinned = {_short(name): values for name, values in self.vary.items()}, self._pinned()
        found = []
        for flag, (section, name) in self._places().items():
            if flag not in pinned:
                owner = getattr(self, section) if section else self
                info = type(owner).model_fields[name]
                kind: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
                default = varied.get(flag, getattr(owner, name))
                found.append(Flag(flag, kind, default, flag in varied, type(owner)))
        return found

    def _places(self) -> dict[str, tuple[str, str]]:
        """Name of each field that can be given another value → its section (none: the study's own), and the field."""
        found = {} if self.task is None else {name: ("", name) for name in PLAIN}
        for section in SECTIONS:
            prefix, value = "" if section == "options" else f"{section}.", getattr(self, section)
            names = () if value is None else type(value).model_fields
            found |= {prefix + name: (section, name) for name in names}
        return found

    def _place(self, name: str, where: str = "") -> tuple[str, str]:
        places = self._places()
        if _short(name) not in places:
            raise UserError(f"study {self.name!r}: {where}{unknown_field(name, places)}")
        return places[_short(name)]

    def changed(self, fields: Mapping[str, Any]) -> "Study":
        """The same study with other values of some fields, by their dotted names.

        A list replaces the values of a varied field, a single value pins it.  `UserError`: there is no such field, or
        the value does not fit.
        """
        new: dict[str, Any] = {"vary": dict(self.vary)}
        of_sections: dict[str, dict[str, Any]] = {}
        varied = {_short(name): name for name in self.vary}
        for name, value in fields.items():
            if name.endswith("seeds") and isinstance(value, int):
                check_seeds(name, value)  # options may plan every seed while they are validated
            if _short(name) in varied:
                several = isinstance(value, list | tuple | range)
                new["vary"][varied[_short(name)]] = tuple(value) if several else (value,)
            else:
                section, field = self._place(name)
                owner = of_sections.setdefault(section, {}) if section else new
                owner[field] = value
        for section, values in of_sections.items():
            before = getattr(self, section)
            try:
                new[section] = type(before).model_validate({**given_of(before), **values})
            except ValidationError as error:
                prefix = "" if section == "options" else f"{section}."
                raise UserError(f"{prefix}{validation_line(error)}") from None
        return type(self)(**{**dict(self), **new})

    def chosen(self, preset: str | None = None, fields: Mapping[str, Any] | None = None) -> "Study":
        """The study with the fields of a preset (see `preset`), and with further ones; errors as of what it calls."""
        name = self.preset(preset)
        given = {self.dotted(each): value for each, value in (fields or {}).items()}
        found = self.changed({} if name is None else self.presets[name]).changed(given)
        found.check_open(given)
        return found

    def check_open(self, names: Iterable[str]) -> None:
        """Refuse fields that are fixed, or that all configurations give, by a `UserError`."""
        asked = {*map(_short, names)}
        if asked and (given := asked & self._pinned()):
            wanted = f"a field that the study {self.name!r} leaves open"
            raise UserError(f"{min(given)}: expected {wanted}, found one that it gives itself; leave it out")

    def _pinned(self) -> set[str]:
        try:
            grid = [] if self.configurations is None or self.task is None else self.grid()
            more = self.model_copy(update={"seeds": self.seeds + 1})._made("configurations") if grid else []
        except UserError:  # which is told when the run is planned; help and other fields do not wait for it
            grid = more = []
        given, seeds = [{*map(_short, each.overrides)} for each in grid], [each.seeds for each in grid]
        own = {"seeds"} if grid and None not in seeds and seeds == [each.seeds for each in more] else set()
        return {*map(_short, self.fixed), *own, *(set.intersection(*given) if given else ())}

    def preset(self, name: str | None = None) -> str | None:
        """The preset that is meant: the one that is named (`UserError`: there is none), else `laptop` if it exists."""
        if name is None:
            return DEFAULT_PRESET if DEFAULT_PRESET in self.presets else None
        if name not in self.presets:
            known = f"one of {', '.join(self.presets)}" if self.presets else "none, as the study has none"
            raise UserError(f"preset: expected {known}, found {name!r}; see hopscope studies")
        return name

    def dotted(self, name: str) -> str:
        """A field by its whole name: `batch_size` is `training.batch_size` where nothing else is called so.

        `training_steps` is `training.steps`.  A name that means no field, or several, stays as it is.
        """
        places = self._places()
        if name in places or name in OF_THE_COMMAND:
            return name
        dotted = {each: place for each, place in places.items() if "." in each}
        meant = [each for each, (section, field) in dotted.items() if name in (field, f"{section}_{field}")]
        return meant[0] if len(meant) == 1 else name

    # The grid.

    def grid(self) -> list[Configuration]:
        """The configurations, in the order in which members are numbered; none where nothing is trained.

        `UserError`: a field does not exist, a value does not fit, or two configurations have one label.
        """
        what = "vary" if self.vary else "configurations"
        found = self._made("configurations") or []
        if self.configurations is None and self.task is not None:
            cells = itertools.product(*self.vary.values())
            found = [Configuration(overrides=dict(zip(self.vary, cell, strict=True))) for cell in cells]
        if (self.task is None) != (not found):
            wanted = "none, because nothing is trained" if found else "at least one"
            raise UserError(f"study {self.name!r}: {what}: expected {wanted}, found {len(found) or 'none'}")
        found = [each if each.label else each.model_copy(update={"label": self.name}) for each in found]
        self._check_different(what, "labels", [each.label for each in found])
        if clash := {_short(name) for each in found for name in each.overrides} & {*COLUMNS}:
            wanted = f"fields that no column of the evidence is called after, found {min(clash)!r}"
            raise UserError(f"study {self.name!r}: {what}: expected {wanted}; give this option another name")
        for each in found:
            try:
                self.of(each)
            except UserError as error:
                raise UserError(f"study {self.name!r}: {what}: {each.label!r}: {error}") from None
        return found

    def of(self, configuration: Configuration) -> "Study":
        """The study with the fields of one configuration, its grid left out; errors as of `changed`."""
        fields = {name: value for name, value in configuration.overrides.items() if name not in SEEDS}
        if unvaried := {"seeds", "members_per_unit"} & {*fields}:
            raise UserError(f"expected a field of members, found {min(unvaried)!r}; give it to the study")
        return self.model_copy(update={"vary": {}, "configurations": None, "presets": {}}).changed(fields)

    def seeds_of(self, configuration: Configuration) -> tuple[int, ...]:
        """Seeds of one configuration of the study."""
        seeds = self.seeds if configuration.seeds is None else configuration.seeds
        return tuple(range(seeds)) if isinstance(seeds, int) else seeds

    # What is claimed and drawn.

    def all_claims(self) -> tuple[Claim, ...]:
        """The claims, those of a function included; `UserError`: it gives something else, or two have one id."""
        found = tuple(self._made("claims"))
        self._check_different("claims", "ids", [claim.id for claim in found])
        return found

    def all_figures(self) -> tuple[Callable[[Any], Any], ...]:
        """The figures, those of a function included; `UserError`: it gives something else."""
        return tuple(self._made("figures"))

    def run(self, preset: str | None = None, **arguments: Any) -> Any:
        """Run it, go on with it, or find it finished: `hopscope.run` with this study, whose result is returned."""
        return importlib.import_module(__name__.partition(".")[0]).run(self, preset, **arguments)

    def _made(self, field: str) -> Any:
        value, what = getattr(self, field), f"study {self.name!r}: {field}"
        if not callable(value):
            return value
        try:
            asked = sum(each.default is each.empty for each in inspect.signature(value).parameters.values())
            return [_checked(field, each) for each in value(*(self.options, self)[: max(1, asked)])]
        except UserError as error:
            raise UserError(f"{what}: {error}") from error
        except Exception as error:
            raise UserError(f"{what}: expected a list of them, found {in_words(error)}") from error

    def _check_different(self, what: str, kind: str, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"study {self.name!r}: {what}: expected different {kind}, found {twice!r} twice")


def _checked(field: str, value: Any) -> Any:
    if field == "configurations":
        return value if isinstance(value, Configuration) else Configuration(**value)
    if field == "claims" and not isinstance(value, Claim):
        raise UserError(f"expected values of hs.Claim, found {value!r}")
    if field == "figures" and not callable(value):
        raise UserError(f"expected figures such as hs.figures.curves('loss'), found {value!r}")
    return value


def _short(name: str) -> str:
    return name.removeprefix("options.")


def _label(overrides: Mapping[str, Any]) -> str:
    # A field is named by its last word, where that tells it from the others.
    short = {name: name.rpartition(".")[2] for name in overrides}
    names = short if len(set(short.values())) == len(short) else {name: name for name in overrides}
    return ", ".join(f"{names[name]} {_shown(value)}" for name, value in overrides.items())


def _shown(value: Any) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return "none" if value is None else str(value)
