"""What a run of a study trains, its identity and its record; and study, task and members of a record again.

Loads torch where a run is planned, and where models are asked for.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hopscope.claims.source import registered, source_hash
from hopscope.config import Config, in_words, values_of
from hopscope.errors import HopscopeError, UserError
from hopscope.models.config import Model, TransformerConfig
from hopscope.runs import Member, RunFolder, UnitFolder
from hopscope.runs.checkpoint import canonical_json, sha256
from hopscope.runs.folder import listed
from hopscope.study.load import Loaded, load, split_reference
from hopscope.study.study import SEEDS, Configuration, Study
from hopscope.tasks.task import Shape, Task
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.models.transformer import Known, Transformer

SHALLOW_MEMBERS = 16
"""Members of a unit of the shallow engine, whose step costs more for the first member than for further ones."""

# Fields of these that were not given follow from the completion, and from each other.
_DERIVED = ("model", "training")

NUMBERS = 1
"""Version of the numbers that equal runs give, part of every run's identity: raised where a change moves the golden
values of the tests by more than rounding, so that a run of before is not continued by code that computes otherwise."""


class Job(Config):
    """Members that are trained as one program; without `members` the entry of their unit in a run's record.

    Attributes:
        name: of the unit: a hash of all below (of its members: of their seeds) and of the task's source, so that the
            same training of a configuration has one name in every run.
        label, overrides: of their configuration, or of the first of several that differ in seeds alone.
        task, shape: name of the task's class, and its fields; and its shape, so that a model needs no class of a task.
        model, training, held_out: as in the study, with the overrides.
        engine, device: how and where they are trained; they decide rounding, so a run keeps them.
        members: with their numbers in the run, and their seeds.
    """

    name: str = ""
    label: str
    overrides: dict[str, Any]
    task: dict[str, Any]
    shape: Shape
    model: Model
    training: Training
    held_out: int
    engine: str
    device: str
    members: tuple[Member, ...] = ()

    @property
    def config(self) -> TransformerConfig:
        """The model with what the task's shape decides."""
        return self.model.for_task(self.shape)


def identity(study: Study) -> dict[str, Any]:
    """What names a run: everything that decides the numbers of its members, as JSON values."""
    parts = {name: getattr(study, name) for name in ("model", "training", "options")}
    grid = [{**values_of(each), "seeds": study.seeds_of(each)} for each in study.grid()]
    return {
        "task": None if study.task is None else _recorded(study.task),
        "completion": None if study.task is None else study.completion,
        **{name: None if part is None else part.model_dump(mode="json") for name, part in parts.items()},
        "grid": to_jsonable_python(grid),
        "held_out": study.held_out,
        "source": source_of_task(study),
        "numbers": NUMBERS,
    }


def source_of_task(study: Study) -> str | None:
    """Hash of the source of what decides numbers beside the fields: task, start, and measures of every evaluation."""
    # Measures of weights that no checkpoint keeps.
    watching = [each.function for each in study.measures if each.when == "training"]
    return None if study.task is None else source_hash(type(study.task), study.start, *watching)


