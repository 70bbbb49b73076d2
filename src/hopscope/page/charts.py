"""How figures are drawn: rows of the evidence, told apart by its columns, as curves, rows of points, sweeps and cells.

Their Vega-Lite stands in `templates/charts` and is filled in here: Altair would check it for longer than it is drawn.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from os.path import commonprefix
from textwrap import wrap
from typing import Any

import pandas as pd

from hopscope.errors import UserError
from hopscope.page import facts
from hopscope.page.facts import CONFIGURATION, PLACE, Estimate, Facts, missing
from hopscope.page.theme import CATEGORY, chart
from hopscope.runs import Evidence
from hopscope.runs.folder import listed

Row = dict[str, Any]
Spec = dict[str, Any]
Ends = tuple[float, float]

WIDTH, HEIGHT, PANEL = 600, 290, 270
"""Of a plot, and the width of a small one, in pixels; the page gives them the width that it has."""

MOST_POINTS, MOST_LABELS = 4000, 9
"""Points of all curves of a figure together; lines that are labelled at their ends (more of them have a legend)."""

_ROLES = ("panel", "y", "x", "group")
_SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down")
_LETTERS, _LINE = 18, 13  # of a label at an end: letters in a line, and pixels from one line to the next
_SPIKE = 3.0  # values above so many times all but 1 in 200 of them are spikes, and left out of the axis


class Chosen:
    """The rows of a figure, with a label for every way in which they are told apart.

    Attributes:
        frame: columns `panel`, `y`, `x`, `group` (labels; empty where nothing is told apart), `member`, `seed`,
            `value`, `low`, `high`, `note`, `at`; `labels`: of each of the first four, in their order.
        facts: of the evidence; `title`: of the axis of values; `levels`: label → value of its lines.
    """

    def __init__(self, drawing: Any, evidence: Evidence):
        self.drawing, self.shown, self.facts = drawing, drawing.shown, Facts(evidence)
        self.what = f"figure {drawing.shape} of {', '.join(map(repr, drawing.metrics))}"
        self.numeric, self.labels = False, dict[str, list[Any]]()
        frame = pd.DataFrame([*self.shown["rows"](evidence)]) if "rows" in self.shown else self._measured()
        for role in _ROLES:
            frame = self._labelled(frame.reset_index(drop=True), role)
        self.several = len(self.labels["panel"]) > 1  # small charts
        columns = dict.fromkeys([*frame, "metric", "member", "seed", "value", "low", "high", "note", "step"])
        values = (frame := frame.reindex(columns=[*columns]))["value"].astype("float64")
        never = values.abs() == math.inf
        self.frame = frame.assign(value=values.mask(never), never=never)
        units = {facts.unit_of(metric, self.frame["value"].dropna()) for metric in drawing.metrics}
        self.unit = "fraction" if units == {"fraction"} else "number"
        common = "_".join(commonprefix([each.split("_") for each in drawing.metrics]))  # noqa: RUF071 - of words
        stem = re.sub(r"(_step|_x)?_?\d*$", "", common).rstrip("_") or "value"
        words = facts.metric_words(stem, self.shown.get("split", ""), self.shown.get("part"))
        self.title, self.levels = self.shown.get("title") or words, self._levels(evidence)

    def _measured(self) -> pd.DataFrame:
        where, told, found = self.shown.get("where", {}), self.drawing.columns.values(), list[pd.DataFrame]()
        asked: Row = {name: ... for name in PLACE if name in told}
        asked |= {"part": self.shown["part"]} if "part" in self.shown else {}
        asked["split"] = None if "split" in told else self.shown.get("split", "held-out")
        asked |= where(self.facts.evidence) if callable(where) else where
        for metric in self.drawing.metrics:
            # Its numbers may have intervals of their own: over questions, say.
            rows, keys = self.facts.rows(metric, self.what, **asked), ["member", "step", *PLACE]
            for end in [each for each in ("low", "high") if f"{metric}_{each}" in self.facts.evidence]:
                own = self.facts.rows(f"{metric}_{end}", self.what, **asked).set_index(keys)["value"]
                rows = rows.assign(**{end: own.reindex(pd.MultiIndex.from_frame(rows[keys])).to_numpy()})
            found.append(rows)
        return pd.concat(found)

    def _labelled(self, frame: pd.DataFrame, role: str) -> pd.DataFrame:
        name, own = self.drawing.columns.get(role), "rows" in self.shown
        name = name if own or name is None else self.facts.column(name)
        if name is None or (name not in frame and len(frame)):
            if name is not None and own:
                raise UserError(f"{self.what}: expected rows with {name!r}, found {listed(frame)}")
            self.labels[role] = [""] if name is None else [*self.facts.groups(name, self.what)]
            return frame.assign(**{role: self.labels[role][0]})
        names, values = self.shown.get("names", {}), facts.different(frame.get(name, ()))
        if known := {value: label for key, label in names.items() for value in values if _is(value, key)}:
            frame = frame[[(None if missing(value) else value) in known for value in frame[name]]]
            values = [*known]
        bare = (own or (self.drawing.shape == "cells" and role in "xy")) and name not in ("metric", "part")
        told = {each: str(each) if bare else facts.label_of(name, each) for each in values}
        labels: dict[Any, Any] = {each: known.get(each, words) for each, words in told.items()}
        numbers = all(isinstance(each, int | float) for each in values)
        if numbers and role == "x" and self.drawing.shape == "sweep":
            self.numeric, labels = True, dict(zip(values, values, strict=True))
        self.labels[role] = [*dict.fromkeys(labels.values())]
        column = [labels[None if missing(each) else each] for each in frame.get(name, ())]
        return frame.assign(**{role: column})

    def _levels(self, evidence: Evidence) -> dict[str, float]:
        given = self.shown.get("levels", {})
        found = dict(given(evidence) if callable(given) else given)
        if self.drawing.shape == "cells" or "rows" in self.shown or "part" in self.shown:
            return found
        first, *others = (self.facts.floors(metric) for metric in self.drawing.metrics)
        shared = [name for name in first if all(each.get(name) == first[name] for each in others)]
        own = {f"floor: {name.replace('_', ' ')}": first[name] for name in shared}
        return found | {name: value for name, value in own.items() if value not in found.values()}

    @property
    def final(self) -> pd.DataFrame:
        """The rows of each member's last step; where rows belong to no member, all of them."""
        if self.frame["step"].isna().all() or self.frame["member"].isna().all():
            return self.frame
        return pd.concat([facts.at_last_step(own) for _, own in self.frame.groupby("metric", dropna=False)])

    def ends(self, rows: Iterable[Row]) -> Ends:
        """Ends of the axis of values: what is shown, with room.  Curves are clipped: rare spikes are left out."""
        every = [row[name] for row in rows for name in ("value", "low", "high") if row.get(name) is not None]
        known = sorted([*every, *self.levels.values()]) or [0.0, 1.0]
        high, usual, low = known[-1], known[int(0.995 * (len(known) - 1))], min(0.0, known[0])
        clipped = self.drawing.shape == "curves"
        if clipped and high > _SPIKE * max(usual, 1e-12):
            high = max(usual * 1.05, *self.levels.values(), 0.0)
        room, share = 0.05 * (high - low or 1.0), self.unit == "fraction" and low == 0 and high > 0.5
        first, last = self.shown.get("ends", (0.0, 1.0) if share else (low - room * (low < 0), high + room))
        return (first, last) if clipped else (min([first, *every]), max([last, *every]))


