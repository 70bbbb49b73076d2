"""A study at work: its units, its evaluation, what is measured of them, and what is made of it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from hopscope.claims import Claim, Ledger
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.figures import Figure, numbered, write_figures
from hopscope.measures import Measure, in_order, run_file, stored_name
from hopscope.runs import RunFolder, UnitFolder, config_hash, content_hash
from hopscope.sources import source_hash
from hopscope.studies.analysis import RunAnalysis, UnitAnalysis
from hopscope.studies.loading import BUILT_IN, is_file, load_module, naming, split_reference
from hopscope.studies.record import DeclaredConfig, as_run, described
from hopscope.studies.study import Study
from hopscope.studies.units import floors_of, grid_units
from hopscope.tasks.config import TaskReference
from hopscope.tasks.task import Task
from hopscope.training.config import TrainJob

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence, Row
    from hopscope.story.functions import PageFunctions
    from hopscope.story.page import StudyFacts
    from hopscope.tasks.device import DeviceTask, TaskOnDevice
    from hopscope.training.budget import TimeBudget
    from hopscope.training.trainer import Evaluate

Analysis = TypeVar("Analysis", UnitAnalysis, RunAnalysis)

DEFAULT_PRESET = "laptop"
"""Preset of a run that names none, where the study has it; otherwise the study runs as it is written."""

PAGE = "page.md.j2"
"""Name of a page's template, unless the study names another file."""