def plan(study: Study, device: str = "cpu") -> list[Job]:
    """The units of a study, their members numbered through the run in the order of the grid.

    A unit holds members of one configuration (or of several that differ in seeds alone): `members_per_unit` of them
    where the study says so, else all on CUDA, up to 16 of the shallow engine, and one of any other, so that cores
    share them.  `UserError`: a configuration cannot be trained; or its task raises, breaks its promises, or draws from
    a generator that is not `draws`.
    """
    from hopscope.training.engines import choose

    numbers, jobs, source, shapes = count(), list[Job](), source_of_task(study), dict[str, Shape]()
    watching = any(each.when == "training" for each in study.measures)
    grid: list[tuple[Configuration, Any]] = [(each, study.of(each)) for each in study.grid()]
    for _, group in groupby(grid, key=_shared):
        cells = list(group)
        first, here = cells[0]
        task = _recorded(here.task)
        known = canonical_json(task)
        shape = shapes[known] = shapes.get(known) or _checked(here.task)
        try:
            engine = choose(here.task, here.model.for_task(shape), device)
        except UserError as error:
            raise UserError(f"study {study.name!r}: {first.label!r}: {error}") from None
        members = [
            Member(
                member=next(numbers), seed=seed, configuration=each.label, overrides=to_jsonable_python(each.overrides),
                **{name: each.overrides.get(name, seed) for name in SEEDS},
            )
            for each, _ in cells for seed in study.seeds_of(each)
        ]  # fmt: skip
        # What is recorded in training may hang on the options.
        watched = [here.options.model_dump(mode="json")] if watching and here.options is not None else []
        most = {"cpu": SHALLOW_MEMBERS if engine == "shallow" else 1}.get(device, len(members))
        size = study.members_per_unit or most
        for some in (members[start : start + size] for start in range(0, len(members), size)):
            job = Job(
                label=some[0].configuration, overrides=some[0].overrides, task=task, shape=shape,
                model=here.model, training=here.training, held_out=here.held_out, engine=engine, device=device,
            )  # fmt: skip
            drawn = [(each.seed, each.init_seed, each.data_seed) for each in some]
            fields = job.model_dump(mode="json", exclude={"name", "members"})
            name = sha256(canonical_json([fields, drawn, source, NUMBERS, *watched]).encode())[:12]
            own = tuple(each.model_copy(update={"unit": name}) for each in some)
            jobs.append(job.model_copy(update={"name": name, "members": own}))
    if source != source_of_task(study):
        found = "found that their first samples change a global that they read"
        wanted = f"a task and a start whose code stays as it is, {found}"
        raise UserError(f"study {study.name!r}: expected {wanted}; keep such tables by functools.lru_cache")
    return jobs


def record(loaded: Loaded, jobs: Sequence[Job], preset: str | None = None) -> dict[str, Any]:
    """The record of a run, `config.json`, before it begins: of its study, with its fields, and the jobs of `plan`."""
    study, file, text = loaded.study, loaded.file, loaded.text
    digest, own = None if text is None else sha256(text.encode()), identity(study)
    parts = {name: getattr(study, name) for name in _DERIVED}
    try:
        canonical_json(own)
    except ValueError as error:
        words = f"expected finite numbers, found another ({error})"
        raise UserError(f"study {study.name!r}: fields: {words}") from None
    return {
        "study": study.name,
        "question": study.question,
        "preset": preset,
        "seeds": study.seeds,
        "identity": own,
        "given": {name: sorted(each.model_fields_set) for name, each in parts.items() if each is not None},
        "members": [each.model_dump(mode="json") for job in jobs for each in job.members],
        "units": [each.model_dump(mode="json", exclude={"members"}) for each in jobs],
        "registration": registered(study.all_claims()),
        "source": {"reference": loaded.reference, "file": file and file.name, "sha256": digest, "text": text},
    }


def of_run(run: RunFolder) -> Loaded:
    """The study of a run, found where its record says, with the run's fields; errors as of `load` and `fitted`."""
    reference = run.config["source"]["reference"]
    if reference is None:
        words = "expected a study that can be loaded, found one that was made in a notebook or a function"
        raise UserError(f"{run.path}: {words}; give it: hs.open_run(path, study=…)")
    place, name = split_reference(reference)
    moved = Path(Path(place).name)
    if place.endswith(".py") and not Path(place).is_file() and moved.is_file():
        reference = f"{moved}:{name}"  # one of its name is in this folder
    return fitted(load(reference), run)


