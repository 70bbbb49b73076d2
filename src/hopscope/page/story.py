"""The functions that a page's template calls: numbers, tables, figures and claims of a run, and values for conditions.

Every number is computed from rows of the evidence, and tells which.
"""

import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from hopscope.claims.verdict import counted
from hopscope.errors import UserError
from hopscope.page import facts
from hopscope.page.facts import CONFIGURATION, Facts, format_number, missing, written
from hopscope.page.files import Shown
from hopscope.page.template import Held
from hopscope.page.verdicts import Row
from hopscope.runs import Evidence
from hopscope.runs.folder import listed
from hopscope.tasks.task import LEARNED

_NUMBERS = ("mean", "low", "high", "lowest", "highest")
_SPECIAL = re.compile(r"([*_`\[\]<>#|\\])")
_ESCAPED = re.compile(r"\\" + _SPECIAL.pattern)
_CELLS = re.compile(r"(?<!\\)\|")  # what parts the cells of a row; a stroke that means itself is written `\|`
_SECTION = re.compile(r"^\s*(Attributes|Args|Arguments|Raises|Returns|Parameters):?\s*$", re.MULTILINE)
_ABOUT = ("model", "training", "options", "study", "units")
_MEETS: dict[str, Callable[[float, float], bool]] = {
    "above": operator.gt, "below": operator.lt, "at_least": operator.ge, "at_most": operator.le, "equal": operator.eq,
}  # fmt: skip


class Told(dict[str, Any]):
    """Facts by name, for conditions, and the text that stands for them; one compares by its `mean`, else its text."""

    def __init__(self, text: str, **facts: Any):
        super().__init__(facts)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.get("count", self.text))

    __lt__, __le__, __gt__, __ge__, __eq__, __ne__ = (
        lambda self, other, meets=each: bool(meets(self.get("mean", self.text), other))
        for each in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
    )


def plain(words: str) -> str:
    """Words that Markdown reads as they stand."""
    return _SPECIAL.sub(r"\\\1", words)


