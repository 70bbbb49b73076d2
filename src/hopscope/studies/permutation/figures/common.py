"""What the figures share: which configurations they show, and seeds, means and intervals as rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import PUBLISHED, Configuration

if TYPE_CHECKING:
    # It takes torch along, which the names of the figures do not need.
    from hopscope.studies.permutation.evidence import Evidence

WIDTH = 580
"""Width of a plot that fills a figure, in pixels; axes come on top."""

SKILLS = ("elimination", "recall")
"""In the order of their colours."""

Row = dict[str, Any]
Drawn = tuple[alt.TopLevelMixin, list[Row]]
Shows = Callable[[PermutationStudyConfig], list[Configuration]]


@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn.

    Attributes:
        name: of its files.
        shows: the configurations that it shows, from the study's configuration; a run where there is none has no such
            figure.
        draw: from run, configuration and the evidence of what it shows, in the same order, to chart and data.
    """

    name: str
    shows: Shows
    draw: "Callable[[RunFolder, PermutationStudyConfig, list[Evidence]], Drawn]"


# What is shown.


def base(config: PermutationStudyConfig) -> list[Configuration]:
    """See `PermutationStudyConfig.base`."""
    return config.base()


def main(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that the presentation shows results of; without any of them, the first two others."""
    known = base(config)
    return [each for each in known if each.name in PUBLISHED] or known[:2]


def largest_with_repeats(known: Iterable[Configuration]) -> list[Configuration]:
    """Those that train with repeats, the largest model first."""
    with_repeats = (each for each in known if each.data == "repeats")
    return sorted(with_repeats, key=lambda each: (each.width, each.heads), reverse=True)


def taken_apart(config: PermutationStudyConfig) -> list[Configuration]:
    """The two largest base configurations that train with repeats, if the mechanism of recall is measured at all."""
    return largest_with_repeats(each for each in base(config) if config.is_whole(each))[:2]


def swept(config: PermutationStudyConfig, data: str, *changed: str) -> list[Configuration]:
    """Configurations that differ in nothing but the fields `changed`, of the model that has most of them."""
    by_model: dict[tuple[int, int], list[Configuration]] = {}
    for each in config.grid():
        if each.data == data and set(each.changes) <= set(changed):
            by_model.setdefault((each.width, each.heads), []).append(each)
    return max(by_model.values(), key=len, default=[])


# Rows.

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
