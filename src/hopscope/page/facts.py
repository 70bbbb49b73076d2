"""What figures and sentences are told of the evidence: rows, groups, means over seeds, floors; and words for them."""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from hopscope.claims.claim import Interval
from hopscope.claims.intervals import estimate as bootstrap
from hopscope.claims.verdict import counted
from hopscope.errors import UserError
from hopscope.runs.evidence import COLUMNS, Evidence
from hopscope.runs.folder import listed

CONFIGURATION = "configuration"

PLACE = ("layer", "head", "part")
"""Columns that say of what a number is; where nobody asks for one, the number of the whole is meant."""

_FRACTION = re.compile(r"\b(accuracy|attention|fraction|mass|precision|probability|rate|recall|share)\b")
_MOST_DECIMALS = 6


class Estimate(NamedTuple):
    """A mean over members: the values that there are, and the 95 % bootstrap interval of their mean over seeds.

    Attributes:
        members, seeds: how many were asked for, and how many different seeds these have.
        diverged, never: members without a value because training diverged, and because it never happened.
    """

    values: tuple[float, ...]
    interval: Interval | None
    members: int
    seeds: int
    diverged: int
    never: int

    @property
    def mean(self) -> float:
        """The mean; NaN where there is no value."""
        return math.fsum(self.values) / len(self.values) if self.values else math.nan

    @property
    def over(self) -> str:
        """What it is over, such as `4 seeds` or `3 of 4 seeds, 1 diverged`; or why there is no mean."""
        if not self.values:
            gone = ["training diverged"] * bool(self.diverged) + ["it never happened"] * bool(self.never)
            why = [*gone, "not measured"][0] if self.members else "the run has no such member"
            return f"no value ({why})"
        if not self.members:
            return "the whole run"
        whole = counted(self.seeds, "seed")
        whole = whole if self.seeds == self.members else f"{counted(self.members, 'member')} of {whole}"
        missing = self.members - len(self.values) - self.diverged - self.never
        reasons = {"diverged": self.diverged, "never": self.never, "not measured": missing}
        lost = [f"{number} {word}" for word, number in reasons.items() if number]
        return f"{len(self.values)} of {', '.join([whole, *lost])}" if lost else whole


