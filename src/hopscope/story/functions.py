"""Functions for page templates: numbers, tables, figures and verdicts of a run, and values for conditions."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from hopscope.claims.numbers import format_number
from hopscope.errors import UserError
from hopscope.figures import Figure
from hopscope.figures.selection import (
    CONFIGURATION,
    Group,
    configured,
    floors_of,
    groups,
    metric_words,
    missing,
    written,
)
from hopscope.runs import RunFolder
from hopscope.runs.files import listed
from hopscope.story.numbers import PageNumberFunctions
from hopscope.story.text import DASH, Block, PageText
from hopscope.story.values import ClaimFacts, ConfigurationFacts, MemberFacts, claims_sentence
from hopscope.words import counted, symbol

if TYPE_CHECKING:
    from hopscope.claims import JudgedClaim
    from hopscope.runs.evidence import Evidence
    from hopscope.story.page import StudyFacts


_SHOWN = {
    "model": ("layers", "heads", "width", "mlp_ratio", "causal", "positions"),
    "training": ("steps", "batch_size", "optimizer", "learning_rate", "examples"),
}
"""Fields that `settings()` shows of every run; the others are in the page's record."""

_CELLS = re.compile(r"(?<!\\)\|")
"""What parts the cells of a row; a stroke that means itself is written `\\|`."""

_SECTION_OF_DOCSTRING = re.compile(
    r"^\s*(Attributes|Args|Arguments|Raises|Returns|Parameters):?\s*$", re.MULTILINE
)


