"""Selections for figures and sentences: members, their groups, diverged members, and means over seeds."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.claims.intervals import Interval, bootstrap_mean, mean
from hopscope.claims.numbers import format_estimate, format_number
from hopscope.errors import UserError
from hopscope.runs.files import listed

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

Floors = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]
"""What a task's `floors()` gives, or a function from a configuration's label to it."""

CONFIGURATION = "configuration"

_FRACTIONS = {
    "accuracy", "attention", "fraction", "mass", "precision", "probability", "rate", "recall", "share",
}  # fmt: skip
"""Words in the names of metrics that are fractions."""

_LARGE = 10_000
"""From here on a mean over seeds is written without decimals."""


@dataclass(frozen=True)
class Group:
    """Members that are drawn or counted together.

    Attributes:
        label: what the group is called.
        members: run-global numbers.
        configurations: labels of the configurations that they belong to.
    """

    label: str
    members: tuple[int, ...]
    configurations: tuple[str, ...]


def check_metric(evidence: "Evidence", metric: str, what: str) -> None:
    """Refuse a metric that the evidence does not have.

    Args:
        evidence: what was measured.
        metric: the metric's name.
        what: what asked for it, such as `figure bars of 'accuracy'`.

    Raises:
        UserError: there is no such metric.
    """
    if metric not in evidence.metrics:
        raise UserError(
            f"{what}: expected one of the metrics {listed(evidence.metrics, 30)}, found {metric!r}"
        )


def members_of(evidence: "Evidence") -> "pd.DataFrame":
    """Return a row for each member: `seed`, `configuration` and the columns that differ, index member."""
    import pandas as pd

    columns = {"seed": evidence.seeds, CONFIGURATION: evidence.configurations}
    table = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    table = table.reindex(evidence.members)
    rows = evidence.rows(split=None).dropna(subset="member").drop_duplicates("member").set_index("member")
    for name in evidence.columns:
        table[name] = rows[name].astype(object).reindex(table.index)
    return table.rename_axis("member")


def groups(evidence: "Evidence", by: str | None, what: str) -> list[Group]:
    """Return the members of a run, grouped by the values of a column.

    Args:
        evidence: what was measured.
        by: a column that differs between configurations, or a field that all of them share; `None`: configurations.
        what: what asks for it, for the error.

    Returns:
        Groups, numbers in ascending order and other values in the order of the members.

    Raises:
        UserError: there is no such column.
    """
    table = members_of(evidence)
    by = by or CONFIGURATION
    if by in table.columns:
        values = {int(member): value for member, value in table[by].items()}
    else:
        # A field with one value in this run: it may be asked for, and is the same for all.
        value = configured(evidence, by)
        if value is None:
            known = listed([CONFIGURATION, *evidence.columns])
            raise UserError(f"{what}: expected by to be one of the columns {known}, found {by!r}")
        values = dict.fromkeys(map(int, table.index), value[0])
    labels = {member: group_label(by, value) for member, value in values.items()}
    order = {labels[member]: _rank(value) for member, value in values.items()}
    return [
        Group(label, members, tuple(dict.fromkeys(table.loc[list(members), CONFIGURATION])))
        # Equal ranks stay in the order of the members.
        for label in sorted(order, key=lambda label: order[label])
        for members in [tuple(member for member in labels if labels[member] == label)]
    ]


def group_label(by: str, value: Any) -> str:
    """Return the label of a group: `layers 2` for a value of `model.layers`, a configuration by its own label."""
    if by in (CONFIGURATION, "split"):
        return str(value)
    name = by.rpartition(".")[2]
    return f"no {name}" if missing(value) else f"{name} {written(value)}"


def _rank(value: Any) -> tuple[int, float]:
    if missing(value):
        return 2, 0.0
    return (0, float(value)) if hasattr(value, "__float__") else (1, 0.0)


def configured(evidence: "Evidence", field: str) -> tuple[Any] | None:
    """The value of a dotted field in the run's configuration, in a tuple; `None` if there is no such field."""
    varied = evidence.config.get("vary")
    if isinstance(varied, Mapping) and field in varied:
        values = varied[field]
        return (values[0] if isinstance(values, list | tuple) and values else values,)
    section, _, name = field.rpartition(".")
    # A field of the options is named by itself.
    parts = [evidence.config.get(section)] if section else [evidence.config, evidence.config.get("options")]
    parts += [
        part["fields"]
        for part in parts
        if isinstance(part, Mapping) and isinstance(part.get("fields"), Mapping)
    ]
    found = [part[name] for part in parts if isinstance(part, Mapping) and name in part]
    return (found[-1],) if found else None