def drawn(drawing: Any, evidence: Evidence) -> tuple[Spec, str, str]:
    """The Vega-Lite specification of a figure, its caption, and what it shows for those who cannot see it.

    Where there is nothing to show, words stand in the chart's place.
    """
    chosen = Chosen(drawing, evidence)
    spec = chart("nothing", {"width": WIDTH})
    if chosen.frame["value"].notna().any() or chosen.frame["note"].notna().any():
        shapes = {"curves": _curves, "bars": _rows, "dots": _rows, "sweep": _sweep, "cells": _cells}
        spec = shapes[drawing.shape](chosen)
    return spec, *_words(chosen)


# Rows.


def _is(value: Any, key: Any) -> bool:
    # Columns of several kinds of values hold text as JSON.
    return bool(value == key or str(value) == str(key) or (isinstance(key, str) and value == json.dumps(key)))


def _whole(value: Any) -> Any:
    number = isinstance(value, int | float) or hasattr(value, "item")
    return None if missing(value) else int(value) if number and float(value).is_integer() else value


def _short(value: Any) -> Any:
    return None if missing(value) else float(f"{float(value):.5g}")  # as data are written: five digits


def _mean(place: Row, found: Estimate) -> Row:
    low, high = found.interval or (None, None)
    return {"kind": "mean", **place, "value": _short(found.mean), "low": _short(low), "high": _short(high)}


