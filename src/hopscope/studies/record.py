"""What the folder of a run says of its study: everything that decides its numbers, and where the study is.

The copy of the study's file is for readers; it is never executed.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope.completion import COMPLETION_FIELDS, CompletionName
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.files import is_file, read_bytes, read_json, write_atomic
from hopscope.runs.hashing import SCHEMA_VERSION
from hopscope.studies import loading
from hopscope.studies.study import Configuration, Study
from hopscope.training.config import as_recorded

if TYPE_CHECKING:
    from hopscope.studies.program import Program

_RECORD = "study.json"


class DeclaredConfig(Config):
    """The configuration of a run of a declared study, as `config.json` has it.

    Attributes:
        task: name and fields of the task; none if nothing is trained.
        completion: of the recipe; a record from before there were any has none.
        given: dotted fields of the completion that the study gives itself, which win.
        model, training, options: their fields.
        vary: dotted field → values.
        varied: the fields of `vary` in the order in which members are numbered.
        configurations: the grid, as the study's function gave it; empty where it is the product of `vary`.
        seeds, held_out: as in `hopscope.Study`.
        source: hash of the source of the task and the helpers that it uses.
    """

    task: dict[str, Any] | None
    completion: CompletionName | None = None
    given: list[str] = []
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
    model, training, options = (
        None if part is None else part.model_dump(mode="json")
        for part in (study.model, study.training, study.options)
    )
    return DeclaredConfig(
        task=None if task is None else {"name": type(task).__name__, "fields": task.model_dump(mode="json")},
        completion=None if task is None else study.completion,
        given=[
            f"{section}.{name}"
            for section, part in (("model", study.model), ("training", study.training))
            for name in COMPLETION_FIELDS
            if part is not None and name in part.model_fields_set
        ],
        model=model,
        training=training,
        vary={name: list(values) for name, values in study.vary.items()},
        varied=list(study.vary),
        configurations=study.grid() if study.configurations is not None else [],
        seeds=study.seeds,
        options=options,
        held_out=study.held_out,
        source=source,
    )


def as_run(own: Study, config: Any) -> Study:
    """The study with the fields of a run's configuration."""
    if own.units is not None:
        return own.model_copy(update={"options": config})
    listed = tuple(config.configurations)
    task = None if config.task is None else config.task["fields"]
    fields = {
        **dict(own),
        "task": None if task is None or own.task is None else type(own.task).model_validate(task),
        "completion": config.completion or own.completion,
        "model": _given(config, "model"),
        "training": _given(config, "training"),
        "vary": {name: config.vary[name] for name in config.varied or config.vary},
        "configurations": (lambda options: listed) if listed else None,
        "seeds": config.seeds,
        "options": None if own.options is None else type(own.options).model_validate(config.options),
        "held_out": config.held_out,
    }
    return Study(**fields)


def _given(config: DeclaredConfig, section: str) -> dict[str, Any] | None:
    """The fields of a section without those that follow from the completion."""
    fields: dict[str, Any] | None = getattr(config, section)
    if section == "training":
        fields = as_recorded(fields)
    if fields is None or config.completion is None:
        return fields
    return {
        name: value
        for name, value in fields.items()
        if name not in COMPLETION_FIELDS or f"{section}.{name}" in config.given
    }


def note_origin(run: RunFolder, program: "Program") -> None:
    """Record where a declared study is; built-in studies are found by their name.

    Raises:
        UserError: a file cannot be read or written.
    """
    if program.built_in:
        return
    file = program.file
    text = None if file is None else read_bytes(file, "restore the file of the study")
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "reference": program.reference,
        "file": None if file is None else file.name,
        "sha256": None if text is None else hashlib.sha256(text).hexdigest(),
    }
    path = run.path / _RECORD
    if is_file(path) and read_json(path) == record:
        return
    if file is not None and text is not None:
        write_atomic(run.path / "source" / file.name, text)
    run.write_json(_RECORD, record)


def program_of(run: RunFolder) -> "Program":
    """The study of a run, as it is now; its task must be the one that the run was made with.

    Raises:
        UserError: the file or package is gone, cannot be loaded, or its task has changed.
    """
    path = run.path / _RECORD
    if not is_file(path):
        return loading.find_study(run.study)
    record = read_json(path, f"restore it, or move {run.path} away and run the same command again")
    reference = record.get("reference") if isinstance(record, dict) else None
    if not isinstance(reference, str):
        raise UserError(
            f"{run.path}: expected a study that can be loaded, found one that was made in a notebook or a function; "
            "give it with hopscope.open_run(path, study=…)"
        )
    place, name = loading.split_reference(reference)
    beside = Path(place).name
    if loading.is_file(place) and not is_file(Path(place)) and is_file(Path(beside)):
        reference = (
            f"{beside}:{name}" if name else beside
        )  # the file has gone, and one of its name is in this folder
    program = loading.of_reference(reference, f"{run.path}")
    check_source(run, program)
    return program


def check_source(run: RunFolder, program: "Program") -> None:
    """Refuse a study whose task is not the one that a run was made with.

    Raises:
        UserError: it has changed.
    """
    if program.study.units is not None:  # its tasks are built in
        return
    expected, found = DeclaredConfig.model_validate(run.config).source, program.source
    if expected != found:
        asked, given = (source[:12] if source else "none" for source in (expected, found))
        raise UserError(
            f"{program.reference or program.name}: expected the task with which {run.path} was made (source {asked}), "
            f"found another (source {given}); restore the file ({run.path / 'source'} has a copy), or start a new run"
        )
