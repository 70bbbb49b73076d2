"""The library in a few calls: run a study, open a run, load what it trained."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.executors.local import run_study
from hopscope.models.member import MemberTransformer
from hopscope.runs import RunFolder, find_run
from hopscope.studies import find_study
from hopscope.training import restore


def run(
    study: str,
    preset: str = "laptop",
    *,
    out: Path | str = "runs",
    device: str = "auto",
    threads: int | None = None,
    time_budget: float | None = None,
    **fields: Any,
) -> RunFolder:
    """Run a study, or go on with it, or find it finished.

    Args:
        study: its name.
        preset: the configuration to start from.
        out, device, threads, time_budget: as on the command line.
        fields: fields of the study's configuration that differ from the preset.

    Raises:
        UserError: something the user can mend.
        TimeBudgetReached: the same call goes on.
    """
    found = find_study(study)
    if preset not in found.presets:
        raise UserError(f"preset: expected one of {', '.join(found.presets)}, found {preset!r}")
    base = found.presets[preset]
    try:
        config = type(base).model_validate({**base.model_dump(), **fields})
    except ValidationError as error:
        raise UserError(validation_line(error)) from None
    return run_study(
        found, config, out=Path(out), preset=preset, device=device, threads=threads, time_budget=time_budget
    )


def open_run(path: Path | str) -> RunFolder:
    """A run folder, or the only run under a root.

    Raises:
        UserError: there is none, or there are several.
    """
    return find_run(Path(path))


def load_member(run: RunFolder | Path | str, member: int, step: int | None = None) -> MemberTransformer:
    """One trained member as a plain module, at its last checkpoint or at that of `step`.

    Raises:
        UserError: no such run, member or checkpoint.
    """
    folder = run if isinstance(run, RunFolder) else open_run(run)
    return restore.load_member(folder, member, step)
