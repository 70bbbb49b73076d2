"""Side by side: every contestant tuned, then rounds in turn, each run a fresh process.

A machine's speed drifts (other work, heat), so the contestants alternate (A B C D A B C D …) and are compared
within a round: the ratio of a round is taken between runs that follow each other.

Of the deep models the rate of operations is told beside the machine's peak, the rate of a matrix product on one core
(`matmul_peak.py`, once a round) times the cores that the contestant uses.  Operations are those of the model as it is
written (`_arithmetic.operations`): a contestant that needs fewer may exceed the peak.
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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from _arithmetic import operations
from _contestants import HERE, MODELS, Contestant, Grid, Model, Settings

START_UP_ALLOWANCE = 180.0  # seconds that imports, compilation and the first call may take
SCHEMA_VERSION = 3
WIDTH_IN_FILES = 180
# Threads that wait for each other by spinning can be slowed a hundredfold by other work on their cores: such
# rounds measure the other work.
STEADY = 1.5
NUMBERS = ("samples_per_second", "peak_memory_mb", "loss")
PEAK = Contestant("matmul_peak", HERE / "matmul_peak.py", {})
PEAK_SECONDS = 1.0


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


def launch(
    contestant: Contestant, settings: Settings, seconds: float, start_up: float = START_UP_ALLOWANCE
) -> Run:
    """Run the script once, in a process of its own, or in several at a time whose speeds and memory add up."""
    if not contestant.script.exists():
        return Run(failure=f"{contestant.name} is not installed: expected the file {contestant.script.name}")
    options = dict(settings)
    count = options.pop("processes", 1)
    if "members" in options:
        options["members"] //= count
    options = {**contestant.given, **options}
    with ThreadPoolExecutor(count) as pool:
        runs = list(pool.map(lambda _: _launch_one(contestant, options, seconds, start_up), range(count)))
    failed = next((run for run in runs if run.result is None), None)
    if failed is not None:
        return failed
    results = [run.result for run in runs if run.result is not None]
    together = {key: sum(each[key] for each in results) for key in ("samples_per_second", "peak_memory_mb")}
    loss = sum(each["loss"] for each in results) / count
    return Run(result={**results[0], **together, "loss": loss})


def _launch_one(
    contestant: Contestant,
    settings: Settings,
    seconds: float,
    start_up: float = START_UP_ALLOWANCE,
    numbers: Sequence[str] = NUMBERS,
) -> Run:
    options = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, str(contestant.script), "--seconds", str(seconds), *options, "--json"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds * 2 + start_up,
            env=environment(),
        )
    except subprocess.TimeoutExpired as expired:
        return Run(failure=f"no result within {expired.timeout:.0f} s")
    if done.returncode:
        return Run(failure=last_line(done.stderr) or f"exit status {done.returncode}")
    try:
        result = json.loads(last_line(done.stdout))
        for name in numbers:
            float(result[name])
    except (ValueError, KeyError, TypeError):
        return Run(failure=f"expected one JSON result line, found {last_line(done.stdout)!r}")
    return Run(result=result)


def environment() -> dict[str, str]:
    """Of a contestant's process: it finds this source tree."""
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def last_line(text: str) -> str:
    """The last line that says something, or nothing."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def combinations(grid: Grid, cores: int | None = None) -> list[Settings]:
    """All settings of a grid but those with more threads than cores, which would stall each other."""
    cores = cores or usable_cores()
    every = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    within = [each for each in every if each.get("processes", 1) * each.get("threads", 1) <= cores]
    return within or every


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tune(contestant: Contestant, model: Model, seconds: float) -> Entry:
    """Probe every combination, keep the quickest; also probe it at the large batch, if there is one."""
    entry = Entry(contestant)
    best = 0.0
    for settings in combinations(contestant.grid):
        run = launch(contestant, {**settings, "batch": model.batch}, seconds)
        if run.missing:
            entry.status, entry.message = "not installed", run.failure
            return entry
        entry.probes.append({"settings": settings, "samples_per_second": run.speed, "failure": run.failure})
        if run.speed > best:
            best, entry.settings = run.speed, settings
    if best == 0.0:
        entry.status, entry.message = "failed", entry.probes[-1]["failure"]
        return entry
    if model.large_batch is not None:
        large = launch(contestant, {**entry.settings, "batch": model.large_batch}, seconds)
        entry.large_batch_speed = large.speed or None
    return entry


def play(
    entries: Sequence[Entry], model: Model, rounds: int, seconds: float, say: Callable[[str], None]
) -> list[float | None]:
    """Interleaved rounds; a contestant that fails once sits out the rest, as empty rounds.

    Returns one core's peak in GFLOP/s at the start of each round, `None` where it is not measured.
    """
    peaks: list[float | None] = []
    for number in range(1, rounds + 1):
        peak = core_peak() if model.shape else Run()
        peaks.append(float(peak.result["gflops_per_second"]) if peak.result else None)
        if peak.failure:
            say(f"round {number} of {rounds}: no peak of a core: {peak.failure}")
        for entry in entries:
            if entry.status != "ok":
                entry.rounds.append(None)
                continue
            run = launch(entry.contestant, {**entry.settings, "batch": model.batch}, seconds)
            entry.rounds.append(run.result)
            if run.result is None:
                entry.status, entry.message = "failed", f"round {number}: {run.failure}"
        latest = {each.contestant.name: each.speeds()[-1] for each in entries}
        words = (f"{name} {speed:,.0f}" for name, speed in latest.items() if speed)
        say(f"round {number} of {rounds}: {', '.join(words)}")
    return peaks


def core_peak() -> Run:
    """Peak of one core, by a process of its own."""
    return _launch_one(PEAK, {}, PEAK_SECONDS, numbers=("gflops_per_second",))


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


def against(
    entries: Sequence[Entry], name: str, ratio: Callable[[Entry, Entry], dict[str, Any] | None]
) -> dict[str, dict[str, Any] | None]:
    """The ratio of ours, which has this name, and each other contestant, by the other's name."""
    ours = next((entry for entry in entries if entry.contestant.name == name), None)
    others = [entry for entry in entries if entry is not ours]
    return {} if ours is None else {other.contestant.name: ratio(ours, other) for other in others}