class Facts:
    """What figures and pages ask of one evidence table."""

    def __init__(self, evidence: Evidence):
        self.evidence = evidence

    @cached_property
    def members(self) -> pd.DataFrame:
        """A row for each member: `seed`, `configuration` and what configurations differ in; index member."""
        rows = self.evidence.rows(split=None).dropna(subset="member").drop_duplicates("member")
        columns = ["seed", CONFIGURATION, *self.evidence.columns]
        return rows.set_index("member")[columns].reindex(self.evidence.members)

    @cached_property
    def diverged(self) -> list[int]:
        """Members whose curves of training all end without a number."""
        last = at_last_step(self.evidence.rows(measure="training", split=None))
        known = last["value"].notna().groupby(last["member"]).any()
        return sorted(int(member) for member in known.index[~known])

    def groups(self, by: str | None, what: str) -> dict[str, list[int]]:
        """Label → members, by the values of a column (`None`: by configuration); `UserError`: there is none such."""
        name, found = self.column(by or CONFIGURATION), dict[str, list[int]]()
        every = [*map(int, self.members.index)]
        if name in self.members:
            values = [None if missing(value) else value for value in self.members[name]]
            for value in different(values):
                own = (at for at, each in zip(every, values, strict=True) if each == value)
                found.setdefault(label_of(name, value), []).extend(own)
        elif (fixed := self.setting(name)) is not None:
            found[label_of(name, fixed[0])] = every
        else:
            known = listed([CONFIGURATION, *self.evidence.columns], 30)
            raise UserError(f"{what}: expected by to be one of the columns {known}, found {by!r}")
        return found

    def column(self, name: str) -> str:
        """A field as the evidence has it: one of the options stands with or without their name before it."""
        bare = name.removeprefix("options.")
        return next((each for each in (name, bare, f"options.{bare}") if each in self.evidence.columns), name)

    def setting(self, name: str) -> tuple[Any] | None:
        """The value of a dotted field in the run's configuration, in a tuple; `None` if there is no such field."""
        config = self.evidence.config.get("identity", self.evidence.config)
        section, _, field = name.rpartition(".")
        parts = [config.get(section)] if section else [config.get("options"), config]
        parts += [part["fields"] for part in parts if isinstance(part, Mapping) and "fields" in part]
        found = [part[field] for part in parts if isinstance(part, Mapping) and field in part]
        return (found[-1],) if found else None

    def rows(self, metric: str, what: str, **where: Any) -> pd.DataFrame:
        """Rows of a metric; of layer, head and part those of the whole, unless `where` names them (`...`: all of them).

        Conditions may be on fields that all members share.  Where several measures give the metric, what was recorded
        in training counts.  `UserError`: there is no such metric or column, or it is unclear which measure is meant.
        """
        evidence, fits, own = self.evidence, True, dict[str, Any]()
        if metric not in evidence:
            metrics = listed(evidence.metrics, 30) or "none"
            raise UserError(f"{what}: expected one of {metrics}, found {metric!r}")
        columns = [*COLUMNS, *evidence.columns]
        for asked, value in {**dict.fromkeys(PLACE), **where}.items():
            name = self.column(asked)
            if name in columns:
                own |= {} if value is ... else {name: value}
            elif (fixed := self.setting(name)) is None:
                raise UserError(f"{what}: expected one of the columns {listed(columns, 30)}, found {name!r}")
            else:
                several = isinstance(value, list | tuple | set | range)
                fits &= fixed[0] in value if several else fixed[0] == value
        frame, left = evidence.rows(metric, **own), [name for name in PLACE if name not in where]
        if frame.empty and left:
            elsewhere = evidence.rows(metric, **{name: own[name] for name in own if name not in left})
            if named := [name for name in left if elsewhere[name].notna().any()]:
                words = f"expected a number of the whole, found it by {listed(named)}; name one, as in"
                raise UserError(f"{what}: {words} {named[0]}={different(elsewhere[named[0]])[0]!r}")
        measures = sorted(set(frame["measure"]))
        if len(measures) > 1 and "training" not in measures:
            words = f"expected one measure that gives it, found {listed(measures)}"
            raise UserError(f"{what}: {words}; name one, as in measure={measures[0]!r}")
        kept = frame["measure"] == ("training" if len(measures) > 1 else frame["measure"])
        return frame[kept & fits]

    def last(self, metric: str, what: str, **where: Any) -> "pd.Series[float]":
        """Each member's value at its last step, index member; of a metric of the whole run, the values of its rows."""
        frame = self.rows(metric, what, **where)
        if len(frame) and frame["member"].isna().all():
            return frame["value"].dropna().set_axis([None] * frame["value"].count())
        columns, named = ("member", "seed", CONFIGURATION, *self.evidence.columns), map(self.column, where)
        asked = {name: value for name, value in zip(named, where.values(), strict=True) if name in columns}
        final = at_last_step(frame.dropna(subset="member"))
        return final.groupby("member")["value"].mean().reindex(self.evidence.where(**asked).members)

    def estimate(self, values: "pd.Series[float]") -> Estimate:
        """The mean of one value for each member (NaN: none; infinite: it never happened), or of the whole run's."""
        if len(values) and values.index.isna().all():
            return Estimate((*map(float, values),), None, 0, 0, 0, 0)
        known = {member: float(value) for member, value in values.items() if math.isfinite(value)}
        seeds = {member: self.evidence.seeds.get(member, member) for member in values.index}
        # A seed that occurs in several configurations is one cluster.
        interval = bootstrap([*known.values()], [seeds[member] for member in known])[1] if known else None
        diverged = sum(member in seeds and member not in known for member in self.diverged)
        never = sum(math.isinf(value) for value in values)
        return Estimate((*known.values(),), interval, len(values), len({*seeds.values()}), diverged, never)

    def floors(self, metric: str, configurations: Iterable[str] | None = None) -> dict[str, float]:
        """Floors of a metric by name, as far as these configurations (by default all) share them."""
        every, found = self.evidence.config.get("floors", {}), list[dict[str, float]]()
        for label in set(self.evidence.configurations.values() if configurations is None else configurations):
            floors = every.get(label, {})
            own = floors.get(metric)
            own = own if isinstance(own, Mapping) else floors if metric == "loss" else {}
            found.append({name: value for name, value in own.items() if not isinstance(value, Mapping)})
        first = found[0] if found else {}
        return {name: first[name] for name in first if all(each.get(name) == first[name] for each in found)}


