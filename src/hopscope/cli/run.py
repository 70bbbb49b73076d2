"""The command `hopscope run STUDY`: train and conclude a study."""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

from hopscope.cli.study_fields import study_fields
from hopscope.errors import UserError
from hopscope.executors.tracking.sinks import Tracker
from hopscope.studies import find_study, study_names
from hopscope.studies.program import Program


@dataclasses.dataclass
class RunOptions:
    """Where and how long a study runs; none of it changes the results."""

    preset: str | None = None
    """Named configuration to start from (default: laptop where the study has it, else as it is written)."""
    out: Path = Path("runs")
    """Root folder of the runs; with a URL (s3://…) a copy is kept there, and the work is done in a local folder."""
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
    executor: Literal["local", "ray", "slurm"] = "local"
    """Where units are trained: by processes of this machine, as tasks of a Ray cluster, or as jobs of SLURM."""
    tracker: tuple[Tracker, ...] = ()
    """Send what is recorded there while it trains, to one or several; a tracker that fails does not end the run."""
    address: str | None = None
    """HOST:PORT of the Ray cluster (default: RAY_ADDRESS, or the one here); of slurm: local or debug, to try it."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if not arguments or arguments[0].startswith("-"):
        asked_for_help = bool(arguments) and arguments[0] in ("-h", "--help")
        names = ", ".join(study_names())
        text = f"usage: hopscope run STUDY [OPTIONS], STUDY is one of: {names}, or a file such as study.py"
        if asked_for_help:
            print(f"{text}\nhopscope run STUDY --help lists the options and the study's fields.")
            return 0
        raise UserError(f"study: expected one of {names}, or a file such as study.py, found none; {text}")
    study = find_study(arguments[0])
    options, config = read_options(study, arguments[1:], arguments[0])
    return _run(study, options, config)


def read_options(study: Program, arguments: list[str], called: str | None = None) -> tuple[RunOptions, Any]:
    """Run options and the study's configuration: the preset's, with the fields given on the command line.

    Args:
        study: the study.
        arguments: what follows it on the command line.
        called: what it was called there, for errors; its name by default.

    Raises:
        UserError: an unknown preset or field, or a value that does not fit.
    """
    preset = study.chosen_preset(_preset(arguments))
    command = f"run {called or study.name}"
    options, fields = study_fields(RunOptions(preset=preset), study, preset, arguments, command)
    return options, study.configured(preset, fields)


def _preset(arguments: list[str]) -> str | None:
    """The preset's name: its fields are the defaults of everything else, so it must be known first."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    preset: str | None = parser.parse_known_args(arguments)[0].preset
    return preset


def _run(study: Program, options: RunOptions, config: Any) -> int:
    from hopscope.cli.claims import print_brief, read_ledger
    from hopscope.cli.progress import Bars
    from hopscope.cli.terminal import say
    from hopscope.executors.local import run_study

    expected = _expected(study, options, config)
    if expected:
        say(expected)
    with Bars(study.jobs(config)) as bars:
        run = run_study(study, config, **vars(options), listen=bars.hear, say=say)
    ledger = read_ledger(run)
    if len(ledger):
        print_brief(ledger)
        print(f"why: hopscope claims {run.path} --long")
    print(f"report: {run.path / 'report.html'}")
    sys.stdout.flush()
    print(run.path)
    return 0


def _expected(study: Program, options: RunOptions, config: Any) -> str:
    """What a new run on all cores will take, where `hopscope studies --probe` has told; else nothing."""
    from hopscope.executors.costs import Costs, in_words
    from hopscope.executors.pool import chosen_device

    costs = Costs()
    cost = costs.of(study, config)
    if cost is None or cost.seconds is None:
        return ""
    begun = (options.out / study.name / study.run_hash(config)).is_dir()
    as_probed = (
        options.executor == "local"
        and options.engine == "auto"
        and options.threads in (None, costs.machine.cores)
    )
    if begun or not as_probed or chosen_device(options.device) != "cpu":
        return ""
    return f"expected: {in_words(cost, costs.machine.cores)}"