class Story:
    """The functions of one page, and what the template may ask for besides.

    Attributes:
        held: what holds numbers and blocks.
        lead: the answer in Markdown, and its chart; `None` until the template gave it.
        asked: kinds of blocks that the template has shown.
    """

    def __init__(
        self, evidence: Evidence, about: Mapping[str, Any], claims: Sequence[Row], figures: Sequence[Shown],
        blocks: Mapping[str, Callable[..., Any]], held: Held,
    ):  # fmt: skip
        """`blocks` make HTML: `figure`, `table`, `claims`, `explorer` and `circuits`; `about` is told of the study."""
        self._facts, self._evidence, self._about, self._claims = Facts(evidence), evidence, about, claims
        self._figures, self._blocks, self.held = {each.name: each for each in figures}, blocks, held
        self._drawn, self.asked = set[str](), set[str]()
        self.lead: tuple[str, Shown | None] | None = None

    def names(self) -> dict[str, Any]:
        """Everything that a template may use, by name."""
        about, task = self._about, self._about.get("task")
        functions = (
            self.estimate, self.count, self.learned, self.has, self.rows, self.number, self.table, self.grid,
            self.setting, self.figure, self.figures, self.claims, self.claim, self.answer,
            self.explorer, self.circuits, counted, facts.symbol, plain,
        )  # fmt: skip
        # A docstring up to its list of attributes.
        purpose = _SECTION.split(inspect.cleandoc((task or {}).get("docstring") or ""))[0].strip()
        return {
            **{function.__name__: function for function in functions},
            **{name: about.get(name) or {} for name in _ABOUT},
            "task": task and {**task, "docstring": purpose},
            "varied": list(self._evidence.columns),
            "metrics": list(self._evidence.metrics),
            "members": [*map(self._member, self._evidence.members)],
            "diverged": [*map(self._member, self._facts.diverged)],
            "configurations": self._configurations(),
            "figure_names": list(self._figures),
            "ledger": [*map(_claim, self._claims)],
        }

    # Numbers.

    def estimate(
        self, metric: str, *, unit: str | None = None, n: bool = True, decimals: int | None = None, **where: Any
    ) -> Told:  # fmt: skip
        """A metric at the last step: the mean with its 95 % interval over seeds, and what it is over.

        Args:
            metric: what was measured.
            unit: `"fraction"` (in percent), `"number"`, or a word that follows; by default what the name says.
            n: whether to say what the mean is over.
            decimals: of the mean alone.
            where: `split`, `part`, `layer`, `head`, `measure`, and values of columns, as in `**{"model.layers": 1}`.

        Returns:
            As text the mean with its interval and what it is over; in parts `short` (without that), `value` (the mean
            alone), `range` (the lowest and the highest member) and `median`; for conditions `mean`, `low` and `high`,
            `lowest` and `highest` of the members (NaN where there is none, so that no comparison holds), and `n`.
        """
        values, key = self._last(metric, where)
        found, unit = self._facts.estimate(values), unit or self._unit(metric)
        if not found.values:
            texts = dict.fromkeys(("short", "value", "range", "median"), found.over)
            return Told(found.over, **texts, **dict.fromkeys(_NUMBERS, math.nan), n=0)
        low, high = found.interval or (math.nan, math.nan)
        over = f"mean of {key}, over {counted(found.members, 'member')}"
        mean, *sides = facts.format_estimate(found.mean, found.interval, unit)
        held = [self._held(text, f"an end of the 95 % interval over seeds, of the {over}") for text in sides]
        short = self._held(mean, over) + (f" [{', '.join(held)}]" if held else "")
        ends = dict.fromkeys((min(found.values), max(found.values)))
        members = {end: f"{key}, member {values[values == end].index[0]}" for end in ends}
        # What never happened counts as later than all; of an even number, the lower of the two middle ones.
        middle = values.dropna().sort_values().iloc[(values.count() - 1) // 2]
        return Told(
            f"{short} (n\u00a0=\u00a0{found.over})" if n and found.members else short, short=short, n=len(found.values),
            value=self._held(format_number(found.mean, unit, decimals), over),
            range=" – ".join(self._held(format_number(end, unit, decimals), members[end]) for end in ends),
            median=self._held(format_number(middle, unit), f"median of {key}") if math.isfinite(middle)
            else "never, in more than half",
            **dict(zip(_NUMBERS, (found.mean, low, high, min(ends), max(ends)), strict=True)),
        )  # fmt: skip

    def count(self, metric: str, **where: Any) -> Told:
        """How many members with a number meet all conditions at the last step: `5 of 6`; in parts as of `learned`.

        Conditions are `above`, `below`, `at_least`, `at_most` and `equal`, and those of `estimate`.
        """
        asked = {name: where.pop(name) for name in _MEETS if name in where}
        values, key = self._last(metric, where)
        known = [float(value) for value in values if not math.isnan(value)]
        met = sum(all(_MEETS[name](value, bound) for name, bound in asked.items()) for value in known)
        said = ", ".join(f"{name.replace('_', ' ')} {bound:g}" for name, bound in asked.items())
        return self._counted(met, len(known), bool(known), f"members {said} of {key}")

    def learned(self, metric: str = "loss", below: float | None = None, **where: Any) -> Told:
        """How many members with a number ended below a bound; by default a third of their configuration's lowest floor.

        As text `5 of 6`; in parts `count` and `of`, `all` and `none`, and `known`: whether there is a bound.
        """
        values, key = self._last(metric, where)
        labels = self._evidence.configurations
        values = values[values.index.isin(labels)].dropna()
        floors = [self._facts.floors(metric, [labels[member]]).values() for member in values.index]
        lowest = [min((each for each in own if each > 0), default=math.nan) for own in floors]
        bounds = [LEARNED * each if below is None else below for each in lowest]
        count = sum(value < bound for value, bound in zip(values, bounds, strict=True))
        known = bool(bounds) and not any(map(math.isnan, bounds))
        words = f"{below:g}" if below is not None else "a third of the lowest floor"
        return self._counted(count, len(values), known, f"members below {words} of {key}")

    def _counted(self, count: int, of: int, known: bool, key: str) -> Told:
        text, every = f"{self._held(str(count), key)} of {of}", known and 0 < of == count
        text = text if known or not of else "no value (no floor is known)"
        return Told(text, count=count, of=of, known=known, all=every, none=known and count == 0, mean=count)

    def has(self, metric: str, **where: Any) -> bool:
        """Whether some member has a number for a metric; other arguments as of `estimate`; the metric may be any."""
        if metric not in self._evidence:
            return False
        asked = {**dict.fromkeys(facts.PLACE, ...), **where}
        return bool(self._facts.rows(metric, f"has {metric!r}", **asked)["value"].notna().any())

    def rows(self, metric: str, *, unit: str | None = None, **where: Any) -> list[Told]:
        """Rows of a metric at each member's last step, one by one, of every layer, head and part; as of `estimate`.

        Each has as text its number; for conditions `value`, `member`, `layer`, `head`, `part` and `step`.
        """
        asked = {**dict.fromkeys(facts.PLACE, ...), **where}
        frame = self._facts.rows(metric, f"rows of {metric!r}", **asked)
        frame = frame if frame["member"].isna().all() else facts.at_last_step(frame)
        unit, found = unit or self._unit(metric), list[Told]()
        frame = frame.dropna(subset="value").sort_values(["member", "layer", "head"], kind="stable")
        for row in frame.to_dict("records"):
            told = {name: None if missing(row[name]) else row[name] for name in ("member", *facts.PLACE)}
            place = [f"{name} = {each}" for name, each in told.items() if each is not None]
            key, value = ", ".join([f"metric = {metric}", *place, "last step"]), float(row["value"])
            text = self._held(format_number(value, unit), key)
            found.append(Told(text, value=value, mean=value, step=int(row["step"]), **told))
        return found

    def number(
        self, value: float, what: str, unit: str = "number", decimals: int | None = None, file: str = "config.json"
    ) -> str:  # fmt: skip
        """A number that is not in the evidence, such as one of the configuration; `what` it is in words, and where."""
        return self.held.number(format_number(value, unit, decimals), f"{file} · {what}")

    # Blocks.

    def table(self, metrics: str | Sequence[str], by: str | None = None) -> str:
        """A table of metrics at the last step: a row for each value of `by`, with intervals, and the floors below."""
        names, rows = [metrics] if isinstance(metrics, str) else [*metrics], list[list[str]]()
        columns = [by or CONFIGURATION, *(facts.metric_words(name) for name in names), "n"]
        for label, members in self._facts.groups(by, f"table of {listed(map(repr, names))}").items():
            found = (self._facts.estimate(self._last(name, {"member": members})[0]) for name in names)
            over = dict.fromkeys(each.over for each in found)
            cells = [str(self.estimate(name, n=False, member=members)) for name in names]
            rows.append([label, *cells, "; ".join(over)])
        floors = {name: self._facts.floors(name) for name in names}
        for floor in dict.fromkeys(each for own in floors.values() for each in own):
            cells = [
                self.held.number(format_number(own[floor], self._unit(name)), f"the task's floors(): {floor}")
                if floor in own else ""
                for name, own in floors.items()
            ]  # fmt: skip
            rows.append([f"floor: {floor.replace('_', ' ')}", *cells, ""])
        caption = "Means at the end of training [95 % bootstrap interval over seeds]."
        return self._table(columns, rows, caption)

    def grid(self, caption: str = "", *, caller: Callable[[], str]) -> str:
        """A table whose rows the template writes, cells between `|`: `{% call grid("Caption.") %} … {% endcall %}`."""
        lines = [line.strip().strip("|") for line in caller().splitlines() if line.strip()]
        rows = [[_ESCAPED.sub(r"\1", cell.strip()) for cell in _CELLS.split(line)] for line in lines]
        uneven = next((row for row in rows if len(row) != len(rows[0])), None)
        if uneven:
            found = f"{len(uneven)} in {self.held.plain(' | '.join(uneven))}"
            raise UserError(f"grid: expected {len(rows[0])} cells in every row, found {found}")
        return self._table(rows[0], rows[1:], _ESCAPED.sub(r"\1", caption)) if rows else ""

    def setting(self, name: str) -> str:
        """The value of a field in this run, or its values where configurations differ in it."""
        if (column := self._facts.column(name)) in self._evidence.columns:
            return f"{' or '.join(map(written, facts.different(self._facts.members[column])))} (varied)"
        if (fixed := self._facts.setting(name)) is None:
            raise UserError(f"setting: expected a field of the study, such as training.steps, found {name!r}")
        return written(fixed[0])

    def figure(self, name: str, caption: str = "", alt: str = "") -> str:
        """A figure of the study by its name."""
        shown = self._figure(name, caption, alt)
        if self.lead and self.lead[1] and self.lead[1].name == name:
            if self.lead[1].caption == self._figures[name].caption:  # none was given with the answer
                self.lead = self.lead[0], shown
            words = Markup("<p>This chart stands at the top of the page: {}</p>")
            return self.held.block(words.format(self.held.html(shown.caption)))
        return self.held.block(self._blocks["figure"](shown))

    def figures(self) -> str:
        """Every figure that the template has not shown before."""
        return "".join(self.figure(name) for name in self._figures if name not in self._drawn)

    def _figure(self, name: str, caption: str = "", alt: str = "") -> Shown:
        found = self._known("figure", name, self._figures)
        self._drawn.add(name)
        return found._replace(caption=caption or found.caption, alt=self.held.plain(alt) or found.alt)

    def answer(
        self, chart: str | Sequence[str] = (), caption: str = "", circuit: bool = False, *, caller: Callable[[], str]
    ) -> str:  # fmt: skip
        """The answer in at most three sentences, and the one chart that shows it: `{% call answer("loss") %} …`.

        Of the names of several figures, the first that the run has is shown; with `circuit` the first of the circuits
        stands beside it, where the page has a player.  Where training of every model diverged, the answer is that.
        """
        if self.lead is not None:
            raise UserError("answer: expected one answer, found a second one; join them")
        names = [chart] if isinstance(chart, str) else chart
        found = next((name for name in names if name in self._figures), None)
        lost = 0 < len(self._evidence.members) == len(self._facts.diverged)
        words = "Training of every model diverged, so there is no answer." if lost else caller()
        self.lead = " ".join(words.split()), self._figure(found, caption) if found else None
        self.asked |= {"circuit beside the answer"} if circuit else set()
        return ""

    def claims(self, readings: bool = False) -> str:
        """All claims and what each comes to; with `readings` a table of claims under every reading of their sources."""
        self.asked.add("claims")
        return self.held.block(self._blocks["readings" if readings else "claims"]())

    def claim(self, id: str) -> Told:
        """A judged claim: `id`, `statement`, `verdict`, `words`; `here` and `of_source`, which say what it comes to.

        Its `state`, at the scale of the run, is `good`, `bad`, `open` or `none`.
        """
        return _claim(self._known("claim", id, {row.verdict.id: row for row in self._claims}))

    def explorer(self) -> str:
        """A section in which a reader tries the run's models; nothing where the run has none to show."""
        return self._section("explorer", "Take a model apart")

    def circuits(self, heading: str = "Which heads do it") -> str:
        """A section in which the circuits that were read are played; nothing where none was."""
        return self._section("circuits", heading)

    def _section(self, kind: str, heading: str) -> str:
        html = self._blocks[kind]()
        return f"\n\n## {heading}\n\n{self.held.block(html)}" if html else ""

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
        return self.held.block(self._blocks["table"](columns, rows, caption))

    # How numbers are found.

    def _known(self, kind: str, name: str, found: Mapping[str, Any]) -> Any:
        if name not in found:
            names = listed(found, 30) if found else f"none, for the study has no {kind}s"
            raise UserError(f"{kind}: expected one of {names}, found {name!r}")
        return found[name]

    def _last(self, metric: str, where: Mapping[str, Any]) -> tuple[pd.Series, str]:
        told = (f"{name} = {written(value)}" for name, value in where.items() if value is not None)
        key = f"{', '.join([f'metric = {metric}', *told])}, last step"
        return self._facts.last(metric, f"{metric!r}", **where), key

    def _held(self, text: str, key: str) -> str:
        return self.held.number(text, f"evidence.parquet · {key}")

    def _unit(self, metric: str) -> str:
        return facts.unit_of(metric, self._evidence.rows(metric, split=None)["value"].dropna())

    # Of the run.

    def _member(self, member: int) -> Told:
        label, seed = self._evidence.configurations[member], self._evidence.seeds[member]
        return Told(plain(f"{label}, seed {seed}"), member=member, seed=seed, configuration=label)

    def _configurations(self) -> list[Told]:
        found, columns = [], self._evidence.columns
        for label, own in self._facts.members.groupby(CONFIGURATION, sort=False):
            members, seeds = [*map(int, own.index)], [*map(int, own["seed"])]
            values = {name: None if missing(own[name].iloc[0]) else own[name].iloc[0] for name in columns}
            gone = [member for member in members if member in self._facts.diverged]
            told = {"label": label, "members": members, "seeds": seeds, "values": values, "diverged": gone}
            found.append(Told(plain(str(label)), **told))
        return found


def _claim(row: Row) -> Told:
    verdict = row.verdict
    said = {"statement": verdict.statement, "words": verdict.words, "here": row.here, "of_source": row.source}
    told = {name: getattr(verdict, name) for name in ("id", "verdict", "leaning")} | {"state": row.state}
    return Told(verdict.id, **told, **{name: plain(each) for name, each in said.items()})
