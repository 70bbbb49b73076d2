"""The command `hopscope export`: write a trained member."""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.runs import find_run

if TYPE_CHECKING:
    from hopscope.studies.program import Program


@dataclasses.dataclass
class Options:
    """Write one trained member as a Hugging Face folder with a model card; hopscope.load(DIR) reads it.

    Models on tokens that fit into GPT-2's layout are written in it, and transformers reads them too.
    """

    path: Positional[Path]
    """Run folder, or a root that holds exactly one run."""
    member: int
    """Number of the member in the run (members.json)."""
    to: Path
    """Folder to write."""
    step: Annotated[int | None, tyro.conf.arg(aliases=["--checkpoint"])] = None
    """Write the member as it was at this training step, of which there must be a checkpoint (default: the last)."""
    layout: Literal["auto", "gpt2", "hopscope"] = "auto"
    """Layout of the folder: GPT-2's, Hopscope's own, or the first where the model fits into it."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, arguments, "export")
    run = find_run(options.path)
    from hopscope.executors.exporting import export_member
    from hopscope.studies.record import program_of

    export_member(
        run,
        options.member,
        options.to,
        options.step,
        layout=options.layout,
        program=lambda: program_of(run),
        command=lambda program, fields: _command(program, run.preset, fields, run.hash),
    )
    print(options.to)
    return 0


def _command(program: "Program", preset: str | None, fields: Mapping[str, Any], hash: str) -> str:
    """The command line that makes a run, if it does: it is read as `hopscope run` reads it, and the hash compared."""
    from hopscope.cli.run import read_options
    from hopscope.errors import UserError

    words = [
        *(["--preset", preset] if preset else []),
        *(word for field in fields.items() for word in _flag(*field)),
    ]
    try:
        if program.run_hash(read_options(program, words)[1]) != hash:
            return ""
    except UserError:
        return ""
    file = None if program.built_in else program.file
    called = program.name if file is None else file.name
    return shlex.join(["hopscope", "run", called, *words])


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{flag[2:]}"]
    if isinstance(value, list | tuple):
        return [flag, *map(str, value)]
    return [flag, str(value)]