class PageFunctions(PageNumberFunctions):
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
        super().__init__(facts, evidence, text)
        self.run, self.evidence, self.ledger = run, evidence, ledger
        self._figures = {figure.name: figure for figure in figures}
        self._claims = [ClaimFacts.of(claim) for claim in ledger]
        self._drawn: set[str] = set()
        self.lead: Block | None = None
        self._own_words: set[str] = set()

    def names(self) -> dict[str, Any]:
        """Everything that a template may use, by name."""
        facts, task = self._facts, self._facts.task
        functions = (
            self.estimate, self.value, self.share, self.last, self.learned, self.range, self.median, self.count,
            self.has, self.rows, self.number, self.floors, self.table, self.grid, self.settings, self.setting,
            self.answer, self.claims_sentence, self.figure, self.figures, self.figure_names, self.has_figure,
            self.verdicts, self.claim, counted, symbol,
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
            "task": task and {**task, "docstring": _purpose(task["docstring"])},
            "model": dict(facts.model),
            "training": dict(facts.training),
            "vary": dict(facts.vary),
            "varied": list(self._evidence.columns),
            "metrics": list(self._evidence.metrics),
            "members": [self.member(member) for member in self._evidence.members],
            "diverged": [self.member(member) for member in self.gone],
            "configurations": self._configurations(),
            "claims": self._claims,
            "range_of": range,
            "run": {
                "study": self.run.study,
                "hash": self.run.hash,
                "preset": self.run.preset,
                "path": f"runs/{self.run.study}/{self.run.hash}",
            },
        }

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

    def answer(self, chart: str | Sequence[str] = (), *, caller: Callable[[], str], **words: str) -> str:
        """The lead of the page: the answer in at most three sentences, and the one chart that shows it.

        It is called with a body: `{% call answer("loss") %} … {% endcall %}`.  The chart is not shown a second time:
        where the page asks for it again, its words go to the lead if that has none.

        Args:
            chart: name of a figure, or several, of which the run's first is shown.
            caller: Jinja's, which gives the body.
            words: `caption` and `alt`, as in `figure`.
        """
        names = [chart] if isinstance(chart, str) else chart
        found = next(filter(self.has_figure, names), None)
        shown = None if found is None else self._figure(found, **words)
        self._own_words = set(words)
        text = self._text.story(" ".join(caller().split()))
        if text or shown:
            self.lead = {"text": text, "figure": shown}
        return ""

    def claims_sentence(self) -> str:
        """One sentence: how many claims came out how, and where those that are undecided point."""
        return claims_sentence(self._claims)

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
        return self._table([*map(self._text.literal, columns), "n"], rows, words)

    def grid(self, caption: str = "", *, caller: Callable[[], str]) -> str:
        """A table whose rows the template writes, each a line of cells between `|`; the first line names the columns.

        It is called with a body: `{% call grid("Caption.") %} … {% endcall %}`.

        Args:
            caption: what stands under it.
            caller: Jinja's, which gives the body.

        Raises:
            UserError: a row has more or fewer cells than there are columns.
        """
        lines = [line.strip() for line in caller().splitlines() if line.strip()]
        rows = [
            [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line.strip("|"))] for line in lines
        ]
        uneven = [row for row in rows if len(row) != len(rows[0])]
        if uneven:
            raise UserError(
                f"grid: expected {len(rows[0])} cells in every row, found {len(uneven[0])} in {' | '.join(uneven[0])}"
            )
        columns, *others = [[self._text.story(cell) for cell in row] for row in rows] or [[]]
        return self._table(columns, others, caption)

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
        """Put a table into the page: every row has a cell for each column, and all words are those of a story."""
        return self.block({
            "kind": "table", "columns": list(columns), "rows": list(map(list, rows)),
            "caption": self._text.story(caption),
        })  # fmt: skip

    def block(self, block: Block) -> str:
        """Put a block of the report into the page: what a study makes itself, such as a player of circuits."""
        return self._text.block(block)

    def settings(self, caption: str = "") -> str:
        """A table of what was trained: the task's fields, and the fields of model and training that matter most."""
        rows = []
        for section, fields in self._fields.items():
            prefix = "" if section == "options" else f"{section}."
            shown = [name for name in fields if f"{prefix}{name}" in self._evidence.columns]
            shown += [name for name in fields if name not in shown and name in _SHOWN.get(section, fields)]
            told = [f"{name} {self.setting(prefix + name)}" for name in shown if fields[name] is not None]
            if told:
                rows.append([section, self._text.literal("; ".join(told))])
        words = "Fields marked as varied differ between configurations. The record below has every field."
        return self._table(["part", "fields"], rows, caption or words)

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
        fixed = configured(self._evidence, name)
        known = self._fields.get(section or "options", {})
        if fixed is None and field in known:
            fixed = (known[field],)
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
        first = self.lead and self.lead["figure"]
        if first and first["name"] == name:
            given = {"caption": self._text.story(caption), "alt": self._text.literal(alt)}
            first.update({key: words for key, words in given.items() if words and key not in self._own_words})
            return "\n\nThe chart of this stands at the top of the page.\n\n"
        return self.block(self._figure(str(name), caption, alt))

    def _figure(self, name: str, caption: str = "", alt: str = "") -> Block:
        figure = self._figures[name]
        self._drawn.add(name)
        words, text = figure.words(self._evidence, self._facts.floors)
        return {
            "kind": "figure", "name": name, "caption": self._text.story(caption or words),
            "alt": self._text.literal(alt or text), **({"published": figure.published} if figure.published else {}),
        }  # fmt: skip

    def figures(self) -> str:
        """Every figure that the template has not shown before."""
        return "".join(self.figure(name) for name in self._figures if name not in self._drawn)

    def figure_names(self) -> list[str]:
        """Names of the study's figures, in its own order."""
        return list(self._figures)

    def has_figure(self, name: str) -> bool:
        """Whether the study has a figure of this name in this run."""
        return name in self._figures

    def verdicts(self) -> str:
        """The table of all claims."""
        return self.block({"kind": "verdicts"})

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

    @property
    def _fields(self) -> dict[str, Mapping[str, Any]]:
        """The configuration in its sections."""
        facts = self._facts
        task = facts.task["fields"] if facts.task else {}
        return {"task": task, "model": facts.model, "training": facts.training, "options": facts.options}

    def member(self, member: int) -> MemberFacts:
        """A member of the run by its number."""
        seed, configuration = self._evidence.seeds[member], self._evidence.configurations[member]
        named = self._facts.member_name
        return MemberFacts(member, seed, configuration, named(member) if named else "")

    def _configurations(self) -> list[ConfigurationFacts]:
        found = []
        for label in dict.fromkeys(self._evidence.configurations.values()):
            own = self._members[self._members[CONFIGURATION] == label]
            members = tuple(int(member) for member in own.index)
            values = {
                name: None if missing(own[name].iloc[0]) else own[name].iloc[0]
                for name in self._evidence.columns
            }
            gone = tuple(member for member in members if member in self.gone)
            seeds = tuple(int(seed) for seed in own["seed"])
            found.append(ConfigurationFacts(label, members, seeds, values, gone))
        return found

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
        task = self._facts.task["name"] if self._facts.task else "task"
        file = _without_folder(self._facts.source) or "the task"
        text = format_number(value, self._unit(metric))
        return self._text.story(self._text.number(value, text, file, f"{task}.floors(): {floor}"))


def _without_folder(source: str) -> str:
    """A reference to a study without the folder of its file: a page says nothing of the machine that made it."""
    return PurePath(source).name if ".py" in source else source


def _purpose(docstring: str) -> str:
    """A docstring up to its list of attributes."""
    return _SECTION_OF_DOCSTRING.split(inspect.cleandoc(docstring))[0].strip()
