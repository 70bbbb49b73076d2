"""`hopscope bench`."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Literal

from hopscope.cli.parsing import parse
from hopscope.errors import UserError


@dataclasses.dataclass
class Options:
    """Measure training speed side by side with other ways to train the same model."""

    suite: Literal["cpu", "gpu"] = "cpu"
    """What to measure."""
    rounds: int = 5
    """Rounds; in each, every contestant runs once."""
    seconds: float = 4.0
    """Seconds of training that are timed in each round."""
    out: Path | None = None
    """File for the measurements, as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse(Options, arguments, "bench")
    script = Path(__file__).resolve().parents[3] / "benchmarks" / "compare.py"
    if not script.is_file():
        raise UserError(
            "bench: expected the source tree with benchmarks/, found none; run it from a clone of hopscope"
        )
    if options.suite == "gpu":
        raise UserError("bench: the gpu suite is not there yet; use --suite cpu")
    command = [
        sys.executable,
        str(script),
        "--rounds",
        str(options.rounds),
        "--seconds",
        str(options.seconds),
    ]
    return subprocess.run(
        command + (["--out", str(options.out)] if options.out else []), check=False
    ).returncode