def at_last_step(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of each member's last step."""
    return frame[frame["step"] == frame.groupby("member")["step"].transform("max")]


def different(values: Iterable[Any]) -> list[Any]:
    """Different values of a column: numbers, also as text, ascend; words stay as they come; what is missing is last."""
    known: Iterable[Any] = (None if missing(each) else each for each in values)
    plain = dict.fromkeys(each.item() if hasattr(each, "item") else each for each in known)
    numbers = sorted(each for each in plain if isinstance(each, int | float))
    words = [each for each in plain if each is not None and not isinstance(each, int | float)]
    if all(str(each).isdecimal() for each in words):
        words.sort(key=int)
    return [*numbers, *words, *([None] if None in plain else [])]


def missing(value: Any) -> bool:
    """Whether a cell of a table holds nothing."""
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


# Words.


def symbol(name: str | int) -> str:
    """`x_2`, `step_2` or the number 2 as x₂; other names stay as they are."""
    named = f"x_{name}" if isinstance(name, int) else str(name)
    found = re.fullmatch(r"(?:x_?|(?:loss_)?step_|loss_)(\d+)", named)
    return "x" + found[1].translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")) if found else named


def written(value: Any) -> str:
    """A value of the configuration as tables and labels show it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(written, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def label_of(name: str, value: Any) -> str:
    """A value of a column as a label: `layers 2` of `model.layers`, `seed 3`, x₂ of `loss_2`, others by themselves."""
    if name in ("metric", "part"):
        return "whole" if missing(value) else symbol(value).replace("_", " ")
    if name in (CONFIGURATION, "split", "run"):
        return str(value)
    short = name.rpartition(".")[2]
    return f"no {short}" if missing(value) else f"{short} {written(value)}"


def metric_words(metric: str, split: str = "held-out", part: str | None = None) -> str:
    """A metric in words, such as `held-out loss` or `training accuracy, repeats`."""
    side = "training" if split == "train" else "held-out"
    return f"{side} {metric}{f', {part}' if part else ''}".replace("_", " ")


def unit_of(metric: str, values: Iterable[float]) -> str:
    """`fraction` (in percent) if the name of a metric says so and its values allow it, else `number`."""
    named = _FRACTION.search(metric.lower().replace("_", " "))
    return "fraction" if named and all(0.0 <= value <= 1.0 for value in values) else "number"


def format_number(value: float, unit: str = "number", decimals: int | None = None) -> str:
    """Write a number: `0.9575`, `12,000`, a fraction as `99.9 %`, any other unit as `300 steps`; `–` for NaN.

    A fraction that is not exactly 0 or 1 never reads 0 % or 100 %.  An infinite number never came.
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "never"
    number, whole = float(100 * value if unit == "fraction" else value), {0.0, 1.0, -1.0, 100.0, -100.0}
    if decimals is None and not number.is_integer():
        decimals = 1 if unit == "fraction" else None
    if decimals is None:
        text = f"{number:,.0f}" if number.is_integer() or abs(number) >= 1000 else f"{number:.4g}"
    else:
        while decimals < _MOST_DECIMALS and float(f"{number:.{decimals}f}") in whole and number not in whole:
            decimals += 1
        text = f"{number:,.{0 if number.is_integer() and unit == 'fraction' else decimals}f}"
    suffix = {"fraction": " %", "number": ""}.get(unit, f" {unit}")
    return text.replace("-", "−") + suffix


def format_estimate(value: float, interval: Interval | None, unit: str = "number") -> tuple[str, ...]:
    """A value, and the ends of its interval if it has one: with the digits that the interval leaves sure."""
    if interval is None or math.isnan(value):
        return (format_number(value, unit),)
    scale, least = (100, 1) if unit == "fraction" else (1, 2)
    half = (interval[1] - interval[0]) / 2 * scale
    places = None if half <= 0 else min(max(-math.floor(math.log10(half)), least), _MOST_DECIMALS)
    places = 0 if abs(value) >= 10_000 else places
    ends = (format_number(end, unit, places).removesuffix(" %").removesuffix(f" {unit}") for end in interval)
    return format_number(value, unit, places), *ends