def record(entries: Sequence[Entry], model: Model, peaks: Sequence[float | None]) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    contestants = [
        {
            "name": entry.contestant.name,
            "status": entry.status,
            "message": entry.message,
            "settings": entry.settings,
            "batch": model.batch,
            "probes": entry.probes,
            "samples_per_second": spread(entry.speeds()),
            "steps_per_second": spread([speed and speed / model.batch for speed in entry.speeds()]),
            **arithmetic(entry, model, peaks),
            "peak_memory_mb": max((each["peak_memory_mb"] for each in entry.rounds if each), default=None),
            "disturbed": disturbed(entry),
            "loss": [each["loss"] if each else None for each in entry.rounds],
            "best_over_batch": _best_over_batch(entry, model),
            "reported": next((each.get("settings") for each in entry.rounds if each), None),
        }
        for entry in entries
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "cpu",
        "model": model.name,
        "ours": model.ours,
        "batch": model.batch,
        "shape": asdict(model.shape) if model.shape else None,
        "operations_per_sample": operations(model.shape) if model.shape else None,
        "core_peak_gflops_per_second": spread(peaks),
        "unit": "member-samples per second of training",
        "provenance": provenance(),
        "contestants": contestants,
        "ratios": against(
            entries, model.ours, lambda ours, other: spread(ratios(ours.speeds(), other.speeds()))
        ),
    }


def arithmetic(entry: Entry, model: Model, peaks: Sequence[float | None]) -> dict[str, Any]:
    """GFLOP/s of the model as it is written, and its share of the peak of the cores that the contestant uses."""
    if model.shape is None:
        return {"gflops_per_second": None, "share_of_peak": None}
    each = operations(model.shape) / 1e9
    rates = [speed and each * speed for speed in entry.speeds()]
    cores = entry.settings.get("processes", 1) * entry.settings.get("threads", 1)
    shares = ratios(rates, [peak and cores * peak for peak in peaks])
    return {"gflops_per_second": spread(rates), "share_of_peak": spread(shares)}


def disturbed(entry: Entry) -> bool:
    """Whether the machine was too busy to tell: the chosen probe and the rounds differ too much."""
    chosen = [probe["samples_per_second"] for probe in entry.probes if probe["settings"] == entry.settings]
    speeds = [speed for speed in (*chosen, *entry.speeds()) if speed]
    return bool(speeds) and max(speeds) > STEADY * min(speeds)


