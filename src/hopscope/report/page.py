"""One HTML file from run folders, and its pictures as files: no network, and the same folders give the same bytes."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hopscope.claims.wording import completion_of
from hopscope.errors import UserError
from hopscope.report.circuit_graph import write_circuit_picture
from hopscope.report.circuits import CircuitBlock
from hopscope.report.comparison import compared, flatten
from hopscope.report.drawing import Say
from hopscope.report.environment import asset, environment
from hopscope.report.figures import figure_names, inline_figure, render_figure
from hopscope.report.libraries import libraries
from hopscope.report.policy import content_security_policy
from hopscope.report.prose import Prose
from hopscope.report.record import FigureBlock, RunRecord, read_run
from hopscope.report.theme import style_sheet, variables
from hopscope.report.verdicts import VerdictRow, verdict_counts, verdict_rows
from hopscope.runs import proofs
from hopscope.runs.files import write_atomic


@dataclass(frozen=True)
class RunView:
    """One run as the template sees it.

    Attributes:
        anchor: prefix of every id of this run, unique on the page.
        record: config, story and claims.
        prose: fills this run's numbers into its words.
        verdicts: the verdict table's rows.
        counts: (verdict, CSS class, symbol, number of claims).
        completion: of the recipe that verdicts rest on, in words; empty where it does not matter to any.
        figures: Vega-Lite specification by figure name.
        published: what the study's source calls a figure, such as `fig-4`, by figure name.
        settings: config.json's values by dotted name.
        explore: members that its explorer holds first.
    """

    anchor: str
    record: RunRecord
    prose: Prose
    verdicts: list[VerdictRow]
    counts: list[tuple[str, str, str, int]]
    completion: str
    figures: dict[str, dict[str, Any]]
    published: dict[str, str]
    settings: list[tuple[str, str]]
    explore: tuple[int, ...] = ()


def build_report(runs: Sequence[Path], to: Path, explore: Sequence[int] = ()) -> None:
    """Write the page of one run, or of several with a section each, as one self-contained HTML file.

    Args:
        runs: run folders, in the order of the page.
        to: the file to write.
        explore: members that the explorer holds first; by default it chooses them.

    Raises:
        UserError: a file of a run is missing or damaged, or its words name a number its story does not have.
    """
    if not runs:
        raise UserError(
            "report: expected at least one run folder, found none; name the folder of a finished run"
        )
    views = [_view(read_run(path), f"run-{at}", tuple(explore)) for at, path in enumerate(runs, start=1)]
    write_atomic(to, proofs.proven(_render(views)))


def _view(record: RunRecord, anchor: str, explore: tuple[int, ...]) -> RunView:
    prose = Prose(record.story.numbers)
    blocks = [block for block in record.story.blocks if isinstance(block, FigureBlock)]
    return RunView(
        anchor=anchor,
        record=record,
        prose=prose,
        verdicts=verdict_rows(record, prose),
        counts=verdict_counts(record),
        completion=completion_of(record.claims),
        figures={
            block.name: record.drawn.get(block.name) or inline_figure(record.path / "figures", block.name)
            for block in blocks
        },
        published={block.name: block.published for block in blocks if block.published},
        settings=list(flatten(record.config.config)),
        explore=explore,
    )


def _render(views: list[RunView]) -> str:
    records = [view.record for view in views]
    comparison = compared(records, [view.verdicts for view in views]) if len(views) > 1 else None
    drawn = any(view.figures for view in views) or bool(comparison and comparison.curves)
    scripts = [*([Markup(libraries())] if drawn else []), *map(asset, _scripts(views, drawn))]
    sources = [f"runs/{view.record.config.study}/{view.record.config.hash}" for view in views]
    return (
        environment()
        .get_template("page.html")
        .render(
            runs=views,
            comparison=comparison,
            title=_title(views),
            style=Markup("\n").join([Markup(style_sheet()), *map(asset, _styles(views))]),
            colours=variables() if drawn or "circuit" in _kinds(views) else {},
            scripts=scripts,
            policy=content_security_policy(scripts),
            command=shlex.join(["hopscope", "report", *sources]),
        )
    )


_EXPLORER = (
    "forward.js",
    "permutation.js",
    "inputs.js",
    "explorer_answer.js",
    "explorer_matrix.js",
    "explorer.js",
)


def _scripts(views: list[RunView], drawn: bool) -> list[str]:
    kinds = _kinds(views)
    names = ["page.js", *(["charts.js"] if drawn else [])]
    if "explorer" in kinds:
        names += _EXPLORER
    if "circuit" in kinds:
        names += ["circuit_map.js", "circuit.js"]
    return names


def _styles(views: list[RunView]) -> list[str]:
    kinds = _kinds(views)
    own = [f"{kind}.css" for kind in ("explorer", "circuit") if kind in kinds]
    return ["style.css", "worked.css", *own]


def _kinds(views: list[RunView]) -> set[str]:
    return {block.kind for view in views for block in view.record.story.blocks}


def _title(views: list[RunView]) -> str:
    if len(views) > 1:
        return f"Hopscope: {len(views)} runs"
    return views[0].prose.plain(views[0].record.story.title)


def render_all(run_path: Path, say: Say | None = None) -> list[Path]:
    """Draw every figure of a run, and every circuit as ``circuit-<member>``, where that is not drawn already.

    Args:
        run_path: the run folder.
        say: hears, in one line each, of drawings that were altered.

    Returns:
        The paths of all drawings.

    Raises:
        UserError: as `render_figure`, or the story is missing or damaged.
    """
    figures_dir = run_path / "figures"
    drawn = [path for name in figure_names(figures_dir) for path in render_figure(figures_dir, name, say)]
    blocks = read_run(run_path).story.blocks
    circuits = [named.view for block in blocks if isinstance(block, CircuitBlock) for named in block.circuits]
    by_name = {f"circuit-{view.member}": view for view in circuits}  # of one member's the last
    return drawn + [
        path for name, view in by_name.items() for path in write_circuit_picture(view, figures_dir, name, say)
    ]


def mend_drawings(run_path: Path, say: Say | None = None) -> None:
    """Make drawings and the page of a concluded run again where they are missing, altered or out of date.

    Args:
        run_path: the run folder.
        say: hears, in one line each, of those that were altered.

    Raises:
        UserError: as `render_all` and `build_report`.
    """
    render_all(run_path, say)
    page = run_path / "report.html"
    found = proofs.state(page)
    if found != "stands":
        build_report([run_path], page)
        if found == "altered" and say is not None:
            say(
                f"hopscope: warning: {page}: expected the page that was made, found another: it is made again"
            )
