"""Cost to a result: the wall time until a number of seeds have learned, ours beside the others.

The clock starts when a contestant's first process is started, so imports and compilation count, and stops when the last
of its seeds has learned.  Everybody looks at equally many held-out samples equally often, by the same bar, and that
counts too.  Every contestant has two processes of one thread, which train one seed after the other; ours is as quick
with one as with many.  JAX would compile again for every seed: it trains half of the seeds in each process together,
and a seed that has learned goes on until the others have.  A seed that has not learned within the limit of steps, about
twice the study's length, is reported so, and the contestant's time is then a lower bound ("censored").  The seconds of
a seed are read off the same clock.  Settings that are worth trying are probed before, off the clock.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from _contestants import HERE, Contestant, Grid, Model, Settings
from _depth import Shape
from _held_out import REPEATS, SAMPLES, Bar
from _learners import Training
from compare import (
    STEADY,
    WIDTH_IN_FILES,
    Entry,
    Run,
    against,
    check_run_options,
    combinations,
    environment,
    last_line,
    median_range,
    provenance,
    ratios,
    refuse,
    spread,
    tune,
    write,
)
from until_learned import Orders

SCHEMA_VERSION = 1
PROCESSES = 2
EVERY = 250  # steps between looks at the held-out samples
PROBE_SECONDS = 2.0
CHOICES = ("rows", "attention")  # settings that a single model is trained with

Group = tuple[int, int]
"""Seeds that are trained together: the first, and how many."""


class Failed(Exception):
    """A process that ended early; the message says why."""


@dataclass(frozen=True)
class Problem:
    """What is to be learned.

    Attributes:
        model: who trains what; settings that are tried are probed with it.
        ensembles: contestants that train their seeds together.
        seeds: how many have to learn.
        bar: when a seed has learned.
        limit: steps after which it has not.
        every: steps between looks at the held-out samples.
        worker: the script that trains.
    """

    model: Model
    ensembles: tuple[str, ...]
    seeds: int
    bar: Bar
    limit: int
    every: int = EVERY
    worker: Path = HERE / "until_learned.py"

    def groups(self, contestant: str, seeds: int) -> list[Group]:
        """How a contestant takes its seeds."""
        parts = min(PROCESSES, seeds) if contestant in self.ensembles else seeds
        firsts = [seeds * part // parts for part in range(parts + 1)]
        return [(first, stop - first) for first, stop in itertools.pairwise(firsts)]

    def orders(self, contestant: str, settings: Settings) -> Orders:
        """What its processes are told."""
        chosen = {name: settings[name] for name in CHOICES if name in settings}
        training = Training(self.model.batch, self.model.shape or Shape(), **chosen)
        return Orders(contestant, training, self.bar, self.every, self.limit)


def _model(name: str, ours: str, grids: Mapping[str, Grid], batch: int, shape: Shape | None = None) -> Model:
    whole = {each: {"processes": (PROCESSES,), "threads": (1,), **grid} for each, grid in grids.items()}
    return Model(name, ours, whole, batch, large_batch=None, shape=shape)


PROBLEMS = {
    "permutation": Problem(
        model=_model(
            "permutation",
            ours="hopscope_ensemble",
            grids={
                "hopscope_ensemble": {},
                "page_loop": {"workers": (0,)},
                "plain_pytorch": {"rows": ("all", "loss")},
                "jax_vmap": {},
            },
            batch=256,
        ),
        ensembles=("jax_vmap",),
        seeds=10,
        bar=Bar(0.99),
        limit=39_250,  # the study has 19,532 steps
    ),
    # A chain of two steps from GPT-2's start, as the study of circuits once had it as a preset.
    "depth": Problem(
        model=_model(
            "depth",
            ours="hopscope_depth",
            grids={
                "hopscope_depth": {},
                "plain_pytorch_depth": {"rows": ("all", "loss"), "attention": ("sdpa", "softmax")},
                "jax_depth": {},
            },
            batch=64,
            shape=Shape(steps=2, layers=8, width=64, heads=1),
        ),
        ensembles=("jax_depth",),
        seeds=6,
        bar=Bar(0.25, losses=True),
        limit=6_000,  # the study has 3,000 steps
    ),
}


class Process:
    """A process that trains the groups of seeds it is given."""

    def __init__(self, stack: ExitStack, worker: Path, orders: Orders, complaints: IO[str]) -> None:
        """Start it; it is gone when the stack is left."""
        self._complaints = complaints
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(worker), orders.written()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=environment(),
            )
        )
        stack.callback(self.end)

    def end(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()

    def train(self, group: Group, told: Callable[[dict[str, Any]], None]) -> None:
        """Have a group trained; `told` hears every message at once.

        Raises:
            Failed: the process ended before it was done.
        """
        first, count = group
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), f"{first} {count}\n".encode())
        except BrokenPipeError:
            raise Failed(self._reason()) from None
        open_seeds = set(range(first, first + count))
        while open_seeds:
            message = self._message()
            told(message)
            open_seeds.discard(message.get("seed"))

    def _message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(self._reason())
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            raise Failed(f"expected a JSON line, found {line.strip()!r}") from None

    def _reason(self) -> str:
        status = self._process.wait()
        self._complaints.seek(0)
        return last_line(self._complaints.read()) or f"exit status {status}"


@dataclass
class Race:
    """One contestant's run: its clock, the groups that wait, and what was said when."""

    groups: deque[Group]
    started: float = field(default_factory=time.perf_counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: Settings = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def hear(self, message: dict[str, Any]) -> None:
        """Note a message and, of a seed, the seconds."""
        if "seed" in message:
            self.rows.append({**message, "seconds": time.perf_counter() - self.started})
        self.facts.update(message.get("facts", {}))

    def serve(self, process: Process, processes: Sequence[Process]) -> None:
        """Hand a process one group after another; if it fails, end all."""
        try:
            while not self.failures and (group := self._next()):
                process.train(group, self.hear)
        except Failed as failed:
            self.failures.append(str(failed))
            for each in processes:
                each.end()

    def _next(self) -> Group | None:
        with suppress(IndexError):
            return self.groups.popleft()
        return None


def run_once(problem: Problem, entry: Entry, seeds: int) -> Run:
    """All seeds of one contestant, once."""
    groups = problem.groups(entry.contestant.name, seeds)
    orders = problem.orders(entry.contestant.name, entry.settings)
    race = Race(deque(groups))
    count = min(PROCESSES, len(groups))
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints, ExitStack() as stack:
        processes = [Process(stack, problem.worker, orders, complaints) for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda process: race.serve(process, processes), processes))
    if race.failures:
        return Run(failure=race.failures[0])
    rows = sorted(race.rows, key=lambda row: row["seed"])
    return Run(
        result={
            "wall_seconds": max(row["seconds"] for row in rows),
            "censored": not all(row["learned"] for row in rows),
            "facts": race.facts,
            "seeds": rows,
        }
    )


