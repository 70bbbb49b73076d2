"""Side by side: every contestant tuned, then rounds in turn, each run a fresh process.

A machine's speed drifts (other work, heat), so the contestants alternate (A B C D A B C D …) and are compared
within a round: the ratio of a round is taken between runs that follow each other.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).resolve().parent
OURS = "hopscope_ensemble"
BATCH, LARGE_BATCH = 256, 1024
START_UP_ALLOWANCE = 180.0  # seconds that imports, compilation and the first call may take
SCHEMA_VERSION = 1
WIDTH_IN_FILES = 140
# Threads that wait for each other by spinning can be slowed a hundredfold by other work on their cores: such
# rounds measure the other work.
STEADY = 1.5

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]

GRID: dict[str, Grid] = {
    OURS: {"members": (8,), "processes": (2,), "threads": (1,)},
    "hopscope_general": {"members": (8,), "processes": (2,), "threads": (1,), "engine": ("general",)},
    "page_loop": {"threads": (1, 2), "workers": (0, 2)},
    "page_loop_twice": {"processes": (2,), "threads": (1,), "workers": (0,)},
    "plain_pytorch": {"processes": (1, 2), "threads": (1, 2), "rows": ("all", "loss")},
    "jax_vmap": {"members": (8,), "processes": (1, 2), "threads": (1, 2)},
}
"""Settings that are tried.  `processes` is the harness's own: so many at a time, which share `members` if the script
trains several, and whose speeds add up.  Two page loops at a time are not the page's way, but what a reader with two
cores and many seeds would do.  Ours is measured in the layout that a study runs in, one-thread workers, and by the
engine that a study would choose; once more by autograd, so that the gain of the fused way shows."""

SCRIPTS = {"page_loop_twice": "page_loop", "hopscope_general": OURS}
"""Scripts whose name is not the contestant's."""


@dataclass(frozen=True)
class Contestant:
    """A script that trains and prints one JSON line, and the settings worth trying."""

    name: str
    script: Path
    grid: Grid


@dataclass(frozen=True)
class Run:
    """One process: its result line, or why there is none."""

    result: dict[str, Any] | None = None
    failure: str = ""

    @property
    def missing(self) -> bool:
        """The contestant lacks a package; its line says so and how to get it."""
        return "not installed" in self.failure

    @property
    def speed(self) -> float:
        return float(self.result["samples_per_second"]) if self.result else 0.0


@dataclass
class Entry:
    """What is known of one contestant."""

    contestant: Contestant
    status: str = "ok"  # ok | not installed | failed
    message: str = ""
    settings: Settings = field(default_factory=dict)
    probes: list[dict[str, Any]] = field(default_factory=list)
    large_batch_speed: float | None = None
    rounds: list[dict[str, Any] | None] = field(default_factory=list)

    def speeds(self) -> list[float | None]:
        return [each["samples_per_second"] if each else None for each in self.rounds]


def default_contestants() -> list[Contestant]:
    return [Contestant(name, HERE / f"{SCRIPTS.get(name, name)}.py", grid) for name, grid in GRID.items()]


def launch(contestant: Contestant, settings: Settings, seconds: float) -> Run:
    """Run the script once, in a process of its own, or in several at a time whose speeds and memory add up."""
    if not contestant.script.exists():
        return Run(failure=f"{contestant.name} is not installed: expected the file {contestant.script.name}")
    options = dict(settings)
    count = options.pop("processes", 1)
    if "members" in options:
        options["members"] //= count
    with ThreadPoolExecutor(count) as pool:
        runs = list(pool.map(lambda _: _launch_one(contestant, options, seconds), range(count)))
    failed = next((run for run in runs if run.result is None), None)
    if failed is not None:
        return failed
    results = [run.result for run in runs if run.result is not None]
    together = {key: sum(each[key] for each in results) for key in ("samples_per_second", "peak_memory_mb")}
    loss = sum(each["loss"] for each in results) / count
    return Run(result={**results[0], **together, "loss": loss})


