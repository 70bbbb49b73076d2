"""Where the study of a run is: its reference, its file's text and hash, kept in the run folder.

The copy of the file is for readers; it is never executed.
"""

import hashlib
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.files import is_file, read_bytes, read_json, write_atomic
from hopscope.runs.hashing import SCHEMA_VERSION
from hopscope.studies import loading
from hopscope.studies.program import Program
from hopscope.studies.record import DeclaredConfig

_RECORD = "study.json"


def note_origin(run: RunFolder, program: Program) -> None:
    """Record where a declared study is; built-in studies are found by their name.

    Raises:
        UserError: a file cannot be read or written.
    """
    if program.built_in:
        return
    text = None if program.file is None else read_bytes(program.file, "restore the file of the study")
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "reference": program.reference,
        "file": None if program.file is None else program.file.name,
        "sha256": None if text is None else hashlib.sha256(text).hexdigest(),
    }
    path = run.path / _RECORD
    if is_file(path) and read_json(path) == record:
        return
    if program.file is not None and text is not None:
        write_atomic(run.path / "source" / program.file.name, text)
    run.write_json(_RECORD, record)


def program_of(run: RunFolder) -> Program:
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
    program = loading.of_reference(_moved(reference), f"{run.path}")
    check_source(run, program)
    return program


def check_source(run: RunFolder, program: Program) -> None:
    """Refuse a study whose task is not the one that a run was made with.

    Raises:
        UserError: it has changed.
    """
    if program.study.units is not None:  # its tasks are built in
        return
    expected = DeclaredConfig.model_validate(run.config).source
    found = program.source
    if expected != found:
        where = program.reference or program.name
        raise UserError(
            f"{where}: expected the task with which {run.path} was made (source {_short(expected)}), found another "
            f"(source {_short(found)}); restore the file ({run.path / 'source'} has a copy), or start a new run"
        )


def _short(source: str | None) -> str:
    return "none" if source is None else source[:12]


def _moved(reference: str) -> str:
    """The reference, or the file of that name in this folder where the file has gone."""
    place, name = loading.split_reference(reference)
    if loading.is_file(reference) and not is_file(Path(place)) and is_file(Path(Path(place).name)):
        return f"{Path(place).name}:{name}" if name else Path(place).name
    return reference