def prepared(contestant: Contestant, problem: Problem, say: Callable[[str], None]) -> Entry:
    """The contestant with its settings, probed where there is a choice."""
    choices = combinations(contestant.grid)
    if len(choices) == 1:
        return Entry(contestant, settings=choices[0])
    entry = tune(contestant, problem.model, PROBE_SECONDS)
    chosen = ", ".join(f"{name} {value}" for name, value in entry.settings.items())
    say(f"{contestant.name}: {chosen if entry.status == 'ok' else f'{entry.status}: {entry.message}'}")
    return entry


def play(
    entries: Sequence[Entry], problem: Problem, seeds: int, rounds: int, say: Callable[[str], None]
) -> None:
    """Rounds, in which contestants take turns; one that fails once sits out the rest, as empty rounds."""
    for number in range(1, rounds + 1):
        for entry in entries:
            run = run_once(problem, entry, seeds) if entry.status == "ok" else Run()
            entry.rounds.append(run.result)
            if run.failure:
                entry.status = "not installed" if run.missing else "failed"
                entry.message = run.failure if run.missing else f"round {number}: {run.failure}"
            if entry.status == "ok" or run.failure:
                found = _told(run.result) if run.result else f"{entry.status}: {entry.message}"
                say(f"round {number} of {rounds}: {entry.contestant.name}: {found}")


def _told(result: Mapping[str, Any]) -> str:
    rows, over = result["seeds"], "over " if result["censored"] else ""
    learned = sum(row["learned"] for row in rows)
    return f"{over}{result['wall_seconds']:.1f} s, {learned} of {len(rows)} seeds learned"


def walls(entry: Entry) -> list[float | None]:
    """Seconds by round."""
    return [each["wall_seconds"] if each else None for each in entry.rounds]


def bounds(ours: Entry, other: Entry) -> list[str | None]:
    """What a round's ratio of the other's time to ours is: exact, at least or at most the number, or unknown."""
    words = {
        (False, False): "exact",
        (False, True): "at least",
        (True, False): "at most",
        (True, True): "unknown",
    }
    pairs = zip(ours.rounds, other.rounds, strict=True)
    return [words[a["censored"], b["censored"]] if a and b else None for a, b in pairs]


def record(entries: Sequence[Entry], problem: Problem, seeds: int) -> dict[str, Any]:
    """Everything measured and where, as JSON values."""
    model = problem.model
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "solved",
        "model": model.name,
        "ours": model.ours,
        "seeds": seeds,
        "bar": {**asdict(problem.bar), "words": problem.bar.words},
        "limit_steps": problem.limit,
        "evaluate_every": problem.every,
        "held_out_samples": SAMPLES if problem.bar.losses else REPEATS,
        "batch": model.batch,
        "shape": asdict(model.shape) if model.shape else None,
        "unit": "seconds from the start of the first process until the last seed has learned",
        "provenance": provenance(),
        "contestants": [_recorded(entry, problem, seeds) for entry in entries],
        "ratios": against(entries, model.ours, _ratio),
    }


