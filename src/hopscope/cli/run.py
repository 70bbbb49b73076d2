"""`hopscope run STUDY`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hopscope.cli.parsing import joined, parse
from hopscope.errors import UserError
from hopscope.studies import STUDY_NAMES, find_study
from hopscope.studies.base import Study

DEFAULT_PRESET = "laptop"


@dataclasses.dataclass
class RunOptions:
    """Where and how long a study runs; none of it changes the results."""

    preset: str = DEFAULT_PRESET
    """Named configuration to start from: smoke, laptop or paper."""
    out: Path = Path("runs")
    """Root folder of the runs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""
    threads: int | None = None
    """Cores to use (default: all)."""
    time_budget: float | None = None
    """Seconds to work; then exit with status 75, and the same command goes on."""
    engine: Literal["auto", "general", "compiled"] = "auto"
    """How units that have not begun are trained: by autograd, by torch.compile, or by the fastest way there is."""
    gpu_workers: int = 1
    """Units that share a GPU at a time: with two, one trains while the other is compiled."""
    executor: Literal["local"] = "local"
    """Where units run."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    if not arguments or arguments[0].startswith("-"):
        asked_for_help = bool(arguments) and arguments[0] in ("-h", "--help")
        text = f"usage: hopscope run STUDY [OPTIONS], STUDY is one of: {', '.join(STUDY_NAMES)}"
        if asked_for_help:
            print(f"{text}\nhopscope run STUDY --help lists the options and the study's fields.")
            return 0
        raise UserError(f"study: expected one of {', '.join(STUDY_NAMES)}, found none; {text}")
    study = find_study(arguments[0])
    options, config = read_options(study, arguments[1:])
    return _run(study, options, config)


def read_options(study: Study, arguments: list[str]) -> tuple[RunOptions, Any]:
    """Run options and the study's configuration: the preset's, with the fields given on the command line.

    Raises:
        UserError: an unknown preset or field, or a value that does not fit.
    """
    preset = _preset(arguments)
    if preset not in study.presets:
        raise UserError(
            f"preset: expected one of {', '.join(study.presets)}, found {preset!r}; see hopscope studies"
        )
    config = study.presets[preset]
    several = [
        name for name, field in type(config).model_fields.items() if field.annotation == tuple[str, ...]
    ]
    arguments = joined(arguments, several)
    flat = tyro.conf.arg(name="")
    both = dataclasses.make_dataclass(
        "Run",
        [
            ("options", Annotated[RunOptions, flat], dataclasses.field(default_factory=RunOptions)),
            ("config", Annotated[type(config), flat], dataclasses.field(default=config)),
        ],
    )
    parsed: Any = parse(both, arguments, f"run {study.name}", description=f"{study.name}: {study.summary}.")
    return parsed.options, parsed.config


def _preset(arguments: list[str]) -> str:
    """The preset's fields are the defaults of everything else, so it must be known before the rest is read."""
    preset = DEFAULT_PRESET
    for position, argument in enumerate(arguments):
        if argument == "--preset" and position + 1 < len(arguments):
            preset = arguments[position + 1]
        elif argument.startswith("--preset="):
            preset = argument.removeprefix("--preset=")
    return preset


def _run(study: Study, options: RunOptions, config: Any) -> int:
    from hopscope.claims import ledger_table, read_ledger
    from hopscope.cli.progress import Bars, say
    from hopscope.cli.terminal import console, ledger_words
    from hopscope.executors.local import run_study

    with Bars(study.plan(config)) as bars:
        run = run_study(
            study,
            config,
            out=options.out,
            preset=options.preset,
            device=options.device,
            threads=options.threads,
            time_budget=options.time_budget,
            engine=options.engine,
            gpu_workers=options.gpu_workers,
            listen=bars.hear,
            say=say,
        )
    console().print(ledger_table(read_ledger(run.path / "claims.json"), ledger_words(run)))
    print(f"report: {run.path / 'report.html'}")
    sys.stdout.flush()
    print(run.path)
    return 0
