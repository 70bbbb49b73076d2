"""Rows of a figure's data: seeds, means and intervals, and curves thinned to what can be seen."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.runs.curves import Curve

WIDTH = 580
"""Width of a plot that fills a figure, in pixels; axes come on top."""

MOST_POINTS = 5000
"""Points of all curves of a figure together; with more evaluations, curves are thinned evenly."""

Row = dict[str, Any]
SUMMARY = {"kind": "string", "seed": "number", "value": "number", "low": "number", "high": "number"}
"""Columns of `summary_rows` beside those that say what is measured."""


def short(value: float) -> float:
    """A number as it is written in the data of a figure: five digits."""
    return float(f"{value:.5g}")


def summary_rows(seeds: Sequence[int], values: Iterable[float | None], /, **columns: Any) -> list[Row]:
    """A row for each seed that has a value, then one for their mean with its 95 % bootstrap interval over seeds.

    Args:
        seeds, values: of each member; what has no value has no row.
        columns: what is measured.

    Returns:
        Rows of `kind` "seed" and "mean"; `low` and `high` are the interval's ends, None below two values.
    """
    known = [(seed, value) for seed, value in zip(seeds, values, strict=True) if value is not None]
    rows = [{**columns, "kind": "seed", "seed": seed, "value": short(value)} for seed, value in known]
    if known:
        measured = [value for _, value in known]
        low, high = bootstrap_mean(measured) or (None, None)
        ends = {name: None if end is None else short(end) for name, end in (("low", low), ("high", high))}
        rows.append({**columns, "kind": "mean", "value": short(mean(measured)), **ends})
    return rows


def thinned(curve: Curve, every: int) -> Curve:
    """Every `every`-th point of a curve, counted from its last one."""
    samples, values = curve
    first = (len(samples) - 1) % every if samples else 0
    return samples[first::every], values[first::every]


def averaged(curve: Curve, every: int) -> Curve:
    """Join every `every` points of a curve whose values are means since the previous point, counted from its end.

    A point remains the mean over all that was trained since the point before it; one before all training stays out.
    """
    trained = [(at, value) for at, value in zip(*curve, strict=True) if at > 0]
    samples, values = [at for at, _ in trained], [value for _, value in trained]
    widths = [end - start for start, end in itertools.pairwise([0.0, *samples])]
    ends = range(len(samples) - 1, -1, -every)
    groups = [range(max(0, end - every + 1), end + 1) for end in reversed(ends)]
    means = [
        math.fsum(widths[place] * values[place] for place in group)
        / math.fsum(widths[place] for place in group)
        for group in groups
    ]
    return [samples[group[-1]] for group in groups], means


def thinning(curves: Sequence[Curve]) -> int:
    """Every how many points of the curves of one figure to show."""
    return max(1, math.ceil(sum(len(samples) for samples, _ in curves) / MOST_POINTS))
