"""All claims of a run with their verdicts: read from ``claims.json``, checked, printed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, overload

from pydantic import ValidationError

from hopscope import display
from hopscope.claims import wording
from hopscope.claims.judged import JudgedClaim
from hopscope.claims.verdicts import Verdict
from hopscope.errors import UserError, printable
from hopscope.strict_json import parse_json

if TYPE_CHECKING:
    from rich.table import Table


COLUMNS = ("id", "statement", "threshold", "value [95 % interval]", "n", "verdict", "in words")

_COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.REFUTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_WIDTH = 160
"""Columns of a ledger that is printed as a string."""

_SHORT_STATEMENT = 120
"""Letters of a statement in the brief table; what is longer ends with an ellipsis."""

_MOST_VALUES = 4
"""Parts of a claim whose values the brief table shows."""


class Ledger(Sequence[JudgedClaim]):
    """The judged claims of a run, in order; prints as a table."""

    def __init__(self, claims: Iterable[JudgedClaim] = ()) -> None:
        self._claims = tuple(claims)

    @overload
    def __getitem__(self, place: int | str) -> JudgedClaim: ...
    @overload
    def __getitem__(self, place: slice) -> "Ledger": ...
    def __getitem__(self, place: int | str | slice) -> "JudgedClaim | Ledger":
        """The claim at a place, or of an id; a slice is a ledger."""
        if isinstance(place, slice):
            return Ledger(self._claims[place])
        if isinstance(place, int):
            return self._claims[place]
        for claim in self._claims:
            if claim.id == place:
                return claim
        known = ", ".join(claim.id for claim in self._claims) or "none"
        raise UserError(f"claim: expected one of {known}, found {place!r}")

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[JudgedClaim]:
        return iter(self._claims)

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """Read every claim of a ``claims.json``, or of the run folder that holds one.

        Raises:
            UserError: the file is missing, is no JSON, or does not hold a list of claims with different ids.
        """
        path = path / "claims.json" if path.is_dir() else path
        try:
            data = parse_json(path.read_bytes())
        except OSError as error:
            raise UserError(
                f"{path}: no claims to read: expected a readable file, found {error.strerror}; "
                "run the study first, or name its run folder"
            ) from None
        except ValueError as error:
            raise UserError(f"{path}: not a ledger: expected JSON, found {error}; {_REDO}") from None
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: object, where: str = "claims.json") -> "Ledger":
        """Check the decoded JSON of a ``claims.json``; errors name the file as `where`.

        Raises:
            UserError: it is not a list of claims with different ids.
        """
        if not isinstance(data, list):
            raise UserError(f"{where}: not a ledger: expected a list of claims, found {_kind(data)}; {_REDO}")
        claims: dict[str, JudgedClaim] = {}
        for place, entry in enumerate(data):
            try:
                claim = JudgedClaim.model_validate(entry)
            except ValidationError as error:
                raise UserError(
                    f"{where}: claim {_name(entry, place)} is damaged: {_reason(error)}; {_REDO}"
                ) from None
            if claim.id in claims:
                raise UserError(
                    f"{where}: ids repeat: expected each id once, found {claim.id!r} twice; {_REDO}"
                )
            claims[claim.id] = claim
        return cls(claims.values())

    def to_json(self) -> list[dict[str, object]]:
        """The entries of ``claims.json``, one for each claim."""
        return [claim.to_json() for claim in self._claims]

    def table(self, words: Mapping[str, str] | None = None) -> "Table":
        """Return the whole ledger as a table for a wide terminal.

        Args:
            words: claim id → reason of its verdict, for old records that do not hold it themselves.
        """
        from rich.table import Table
        from rich.text import Text

        table = Table(title=", ".join(filter(None, ["Claims", self.completion])), title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="right" if column == "n" else "left", overflow="fold")
        for claim in self._claims:
            cells = [Text(cell) for cell in _cells(claim, words)]
            cells[COLUMNS.index("verdict")].stylize(_COLOURS[claim.verdict])
            # Text, not strings: an interval's brackets would be read as markup.
            table.add_row(*cells)
        return table

    def brief_table(self) -> "Table":
        """Return id, statement, value and verdict as a table for a terminal of 80 columns."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            title=self.completion or None,
            title_justify="left",
        )
        table.add_column("id", no_wrap=True)
        table.add_column("claim")
        table.add_column("value", no_wrap=True, max_width=24)
        table.add_column("verdict", no_wrap=True)
        for claim in self._claims:
            verdict = Text(wording.outcome(claim), style=_COLOURS[claim.verdict])
            statement = shorten(claim.statement, _SHORT_STATEMENT, placeholder=" …")
            said = "\n".join(filter(None, [statement, claim.registration.words]))
            values = "\n".join(_brief_values(claim))
            table.add_row(*(Text(_shown(cell)) for cell in (claim.id, said, values)), verdict)
        return table

    def records(self, words: Mapping[str, str] | None = None) -> "Table":
        """Return the whole ledger with a line for each column, for a narrow terminal; `words` as in `table`."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        if self.completion:
            table.add_row("", self.completion)
        for claim in self._claims:
            for column, cell in zip(COLUMNS, _cells(claim, words), strict=True):
                style = {"id": "bold", "verdict": _COLOURS[claim.verdict]}.get(column, "")
                table.add_row(column, Text(cell, style=style))
            table.add_row()
        return table

    @property
    def completion(self) -> str:
        """The completion of the recipe that verdicts rest on, in words; empty where it does not matter to any."""
        return wording.completion_of(self)

    @property
    def closing_line(self) -> str:
        """The number of claims with each outcome: ``4 reproduced · 6 refuted · 2 agree so far``."""
        return wording.closing_line(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=_WIDTH, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get().rstrip()

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self._claims == other._claims

    def __hash__(self) -> int:
        return hash(tuple(claim.id for claim in self._claims))

    def _repr_html_(self) -> str:
        """The table in a notebook; the reasons, which are long, open on request."""
        cells = [_cells(claim) for claim in self._claims]
        reasons = display.table((COLUMNS[0], COLUMNS[-1]), ((row[0], row[-1]) for row in cells))
        return display.table(COLUMNS[:-1], (row[:-1] for row in cells)) + display.folded(COLUMNS[-1], reasons)


def _cells(claim: JudgedClaim, words: Mapping[str, str] | None = None) -> list[str]:
    """One row of the ledger as plain text, in the order of `COLUMNS`."""
    said = claim.words if claim.words is not None else (words or {}).get(claim.id, "")
    cells = [
        claim.id,
        claim.statement,
        "\n".join(wording.threshold_lines(claim)),
        "\n".join(f"{name} {text}".strip() for name, text in wording.estimates(claim)),
        str(claim.n),
        "\n".join(filter(None, [wording.verdict_words(claim), wording.leaning_words(claim)])),
        "\n".join(filter(None, [said, *wording.remarks(claim)])),
    ]
    return list(map(_shown, cells))


def _shown(cell: str) -> str:
    """A cell whose lines hold nothing that commands a terminal: a ledger may come from anywhere."""
    return "\n".join(map(printable, cell.split("\n")))


def _brief_values(claim: JudgedClaim) -> list[str]:
    """A line for each part, the number first: it stays where there is no room for the whole name."""
    lines = [f"{text} {name}".strip() for name, text in wording.values(claim)]
    if len(lines) <= _MOST_VALUES:
        return lines
    return [*lines[: _MOST_VALUES - 1], f"and {len(lines) - _MOST_VALUES + 1} more"]


_REDO = "`hopscope claims` of its run folder makes it again from the evidence"


def _kind(data: object) -> str:
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(data), "a number or truth value")


def _name(entry: object, place: int) -> str:
    name = entry.get("id") if isinstance(entry, dict) else None
    return repr(name) if isinstance(name, str) and name else f"number {place + 1}"


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = f"{first['loc'][0]}: " if first["loc"] else ""
    found = f", found {first['input']!r:.60}" if first["loc"] and first["type"] != "missing" else ""
    return f"{field}{first['msg'].removeprefix('Value error, ')}{found}".replace("\n", " ")