def diverged(evidence: "Evidence") -> list[int]:
    """Return the members whose training diverged: all their curves of training end in nulls."""
    frame = evidence.rows(measure="training", split=None)[["member", "step", "value"]]
    last = at_last_step(frame)
    known = last["value"].notna().groupby(last["member"]).any()
    return sorted(int(member) for member in known.index[~known])


def at_last_step(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows of each member's last step."""
    return frame[frame["step"] == frame.groupby("member")["step"].transform("max")]


def metric_rows(
    evidence: "Evidence", metric: str, split: str, part: str | None, what: str, of_heads: bool = False
) -> "pd.DataFrame":
    """Return the rows of a metric: of the whole model, or of its heads; one row for each member, step and head.

    Args:
        evidence: what was measured.
        metric, split, part: which rows; part `None` means those that have none.
        what: what asks for them, for the error.
        of_heads: whether the rows that name a layer and a head are wanted, or those that name neither.

    Raises:
        UserError: there are no such rows.
    """
    check_metric(evidence, metric, what)
    frame = evidence.rows(metric, split=None).dropna(subset="member")
    for column, value in (("split", split.replace("-", "_")), ("part", part)):
        known = frame[column]
        chosen = frame[known.isna() if value is None else known == value]
        if chosen.empty:
            names = listed(sorted(known.dropna().unique())) or "none"
            raise UserError(f"{what}: expected {column} to be one of {names}, found {value!r}")
        frame = chosen
    placed = frame["layer"].notna() & frame["head"].notna()
    chosen = frame[placed] if of_heads else frame[frame["layer"].isna() & frame["head"].isna()]
    if chosen.empty:
        wanted, found = ("heads", "the whole model") if of_heads else ("the whole model", "layers or heads")
        hint = "hs.figures.curves or bars draws it" if of_heads else "hs.figures.heads draws it"
        raise UserError(f"{what}: expected a metric of {wanted}, found one of {found}; {hint}")
    if chosen["measure"].nunique() > 1:
        chosen = chosen[chosen["measure"] == one_measure(chosen["measure"], what)]
    # What never happened has no place in a picture.
    chosen = chosen.assign(value=chosen["value"].where(chosen["value"].abs() != math.inf))
    whole = {"member": int, "step": int, "samples": int, "seed": int}
    return chosen.astype(whole | ({"layer": int, "head": int} if of_heads else {}))


def one_measure(measures: Iterable[str], what: str) -> str:
    """Return the measure to believe where several give one metric: what is recorded during training.

    Raises:
        UserError: none of them is that.
    """
    names = sorted(set(measures))
    if "training" not in names:
        raise UserError(
            f"{what}: expected one measure that gives it, found {listed(names)}; rename one's metric"
        )
    return "training"


def floors_of(floors: "Floors | None", metric: str, configuration: str) -> dict[str, float]:
    """Return the floors of a metric in one configuration, name → value."""
    found = (floors(configuration) if callable(floors) else floors) or {}
    own = found.get(metric)
    if isinstance(own, Mapping):
        return {str(name): float(value) for name, value in own.items()}
    if metric != "loss":
        return {}
    return {name: float(value) for name, value in found.items() if not isinstance(value, Mapping)}


def lowest_floor(floors: "Floors | None", metric: str, configuration: str) -> float | None:
    """Return the lowest floor of a metric in one configuration; `None` if it has none."""
    return min(floors_of(floors, metric, configuration).values(), default=None)


@dataclass(frozen=True)
class Estimate:
    """A mean over members.

    Attributes:
        mean: `None` if no member has a value.
        interval: 95 % bootstrap interval over seeds; `None` for fewer than two seeds.
        measured: members with a value.
        members: members that were asked for.
        seeds: different seeds among them.
        diverged: members without a value because their training diverged.
        never: members for which it was watched for and never happened (an infinite value).
    """

    mean: float | None
    interval: Interval | None
    measured: int
    members: int
    seeds: int
    diverged: int
    never: int = 0

    @property
    def count(self) -> str:
        """The number of members behind the mean, such as `4 seeds` or `3 of 4 seeds, 1 diverged`."""
        noun = "seed" if self.seeds == self.members else "member"
        all_of = f"{self.members} {noun}{'s' * (self.members != 1)}"
        shared = f" of {self.seeds} seed{'s' * (self.seeds != 1)}" if noun == "member" else ""
        if self.measured == self.members:
            return all_of + shared
        missing = self.members - self.measured - self.diverged - self.never
        counts = {"diverged": self.diverged, "never": self.never, "not measured": missing}
        why = [f"{count} {word}" for word, count in counts.items() if count]
        return f"{self.measured} of {', '.join([all_of + shared, *why])}"

    @property
    def reason(self) -> str:
        """The reason why there is no mean."""
        if not self.members:
            return "no value (the run has no such member)"
        if self.diverged == self.members:
            return (
                "no value (every member diverged)" if self.members > 1 else "no value (the member diverged)"
            )
        if self.never == self.members:
            return "no value (it never happened)"
        mixed = self.diverged or self.never
        return "no value (in any of the members)" if mixed else "no value (not measured)"


def estimated(values: "pd.Series", table: "pd.DataFrame", gone: Iterable[int]) -> Estimate:
    """Return the mean of one value for each member.

    Args:
        values: index member; NaN where there is none, infinite where it never happened.
        table: as `members_of` gives it.
        gone: members that diverged.
    """
    known = {int(member): float(value) for member, value in values.items() if math.isfinite(value)}
    seeds = {int(member): int(table.loc[member, "seed"]) for member in values.index}
    return Estimate(
        mean=mean(list(known.values())) if known else None,
        # A seed that occurs in several configurations draws the same data in all of them: it is resampled as one.
        interval=bootstrap_mean(list(known.values()), clusters=[seeds[member] for member in known]),
        measured=len(known),
        members=len(values),
        seeds=len(set(seeds.values())),
        never=sum(math.isinf(value) for value in values),
        diverged=len([member for member in gone if member in seeds and member not in known]),
    )


def unit_of(metric: str, values: Iterable[float]) -> str:
    """The unit of a metric: `fraction` (in percent) if its name says so and its values allow it, else `number`."""
    spoken = set(re.findall(r"[a-z]+", metric.lower().replace("_", " ")))
    possible = all(0.0 <= value <= 1.0 for value in values if math.isfinite(value))
    return "fraction" if _FRACTIONS & spoken and possible else "number"


def interval_words(value: float, interval: Interval, unit: str) -> tuple[str, str, str]:
    """A mean and the ends of its interval; only the mean has the unit, and large numbers have no decimals."""
    if abs(value) >= _LARGE and unit != "fraction":
        low, high = (format_number(end, decimals=0) for end in interval)
        return format_number(value, unit, decimals=0), low, high
    middle, ends = format_estimate(value, interval, unit).removesuffix("]").split(" [")
    low, high = ends.split(", ")
    return middle, low, high


def metric_words(metric: str, split: str, part: str | None = None) -> str:
    """A metric in words, such as `held-out loss` or `training accuracy, repeats`."""
    side = {"held_out": "held-out", "train": "training"}.get(split, split)
    return f"{side} {metric.replace('_', ' ')}" + (f", {part.replace('_', ' ')}" if part else "")


def written(value: Any) -> str:
    """A value of the configuration as tables and labels show it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(written(each) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {written(each)}" for name, each in value.items())
    return str(value)


def missing(value: Any) -> bool:
    """Whether a cell of a table holds nothing."""
    return (
        value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    )
