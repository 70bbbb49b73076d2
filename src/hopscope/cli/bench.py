"""`hopscope bench`."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Literal

from hopscope.cli.parsing import parse
from hopscope.errors import UserError

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
"""They are part of the source tree only."""


@dataclasses.dataclass
class Options:
    """Measure training speed: side by side with other ways to train the same model, or as the work grows."""

    suite: Literal["cpu", "gpu"] = "cpu"
    """What to measure."""
    growth: bool = False
    """Measure what training costs by members, V, layers and width instead."""
    rounds: int | None = None
    """Rounds; in each, every contestant (or point) runs once (default: 5, with --growth 3)."""
    seconds: float | None = None
    """Seconds of training that are timed in each round (default: 4, with --growth 2)."""
    out: Path | None = None
    """File for the measurements, as JSON."""


def main(arguments: list[str]) -> int:
    """Run the command."""
    options = parse(Options, arguments, "bench")
    script = BENCHMARKS / ("growth.py" if options.growth else "compare.py")
    if not script.is_file():
        raise UserError(
            "bench: expected the source tree with benchmarks/, found none; run it from a clone of hopscope"
        )
    if options.suite == "gpu":
        raise UserError("bench: the gpu suite is not there yet; use --suite cpu")
    given = {name: getattr(options, name) for name in ("rounds", "seconds", "out")}
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return subprocess.run([sys.executable, str(script), *words], check=False).returncode
