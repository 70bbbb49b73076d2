"""What a page's template may call: numbers, tables, figures and verdicts of a run, and values for conditions."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from hopscope.claims.numbers import format_number
from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.runs.files import listed
from hopscope.studies import blocks
from hopscope.studies.estimates import Estimate, estimated, interval_words, unit_of
from hopscope.studies.figures import Figure
from hopscope.studies.numbers import DASH
from hopscope.studies.page_text import PageText
from hopscope.studies.page_values import ClaimFacts, ConfigurationFacts, Learned, MemberFacts, Numbers, Said
from hopscope.studies.selection import (
    CONFIGURATION,
    Group,
    check_metric,
    configured,
    diverged,
    floors_of,
    groups,
    lowest_floor,
    members_of,
    metric_words,
    missing,
    one_measure,
    written,
)

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.claims import JudgedClaim
    from hopscope.runs.evidence import Evidence
    from hopscope.studies.page import StudyFacts


_QUARTER = 0.25
"""A loss below this share of its lowest floor counts as learned."""

_SHOWN = {
    "model": ("layers", "heads", "width", "mlp_ratio", "causal", "positions"),
    "training": ("steps", "batch_size", "optimizer", "learning_rate", "examples"),
}
"""Fields that `settings()` shows of every run; the others are in the page's record."""

_SECTION_OF_DOCSTRING = re.compile(
    r"^\s*(Attributes|Args|Arguments|Raises|Returns|Parameters):?\s*$", re.MULTILINE
)


