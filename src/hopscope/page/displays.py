"""HTML for notebooks: it needs no network and runs no script, and every word of a study or a file is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from hopscope.claims import Ledger
from hopscope.errors import printable
from hopscope.runs import RunFolder


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells are written as text; a line break within a cell is kept."""
    style = "text-align: left; vertical-align: top; white-space: pre-line"
    lines = ["".join(f'<td style="{style}">{_text(cell)}</td>' for cell in row) for row in rows]
    head = "".join(f'<th style="{style}">{_text(name)}</th>' for name in columns)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def of_run(run: RunFolder, claims: Ledger | None) -> str:
    """A run in short: where it lies, how far it is, what its claims show, and its members folded."""
    config, units = run.config, run.units
    words = [f"study {config['study']}", f"preset {config.get('preset') or 'none'}", f"{run.path}"]
    state = f"<p>{sum(unit.is_whole for unit in units)} of {len(units)} units are done.</p>"
    if claims is not None:
        rows = [(each.id, each.here_words, each.statement, each.source_words) for each in claims]
        state = table(("claim", "this run", "statement", "the source"), rows) if rows else "<p>No claims.</p>"
    members = [(each.member, each.configuration, each.seed) for each in run.members]
    folded = table(("member", "configuration", "seed"), members)
    summary = f"<details><summary>{len(members)} members</summary>{folded}</details>"
    return f"<p><b>{_text(', '.join(words))}</b></p>{state}{summary}"


def _text(value: object) -> str:
    return escape("\n".join(map(printable, str(value).split("\n"))))
