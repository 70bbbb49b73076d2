"""What our training costs as the work grows: members, the task's size, layers and width, one table each.

Every point of a table is a fresh process with one thread.  A machine's speed drifts, so the points take turns, in
rounds; every other round goes backwards, so that a steady drift tilts no curve.  The points that two tables share
are measured once.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from _contestants import HERE, Contestant, Settings
from _plot import write_growth_plot
from compare import (
    STEADY,
    WIDTH_IN_FILES,
    check_run_options,
    launch,
    median_range,
    provenance,
    refuse,
    spread,
    write,
)

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Axis:
    """What grows.

    Attributes:
        name: the setting.
        values: what it is set to.
        also: other settings that differ from the base.
    """

    name: str
    values: tuple[int, ...]
    also: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """What is trained, and how it grows.

    Attributes:
        script: the contestant's.
        batch: samples of a step.
        base: the point that the axes meet in; the engine `auto` is the one that a study would choose.
        axes: what grows.
    """

    script: Path
    batch: int
    base: Settings
    axes: tuple[Axis, ...]

    def settings(self, axis: Axis) -> list[Settings]:
        """Of each point of an axis."""
        return [{**self.base, **axis.also, axis.name: value} for value in axis.values]


MODELS = {
    "permutation": Growth(
        script=HERE / "hopscope_ensemble.py",
        batch=256,
        base={"members": 8, "values": 5, "layers": 1, "width": 32, "heads": 2, "engine": "auto"},
        axes=(
            Axis("members", (1, 2, 4, 8, 16, 32, 64)),
            Axis("values", (3, 4, 5, 6, 7, 8)),
            # The fused way is for one layer: one engine along the axis, or its first step would be the engine's.
            Axis("layers", (1, 2, 3, 4, 6), {"engine": "general"}),
            Axis("width", (8, 16, 32, 64)),
        ),
    ),
    "depth": Growth(
        script=HERE / "hopscope_depth.py",
        batch=64,
        base={"members": 4, "steps": 3, "layers": 6, "width": 64, "heads": 4, "engine": "auto"},
        axes=(
            Axis("members", (1, 2, 4, 8, 16)),
            Axis("layers", (1, 2, 3, 4, 6, 8, 12)),
            Axis("steps", (1, 2, 3, 4, 6, 8)),
        ),
    ),
}


@dataclass
class Point:
    """One setting of everything, and the result of each round (`None` where there is none)."""

    settings: Settings
    rounds: list[dict[str, Any] | None] = field(default_factory=list)
    failure: str = ""

    def speeds(self) -> list[float | None]:
        return [each["samples_per_second"] if each else None for each in self.rounds]


def points_of(growth: Growth) -> list[Point]:
    """The points of all axes, each once."""
    points: list[Point] = []
    for settings in (each for axis in growth.axes for each in growth.settings(axis)):
        if all(point.settings != settings for point in points):
            points.append(Point(settings))
    return points


def play(
    points: Sequence[Point], growth: Growth, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    """Interleaved rounds; a point that fails once sits out the rest, as empty rounds."""
    for number, point in _turns(points, rounds):
        if point.failure:
            point.rounds.append(None)
            continue
        settings = {**point.settings, "threads": 1, "batch": growth.batch}
        run = launch(Contestant(growth.script.stem, growth.script, {}), settings, seconds)
        point.rounds.append(run.result)
        point.failure = f"round {number}: {run.failure}" if run.result is None else ""
        what = ", ".join(f"{name} {value}" for name, value in point.settings.items())
        say(f"round {number} of {rounds}: {what}: {point.failure or format(run.speed, ',.0f')}")


def _turns(points: Sequence[Point], rounds: int) -> Iterator[tuple[int, Point]]:
    for number in range(1, rounds + 1):
        for point in points if number % 2 else reversed(points):
            yield number, point


def record(model: str, growth: Growth, points: Sequence[Point]) -> dict[str, Any]:
    """Everything measured and where, as JSON values; one row for each point of each axis."""
    rows = [
        _row(axis, settings[axis.name], next(point for point in points if point.settings == settings))
        for axis in growth.axes
        for settings in growth.settings(axis)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": "growth",
        "model": model,
        "unit": "member-samples per second of training, one process of one thread",
        "batch": growth.batch,
        "provenance": provenance(),
        "rows": rows,
    }


def _row(axis: Axis, value: int, point: Point) -> dict[str, Any]:
    reported = next((each["settings"] for each in point.rounds if each), {})
    speeds = point.speeds()
    present = [speed for speed in speeds if speed]
    return {
        "axis": axis.name,
        "value": value,
        "settings": {name: each for name, each in point.settings.items() if name != "engine"},
        "engine": reported.get("engine"),
        "status": "failed" if point.failure else "ok",
        "message": point.failure,
        "samples_per_second": spread(speeds),
        "microseconds_per_sample": spread([1e6 / speed if speed else None for speed in speeds]),
        "peak_memory_mb": max((each["peak_memory_mb"] for each in point.rounds if each), default=None),
        "disturbed": bool(present) and max(present) > STEADY * min(present),
        "loss": [each["loss"] if each else None for each in point.rounds],
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """One table for each axis."""
    for axis in dict.fromkeys(row["axis"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["axis"] == axis]
        others = ", ".join(f"{name} {value}" for name, value in rows[0]["settings"].items() if name != axis)
        table = Table(
            title=escape(f"Cost by {axis} ({others}, batch {result['batch']}): median [min–max] over rounds")
        )
        for heading in (axis, "engine", "samples/s", "µs per sample", "peak MiB", "note"):
            table.add_column(heading, justify="left" if heading in ("engine", "note") else "right")
        for row in rows:
            peak = row["peak_memory_mb"]
            table.add_row(
                str(row["value"]),
                row["engine"] or "–",
                escape(median_range(row["samples_per_second"], ",.0f")),
                escape(median_range(row["microseconds_per_sample"], ",.2f")),
                "–" if peak is None else f"{peak:.0f}",
                escape(row["message"] or ("disturbed" if row["disturbed"] else "")),
            )
        console.print(table)


def _options(argv: Sequence[str] | None, models: Mapping[str, Growth]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="growth", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", choices=tuple(models), default="permutation", help="what is trained")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="timed training of one run")
    parser.add_argument(
        "--out", type=Path, help="write everything measured as JSON, and beside it as a picture"
    )
    parser.add_argument("--axes", nargs="+", metavar="NAME", help="by default all of the model")
    options = parser.parse_args(argv)
    check_run_options(options)
    known = [axis.name for axis in models[options.model].axes]
    unknown = [name for name in options.axes or () if name not in known]
    if unknown:
        refuse(f"--axes: expected names out of {', '.join(known)}, found {unknown[0]}; correct the name")
    options.axes = options.axes or known
    return options


def main(
    argv: Sequence[str] | None = None,
    models: Mapping[str, Growth] = MODELS,
    console: Console | None = None,
) -> int:
    """Measure, print and write; 0, or 1 if a point failed."""
    options = _options(argv, models)
    console = console or Console(width=None if sys.stdout.isatty() else WIDTH_IN_FILES)
    growth = models[options.model]
    growth = replace(growth, axes=tuple(axis for axis in growth.axes if axis.name in options.axes))
    points = points_of(growth)
    play(
        points,
        growth,
        options.rounds,
        options.seconds,
        say=lambda line: console.print(line, highlight=False, markup=False),
    )
    result = record(options.model, growth, points)
    show(result, console)
    if options.out is not None:
        write(options.out, result)
        if any(row["samples_per_second"] for row in result["rows"]):
            write_growth_plot(options.out.with_suffix(".svg"), result)
    return 1 if any(point.failure for point in points) else 0


if __name__ == "__main__":
    sys.exit(main())