class PageFunctions:
    """The functions of one page; what they return is text with places for numbers and blocks."""

    def __init__(
        self,
        facts: "StudyFacts",
        evidence: "Evidence",
        ledger: "Sequence[JudgedClaim]",
        figures: Sequence[Figure],
        run: RunFolder,
        text: PageText,
    ):
        self._facts, self._evidence, self._run = facts, evidence, run
        self._figures = {figure.name: figure for figure in figures}
        self._claims = [ClaimFacts.of(claim) for claim in ledger]
        self._text = text
        self._drawn: set[str] = set()
        self._units: dict[str, str] = {}

    def names(self) -> dict[str, Any]:
        """Everything that a template may use, by name."""
        facts, task = self._facts, self._facts.task
        functions = (
            self.estimate, self.value, self.last, self.learned, self.floors, self.table, self.settings,
            self.setting, self.figure, self.figures, self.verdicts, self.claim,
        )  # fmt: skip
        return {
            **{function.__name__: function for function in functions},
            "study": {
                "name": facts.name,
                "question": facts.question,
                "options": dict(facts.options),
                "seeds": facts.seeds,
                "source": _without_folder(facts.source),
            },
            "task": task
            and {"name": task.name, "docstring": _purpose(task.docstring), "fields": dict(task.fields)},
            "model": dict(facts.model),
            "training": dict(facts.training),
            "vary": dict(facts.vary),
            "varied": list(self._evidence.columns),
            "metrics": list(self._evidence.metrics),
            "members": [self._member(member) for member in self._evidence.members],
            "diverged": [self._member(member) for member in self._gone],
            "configurations": self._configurations(),
            "claims": self._claims,
            "run": {
                "study": self._run.study,
                "hash": self._run.hash,
                "preset": self._run.preset,
                "path": f"runs/{self._run.study}/{self._run.hash}",
            },
        }

    # Numbers.

    def estimate(self, metric: str, *, unit: str | None = None, **where: Any) -> Said:
        """The mean of a metric at the last step, with its 95 % interval over seeds and what it is over.

        Args:
            metric: what was measured.
            unit: `"fraction"` (in percent), `"number"`, or a word that follows the number; by default what the name
                of the metric says.
            where: `split`, `part`, `layer`, `head`, `measure`, and values of columns, as in `**{"model.layers": 1}`.

        Raises:
            UserError: there is no such metric or column.
        """
        found, key = self._estimate(f"estimate of {metric!r}", metric, where)
        if found.mean is None:
            return Said(found.reason)
        text = f"{self._shown(found, unit or self._unit(metric), key)} (n\u00a0=\u00a0{found.count})"
        return _said(text, found)

    def value(self, metric: str, *, unit: str | None = None, **where: Any) -> Said:
        """The mean of a metric at the last step alone; arguments as in `estimate`."""
        found, key = self._estimate(f"value of {metric!r}", metric, where)
        if found.mean is None:
            return Said(found.reason)
        written_out = format_number(found.mean, unit or self._unit(metric))
        text = self._text.number(found.mean, written_out, EVIDENCE, f"mean of {key}")
        return _said(text, found)

    def last(self, metric: str, **where: Any) -> Numbers:
        """Values of the members at the last step, for conditions; arguments as in `estimate`."""
        values, _ = self._values(f"last of {metric!r}", metric, where)
        return Numbers.of(values)

    def learned(self, metric: str = "loss", below: float | None = None, **where: Any) -> Learned:
        """How many members ended below a bound, by default a quarter of the lowest floor of their configuration.

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

    def floors(self, metric: str = "loss", configuration: str | None = None) -> dict[str, float]:
        """Floors of a metric by name: of a configuration, or those that all configurations share."""
        labels = [each.label for each in self._configurations()]
        if configuration is not None and configuration not in labels:
            raise UserError(
                f"floors: expected one of the configurations {listed(labels)}, found {configuration!r}"
            )
        chosen = labels if configuration is None else [configuration]
        found = [floors_of(self._facts.floors, metric, label) for label in chosen]
        shared = found[0] if found else {}
        return {
            name: value for name, value in shared.items() if all(each.get(name) == value for each in found)
        }

    # Blocks.

    def table(
        self,
        metrics: str | Sequence[str],
        by: str | None = None,
        split: str = "held_out",
        part: str | None = None,
        caption: str = "",
    ) -> str:
        """A table of metrics at the last step: a row for each group, with intervals, beside the floors.

        Args:
            metrics: one, or several.
            by: as in `hs.figures.bars`.
            split, part: as in `estimate`.
            caption: what stands under it; by default what its numbers are.
        """
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        what = f"table of {listed(map(repr, names))}"
        found = groups(self._evidence, by, what)
        floors = {name: {} if part else self._floors_by_group(name, found) for name in names}
        # A floor that all groups share is a row below theirs; otherwise it has a column.
        differing = [
            (name, floor) for name, own in floors.items() for floor, values in own.items() if len(values) > 1
        ]
        columns = [by or CONFIGURATION, *(metric_words(name, split, part) for name in names)]
        columns += [f"floor: {floor}" + f" ({name})" * (len(names) > 1) for name, floor in differing]
        rows = [self._row(group, names, split, part, differing, what) for group in found]
        for name, floor, value in (
            (n, f, v[0]) for n, own in floors.items() for f, v in own.items() if len(v) == 1
        ):
            cells = [self._floor(name, floor, value) if each == name else "" for each in names]
            rows.append([self._text.literal(f"floor: {floor}"), *cells, *[""] * len(differing), ""])
        words = (
            caption or "Means over seeds at the end of training, with 95 % bootstrap intervals over seeds."
        )
        return self._text.block(
            blocks.table([*map(self._text.literal, columns), "n"], rows, self._text.story(words))
        )

    def settings(self, caption: str = "") -> str:
        """A table of what was trained: the task's fields, and the fields of model and training that matter most."""
        facts = self._facts
        sections = {
            "task": facts.task.fields if facts.task else {},
            "model": facts.model,
            "training": facts.training,
            "options": facts.options,
        }
        rows = []
        for section, fields in sections.items():
            prefix = "" if section == "options" else f"{section}."
            shown = [name for name in fields if f"{prefix}{name}" in self._evidence.columns]
            shown += [name for name in fields if name not in shown and name in _SHOWN.get(section, fields)]
            told = [f"{name} {self.setting(prefix + name)}" for name in shown if fields[name] is not None]
            if told:
                rows.append([section, self._text.literal("; ".join(told))])
        words = (
            caption
            or "Fields marked as varied differ between configurations. The record below has every field."
        )
        return self._text.block(blocks.table(["part", "fields"], rows, self._text.story(words)))

    def setting(self, name: str) -> str:
        """The value of a field in this run, or its values where configurations differ in it.

        Raises:
            UserError: there is no such field.
        """
        if name in self._evidence.columns:
            values = list(
                dict.fromkeys(written(value) for value in self._members[name] if not missing(value))
            )
            return f"{' or '.join(values)} (varied)"
        section, _, field = name.rpartition(".")
        task = self._facts.task
        known = {"task": task.fields if task else {}, "model": self._facts.model, "training": self._facts.training,
                 "": self._facts.options}  # fmt: skip
        fixed = configured(self._evidence, name)
        if fixed is None and field in known.get(section, {}):
            fixed = (known[section][field],)
        if fixed is None:
            raise UserError(f"setting: expected a field of the study, such as training.steps, found {name!r}")
        return written(fixed[0])

    def figure(self, name: str | int = 0, caption: str = "", alt: str = "") -> str:
        """A figure of the study, by its name or its place.

        Raises:
            UserError: there is no such figure.
        """
        known = list(self._figures)
        if isinstance(name, int) and 0 <= name < len(known):
            name = known[name]
        if name not in self._figures:
            raise UserError(
                f"figure: expected one of {listed(known) or 'none, for the study has none'}, found {name!r}"
            )
        figure = self._figures[str(name)]
        self._drawn.add(figure.name)
        words, text = figure.words(self._evidence, self._facts.floors)
        block = blocks.figure(
            figure.name, self._text.story(caption or words), self._text.literal(alt or text)
        )
        return self._text.block(block)

    def figures(self) -> str:
        """Every figure that the template has not shown before."""
        return "".join(self.figure(name) for name in self._figures if name not in self._drawn)

    def verdicts(self) -> str:
        """The table of all claims."""
        return self._text.block({"kind": "verdicts"})

    def claim(self, id: str) -> ClaimFacts:
        """A judged claim, for its words and for conditions.

        Raises:
            UserError: there is no such claim.
        """
        for claim in self._claims:
            if claim.id == id:
                return claim
        known = listed(claim.id for claim in self._claims) or "none, for the study has none"
        raise UserError(f"claim: expected one of {known}, found {id!r}")

    # Of the run.

    @cached_property
    def _members(self) -> "pd.DataFrame":
        return members_of(self._evidence)

    @cached_property
    def _gone(self) -> list[int]:
        return diverged(self._evidence)

    def _member(self, member: int) -> MemberFacts:
        return MemberFacts(member, self._evidence.seeds[member], self._evidence.configurations[member])

    def _configurations(self) -> list[ConfigurationFacts]:
        found = []
        for label in dict.fromkeys(self._evidence.configurations.values()):
            own = self._members[self._members[CONFIGURATION] == label]
            members = tuple(int(member) for member in own.index)
            values = {
                name: None if missing(own[name].iloc[0]) else own[name].iloc[0]
                for name in self._evidence.columns
            }
            gone = tuple(member for member in members if member in self._gone)
            seeds = tuple(int(seed) for seed in own["seed"])
            found.append(ConfigurationFacts(label, members, seeds, values, gone))
        return found

    def _values(self, what: str, metric: str, where: Mapping[str, Any]) -> "tuple[pd.Series, str]":
        """Each member's last value, and the query in words."""
        import pandas as pd

        check_metric(self._evidence, metric, what)
        asked = {"split": "held_out", **where}
        key = ", ".join(f"{name} = {written(value)}" for name, value in asked.items() if value is not None)
        key = f"metric = {metric}, {key}, last step"
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

    def _own(self, asked: Mapping[str, Any], what: str) -> tuple[dict[str, Any], bool]:
        """What the evidence can be asked, and whether fields that are the same in all of the run have the values."""
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
        return estimated(values, self._members, self._gone), f"{key}, over {len(values)} members"

    def _unit(self, metric: str) -> str:
        if metric not in self._units:
            self._units[metric] = unit_of(metric, self._evidence.rows(metric, split=None)["value"])
        return self._units[metric]

    def _shown(self, found: Estimate, unit: str, key: str) -> str:
        """A mean with its interval."""
        assert found.mean is not None
        if found.interval is None:
            return self._text.number(found.mean, format_number(found.mean, unit), EVIDENCE, f"mean of {key}")
        texts = interval_words(found.mean, found.interval, unit)
        middle = self._text.number(found.mean, texts[0], EVIDENCE, f"mean of {key}")
        low, high = (
            self._text.number(
                end, text, EVIDENCE, f"95 % bootstrap interval over seeds, {side} end, of the mean of {key}"
            )
            for end, text, side in zip(found.interval, texts[1:], ("lower", "upper"), strict=True)
        )
        return f"{middle} [{low}, {high}]"

    def _bound(self, metric: str, below: float | None, configuration: str) -> float | None:
        if below is not None:
            return below
        floor = lowest_floor(self._facts.floors, metric, configuration)
        return None if floor is None or floor <= 0 else _QUARTER * floor

    def _floors_by_group(self, metric: str, found: Sequence[Group]) -> dict[str, list[float | None]]:
        """Different values of each floor over all configurations."""
        every = [
            floors_of(self._facts.floors, metric, each) for group in found for each in group.configurations
        ]
        names = dict.fromkeys(name for own in every for name in own)
        return {name: list(dict.fromkeys(own.get(name) for own in every)) for name in names}

    def _row(
        self,
        group: Group,
        metrics: Sequence[str],
        split: str,
        part: str | None,
        floors: Sequence[tuple[str, str]],
        what: str,
    ) -> list[str]:
        cells, counts = [self._text.literal(group.label)], []
        for metric in metrics:
            found, key = self._estimate(
                what, metric, {"split": split, "part": part, "member": list(group.members)}
            )
            counts.append(found.count)
            cells.append(
                found.reason
                if found.mean is None
                else self._text.story(self._shown(found, self._unit(metric), key))
            )
        for metric, floor in floors:
            values = {floors_of(self._facts.floors, metric, each).get(floor) for each in group.configurations}
            cells.append(self._floor(metric, floor, values.pop()) if len(values) == 1 else "differs")
        return [*cells, self._text.literal("; ".join(dict.fromkeys(counts)))]

    def _floor(self, metric: str, floor: str, value: float | None) -> str:
        if value is None:
            return DASH
        task = self._facts.task.name if self._facts.task else "task"
        file = _without_folder(self._facts.source) or "the task"
        text = format_number(value, self._unit(metric))
        return self._text.story(self._text.number(value, text, file, f"{task}.floors(): {floor}"))


def _said(text: str, found: Estimate) -> Said:
    assert found.mean is not None
    low, high = found.interval or (math.nan, math.nan)
    return Said(text, found.mean, low, high, found.measured)


def _without_folder(source: str) -> str:
    """A reference to a study without the folder of its file: a page says nothing of the machine that made it."""
    return PurePath(source).name if ".py" in source else source


def _purpose(docstring: str) -> str:
    """A docstring up to its list of attributes."""
    return _SECTION_OF_DOCSTRING.split(inspect.cleandoc(docstring))[0].strip()