def _best_over_batch(entry: Entry, model: Model) -> dict[str, Any] | None:
    """The quicker of the two batch sizes, both from probes, so that neither had the longer run.

    `None` where none was quick enough, or there is only one.
    """
    if model.large_batch is None:
        return None
    at_base = max((probe["samples_per_second"] for probe in entry.probes), default=0.0)
    at_large = entry.large_batch_speed or 0.0
    if not at_base:
        return None
    if at_large > at_base:
        return {"batch": model.large_batch, "samples_per_second": at_large}
    return {"batch": model.batch, "samples_per_second": at_base}


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
        "cpus_usable": usable_cores(),
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
    counted = result["operations_per_sample"] is not None
    table = Table(
        title=escape(f"Members' samples and steps per second, batch {result['batch']}: median [min–max]")
    )
    rates = ("GFLOP/s", "of peak") if counted else ()
    numeric = ("samples/s", "steps/s", *rates, "peak MiB")
    for heading in ("contestant", "settings", *numeric, "best over batch", "note"):
        table.add_column(
            heading, justify="right" if heading in numeric else "left", no_wrap=heading == "contestant"
        )
    for each in result["contestants"]:
        best, peak = each["best_over_batch"], each["peak_memory_mb"]
        table.add_row(
            each["name"],
            _words({**each["settings"], **_engine(each)}) or "–",
            escape(median_range(each["samples_per_second"], ",.0f")),
            escape(median_range(each["steps_per_second"], _digits(each["steps_per_second"]))),
            *(_rates(each) if counted else ()),
            "–" if peak is None else f"{peak:.0f}",
            "–" if best is None else f"{best['samples_per_second']:,.0f} at {best['batch']}",
            escape(_note(each)),
        )
    console.print(table)
    if counted:
        peak = median_range(result["core_peak_gflops_per_second"], ".1f")
        words = f"Peak of a core: {peak} GFLOP/s; {result['operations_per_sample']:,} operations a sample"
        console.print(words, highlight=False, markup=False)
    _show_ratios(result, console)


def _digits(steps_per_second: Mapping[str, Any] | None) -> str:
    return ",.2f" if steps_per_second and steps_per_second["median"] < 10 else ",.1f"


def _rates(contestant: Mapping[str, Any]) -> tuple[str, str]:
    rate, share = contestant["gflops_per_second"], contestant["share_of_peak"]
    return escape(median_range(rate, ",.1f")), escape(median_range(share, ".0%"))


def _show_ratios(result: Mapping[str, Any], console: Console) -> None:
    against = {name: values for name, values in result["ratios"].items() if values is not None}
    if against:
        table = Table(title=escape(f"{result['ours']} ÷ other, within a round: median [min–max]"))
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


def _options(argv: Sequence[str] | None, given: Sequence[Contestant] | None) -> argparse.Namespace:
    """The options; `contestants` become those that shall play."""
    parser = argparse.ArgumentParser(prog="compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", choices=tuple(MODELS), default="permutation", help="what is trained")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="timed training of one run")
    parser.add_argument("--probe-seconds", type=float, default=2.0, help="timed training of a tuning probe")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument("--contestants", nargs="+", metavar="NAME", help="by default all of the model")
    options = parser.parse_args(argv)
    check_run_options(options)
    known = {each.name: each for each in given or MODELS[options.model].contestants()}
    unknown = [name for name in options.contestants or () if name not in known]
    if unknown:
        refuse(
            f"--contestants: expected names out of {', '.join(known)}, found {unknown[0]}; correct the name"
        )
    options.contestants = [known[name] for name in dict.fromkeys(options.contestants or known)]
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
    options = _options(argv, contestants)
    model = MODELS[options.model]
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    entries = []
    for contestant in options.contestants:
        entry = tune(contestant, model, options.probe_seconds)
        chosen = _words(entry.settings) if entry.status == "ok" else f"{entry.status}: {entry.message}"
        console.print(f"{contestant.name}: {chosen}", highlight=False, markup=False)
        entries.append(entry)
    peaks = play(
        entries,
        model,
        options.rounds,
        options.seconds,
        say=lambda line: console.print(line, highlight=False, markup=False),
    )
    result = record(entries, model, peaks)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
    return 1 if any(entry.status == "failed" for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
