"""The command `hopscope export`: write a trained member."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.runs import find_run


@dataclasses.dataclass
class Options:
    """Write one trained member as a folder that hopscope.load_module(DIR) reads."""

    path: Positional[Path]
    """Run folder, or a root that holds exactly one run."""
    member: int
    """Number of the member in the run (members.json)."""
    to: Path
    """Folder to write."""
    step: Annotated[int | None, tyro.conf.arg(aliases=["--checkpoint"])] = None
    """Write the member as it was at this training step, of which there must be a checkpoint (default: the last)."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, arguments, "export")
    run = find_run(options.path)
    from hopscope.models.export import export_module
    from hopscope.training.restore import load_member, member_record

    record = member_record(run, options.member)
    step = options.step if options.step is not None else run.unit(record.unit).checkpoint()[0]
    origin = {"study": run.study, "run": run.hash, "member": record.member, "seed": record.seed, "step": step}
    export_module(
        load_member(run, options.member, step), options.to, origin | {"overrides": record.overrides}
    )
    print(options.to)
    return 0