def _launch_one(contestant: Contestant, settings: Settings, seconds: float) -> Run:
    options = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, str(contestant.script), "--seconds", str(seconds), *options, "--json"]
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds * 2 + START_UP_ALLOWANCE,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired as expired:
        return Run(failure=f"no result within {expired.timeout:.0f} s")
    if done.returncode:
        return Run(failure=_last_line(done.stderr) or f"exit status {done.returncode}")
    try:
        result = json.loads(_last_line(done.stdout))
        float(result["samples_per_second"]), float(result["peak_memory_mb"]), float(result["loss"])
    except (ValueError, KeyError, TypeError):
        return Run(failure=f"expected one JSON result line, found {_last_line(done.stdout)!r}")
    return Run(result=result)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def combinations(grid: Grid) -> list[Settings]:
    """Every choice of settings, the first option varying slowest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def tune(contestant: Contestant, seconds: float) -> Entry:
    """Probe every combination, keep the quickest; also probe it at the large batch."""
    entry = Entry(contestant)
    best = 0.0
    for settings in combinations(contestant.grid):
        run = launch(contestant, {**settings, "batch": BATCH}, seconds)
        if run.missing:
            entry.status, entry.message = "not installed", run.failure
            return entry
        entry.probes.append({"settings": settings, "samples_per_second": run.speed, "failure": run.failure})
        if run.speed > best:
            best, entry.settings = run.speed, settings
    if best == 0.0:
        entry.status, entry.message = "failed", entry.probes[-1]["failure"]
        return entry
    entry.large_batch_speed = (
        launch(contestant, {**entry.settings, "batch": LARGE_BATCH}, seconds).speed or None
    )
    return entry


def play(entries: Sequence[Entry], rounds: int, seconds: float, say: Callable[[str], None]) -> None:
    """Interleaved rounds; a contestant that fails once sits out the rest, as empty rounds."""
    for number in range(1, rounds + 1):
        for entry in entries:
            if entry.status != "ok":
                entry.rounds.append(None)
                continue
            run = launch(entry.contestant, {**entry.settings, "batch": BATCH}, seconds)
            entry.rounds.append(run.result)
            if run.result is None:
                entry.status, entry.message = "failed", f"round {number}: {run.failure}"
        latest = {each.contestant.name: each.speeds()[-1] for each in entries}
        words = (f"{name} {speed:,.0f}" for name, speed in latest.items() if speed)
        say(f"round {number} of {rounds}: {', '.join(words)}")


def spread(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Median, smallest and largest of the rounds that happened; `None` where none did."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    return {
        "median": statistics.median(present),
        "min": min(present),
        "max": max(present),
        "rounds": list(values),
    }


def ratios(ours: Sequence[float | None], other: Sequence[float | None]) -> list[float | None]:
    """Ours divided by the other, round by round; `None` where either is missing."""
    return [a / b if a is not None and b else None for a, b in zip(ours, other, strict=True)]


def record(entries: Sequence[Entry]) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    contestants = [
        {
            "name": entry.contestant.name,
            "status": entry.status,
            "message": entry.message,
            "settings": entry.settings,
            "batch": BATCH,
            "probes": entry.probes,
            "samples_per_second": spread(entry.speeds()),
            "peak_memory_mb": max((each["peak_memory_mb"] for each in entry.rounds if each), default=None),
            "disturbed": disturbed(entry),
            "loss": [each["loss"] if each else None for each in entry.rounds],
            "best_over_batch": _best_over_batch(entry),
            "reported": next((each.get("settings") for each in entry.rounds if each), None),
        }
        for entry in entries
    ]
    ours = next((entry for entry in entries if entry.contestant.name == OURS), None)
    against = {
        entry.contestant.name: spread(ratios(ours.speeds(), entry.speeds()))
        for entry in entries
        if ours is not None and entry is not ours
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "cpu",
        "unit": "member-samples per second of training",
        "provenance": provenance(),
        "contestants": contestants,
        "ratios": against,
    }


def disturbed(entry: Entry) -> bool:
    """Whether the machine was too busy to tell: the chosen probe and the rounds differ too much."""
    chosen = [probe["samples_per_second"] for probe in entry.probes if probe["settings"] == entry.settings]
    speeds = [speed for speed in (*chosen, *entry.speeds()) if speed]
    return bool(speeds) and max(speeds) > STEADY * min(speeds)


def _best_over_batch(entry: Entry) -> dict[str, Any] | None:
    """The quicker of the two batch sizes, both from probes, so that neither had the longer run."""
    at_base = max((probe["samples_per_second"] for probe in entry.probes), default=0.0)
    at_large = entry.large_batch_speed or 0.0
    if not at_base:
        return None
    if at_large > at_base:
        return {"batch": LARGE_BATCH, "samples_per_second": at_large}
    return {"batch": BATCH, "samples_per_second": at_base}


def provenance() -> dict[str, Any]:
    """When, on what machine and with which versions."""
    versions: dict[str, str | None] = {}
    for package in ("hopscope", "torch", "numpy", "numba", "jax", "jaxlib"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_model": cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def median_range(values: Mapping[str, Any] | None, pattern: str) -> str:
    """Median [min–max] of a spread."""
    if values is None:
        return "–"
    low, middle, high = (format(values[key], pattern) for key in ("min", "median", "max"))
    return f"{middle} [{low}–{high}]"


def show(result: Mapping[str, Any], console: Console) -> None:
    """The table of contestants and the table of ratios."""
    table = Table(title=escape(f"Member-samples per second, batch {BATCH}: median [min–max] over rounds"))
    for heading in ("contestant", "settings", "samples/s", "peak MiB", "best over batch", "note"):
        table.add_column(heading, justify="right" if heading in ("samples/s", "peak MiB") else "left")
    for each in result["contestants"]:
        best, peak = each["best_over_batch"], each["peak_memory_mb"]
        table.add_row(
            each["name"],
            _words({**each["settings"], **_engine(each)}) or "–",
            escape(median_range(each["samples_per_second"], ",.0f")),
            "–" if peak is None else f"{peak:.0f}",
            "–" if best is None else f"{best['samples_per_second']:,.0f} at {best['batch']}",
            escape(_note(each)),
        )
    console.print(table)
    against = {name: values for name, values in result["ratios"].items() if values is not None}
    if against:
        table = Table(title=escape(f"{OURS} ÷ other, within a round: median [min–max]"))
        table.add_column("other")
        table.add_column("ratio", justify="right")
        for name, values in against.items():
            table.add_row(name, escape(median_range(values, ".2f")))
        console.print(table)


def _note(contestant: Mapping[str, Any]) -> str:
    if contestant["status"] == "failed":
        return f"failed: {contestant['message']}"
    if contestant["status"] == "not installed":
        return "not installed"
    return "disturbed: run again on an idle machine" if contestant["disturbed"] else ""


def _engine(contestant: Mapping[str, Any]) -> Settings:
    """The engine that ran, where there is a choice: settings may leave it to the contestant."""
    reported = contestant["reported"] or {}
    return {"engine": reported["engine"]} if "engine" in reported else {}


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in settings.items())


def _options(argv: Sequence[str] | None, known: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="timed training of one run")
    parser.add_argument("--probe-seconds", type=float, default=2.0, help="timed training of a tuning probe")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument(
        "--contestants", nargs="+", default=list(known), metavar="NAME", help=", ".join(known)
    )
    options = parser.parse_args(argv)
    check_run_options(options)
    unknown = [name for name in options.contestants if name not in known]
    if unknown:
        refuse(
            f"--contestants: expected names out of {', '.join(known)}, found {unknown[0]}; correct the name"
        )
    return options


def check_run_options(options: argparse.Namespace) -> None:
    """Refuse rounds, seconds and files that cannot be."""
    if options.rounds < 1:
        refuse(f"--rounds: expected at least 1, found {options.rounds}; use for example --rounds 5")
    for name in ("seconds", "probe_seconds"):
        if not 0 < getattr(options, name, 1.0) < float("inf"):
            flag = f"--{name.replace('_', '-')}"
            refuse(f"{flag}: expected a positive number, found {getattr(options, name)}; try {flag} 4")
    if options.out is not None and not options.out.parent.is_dir():
        refuse(f"--out: expected an existing folder, found {options.out.parent}; create it first")


def refuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(2)


def write(path: Path, result: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def main(
    argv: Sequence[str] | None = None,
    contestants: Sequence[Contestant] | None = None,
    console: Console | None = None,
) -> int:
    """Tune, play, print and write; 0, or 1 if a contestant failed (one that is not installed did not)."""
    field_of = {each.name: each for each in contestants or default_contestants()}
    options = _options(argv, list(field_of))
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    entries = []
    for name in dict.fromkeys(options.contestants):
        entry = tune(field_of[name], options.probe_seconds)
        chosen = _words(entry.settings) if entry.status == "ok" else f"{entry.status}: {entry.message}"
        console.print(f"{name}: {chosen}", highlight=False, markup=False)
        entries.append(entry)
    play(
        entries,
        options.rounds,
        options.seconds,
        say=lambda line: console.print(line, highlight=False, markup=False),
    )
    result = record(entries)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
    return 1 if any(entry.status == "failed" for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
