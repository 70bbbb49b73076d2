"""Timing in turn, ratios with intervals, and the record of what was measured."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.stats import binom

from hopscope.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

PACKAGES = ("hopscope", "torch", "numpy", "numba", "jax")
BUSY = 0.9
"""Share of a core below which a process of one thread waited for others."""

Comparison = dict[str, Any]
Spread = dict[str, Any]


class Asked(NamedTuple):
    """What a suite is asked for.

    Attributes:
        model: name of a shape (`_shapes.SHAPES`); `None`: the suite's own.
        rounds: in each, every contestant has its turn; where seeds are trained until they have learned, their number.
        seconds: that a turn takes at least.
    """

    model: str | None
    rounds: int
    seconds: float = 2.0


class Turns(NamedTuple):
    """Seconds of one call in every round, by the clock and of all cores."""

    seconds: list[float]
    cpu: list[float]

    @property
    def share(self) -> float:
        """Share of a core that it had; more than 1 with several threads."""
        return sum(self.cpu) / sum(self.seconds)


def in_turn(works: Mapping[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, Turns]:
    """Time pieces of work in turn, so that a machine whose speed drifts does so for all of them alike.

    Args:
        works: name → work, which ends when it is done (on a GPU too); called once before anything is timed.
        rounds: every other one goes backwards.
        seconds: a turn is repeated until it has taken so long.
    """
    for work in works.values():
        work()
    found = {name: Turns([], []) for name in works}
    for number in range(rounds):
        for name in list(works)[:: -1 if number % 2 else 1]:
            calls, began, cpu = 0, time.perf_counter(), time.process_time()
            while not calls or time.perf_counter() - began < seconds:
                works[name]()
                calls += 1
            found[name].seconds.append((time.perf_counter() - began) / calls)
            found[name].cpu.append((time.process_time() - cpu) / calls)
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median with an interval of at least 95 % by order statistics; of fewer than six values lowest and highest."""
    ordered, count = sorted(values), len(values)
    first = max(1, int(binom.ppf(0.025, count, 0.5)))
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return {
        "median": middle,
        "low": ordered[first - 1],
        "high": ordered[count - first],
        "rounds": list(values),
    }


def compared(
    what: Mapping[str, Any], turns: Mapping[str, Turns], work: Mapping[str, float], unit: str, **more: Any
) -> Comparison:
    """A comparison: rates with their spread, and the first contestant's over each other's, taken within rounds.

    Args:
        what: is compared, for the record.
        turns: as `in_turn` gives them.
        work: units that a call does, by contestant.
        unit: of the work.
        more: name of a further column → value by contestant.
    """
    rates = {name: [work[name] / each for each in turn.seconds] for name, turn in turns.items()}
    ours, *_ = rates
    rows = []
    for name, rate in rates.items():
        ratio = [mine / other for mine, other in zip(rates[ours], rate, strict=True)]
        further = {column: values.get(name) for column, values in more.items()}
        both = {"rate": spread(rate), "ours_over_this": None if name == ours else spread(ratio)}
        rows.append({"name": name, **both, "share_of_core": turns[name].share, **further})
    return {**what, "unit": unit, "contestants": rows}


def shown(value: Spread | None, digits: str = ".3g") -> str:
    """A spread in words."""
    if value is None:
        return ""
    low, middle, high = (_number(value[end], digits) for end in ("low", "median", "high"))
    return f"{middle} [{low}, {high}]"


def _number(value: float, digits: str) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:{digits}}"


def run(suite: str, measure: Callable[[Asked], Iterable[Comparison]], asked: Asked, out: Path | None) -> None:
    """Measure and say it; the file is written after each comparison, so that what ends early loses nothing.

    Raises:
        UserError: the file cannot be written, or the suite refuses what it is asked for.
    """
    from rich.console import Console

    from hopscope.training.train import arithmetic

    console = Console(width=None if os.isatty(1) else 120, highlight=False)
    record: dict[str, Any] = {"suite": suite, "asked": asked._asdict(), **surroundings(), "comparisons": []}
    with arithmetic(threads=1):
        for comparison in measure(asked):
            record["comparisons"].append(comparison)
            if out is not None:
                write(out, record)
            console.print(_table(comparison))
            if busy := [
                row["name"] for row in comparison["contestants"] if row.get("share_of_core", 1.0) < BUSY
            ]:
                console.print(
                    f"Other programs held up {len(busy)} of the contestants: do not use these times."
                )
    if out is not None:
        console.print(str(out), soft_wrap=True)


_SHOWN = {"name", "rate", "ours_over_this", "share_of_core"}


def _table(comparison: Comparison) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    rows = comparison["contestants"]
    ratios = any(row["ours_over_this"] for row in rows)
    extra = [key for key in rows[0] if key not in _SHOWN]
    table = Table(title=escape(f"{comparison['title']}: {comparison['unit']}"), title_justify="left")
    for column in ("", "median [interval]", *["ours ÷ this"] * ratios, *extra):
        table.add_column(escape(column.replace("_", " ")))
    for row in rows:
        cells = [row["name"], shown(row["rate"]), *[shown(row["ours_over_this"], ".2f")] * ratios]
        table.add_row(*map(escape, cells), *(_cell(row[key]) for key in extra))
    return table


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else str(value)


def write(out: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON."""
    try:
        out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out}: expected a file that can be written, found: {error.strerror}") from None


def surroundings() -> dict[str, Any]:
    """Date, machine and versions."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    processor = torch.cpu.get_capabilities().get("cpu_name") or _processor()
    device = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    machine = {"processor": processor, "cores": os.cpu_count(), "load": os.getloadavg()[0], **device}
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine, "versions": versions}


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