class Program:
    """What the executor runs of a study: `plan → train → measure → judge → draw → write`, the same for every study.

    Attributes:
        study: as its author wrote it.
        reference: where another process finds it (`/path/file.py:name` or `package.module:name`); `None` for one of a
            notebook, which is trained in the process that it was made in.
    """

    def __init__(self, study: Study, reference: str | None = None):
        self.study, self.reference = study, reference

    @property
    def built_in(self) -> bool:
        """Whether it is one of ours, which every process finds by its name."""
        return self.reference in BUILT_IN.values()

    @property
    def name(self) -> str:
        """The study's name, which names the folder of its runs."""
        return self.study.name

    @property
    def presets(self) -> dict[str, Any]:
        """The study's named configurations, by preset."""
        return {name: self.configured(name, {}) for name in self.study.presets}

    @property
    def file(self) -> Path | None:
        """The file that the study was read from, if there is one."""
        if self.reference is None:
            return None
        place, _ = split_reference(self.reference)
        file = place if is_file(place) else getattr(load_module(place), "__file__", None)
        return Path(file) if file else None

    @cached_property
    def source(self) -> str | None:
        """Hash of the source of what decides the numbers beside the configuration; none where tasks are built in."""
        if self.study.units is not None:
            return None
        task = None if self.study.task is None else type(self.study.task)
        parts = [source_hash(each) for each in (task, self.study.start) if each is not None]
        # What is measured in every step of training cannot be measured again.
        parts += [each.source for each in self.measures("training")]
        return content_hash(parts) if parts else None

    # From a study to its configuration, and back.

    def chosen_preset(self, preset: str | None) -> str | None:
        """The preset that was asked for, else the default one where the study has it.

        Raises:
            UserError: the study has no such preset.
        """
        if preset is None:
            return DEFAULT_PRESET if DEFAULT_PRESET in self.study.presets else None
        if preset not in self.study.presets:
            known = ", ".join(self.study.presets) or "none: leave --preset out"
            raise UserError(f"preset: expected one of {known}, found {preset!r}; see hopscope studies")
        return preset

    def configured(self, preset: str | None, fields: Mapping[str, Any]) -> Any:
        """The configuration of a preset (`None`: of the study as it is written), with other values of some fields.

        Raises:
            UserError: no such preset or field, or a value that does not fit.
        """
        study = self.chosen(None if preset is None else self.chosen_preset(preset), fields)
        study.check_open(fields)
        return described(study, self.source)

    def run_hash(self, config: Any) -> str:
        """The hash that names the run of a configuration."""
        return config_hash(self.name, config.model_dump(mode="json"))

    def chosen(self, preset: str | None, fields: Mapping[str, Any]) -> Study:
        """The study with the fields of a preset, and with further ones."""
        return self.study.changed({} if preset is None else self.study.presets[preset]).changed(fields)

    def recorded(self, run: RunFolder) -> Any:
        """The configuration of a run, from its record.

        Raises:
            UserError: it does not fit the study as it is now.
        """
        kind: type[Any] = DeclaredConfig if self.study.units is None else type(self.study.options)
        try:
            return kind.model_validate(run.config)
        except ValidationError as error:
            raise UserError(
                f"{run.path / 'config.json'}: expected a configuration of the study {self.name}, found "
                f"{validation_line(error)}"
            ) from None

    def as_run(self, config: Any) -> Study:
        """The study with the fields of a run's configuration."""
        return as_run(self.study, config)

    # What is trained.

    def jobs(self, config: Any) -> list[TrainJob]:
        """The units of a configuration, members numbered through the run.  Loads no torch."""
        with naming(self):
            study = self.as_run(config)
            if study.units is not None:
                return list(study.units(study.options))
            return [] if study.task is None else grid_units(study, config.source or "")

    def task(self, job: TrainJob, device: str) -> "DeviceTask":
        """The task of a unit on a device."""
        from hopscope.studies.measuring import checked_task

        return checked_task(self, job, device)

    def declared_task(self, job: TrainJob) -> Task:
        """The task of a unit, as its author wrote it: a built-in one as it is recorded, another by the study's class.

        Raises:
            UserError: the recorded fields do not fit the task as it is now.
        """
        own = self.study.task
        if not isinstance(job.task, TaskReference):
            return job.task
        found = "none" if own is None else type(own).__name__
        if own is None or found != job.task.reference:
            raise UserError(
                f"{self.reference or self.name}: expected a study of the task {job.task.reference}, found {found}"
            )
        return type(own).model_validate(job.task.fields)

    def measured_task(self, job: TrainJob, device: str) -> "TaskOnDevice":
        """The task of a unit as measures see it: any task in the same way."""
        from hopscope.tasks.device import TaskOnDevice

        return TaskOnDevice(self.declared_task(job), device, job.training.examples)

    def evaluator(self, unit: UnitFolder, job: TrainJob, task: Any) -> "Evaluate":
        """What is measured on held-out samples during training."""
        from hopscope.studies.measuring import evaluator

        for analysis in self._analyses(UnitAnalysis):
            if analysis.evaluate is not None:
                return analysis.evaluate(self.recorded(unit.run), task)
        return evaluator(self, unit, job)

    # What is measured.

    def _analyses(self, kind: type[Analysis]) -> list[Analysis]:
        """The study's analyses of one kind."""
        return [each for each in self.study.analyses if isinstance(each, kind)]

    def check(self, config: Any) -> None:
        """Refuse what could not be measured, before anything is written.

        Raises:
            UserError: the options leave an analysis nothing to do.
        """
        for analysis in self._analyses(RunAnalysis):
            analysis.check(self.as_run(config).options)

    def measures(self, *kinds: str) -> list[Measure]:
        """Measures of some kinds (see `hopscope.measures.When`); those that others need come before them.

        Raises:
            UserError: a measure needs one that is not there.
        """
        return [each for each in self._ordered if each.when in kinds]

    @cached_property
    def _ordered(self) -> list[Measure]:
        """All measures; their sources are parsed once, not at every evaluation."""
        return list(in_order(list(self.study.measures), self.name))

    def analyses(self, config: Any, job: TrainJob) -> dict[str, str]:
        """Name → file kind (json or npz) of what is measured of a unit's last checkpoint.  Loads no torch."""
        found = {stored_name(each): "json" for each in self.measures("checkpoints", "end")}
        for analysis in self._analyses(UnitAnalysis):
            found |= analysis.files(self.as_run(config).options, job)
        return found

    def analyse(self, unit: UnitFolder, job: TrainJob, task: Any, budget: "TimeBudget", device: str) -> None:
        """Measure a trained unit; what is there already is kept."""
        from hopscope.studies.measuring import analyse

        for analysis in self._analyses(UnitAnalysis):
            analysis.work(self.recorded(unit.run), unit, job, task, budget, device)
        analyse(self, unit, job, budget, device)

    @property
    def gathered(self) -> tuple[str, ...]:
        """Files of what is measured once for the whole run."""
        own = (name for analysis in self._analyses(RunAnalysis) for name in analysis.files)
        return (*own, *(run_file(each) for each in self.measures("run")))

    def gather(self, run: RunFolder, config: Any, budget: "TimeBudget", say: Callable[[str], None]) -> None:
        """Do what is measured once for the whole run; what is there already is kept.

        Args:
            run: the run.
            config: as it was asked for; fields that are not on record (they change no result) only stand here.
            budget: seconds that it may take.
            say: hears, in words, how it goes.

        Raises:
            TimeBudgetReached: what is done is kept, and the same call goes on.
            UserError: something the user can mend; likewise.
        """
        for analysis in self._analyses(RunAnalysis):
            analysis.work(run, self.as_run(config).options, budget, say)
        if self.measures("run"):
            from hopscope.studies.measuring import gather

            gather(self, run, budget, say)

    def measurements(self, run: RunFolder, config: Any) -> "Iterator[Row]":
        """Rows for the evidence table: everything that was measured after training."""
        for analysis in self.study.analyses:
            yield from analysis.rows(run, self.as_run(config).options)
        if self._ordered:
            from hopscope.studies.measuring import measurements

            yield from measurements(self, run)

    # What is claimed and shown.

    def claims(self, config: Any) -> tuple[Claim, ...]:
        """What is claimed; values of a claim come from the evidence table alone."""
        return self.as_run(config).all_claims()

    def figures(self, config: Any) -> tuple[Figure, ...]:
        """The figures that a run of a configuration has, under different names.  Loads no torch."""
        return numbered(self.as_run(config).all_figures())

    def present(self, run: RunFolder, config: Any, evidence: "Evidence", ledger: Ledger) -> None:
        """Write the figures and the story of a run."""
        run.write_json("story.json", self.story(run, config, evidence, ledger, draw=True))

    def story(
        self, run: RunFolder, config: Any, evidence: "Evidence", ledger: Ledger, *, draw: bool = False
    ) -> dict[str, Any]:
        """What the page of a run says, as `story.json` holds it; its figures are written beside it if asked for."""
        from hopscope.story.page import render_page
        from hopscope.studies.explorer import Explorer

        study, figures, facts = self.as_run(config), self.figures(config), self.facts(config)
        if draw:
            write_figures(run, figures, evidence, facts.floors)

        def own(page: "PageFunctions") -> Mapping[str, Any]:
            names = {} if study.page_names is None else study.page_names(page, study.options)
            explorer = Explorer(page, lambda job: self.measured_task(job, "cpu"))
            return {"options": study.options, "explorer": explorer, **names}

        return render_page(self.template(), facts, evidence, ledger, figures, run, own, parts=self.part)

    def template(self) -> str | None:
        """The page's template, if the study brings one.

        Raises:
            UserError: its file cannot be read.
        """
        page = self.study.page
        return page if page is None or "\n" in page else self.part(page)

    def part(self, name: str) -> str:
        """The text of a template beside the study's file.

        Raises:
            UserError: the file cannot be read.
        """
        path = (Path() if self.file is None else self.file.parent) / name
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{path}: expected the page's template, found {error.strerror}; restore it"
            ) from None

    def facts(self, config: Any) -> "StudyFacts":
        """What a page says of the study itself."""
        from hopscope.story.page import StudyFacts

        study = self.as_run(config)
        options, model, training = (
            {} if part is None else part.model_dump(mode="json")
            for part in (study.options, study.model, study.training)
        )
        task, named = study.task, study.member_name
        kind, fields = type(task), {} if task is None else task.model_dump(mode="json")
        page = PAGE if study.page is None or "\n" in study.page else study.page
        floors = {job.label: floors_of(self.declared_task(job)) for job in self.jobs(config)}
        return StudyFacts(
            name=study.name,
            question=study.question,
            options=options,
            task=None
            if task is None
            else {"name": kind.__name__, "docstring": kind.__doc__ or "", "fields": fields},
            model=model,
            training=training,
            vary={name: list(values) for name, values in study.vary.items()},
            seeds=study.seeds if study.units is None else options.get("seeds", 0),
            floors=lambda label: floors.get(label, {}),
            source="" if self.built_in else self.reference or "",
            template=f"{study.name}/{page}" if self.built_in else page,
            member_name=None if named is None else partial(named, study.options),
        )

    def conclusion(self, config: Any) -> dict[str, Any]:
        """What decides claims, figures, measures and page: a run is concluded anew when it has changed."""
        from hopscope.claims.registration import register

        claims = self.claims(config)
        return {
            "claims": register(claims),
            "words": [_words_of(claim) for claim in claims],
            "measures": [each.source for each in self._ordered],
            "figures": [_figure_record(figure) for figure in self.figures(config)],
            "question": self.study.question,
            "page": self.template(),
        }


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
