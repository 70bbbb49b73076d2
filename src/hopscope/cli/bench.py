"""The command `hopscope bench`: measure speed with the scripts of a source tree."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Literal

from hopscope.cli.parsing import parse
from hopscope.errors import UserError

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
"""Folder of the measuring scripts, which only the source tree has."""

_TAKEN = {
    "compare.py": ("model", "rounds", "seconds", "out"),
    "growth.py": ("growth", "model", "rounds", "seconds", "out"),
    "reading.py": ("reading", "rounds", "out"),
    "reading_of_run.py": ("reading", "run", "member", "rounds", "out"),
    "gpu.py": ("rounds", "seconds", "out"),
    "solved.py": ("model", "seeds", "rounds", "out"),
}
"""Script → the options that it takes."""


@dataclasses.dataclass
class Options:
    """Measure training: its speed beside other ways or as the work grows, the time to a result; or reading.

    The measuring scripts are in benchmarks/ of the source tree, so this command needs a clone of hopscope.
    """

    suite: Literal["cpu", "gpu", "solved"] = "cpu"
    """Speed beside other programs on this CPU, Figure 4's models on its GPU, or the time until seeds have learned."""
    model: Literal["permutation", "depth", "depth-mlp", "transformer-d", "transformer-a"] | None = None
    """Trained on a CPU: the presentation's model (default), the laptop's deep ones, or two of the paper's."""
    growth: bool = False
    """Measure what training costs by members, size of the task, layers and width instead."""
    reading: bool = False
    """Measure what it costs to read the circuit of a deep model instead."""
    run: Path | None = None
    """With --reading: read a trained member of this run, in place of a planted model."""
    member: int | None = None
    """Its number (default: 0), with --run only."""
    seeds: int | None = None
    """Seeds that have to learn, with --suite solved only (default: 10, with --model depth 6)."""
    rounds: int | None = None
    """Rounds; in each, every contestant (or point) runs once (default: 5; --growth, --reading, GPU: 3; solved: 1)."""
    seconds: float | None = None
    """Seconds of training that are timed in each round (default: 4, with --growth 2, on a GPU 1)."""
    out: Path | None = None
    """File for the measurements, as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the script's exit status."""
    options = parse(Options, arguments, "bench")
    script = BENCHMARKS / _script(options)
    if not script.is_file():
        raise UserError(
            "bench: expected the source tree with benchmarks/, found none; run it from a clone of hopscope"
        )
    given = {name: getattr(options, name) for name in _TAKEN[script.name]}
    words = [
        word
        for name, value in given.items()
        if value is not None and not isinstance(value, bool)
        for word in (f"--{name}", str(value))
    ]
    return subprocess.run([sys.executable, str(script), *words], check=False).returncode


def _script(options: Options) -> str:
    """The script that was asked for.

    Raises:
        UserError: an option is given that it does not take.
    """
    if options.suite != "cpu":
        script, asked = f"{options.suite}.py", f"--suite {options.suite}"
    elif options.reading:
        script, asked = ("reading.py" if options.run is None else "reading_of_run.py"), "--reading"
    else:
        script, asked = ("growth.py", "--growth") if options.growth else ("compare.py", "--suite cpu")
    for name, value in vars(options).items():
        if value not in (None, False) and name not in ("suite", *_TAKEN[script]):
            raise UserError(
                f"--{name}: expected {asked} with {', '.join(f'--{taken}' for taken in _TAKEN[script])} only, found "
                f"--{name} too; leave it out, or see hopscope bench --help"
            )
    if script in ("growth.py", "solved.py") and options.model not in (None, "permutation", "depth"):
        raise UserError(
            f"--model: expected permutation or depth with {asked}, found {options.model}; choose one of them"
        )
    return script