def _curve_rows(chosen: Chosen, frame: pd.DataFrame) -> list[Row]:
    """Rows of kind `seed`, of kind `mean` where several members have a value, and of kind `end` where one diverged."""
    every, gone, rows = max(1, -(-len(frame) // MOST_POINTS)), chosen.facts.diverged, list[Row]()
    apart = [name for name in ("metric", *PLACE) if name in frame and frame[name].nunique() > 1]
    for at, own in frame.groupby([*_ROLES], sort=False):
        place = dict(zip(_ROLES, at, strict=True))
        for (member, *_), curve in own.groupby(["member", *apart], dropna=False):
            curve = curve.sort_values("at")
            who = {"kind": "seed", **place, "member": _whole(member), "seed": _whole(curve["seed"].iloc[0])}
            kept = curve.iloc[(len(curve) - 1) % every :: every]
            pairs = kept[["at", "value"]].to_numpy().tolist()
            points = [{**who, "at": _whole(x), "value": _short(y)} for x, y in pairs]
            rows += points + ([{**points[-1], "kind": "end"}] if member in gone else [])
        own = own[~own["member"].isin(gone)]
        wide = own.pivot_table(index="at", columns="member", values="value").dropna()
        for x, values in wide.iloc[(len(wide) - 1) % every :: every].iterrows():
            if len(values) > 1:
                rows.append({**_mean(place, chosen.facts.estimate(values)), "at": _whole(x)})
    return rows


def _summaries(chosen: Chosen, alone: str = "mean") -> list[Row]:
    """A row for each member at its last step, and one for the mean of each place; numbers of no member are `alone`."""
    final = chosen.final.astype(dict.fromkeys(_ROLES, object))
    cells = final.groupby([*_ROLES], sort=False, dropna=False).ngroup().to_numpy()
    means = final.groupby([cells, "member"])["value"].mean().dropna()
    rows, of_cell = list[Row](), dict[int, list[Row]]()
    for cell, row in zip(cells, final.to_dict("records"), strict=True):
        of_cell.setdefault(cell, []).append(row)
    for cell, every in of_cell.items():
        place = {role: every[0][role] for role in _ROLES}
        own = [row for row in every if not missing(row["value"])]
        of_members = not all(missing(row["member"]) for row in own)
        # Numbers of the whole run may have intervals of their own.
        for row in own:
            kept = {name: _short(row[name]) for name in ("value", "low", "high", "seed")}
            rows.append({"kind": "seed" if of_members else alone, **place, **kept})
        if of_members and not any(row["never"] for row in every):
            rows.append(_mean(place, chosen.facts.estimate(means.loc[cell])))
    return rows


# Shapes.


def _curves(chosen: Chosen) -> Spec:
    frame, groups = chosen.frame.dropna(subset="value"), chosen.labels["group"]
    time = "samples" if "samples" in frame and frame["samples"].fillna(0).max() > 0 else "step"
    rows = _curve_rows(chosen, frame if "at" in frame else frame.assign(at=frame[time]))
    ends = chosen.ends(row for row in rows if row.get("member") not in chosen.facts.diverged)
    labelled = not chosen.several and len(groups) <= MOST_LABELS
    means = any(row["kind"] == "mean" for row in rows)
    order = sorted(rows, key=lambda row: (row["at"], row["kind"] == "seed", -row["value"]))
    last = {row["group"]: row["value"] for row in order if row["kind"] == ("mean" if means else "seed")}
    return _chart(
        chosen, "curves", rows, ends, 170 if chosen.several else HEIGHT, last=last if labelled else {},
        legend={"symbolType": "stroke", "symbolOpacity": 1} if not labelled else None, time=time,
        time_title=f"training {time}", thin=1 if means else 1.8, faint=0.4 if means else 0.9,
        point={"size": 30, "filled": True} if len({row["at"] for row in rows}) < 2 else False,
    )  # fmt: skip


def _rows(chosen: Chosen) -> Spec:
    """Named rows: bars from zero with a number at their end, or points alone."""
    groups, bars = chosen.labels["group"], chosen.drawing.shape == "bars"
    rows = _summaries(chosen, alone="mean" if bars else "seed")
    for row in rows:
        row["y"], row["text"] = _broken(row["y"]), _number(row, chosen) if row["kind"] == "mean" else None
    there, ends = {row["y"] for row in rows}, chosen.ends(rows)
    labels = [label for each in chosen.labels["y"] if (label := _broken(each)) in there]
    places = {(row["panel"], row["y"], row["group"]) for row in rows}
    inside = len(places) > len({place[:2] for place in places})  # several series stand in one row
    levels, few, many = _known(chosen, ends), len(groups) <= len(CATEGORY), len(groups) > 1
    for at, row in enumerate(levels):
        row |= {"share": (row["at"] - ends[0]) / (ends[1] - ends[0]), "up": -4 - 12 * (len(levels) - 1 - at)}
    tall = max(1, len(labels)) * max(34 if bars else 26, 17 * (len(groups) if inside else 1) + 8)
    # The names of levels stand between the legend and the plot.
    legend = {"offset": 18 + 12 * len(levels)} if few and many and not bars else None
    return _chart(
        chosen, "rows", rows, ends, tall, columns=1, apart={"y": "independent"}, legend=legend, bars=bars,
        levels=levels, labels=labels, inside=inside, shaped=few and many and not bars,
        grouped=few and any(groups),
    )  # fmt: skip


def _sweep(chosen: Chosen) -> Spec:
    rows, groups, numeric = _summaries(chosen), chosen.labels["group"], chosen.numeric
    labelled = numeric and not chosen.several and 1 < len(groups) <= MOST_LABELS
    means = [row for row in rows if row["kind"] == "mean"] if labelled else []
    last = {row["group"]: row["value"] for row in sorted(means, key=lambda row: row["x"])}
    return _chart(
        chosen, "sweep", rows, chosen.ends(rows), 190 if chosen.several else HEIGHT, x_title=_title(chosen, "x"),
        last=last, legend={} if len(groups) > 1 and not labelled else None, inside=len(groups) > 1 and not numeric,
        in_numbers=numeric, in_words=not numeric, shaped=len(groups) > 1,
        across=sorted({row["x"] for row in rows}) if numeric else chosen.labels["x"],
    )  # fmt: skip


def _cells(chosen: Chosen) -> Spec:
    means = {(row["panel"], row["y"], row["x"]): row for row in _summaries(chosen) if row["kind"] == "mean"}
    noted = chosen.final.dropna(subset="note").to_dict("records")
    notes, rows = {(row["panel"], row["y"], row["x"]): str(row["note"]) for row in noted}, list[Row]()
    for panel, y, x in {**means, **notes}:
        own = means.get((panel, y, x), {"value": None})
        note = notes.get((panel, y, x)) or _number(own, chosen, 2)
        rows.append({"kind": "cell", "panel": panel, **own, "y": str(y), "x": str(x), "note": note})
    values, share = [row["value"] for row in rows if row["value"] is not None], chosen.unit == "fraction"
    ends = chosen.shown.get("ends", (0.0, 1.0) if share else (min([0.0, *values]), max([0.0, *values])))
    (low, high), layers_up = ends, chosen.drawing.columns["y"] == "layer"
    down, across = ([*map(str, chosen.labels[role])] for role in "yx")
    texts = [row["note"].split("|") for row in rows]
    longest = [7 * len(line) + 10 for text in texts for line in text]
    tall = max([34, *(13 * len(text) + 8 for text in texts)])
    wide = max(40, *longest, *(7 * len(each) + 8 for each in across)) * len(across)
    return _chart(
        chosen, "cells", rows, ends, tall * len(down), columns=max(1, WIDTH // (wide + 60)), width=wide,
        apart={"x": "independent", "y": "independent"}, middle=low + 0.55 * (high - low), across=across,
        title_lines=_broken(chosen.title, 18).split("|"), format="%" if share else "~g",
        x_title=_title(chosen, "x"), y_title=_title(chosen, "y"), side="bottom" if layers_up else "top",
        down=down[::-1] if layers_up else down,
    )  # fmt: skip


# Parts of a specification.


def _chart(
    chosen: Chosen, name: str, rows: list[Row], ends: Ends, height: int, *, columns: int = 2, width: int = 0,
    apart: Spec | None = None, legend: Spec | None = None, last: Mapping[str, float] | None = None, **values: Any,
) -> Spec:  # fmt: skip
    percent, grouped = chosen.unit == "fraction", values.pop("grouped", any(chosen.labels["group"]))
    form = {"format": "%" if percent else ".6~g", "labelExpr": "datum.value == 0 ? '0' : datum.label"}
    if legend is not None:  # as many names in a row as fit
        fit = WIDTH // (7 * max(len(str(each)) for each in chosen.labels["group"]) + 36)
        legend = {"title": None, "orient": "top", "labelLimit": 0, "columns": max(1, fit), **legend}
    given = {
        "title": chosen.title, "low": ends[0], "high": ends[1], "value_axis": {"tickCount": 6, **form},
        "groups": chosen.labels["group"], "grouped": grouped, "alone": not grouped, "legend": legend,
        "roles": [{"field": role, "type": "nominal", "title": name} for role, name in chosen.drawing.columns.items()],
        "levels": _known(chosen, ends), **_names(chosen, last or {}, ends),
    }  # fmt: skip
    shapes = [_SHAPES[at % len(_SHAPES)] for at in range(len(chosen.labels["group"]))]
    spec, there = chart(name, {**given, "shapes": shapes, **values}), {row["panel"] for row in rows}
    panels = [str(each) for each in chosen.labels["panel"] if each in there]
    spec |= {"width": width or (PANEL if any(panels) and columns > 1 else WIDTH), "height": height}
    if not any(panels):
        return {"data": {"values": rows}, **spec}
    header = {"labelLimit": 0, "labelFontWeight": 600}
    facet = {"field": "panel", "type": "nominal", "title": None, "sort": panels, "header": header}
    whole = {"data": {"values": rows}, "params": spec.pop("params", []), "facet": facet, "spec": spec}
    return {**whole, "columns": max(1, min(columns, len(panels))), "resolve": {"scale": apart or {}}}


def _title(chosen: Chosen, role: str) -> str | None:
    name = chosen.drawing.columns[role]
    return None if name in ("metric", "part", CONFIGURATION) else name.rpartition(".")[2].replace("_", " ")


def _number(row: Row, chosen: Chosen, digits: int = 3) -> str:
    if (value := row["value"]) is None:
        return "–"
    return facts.format_number(
        value if chosen.unit == "fraction" else float(f"{value:.{digits}g}"), chosen.unit
    )


def _broken(label: Any, longest: int = 30) -> str:
    """A label cut at spaces into lines of about equal length, with `|` between them."""
    text = str(label)
    most = len(text) // max(1, -(-len(text) // longest)) + 4
    return "|".join(wrap(text, most, break_long_words=False, break_on_hyphens=False))


def _known(chosen: Chosen, ends: Ends) -> list[Row]:
    known = {name: value for name, value in chosen.levels.items() if ends[0] <= value <= ends[1]}
    told = {name: facts.format_number(_short(value), chosen.unit) for name, value in known.items()}
    return [{"at": value, "label": f"{name} {told[name]}"} for name, value in known.items()]


def _names(chosen: Chosen, last: Mapping[str, float], ends: Ends) -> dict[str, list[Row]]:
    """Names of levels and lines, beside the right edge without overlap."""
    (low, high), placed, top = ends, list[Row](), -math.inf
    labels = [(min(max(value, low), high), group, group) for group, value in last.items() if group]
    labels += [] if chosen.several else [(row["at"], row["label"], "") for row in _known(chosen, ends)]
    unit, floor = (high - low) / HEIGHT, HEIGHT + 8.0
    for value, words, group in sorted(labels, key=lambda label: -label[0]):
        lines = _broken(words, _LETTERS).split("|")
        half = _LINE * len(lines) / 2
        middle = max((high - value) / unit, top + half)  # pixels from the upper edge
        placed.append({"lines": lines, "group": group, "middle": middle, "half": half})
        top = middle + half + 1
    for each in reversed(placed):  # what ran over the lower edge moves up again
        middle = min(each.pop("middle"), floor - (half := each.pop("half")))
        floor = middle - half - 1
        each["place"] = high - unit * (middle - half + 0.75 * _LINE)
    groups = [each for each in placed if each["group"]]
    return {"of_groups": groups, "of_levels": [each for each in placed if not each["group"]]}


# Words.

_KINDS = {
    "curves": ("Line chart", "a thin line is one seed, a thick one their mean, with the 95 % interval as a band"),
    "bars": ("Bar chart", "a point is one seed, a bar their mean with its 95 % interval"),
    "dots": ("Dot plot", "a point is one seed, a tick their mean with its 95 % interval"),
    "sweep": ("Line chart", "a point is one seed; lines join the means, with 95 % intervals"),
    "cells": ("Heat map", "mean over seeds"),
}  # fmt: skip


def _words(chosen: Chosen) -> tuple[str, str]:
    # What stands under a figure, and in place of it: the means at the end.
    drawing, (kind, said) = chosen.drawing, _KINDS[chosen.drawing.shape]
    when = "during" if drawing.shape == "curves" else "at the end of"
    caption = [f"{chosen.title[0].upper()}{chosen.title[1:]} {when} training: {said}."]
    if "layer" in (drawing.columns.get("y"), drawing.columns.get("x")):
        caption.append("Layers and heads count from 0.")
    if any(label.startswith("floor: ") for label in chosen.levels):
        caption.append("A floor is a value without learning the task.")
    if gone := len(set(chosen.facts.diverged) & set(chosen.frame["member"].dropna())):
        caption.append(f"{gone} diverged and {'is' if gone == 1 else 'are'} in no mean.")
    if never := int(chosen.final["never"].sum()):
        caption.append(f"{never} never came: such a group has no mean.")
    roles = [role for role in _ROLES[: -1 if drawing.shape == "bars" else None] if role in drawing.columns]
    order = {label: at for role in roles for at, label in enumerate(chosen.labels[role])}
    final = chosen.final.assign(value=chosen.final["value"].mask(chosen.final["never"], math.inf))
    means = final.groupby(roles or (lambda _: "all"), sort=False)["value"].mean()
    told = [(at if isinstance(at, tuple) else (at,), mean) for at, mean in means.items() if mean != math.inf]
    told.sort(key=lambda pair: [order.get(each, 0) for each in pair[0]])
    listed = [f"{', '.join(map(str, at))}: {facts.format_number(mean, chosen.unit)}" for at, mean in told]
    more = f"; and {len(listed) - 12} more" if len(listed) > 12 else ""
    return " ".join(caption), f"{kind} of {chosen.title}. At the end, {'; '.join(listed[:12])}{more}."
