"""Numbers for page templates: means, ranges, counts and medians over members, and single values."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hopscope.claims.intervals import Interval, bootstrap_mean, mean
from hopscope.claims.numbers import format_number
from hopscope.errors import UserError
from hopscope.figures.selection import (
    CONFIGURATION,
    Estimate,
    at_last_step,
    check_metric,
    configured,
    diverged,
    estimated,
    interval_words,
    lowest_floor,
    members_of,
    missing,
    one_measure,
    unit_of,
    written,
)
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.runs.files import listed
from hopscope.story.text import DASH, PageText
from hopscope.story.values import Learned, Numbers, RowFacts, Said

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence
    from hopscope.story.page import StudyFacts

_QUARTER = 0.25
"""A loss below this share of its lowest floor counts as learned."""

_MEETS: dict[str, Callable[[float, float], bool]] = {
    "above": operator.gt, "below": operator.lt, "at_least": operator.ge, "at_most": operator.le, "equal": operator.eq,
}  # fmt: skip


class PageNumberFunctions:
    """Functions that return numbers of the evidence, as text that knows which rows it is from."""

    def __init__(self, facts: "StudyFacts", evidence: "Evidence", text: PageText):
        self._facts, self._evidence, self._text = facts, evidence, text
        self._units: dict[str, str] = {}
        self._whole: dict[str, bool] = {}

    def estimate(self, metric: str, *, unit: str | None = None, n: bool = True, **where: Any) -> Said:
        """The mean of a metric at the last step, with its 95 % interval over seeds and what it is over.

        Args:
            metric: what was measured.
            unit: `"fraction"` (in percent), `"number"`, or a word that follows the number; by default what the name
                of the metric says.
            n: whether to say what it is over; a table may say it once for all.
            where: `split`, `part`, `layer`, `head`, `measure`, and values of columns, as in `**{"model.layers": 1}`.

        Raises:
            UserError: there is no such metric or column.
        """
        found, key = self._estimate(f"estimate of {metric!r}", metric, where)
        if found.mean is None:
            return Said(found.reason)
        text = self._shown(found, unit or self._unit(metric), key)
        return _said(f"{text} (n\u00a0=\u00a0{found.count})" if n else text, found)

    def value(
        self, metric: str, *, unit: str | None = None, decimals: int | None = None, **where: Any
    ) -> Said:
        """The mean of a metric at the last step alone; arguments as in `estimate`, `decimals` as Python's.

        Of a metric that belongs to no member it is the mean of the rows.
        """
        if self._of_run(metric):
            return self._value_of_run(metric, unit or self._unit(metric), decimals, where)
        found, key = self._estimate(f"value of {metric!r}", metric, where)
        if found.mean is None:
            return Said(found.reason)
        written_out = format_number(found.mean, unit or self._unit(metric), decimals=decimals)
        text = self._text.number(found.mean, written_out, EVIDENCE, f"mean of {key}")
        return _said(text, found)

    def share(self, metric: str, *, unit: str = "fraction", **where: Any) -> Said:
        """A number of one member, or of the whole run, with its own interval such as that over questions.

        Its ends are the metrics `metric_low` and `metric_high`; without a number it is a dash.  Arguments as in
        `estimate`.
        """
        names = (metric, f"{metric}_low", f"{metric}_high")
        if not self.has(metric, **where):
            return Said(DASH)
        found = [self._numbers(f"share of {metric!r}", name, where) for name in names]
        value, low, high = (float(values.mean()) for values, _ in found)
        keys = [key for _, key in found]
        return Said(self._with_ends(value, (low, high), unit, EVIDENCE, keys), value, low, high, 1)

    def last(self, metric: str, **where: Any) -> Numbers:
        """Values of the members at the last step, for conditions; arguments as in `estimate`.

        Of a metric that belongs to no member they are those of the rows.
        """
        values, _ = self._numbers(f"last of {metric!r}", metric, where)
        return Numbers.of(values)

    def learned(self, metric: str = "loss", below: float | None = None, **where: Any) -> Learned:
        """Count the members that ended below a bound, by default a quarter of the lowest floor of their configuration.

        Args:
            metric: a loss.
            below: the bound.
            where: as in `estimate`.
        """
        values, key = self._values(f"learned of {metric!r}", metric, where)
        labels = self._members[CONFIGURATION]
        bounds = {member: self._bound(metric, below, labels[member]) for member in values.index}
        known = bool(bounds) and all(bound is not None for bound in bounds.values())
        count = sum(bounds[member] is not None and value < bounds[member] for member, value in values.items())
        bound = f"{below:g}" if below is not None else "a quarter of its lowest floor"
        number = self._text.number(count, str(count), EVIDENCE, f"members below {bound} of {key}")
        return Learned(count, len(values), known, f"{number} of {len(values)}")

    def range(
        self, metric: str, *, unit: str | None = None, decimals: int | None = None, **where: Any
    ) -> Said:
        """The lowest and the highest member at the last step, `97.1 % – 99.8 %`; arguments as in `value`."""
        values, key = self._values(f"range of {metric!r}", metric, where)
        known = {int(member): value for member, value in values.items() if math.isfinite(value)}
        if not known:
            return Said(estimated(values, self._members, self.gone).reason)
        unit = unit or self._unit(metric)
        # Of equal values, both ends are of the first member: it is told once.
        ends = dict.fromkeys((min(known, key=known.__getitem__), max(known, key=known.__getitem__)))
        text = f" {DASH} ".join(
            self._text.number(
                known[member],
                format_number(known[member], unit, decimals=decimals),
                EVIDENCE,
                f"{key}, member {member}",
            )
            for member in ends
        )
        return Said(
            text, sum(known.values()) / len(known), min(known.values()), max(known.values()), len(known)
        )

    def median(self, metric: str, *, unit: str | None = None, **where: Any) -> Said:
        """The median over members at the last step; what never happened (an infinite value) counts as later than all.

        Of an even number it is the lower of the two middle ones.  Arguments as in `estimate`.
        """
        values, key = self._values(f"median of {metric!r}", metric, where)
        known = sorted(value for value in values if not math.isnan(value))
        if not known:
            return Said(estimated(values, self._members, self.gone).reason)
        middle = known[(len(known) - 1) // 2]
        if math.isinf(middle):
            return Said("never, in more than half")
        text = format_number(middle, unit or self._unit(metric))
        return Said(self._text.number(middle, text, EVIDENCE, f"median of {key}"), middle, n=len(known))

    def count(self, metric: str, **where: Any) -> Learned:
        """Count the members with a number that meet every condition at the last step, such as `5 of 6`.

        Args:
            metric: what was measured.
            where: the conditions `above`, `below`, `at_least`, `at_most` and `equal`, and those of `estimate`.
        """
        asked = {name: where.pop(name, None) for name in _MEETS}
        conditions = {name: bound for name, bound in asked.items() if bound is not None}
        values, key = self._values(f"count of {metric!r}", metric, where)
        known = [float(value) for value in values if not math.isnan(value)]
        met = [
            value for value in known if all(_MEETS[name](value, bound) for name, bound in conditions.items())
        ]
        said = ", ".join(f"{name.replace('_', ' ')} {bound:g}" for name, bound in conditions.items())
        number = self._text.number(len(met), str(len(met)), EVIDENCE, f"members {said} of {key}")
        return Learned(len(met), len(known), bool(known), f"{number} of {len(known)}")

    def has(self, metric: str, **where: Any) -> bool:
        """Whether some member has a number for a metric, at any step; arguments as in `estimate`."""
        own, fits = self._own({"split": "held_out", **where}, f"has {metric!r}")
        return fits and self._evidence.has(metric, **own)

    def rows(self, metric: str, *, unit: str | None = None, **where: Any) -> list[RowFacts]:
        """Rows of a metric at each member's last step, one by one, such as those of a circuit's paths.

        Arguments as in `estimate`; rows come in the order of members, layers, heads and parts.
        """
        what = f"rows of {metric!r}"
        check_metric(self._evidence, metric, what)
        own, fits = self._own({"split": "held_out", **where}, what)
        if not fits:
            return []
        frame = self._evidence.rows(metric, **own).dropna(subset=["member", "value"])
        frame = at_last_step(frame).sort_values(["member", "layer", "head"], kind="stable")
        unit = unit or self._unit(metric)
        return [self._row_facts(row, metric, unit) for row in frame.to_dict("records")]

    def number(
        self,
        value: float,
        what: str,
        *,
        unit: str = "number",
        decimals: int | None = None,
        ends: Interval | None = None,
        file: str = "config.json",
    ) -> Said:
        """A number that is not in the evidence: of the configuration, of theory, or counted by the study's own code.

        Args:
            value: the number.
            what: what it is, in words; a reader who points at the number sees them.
            unit, decimals: as `estimate` and Python write numbers.
            ends: of its interval, which follows in brackets.
            file: where it can be looked up.
        """
        if ends is not None:
            keys = [what, f"lower end of {what}", f"upper end of {what}"]
            return Said(self._with_ends(value, ends, unit, file, keys), value, *ends)
        text = format_number(value, unit, decimals=decimals)
        return Said(self._text.number(value, text, file, what), value)

    def mean(
        self,
        values: Sequence[float],
        what: str,
        *,
        unit: str = "number",
        decimals: int | None = None,
        file: str = EVIDENCE,
    ) -> Said:
        """The mean of numbers that the study's own code derived, one for each seed, with its 95 % bootstrap interval.

        Args:
            values: the numbers; a dash where there is none.
            what: what they are, in words; a reader who points at the mean sees them.
            unit, decimals, file: as in `number`.
        """
        if not values:
            return Said(DASH)
        middle, interval = mean(values), bootstrap_mean(values)
        said = self.number(middle, f"mean of {what}", unit=unit, decimals=decimals, file=file)
        if interval is None:
            return Said(said.text, middle, n=len(values))
        low, high = (
            self.number(end, f"95 % bootstrap interval over seeds, {side} end, of the mean of {what}",
                        unit=unit, decimals=decimals, file=file)
            for end, side in zip(interval, ("lower", "upper"), strict=True)
        )  # fmt: skip
        return Said(f"{said} [{low}, {high}]", middle, *interval, len(values))

    def _row_facts(self, row: Mapping[str, Any], metric: str, unit: str) -> RowFacts:
        where = {name: row[name] for name in ("member", "layer", "head", "part") if not missing(row[name])}
        key = ", ".join(f"{name} = {value}" for name, value in where.items())
        value = float(row["value"])
        text = self._text.number(
            value, format_number(value, unit), EVIDENCE, f"metric = {metric}, {key}, last step"
        )
        layer, head = where.get("layer"), where.get("head")
        return RowFacts(text, value, int(row["member"]), None if layer is None else int(layer),
                        None if head is None else int(head), where.get("part", ""), int(row["step"]))  # fmt: skip

    # How they are found.

    @cached_property
    def _members(self) -> "pd.DataFrame":
        return members_of(self._evidence)

    @cached_property
    def gone(self) -> list[int]:
        """Numbers of the members whose training diverged."""
        return diverged(self._evidence)

    def _values(self, what: str, metric: str, where: Mapping[str, Any]) -> "tuple[pd.Series, str]":
        """Each member's last value, and the query in words."""
        import pandas as pd

        check_metric(self._evidence, metric, what)
        asked = {"split": "held_out", **where}
        key = f"{_query(metric, asked)}, last step"
        own, fits = self._own(asked, what)
        if not fits:
            return pd.Series(dtype="float64"), key
        if own.get("measure") is None:
            rows = self._evidence.rows(metric, split=own["split"])
            if rows["measure"].nunique() > 1:
                own["measure"] = one_measure(rows["measure"], what)
        try:
            return self._evidence.last(metric, **own), key
        except UserError as error:
            raise UserError(f"{what}: {error}") from error

    def _of_run(self, metric: str) -> bool:
        """Whether a metric belongs to no member."""
        if metric not in self._whole:
            there = metric in self._evidence
            self._whole[metric] = there and self._evidence.rows(metric, split=None)["member"].isna().all()
        return self._whole[metric]

    def _numbers(self, what: str, metric: str, where: Mapping[str, Any]) -> "tuple[pd.Series, str]":
        """Return the members' last values, or all rows if the metric belongs to no member, and the query."""
        if not self._of_run(metric):
            return self._values(what, metric, where)
        asked = {"split": "held_out", **where}
        own, fits = self._own(asked, what)
        rows = self._evidence.rows(metric, **own)["value"]
        return rows if fits else rows[:0], _query(metric, asked)

    def _value_of_run(self, metric: str, unit: str, decimals: int | None, where: Mapping[str, Any]) -> Said:
        values, key = self._numbers(f"value of {metric!r}", metric, where)
        known = values.dropna()
        if known.empty:
            return Said("no value (not measured)")
        value, several = float(known.mean()), f"mean of {len(known)} rows, " if len(known) > 1 else ""
        text = format_number(value, unit, decimals=decimals)
        return Said(self._text.number(value, text, EVIDENCE, several + key), value)

    def _own(self, asked: Mapping[str, Any], what: str) -> tuple[dict[str, Any], bool]:
        """Return the conditions on columns, and whether the conditions on fields without a column hold in this run."""
        columns = self._evidence.to_arrow().schema.names
        own: dict[str, Any] = {}
        fits = True
        for name, value in asked.items():
            if name in columns:
                own[name] = value
                continue
            fixed = configured(self._evidence, name)
            if fixed is None:
                raise UserError(f"{what}: expected one of the columns {listed(columns, 30)}, found {name!r}")
            several = list(value) if isinstance(value, list | tuple | set | range) else [value]
            fits = fits and fixed[0] in [*several, value]
        return own, fits

    def _estimate(self, what: str, metric: str, where: Mapping[str, Any]) -> tuple[Estimate, str]:
        values, key = self._values(what, metric, where)
        return estimated(values, self._members, self.gone), f"{key}, over {len(values)} members"

    def _unit(self, metric: str) -> str:
        if metric not in self._units:
            self._units[metric] = unit_of(metric, self._evidence.rows(metric, split=None)["value"])
        return self._units[metric]

    def _shown(self, found: Estimate, unit: str, key: str) -> str:
        """A mean with its interval."""
        assert found.mean is not None
        if found.interval is None:
            return self._text.number(found.mean, format_number(found.mean, unit), EVIDENCE, f"mean of {key}")
        ends = [
            f"95 % bootstrap interval over seeds, {side} end, of the mean of {key}"
            for side in ("lower", "upper")
        ]
        return self._with_ends(found.mean, found.interval, unit, EVIDENCE, [f"mean of {key}", *ends])

    def _with_ends(self, value: float, ends: Interval, unit: str, file: str, keys: Sequence[str]) -> str:
        """A number with its interval; `keys` are those of the three."""
        texts = interval_words(value, ends, unit)
        middle, low, high = (
            self._text.number(number, text, file, key)
            for number, text, key in zip((value, *ends), texts, keys, strict=True)
        )
        return f"{middle} [{low}, {high}]"

    def _bound(self, metric: str, below: float | None, configuration: str) -> float | None:
        if below is not None:
            return below
        floor = lowest_floor(self._facts.floors, metric, configuration)
        return None if floor is None or floor <= 0 else _QUARTER * floor


def _query(metric: str, asked: Mapping[str, Any]) -> str:
    """Write a query of the evidence in words."""
    conditions = (f"{name} = {written(value)}" for name, value in asked.items() if value is not None)
    return ", ".join([f"metric = {metric}", *conditions])


def _said(text: str, found: Estimate) -> Said:
    assert found.mean is not None
    low, high = found.interval or (math.nan, math.nan)
    return Said(text, found.mean, low, high, found.measured)
