"""What it costs to read the circuit of a deep model, and what it gains to keep the streams of lower layers.

In every round one process reads the circuit as `hopscope circuit` does, and one only searches for it, with every pass
from the bottom; a machine's speed drifts, so ratios are taken within a round, and of the time that cores were at work:
readings are long, and other programs come and go.  Both must find the planted circuit, by the same steps.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from _contestants import HERE
from compare import (
    STEADY,
    WIDTH_IN_FILES,
    check_run_options,
    environment,
    median_range,
    provenance,
    ratios,
    refuse,
    spread,
    write,
)

SCHEMA_VERSION = 1
SCRIPT = HERE / "hopscope_reading.py"
WAYS = {"kept": (), "afresh": ("--only-search",)}
"""Ways to treat lower layers, with what else is asked for."""

LIMIT = 3600.0  # seconds that one process may take
AIM = 180.0  # seconds that a whole reading may take


class Failed(Exception):
    """A process without a result; the message says why."""


def read_once(script: Path, way: str, words: Sequence[str]) -> dict[str, Any]:
    """One process, and its result line."""
    command = [sys.executable, str(script), "--way", way, *WAYS[way], *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{way}: no result within {LIMIT:.0f} s") from None
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode or not lines:
        raise Failed(f"{way}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def play(
    script: Path, rounds: int, words: Sequence[str], say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """All rounds; every other one goes backwards.

    Raises:
        Failed: a process has no result, or the two ways found different things.
    """
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(1, rounds + 1):
        for way in list(WAYS)[:: 1 if number % 2 else -1]:
            found[way].append(read_once(script, way, words))
            say(
                f"round {number} of {rounds}: {way}, search {found[way][-1]['search_seconds']:.1f} s, "
                f"{found[way][-1]['search_cpu_seconds']:.1f} s of a core"
            )
        if len({each[-1]["found"] for each in found.values()}) > 1:
            raise Failed(f"round {number}: expected the same steps of the search in both ways, found others")
    return found


def record(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    times = {way: [each["search_cpu_seconds"] for each in rounds] for way, rounds in found.items()}
    walls = {way: [each["search_seconds"] for each in rounds] for way, rounds in found.items()}
    whole = [each["seconds"] for each in found["kept"]]
    settings = found["kept"][0]["settings"]
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "reading",
        "unit": "seconds of one reading in one process",
        "settings": {name: value for name, value in settings.items() if name not in ("way", "only_search")},
        "aim_seconds": AIM,
        "provenance": provenance(),
        "seconds": spread(whole),
        "cpu_seconds": spread([each["cpu_seconds"] for each in found["kept"]]),
        "search_seconds": {way: spread(each) for way, each in walls.items()},
        "search_cpu_seconds": {way: spread(each) for way, each in times.items()},
        "search_passes": {way: rounds[0]["search_passes"] for way, rounds in found.items()},
        "search_layers": {way: rounds[0]["search_layers"] for way, rounds in found.items()},
        "search_afresh_over_kept": spread(ratios(times["afresh"], times["kept"])),
        "peak_memory_mb": max(each["peak_memory_mb"] for each in found["kept"]),
        "disturbed": any(_disturbed(each) for rounds in found.values() for each in rounds),
    }


def _disturbed(once: Mapping[str, Any]) -> bool:
    """Whether the process waited for cores that others used; with several threads that cannot be told."""
    return once["search_seconds"] > STEADY * once["search_cpu_seconds"]


def show(result: Mapping[str, Any], console: Console) -> None:
    """One table."""
    table = Table(title=escape(_words(result["settings"])))
    for heading in ("what", "seconds: median [min–max]", "of a core", "passes", "layers run"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row(
        "whole reading",
        escape(median_range(result["seconds"], ".1f")),
        escape(median_range(result["cpu_seconds"], ".1f")),
        "",
        "",
    )
    for way, words in (
        ("kept", "search, lower layers kept"),
        ("afresh", "search, every pass from the bottom"),
    ):
        table.add_row(
            words,
            escape(median_range(result["search_seconds"][way], ".1f")),
            escape(median_range(result["search_cpu_seconds"][way], ".1f")),
            f"{result['search_passes'][way]:,}",
            f"{result['search_layers'][way]:,}",
        )
    console.print(table)
    gain = median_range(result["search_afresh_over_kept"], ".2f")
    console.print(f"From the bottom ÷ kept, within a round: {gain}", highlight=False, markup=False)
    if result["disturbed"]:
        console.print("disturbed: run again on an idle machine", highlight=False)


def _words(settings: Mapping[str, Any]) -> str:
    return "Reading a planted model: " + ", ".join(f"{name} {value}" for name, value in settings.items())


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reading", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--orders", type=int, help="random orders of the search (default: the reader's)")
    parser.add_argument("--samples", type=int, help="that the search uses (default: the reader's)")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    options = parser.parse_args(argv)
    check_run_options(options)
    for name, least in (("threads", 1), ("orders", 0), ("samples", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            refuse(f"--{name}: expected at least {least}, found {value}; leave it out")
    return options


def main(argv: Sequence[str] | None = None, script: Path = SCRIPT, console: Console | None = None) -> int:
    """Measure, print and write; 0, or 1 if there is no result."""
    options = _options(argv)
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    given = {name: getattr(options, name) for name in ("threads", "orders", "samples")}
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    try:
        found = play(
            script, options.rounds, words, say=lambda line: console.print(line, highlight=False, markup=False)
        )
    except Failed as failed:
        print(f"reading: {failed}", file=sys.stderr)
        return 1
    result = record(found)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
