"""One HTML page that lists many runs: what each came to, and where its own page is."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hopscope.report.environment import asset, environment
from hopscope.report.policy import content_security_policy
from hopscope.runs import proofs
from hopscope.runs.files import is_file, write_atomic
from hopscope.words import counted


@dataclass(frozen=True)
class IndexRow:
    """A run in the list.

    Attributes:
        study, preset: names, empty where they are not known.
        path: the run folder.
        outcome: how many claims came out how, or why nothing is told.
        fault: why the run cannot be read, empty where it can.
    """

    study: str
    preset: str
    path: Path
    outcome: str
    fault: str = ""


_SLUGS = {
    **dict.fromkeys(("reproduced", "true by the theorem", "true by construction"), "reproduced"),
    "refuted": "refuted", "inconclusive": "inconclusive",
    **{f"{word} so far": "inconclusive" for word in ("agrees", "agree", "disagrees", "disagree", "mixed")},
}  # fmt: skip
"""Words of a ledger's closing line → the class of their colour; other words are grey."""


def build_index(rows: Sequence[IndexRow], to: Path) -> None:
    """Write the list of runs as one HTML file, in the order of studies and paths, with a link to each run's page.

    Args:
        rows: one for each run.
        to: the file to write; links are relative to its folder.

    Raises:
        UserError: the file cannot be written.
    """
    ordered = sorted(rows, key=lambda row: (row.study, str(row.path)))
    page = (
        environment()
        .get_template("index.html")
        .render(
            rows=[(row, _link(row.path / "report.html", to)) for row in ordered],
            slugs=_SLUGS,
            title=f"Hopscope: {counted(len(ordered), 'run')}",
            style=asset("style.css"),
            policy=content_security_policy([]),
        )
    )
    write_atomic(to, proofs.proven(page))


def _link(page: Path, to: Path) -> str:
    """The address of a run's page as seen from the index; empty where there is no such page."""
    return quote(os.path.relpath(page, to.parent)) if is_file(page) else ""