def _ratio(ours: Entry, other: Entry) -> dict[str, Any] | None:
    found = spread(ratios(walls(other), walls(ours)))
    return found and {**found, "bounds": bounds(ours, other)}


def _recorded(entry: Entry, problem: Problem, seeds: int) -> dict[str, Any]:
    groups = problem.groups(entry.contestant.name, seeds)
    facts: Settings = next((each["facts"] for each in entry.rounds if each), {})
    rows = [row for each in entry.rounds if each for row in each["seeds"]]
    seconds = [found for found in walls(entry) if found is not None]
    return {
        "name": entry.contestant.name,
        "status": entry.status,
        "message": entry.message,
        "settings": {
            **entry.settings,
            "processes": min(PROCESSES, len(groups)),
            "members": max(count for _, count in groups),
            **facts,
        },
        "probes": entry.probes,
        "wall_seconds": spread(walls(entry)),
        "censored": [each["censored"] if each else None for each in entry.rounds],
        "learned": sum(row["learned"] for row in rows),
        "tried": len(rows),
        "steps": spread([row["steps"] for row in rows if row["learned"]]),
        "disturbed": bool(seconds) and max(seconds) > STEADY * min(seconds),
        "rounds": [
            each and {key: each[key] for key in ("wall_seconds", "censored", "seeds")}
            for each in entry.rounds
        ],
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """The table of contestants and the table of ratios."""
    title = f"Until {result['seeds']} seeds have learned ({result['bar']['words']}): median [min–max]"
    table = Table(title=escape(title))
    numeric = ("seconds", "steps of a seed", "learned")
    for heading in ("contestant", "settings", *numeric, "note"):
        table.add_column(
            heading, justify="right" if heading in numeric else "left", no_wrap=heading == "contestant"
        )
    for each in result["contestants"]:
        over = "> " if any(each["censored"]) else ""
        table.add_row(
            each["name"],
            " ".join(f"{key} {value}" for key, value in each["settings"].items()),
            escape(over + median_range(each["wall_seconds"], ",.1f")),
            escape(median_range(each["steps"], ",.0f")),
            f"{each['learned']} of {each['tried']}",
            escape(_note(each, result["limit_steps"])),
        )
    console.print(table)
    _show_ratios(result, console)


def _note(contestant: Mapping[str, Any], limit: int) -> str:
    if contestant["status"] != "ok":
        return f"{contestant['status']}: {contestant['message']}"
    missed = contestant["tried"] - contestant["learned"]
    if missed:
        return f"censored: {missed} not learned within {limit:,} steps"
    return "disturbed: run again on an idle machine" if contestant["disturbed"] else ""


def _show_ratios(result: Mapping[str, Any], console: Console) -> None:
    against = {name: values for name, values in result["ratios"].items() if values is not None}
    if not against:
        return
    table = Table(title=escape(f"Time of other ÷ {result['ours']}, within a round: median [min–max]"))
    table.add_column("other")
    table.add_column("ratio", justify="right")
    table.add_column("which is")
    for name, values in against.items():
        which = dict.fromkeys(each for each in values["bounds"] if each)
        table.add_row(name, escape(median_range(values, ".2f")), ", ".join(which))
    console.print(table)


def _options(argv: Sequence[str] | None, problems: Mapping[str, Problem]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="solved", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", choices=tuple(problems), default="permutation", help="what is learned")
    parser.add_argument("--seeds", type=int, help="that have to learn (default: 10, of the deep model 6)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument("--contestants", nargs="+", metavar="NAME", help="by default all of the model")
    options = parser.parse_args(argv)
    check_run_options(options)
    problem = problems[options.model]
    if options.seeds is None:
        options.seeds = problem.seeds
    if options.seeds < 1:
        refuse(f"--seeds: expected at least 1, found {options.seeds}; use for example --seeds 2")
    known = {each.name: each for each in problem.model.contestants()}
    unknown = [name for name in options.contestants or () if name not in known]
    if unknown:
        refuse(
            f"--contestants: expected names out of {', '.join(known)}, found {unknown[0]}; correct the name"
        )
    options.contestants = [known[name] for name in dict.fromkeys(options.contestants or known)]
    return options


def main(
    argv: Sequence[str] | None = None,
    problems: Mapping[str, Problem] = PROBLEMS,
    console: Console | None = None,
) -> int:
    """Probe, play, print and write; 0, or 1 if a contestant failed (one that is not installed did not)."""
    options = _options(argv, problems)
    problem = problems[options.model]
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    entries = [prepared(contestant, problem, say) for contestant in options.contestants]
    play(entries, problem, options.seeds, options.rounds, say)
    result = record(entries, problem, options.seeds)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
    return 1 if any(entry.status == "failed" for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