def fitted(loaded: Loaded, run: RunFolder) -> Loaded:
    """A study that is at hand with the fields of a run, and its own measures, claims, figures, start and page.

    Fields of the options that are kept out of records, because they change no result, stay as they are.  `UserError`:
    the study, or its task, is not the one of the run.
    """
    study, own = loaded.study, run.config["identity"]
    grid = [Configuration(**each) for each in own["grid"]]
    with loaded.naming():
        try:
            fields = {"held_out": own["held_out"], "seeds": run.config.get("seeds", study.seeds)}
            if study.task is not None:
                given = run.config.get("given", own)
                for name in _DERIVED:
                    fields[name] = {field: own[name][field] for field in given[name] if field in own[name]}
                fields["task"] = type(study.task).model_validate(own["task"]["fields"])
                fields["completion"] = own["completion"]
            if study.options is not None:
                known = {**values_of(study.options), **own["options"]}
                fields["options"] = type(study.options).model_validate(known)
            fields |= {"configurations": (lambda options: grid) if grid else None, "vary": {}, "presets": {}}
            study = Study(**{**dict(study), **fields})
        except (ValidationError, TypeError) as error:
            words = f"expected the study {loaded.study.name!r} as in its record, found {in_words(error)}"
            raise UserError(f"{run.path}: {words}; restore the study, or start a new run") from None
        expected, found = own["source"], source_of_task(study)
    if expected != found or run.config["study"] != study.name:
        asked, given = (digest and f"its task (source {digest[:12]})" for digest in (expected, found))
        if expected == found:
            asked, given = run.config["study"], study.name
        wanted = f"the study that the run was made with, {asked}, found another, {given}"
        remedy = "restore the file (the run has a copy), or start a new run"
        raise UserError(f"{run.path}: expected {wanted}; {remedy}")
    return replace(loaded, study=study)


def job_of(unit: UnitFolder) -> Job:
    """What a unit is trained by, from the record of its run."""
    return Job(**unit.job, members=unit.members)


def task_of(job: Job, study: Study) -> Task:
    """The task of a unit, for the study that planned it, or that is `fitted` to its run."""
    assert study.task is not None
    return type(study.task).model_validate(job.task["fields"])


def ensemble_of(
    members: Sequence[Member], units: Sequence[UnitFolder], task: "Known", step: int | None = None
) -> "Transformer":
    """Members of one configuration, and of these units, at a checkpoint, by default the last, on the CPU.

    `task` may be a function that finds it when somebody asks for it: without it there are no samples.  `UserError`:
    there is no such checkpoint.
    """
    import torch

    from hopscope.models.transformer import Transformer

    wanted, parts = {each.member for each in members}, []
    for unit in units:
        steps = unit.steps
        if not steps or (step is not None and step not in steps):
            expected = f"a step with a checkpoint ({listed(steps, 20) or 'none yet'})"
            raise UserError(f"{unit.path}: expected {expected}, found {step or 'none'}")
        at = steps[-1] if step is None else step
        places = [place for place, each in enumerate(unit.members) if each.member in wanted]
        parts.append({name: torch.from_numpy(array[places]) for name, array in unit.weights(at).items()})
    job = job_of(units[0])
    found = Transformer(job.config, len(members))
    found.load({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    return found.knowing(task, [each.data_seed or 0 for each in members], at, job.training.examples)


def _recorded(task: Task) -> dict[str, Any]:
    try:
        return {"name": type(task).__name__, "fields": task.model_dump(mode="json")}
    except PydanticSerializationError as error:
        words = f"expected fields that JSON can hold, found another ({in_words(error)}); keep functions out of fields"
        raise UserError(f"task {type(task).__name__}: {words}") from None


def _shared(cell: tuple[Configuration, Any]) -> str:
    """What configurations have in common whose members may share a unit."""
    configuration, here = cell
    alone = not configuration.overrides or any(name not in SEEDS for name in configuration.overrides)
    parts = [_recorded(here.task), here.model.model_dump(mode="json"), here.training.model_dump(mode="json")]
    return canonical_json([*parts, here.held_out, configuration.label if alone else None])


def _checked(task: Task) -> Shape:
    from hopscope.tasks import check_task

    try:
        check_task(task)
        return task.shape()
    except HopscopeError:
        raise
    except Exception as error:
        words = f"expected samples of its shape, found {in_words(error)}; mend the task"
        raise UserError(f"task {type(task).__name__}: {words}") from error
