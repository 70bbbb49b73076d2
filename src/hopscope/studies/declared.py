"""A declared study at work: its units, its evaluation, its measures, and what is made of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hopscope.claims import Claim, Ledger
from hopscope.config import Config, in_words, validation_line
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.runs import RunFolder, UnitFolder, content_hash
from hopscope.sources import source_hash
from hopscope.studies.loading import file_of, naming
from hopscope.studies.measures import Measure, source_of
from hopscope.studies.study import Configuration, Study
from hopscope.tasks.declared import TaskReference
from hopscope.tasks.task import Task
from hopscope.training.config import MemberPlan, TrainingConfig, UnitPlan

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence, Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page import StudyFacts
    from hopscope.tasks.device import DeviceTask, TaskOnDevice
    from hopscope.training.budget import TimeBudget
    from hopscope.training.trainer import Evaluate

MOST_MEMBERS = 32
"""Members of one unit; a configuration with more seeds is cut."""


class DeclaredConfig(Config):
    """What a run of a declared study is: everything that decides its numbers.

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


class DeclaredStudy:
    """See `hopscope.studies.base.Program` and `Gathering`.

    Attributes:
        study: as its author wrote it.
        reference: where another process finds it (`/path/file.py:name` or `package.module:name`); `None` for one of a
            notebook, which is trained in the process that it was made in.
    """

    def __init__(self, study: Study, reference: str | None = None):
        self.study, self.reference = study, reference

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    @property
    def summary(self) -> str:
        """What it asks."""
        return self.study.question

    @property
    def presets(self) -> dict[str, DeclaredConfig]:
        """Named configurations."""
        return {name: self.configured(name, {}) for name in self.study.presets}

    @property
    def costs(self) -> dict[str, str]:
        """Preset → expected cost in words."""
        return {name: self.study.costs.get(name, "") for name in self.study.presets}

    @property
    def file(self) -> Path | None:
        """The file that the study was read from, if there is one."""
        return file_of(self.reference)

    @cached_property
    def source(self) -> str | None:
        """Hash of the source of what decides the numbers, beside the configuration."""
        parts = [] if self.study.task is None else [source_hash(type(self.study.task))]
        parts += [] if self.study.start is None else [source_hash(self.study.start)]
        # What is measured in every step of training cannot be measured again.
        parts += [each.source for each in self.measures("training")]
        return content_hash(parts) if parts else None

    # From a study to its configuration, and back.

    def configured(self, preset: str | None, fields: Mapping[str, Any]) -> DeclaredConfig:
        """The configuration of a preset, with other values of some fields.

        Raises:
            UserError: no such field, or a value that does not fit.
        """
        study = self.chosen(preset, fields)
        study.check_open(fields)
        return self.described(study)

    def chosen(self, preset: str | None, fields: Mapping[str, Any]) -> Study:
        """The study with the fields of a preset, and with further ones."""
        return self.study.changed({} if preset is None else self.study.presets[preset]).changed(fields)

    def described(self, study: Study) -> DeclaredConfig:
        """A study as a record."""
        task = study.task
        return DeclaredConfig(
            task=None
            if task is None
            else {"name": type(task).__name__, "fields": task.model_dump(mode="json")},
            model=None if study.model is None else study.model.model_dump(mode="json"),
            training=None if study.training is None else study.training.model_dump(mode="json"),
            vary={name: list(values) for name, values in study.vary.items()},
            varied=list(study.vary),
            configurations=study.grid() if study.configurations is not None else [],
            seeds=study.seeds,
            options=None if study.options is None else study.options.model_dump(mode="json"),
            held_out=study.held_out,
            source=self.source,
        )

    def as_run(self, config: DeclaredConfig) -> Study:
        """The study with the fields of a record."""
        own = self.study
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

    # What is trained.

    def plan(self, config: DeclaredConfig) -> list[UnitPlan]:
        """The units of a configuration, members numbered through the run.  Loads no torch."""
        with naming(self):
            return self._units(config)

    def _units(self, config: DeclaredConfig) -> list[UnitPlan]:
        study = self.as_run(config)
        if study.task is None:
            return []
        units: list[UnitPlan] = []
        grid, member = study.grid(), 0
        for configuration in grid:
            here, seeds = study.of(configuration), study.seeds_of(configuration)
            # A configuration that is alone is cut in two, so that two cores share it.
            most = min(MOST_MEMBERS, -(-len(seeds) // 2) if len(grid) == 1 else len(seeds))
            for start in range(0, len(seeds), most):
                few = seeds[start : start + most]
                units.append(_unit(here, configuration, config, few, member))
                member += len(few)
        return units

    @property
    def start(self) -> Callable[[Any], Mapping[str, Any]] | None:
        """Weights to begin from."""
        return self.study.start

    def task(self, plan: UnitPlan, device: str) -> "DeviceTask":
        """The task of a unit on a device."""
        from hopscope.studies.declared_measures import checked_task

        return checked_task(self, plan, device)

    def declared_task(self, plan: UnitPlan) -> Task:
        """The task of a unit, as its author wrote it.

        Raises:
            UserError: the recorded fields do not fit the task as it is now.
        """
        return resolved(plan.task, self)

    def measured_task(self, plan: UnitPlan, device: str) -> "TaskOnDevice":
        """The task of a unit as measures see it: any task in the same way."""
        from hopscope.tasks.device import TaskOnDevice

        return TaskOnDevice(self.declared_task(plan), device, plan.training.examples)

    def evaluator(self, unit: UnitFolder, plan: UnitPlan, task: Any) -> "Evaluate":
        """Losses, accuracy and what `when="training"` measures, on held-out samples."""
        from hopscope.studies.declared_measures import evaluator

        return evaluator(self, unit, plan)

    # What is measured.

    def measures(self, when: str) -> list[Measure]:
        """Measures of one kind, in an order in which those that others need come before them.

        Raises:
            UserError: a measure needs one that is not there.
        """
        return self.ordered_measures((when,))

    def ordered_measures(self, kinds: tuple[str, ...]) -> list[Measure]:
        """Measures of some kinds; those that others need come before them."""
        return [each for each in self._ordered if each.when in kinds]

    @cached_property
    def _ordered(self) -> list[Measure]:
        """All measures; their sources are parsed once, not at every evaluation."""
        return list(_in_order(list(self.study.measures), self.name))

    def analyses(self, config: DeclaredConfig, plan: UnitPlan) -> dict[str, str]:
        """Name → file kind of what is measured of a unit's last checkpoint."""
        from hopscope.studies.measures import stored_name

        return {stored_name(each): "json" for each in self.ordered_measures(("checkpoints", "end"))}

    def analyse(self, unit: UnitFolder, plan: UnitPlan, task: Any, budget: "TimeBudget", device: str) -> None:
        """Measure a trained unit; what is there already is kept."""
        from hopscope.studies.declared_measures import analyse

        analyse(self, unit, plan, budget, device)

    @property
    def gathered(self) -> tuple[str, ...]:
        """Files of the measures that run once for the whole run."""
        from hopscope.studies.measures import run_file

        return tuple(run_file(each) for each in self.measures("run"))

    def gather(
        self, run: RunFolder, config: DeclaredConfig, budget: "TimeBudget", say: Callable[[str], None]
    ) -> None:
        """Do what is measured once for the whole run; what is there already is kept."""
        from hopscope.studies.declared_measures import gather

        gather(self, run, config, budget, say)

    def measurements(self, run: RunFolder, config: DeclaredConfig) -> "Iterable[Row]":
        """Every row that a measure has left."""
        from hopscope.studies.declared_measures import measurements

        return measurements(self, run, config)

    # What is claimed and shown.

    def claims(self, config: DeclaredConfig) -> tuple[Claim, ...]:
        """What is claimed."""
        return self.as_run(config).all_claims()

    def figures(self, config: DeclaredConfig) -> "tuple[Figure, ...]":
        """The figures, under different names."""
        from hopscope.studies.figures import numbered

        return numbered(self.study.figures)

    def present(self, run: RunFolder, config: DeclaredConfig, evidence: "Evidence", ledger: Ledger) -> None:
        """Write figures and story."""
        from hopscope.studies.figures import write_figures
        from hopscope.studies.page import render_page

        facts = self.facts(config)
        write_figures(run, self.study.figures, evidence, facts.floors)
        run.write_json(
            "story.json", render_page(self.template(), facts, evidence, ledger, self.study.figures, run)
        )

    def template(self) -> str | None:
        """The page's template, if the study brings one.

        Raises:
            UserError: its file cannot be read.
        """
        page = self.study.page
        if page is None or "\n" in page:
            return page
        path = (self.file.parent if self.file is not None else Path()) / page
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{path}: expected the page's template, found {error.strerror}; restore it"
            ) from None

    def facts(self, config: DeclaredConfig) -> "StudyFacts":
        """What a page says of the study itself."""
        from hopscope.studies.page import StudyFacts, TaskFacts

        study = self.as_run(config)
        task = study.task
        floors = {} if task is None else {cell.label: _floors(study.of(cell).task) for cell in study.grid()}
        page = study.page if study.page is not None and "\n" not in study.page else "page.md.j2"
        return StudyFacts(
            name=study.name,
            question=study.question,
            options=config.options or {},
            task=None
            if task is None
            else TaskFacts(type(task).__name__, type(task).__doc__ or "", task.model_dump(mode="json")),
            model=config.model or {},
            training=config.training or {},
            vary=config.vary,
            seeds=study.seeds,
            floors=lambda label: floors.get(label, {}),
            source=self.reference or "",
            template=page,
        )

    def conclusion(self, config: DeclaredConfig) -> dict[str, Any]:
        """What decides claims, figures, measures and page: a run is concluded anew when it has changed."""
        from hopscope.claims.registration import register

        claims = self.claims(config)
        return {
            "claims": register(claims),
            "words": [_words_of(claim) for claim in claims],
            "measures": [each.source for each in self._ordered],
            "figures": [_figure_record(figure) for figure in self.study.figures],
            "question": self.study.question,
            "page": self.template(),
        }


def resolved(task: Task | TaskReference, program: DeclaredStudy) -> Task:
    """The task of a unit: a built-in one as it is recorded, another by the class that the study has.

    Raises:
        UserError: the recorded fields do not fit the class.
    """
    if not isinstance(task, TaskReference):
        return task
    own = program.study.task
    if own is None or type(own).__name__ != task.reference:
        raise UserError(
            f"{program.reference or program.name}: expected a study of the task {task.reference}, found "
            f"{'none' if own is None else type(own).__name__}"
        )
    return type(own).model_validate(task.fields)


def _unit(
    study: Study, configuration: Configuration, config: DeclaredConfig, seeds: tuple[int, ...], first: int
) -> UnitPlan:
    task, model, training = study.task, study.model, study.training
    assert task is not None and model is not None and training is not None, (
        "a study with a task has all of them"
    )
    members = tuple(
        MemberPlan(member=first + n, seed=seed, overrides=configuration.overrides)
        for n, seed in enumerate(seeds)
    )
    shape = shape_of(task)
    return UnitPlan(
        label=configuration.label,
        task=recorded_task(task, config.source or ""),
        model=_fitted(study.name, model, shape),
        training=training,
        members=members,
    )


def shape_of(task: Task) -> Any:
    """The shape of a task.

    Raises:
        UserError: it cannot be told, or is none.
    """
    from hopscope.tasks.task import Shape

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


def recorded_task(task: Task, source: str) -> Any:
    """A task as a unit's record has it: a built-in one by its configuration, another by name and fields."""
    if type(task).__module__.startswith("hopscope.tasks."):
        return task
    return TaskReference(
        reference=type(task).__name__,
        fields=task.model_dump(mode="json"),
        source=source,
        shape=shape_of(task),
        gradient=task.differentiable_without_autograd,
    )


def _fitted(name: str, model: Model, shape: Any) -> Any:
    try:
        return model.for_task(shape)
    except ValidationError as error:
        raise UserError(f"study {name!r}: model.{validation_line(error)}") from None


def _floors(task: Task | None) -> Mapping[str, Any]:
    """The floors of a task.

    Raises:
        UserError: they cannot be told, or are no mapping.
    """
    if task is None:
        return {}
    try:
        floors = task.floors()
    except Exception as error:
        found = in_words(error)
        raise UserError(f"{type(task).__name__}.floors: expected floors by name, found {found}") from None
    if not isinstance(floors, Mapping):
        raise UserError(
            f"{type(task).__name__}.floors: expected floors by name, found {type(floors).__name__}"
        )
    return floors


def _in_order(measures: list[Measure], study: str) -> Iterator[Measure]:
    """Measures, each behind those that it needs, and with their sources.

    Raises:
        UserError: a needed measure is not there, has no rows by then, or they need each other in a circle.
    """
    known = {each.name: each for each in measures}
    for each in measures:
        for name in each.needs:
            if name not in known:
                raise UserError(
                    f"study {study!r}: expected the measure {name!r}, which {each.name!r} needs, among its measures, "
                    f"found {', '.join(known)}"
                )
            late = known[name].when == "training" or (known[name].when == "run" and each.when != "run")
            if late or each.when == "training":
                raise UserError(
                    f"study {study!r}: expected the measure {each.name!r} ({each.when}) to need measures of "
                    f"checkpoints, found {name!r} ({known[name].when})"
                )
    done: dict[str, Measure] = {}
    waiting = list(measures)
    while waiting:
        ready = [each for each in waiting if set(each.needs) <= set(done)]
        if not ready:
            raise UserError(
                f"study {study!r}: expected measures that can be ordered, found a circle of needs"
            )
        for each in ready:
            source = source_of(each, [done[name] for name in each.needs])
            done[each.name] = replace(each, source=source)
            yield done[each.name]
        waiting = [each for each in waiting if each.name not in done]


def _figure_record(figure: Any) -> list[Any]:
    function = source_hash(figure.function) if figure.function is not None else None
    drawn = [figure.name, figure.kind, figure.metric, figure.by, figure.split, figure.part]
    record = [*drawn, function, figure.caption]
    if figure.series is not None:
        shown = vars(figure.series).items()
        record.append([[name, source_hash(each) if callable(each) else repr(each)] for name, each in shown])
    return record


def _words_of(claim: Claim) -> list[Any]:
    """What a ledger says of a claim beside its rule."""
    summary = None if claim.summary is None else source_hash(claim.summary)
    return [claim.statement, claim.source, claim.trust, summary]
