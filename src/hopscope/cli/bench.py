"""The command `hopscope bench`: measure speed with the scripts of a source tree."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Literal

from hopscope.cli.parsing import parse
from hopscope.errors import UserError

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
"""They are part of the source tree only."""


_HANDED_ON = ("model", "seeds", "rounds", "seconds", "run", "member", "out")


@dataclasses.dataclass
class Options:
    """Measure training: its speed beside other ways or as the work grows, the time to a result; or reading."""

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
    given = {name: getattr(options, name) for name in _HANDED_ON}
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return subprocess.run([sys.executable, str(script), *words], check=False).returncode


def _script(options: Options) -> str:
    if options.suite == "solved":
        return _solved(options)
    if options.seeds is not None:
        raise UserError("--seeds: expected it with --suite solved only, found it without; leave it out")
    if options.reading:
        if options.suite == "gpu" or options.growth or options.model or options.seconds is not None:
            raise UserError(
                "--reading: expected none of --suite gpu, --growth, --model and --seconds, found one; leave it out"
            )
        if options.member is not None and options.run is None:
            raise UserError("--member: expected it with --run only, found it without; add --run FOLDER")
        return "reading.py" if options.run is None else "reading_of_run.py"
    if options.run is not None or options.member is not None:
        raise UserError(
            "--run, --member: expected them with --reading only, found them without; add --reading"
        )
    if options.suite == "gpu":
        if options.growth or options.model is not None:
            raise UserError("--suite gpu: expected neither --growth nor --model, found one; leave it out")
        return "gpu.py"
    if options.growth and options.model not in (None, "permutation", "depth"):
        raise UserError(f"--model: expected permutation or depth with --growth, found {options.model}")
    return "growth.py" if options.growth else "compare.py"


def _solved(options: Options) -> str:
    if options.growth or options.reading or options.run is not None or options.seconds is not None:
        raise UserError(
            "--suite solved: expected none of --growth, --reading, --run and --seconds, found one; leave it out"
        )
    if options.model not in (None, "permutation", "depth"):
        raise UserError(
            f"--model: expected permutation or depth with --suite solved, found {options.model}; choose one of them"
        )
    return "solved.py"
