"""The command `hopscope report`: build the page of runs, or a list of them."""

import dataclasses
from pathlib import Path

from tyro.conf import Positional

from hopscope.cli.parsing import parse
from hopscope.cli.terminal import say
from hopscope.errors import UserError
from hopscope.runs import RunFolder, find_runs, runs_of_all


@dataclasses.dataclass
class Options:
    """Build the page of a run anew, or one page of several runs.

    A run that was trained but not concluded (a claim or a figure had a fault) is measured, judged and concluded first.
    """

    paths: Positional[tuple[Path, ...]]
    """Run folders, or roots that hold exactly one run."""
    index: bool = False
    """List all runs under the paths on one page, with links to their pages, instead of building those."""
    explore: tuple[int, ...] = ()
    """Members that the page's explorer holds, as far as they fit; by default it chooses them."""
    to: Path | None = None
    """File to write (default: report.html in the run folder, or here where there are several runs; index.html in the
    root with --index)."""


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = parse(Options, arguments, "report")
    if not options.paths:
        raise UserError(
            "report: expected at least one PATH, found none; name a run folder; see hopscope report --help"
        )
    if options.index:
        return _index(options)
    runs = find_runs(options.paths)
    from hopscope.report.page import build_report, render_all

    for run in runs:
        if not _conclude(run):
            render_all(run.path, say)
    to = options.to or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    build_report([run.path for run in runs], to, options.explore)
    print(to)
    return 0


def _index(options: Options) -> int:
    """Write the list of all runs; one that cannot be read stands in it, and is said in the end."""
    from hopscope.cli.listing import listed
    from hopscope.report.index import IndexRow, build_index

    found = [listed(run) for run in runs_of_all(options.paths)]
    to = options.to or (options.paths[0] if len(options.paths) == 1 else Path()) / "index.html"
    faults = [each.fault for each in found if each.fault is not None]
    rows = [
        IndexRow(each.study, each.preset, each.run.path, each.outcome, str(each.fault or ""))
        for each in found
    ]
    build_index(rows, to)
    print(to)
    if faults:
        raise faults[0]
    return 0


def _conclude(run: RunFolder) -> bool:
    """Finish a run that was trained to its end and is not concluded; returns whether that was so."""
    from hopscope.executors.local import conclude
    from hopscope.training.config import is_trained

    whole = run.is_done and (run.path / "evidence.parquet").is_file()
    if whole or not all(map(is_trained, run.units)):
        return False
    conclude(run)
    return True
