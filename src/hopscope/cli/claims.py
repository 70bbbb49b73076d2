"""The command `hopscope claims`: print the ledger."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from tyro.conf import Positional

from hopscope.claims import Ledger
from hopscope.cli.listing import listed
from hopscope.cli.listing import read_ledger as read_ledger
from hopscope.cli.parsing import parse
from hopscope.cli.terminal import TABLE_WIDTH, console, ledger_words
from hopscope.runs import RunFolder, runs_of_all


@dataclasses.dataclass
class Options:
    """Print the ledger of runs: every claim with its value and verdict.  Of a root with several runs, list them."""

    paths: Positional[tuple[Path, ...]] = (Path("runs"),)
    """Run folders, or roots that hold runs."""
    long: bool = False
    """Print threshold, interval, n and the reason of every verdict too."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a refuted claim is a result, not a failure."""
    options = parse(Options, arguments, "claims")
    runs = runs_of_all(options.paths)
    if len(runs) > len(options.paths) and not (options.json or options.long):
        _print_list(runs)
        return 0
    ledgers = [(run, read_ledger(run)) for run in map(RunFolder.open, [run.path for run in runs])]
    if options.json:
        entries = [
            {**claim.to_json(), **({"run": str(run.path)} if len(runs) > 1 else {})}
            for run, ledger in ledgers
            for claim in ledger
        ]
        print(json.dumps(entries, indent=1, ensure_ascii=False))
        return 0
    for run, ledger in ledgers:
        print(f"{run.study} {run.path}")
        if options.long:
            _print_long(run, ledger)
        else:
            print_brief(ledger)
    return 0


def print_brief(ledger: Ledger) -> None:
    """Id, statement, value and verdict of every claim, and how many came out how."""
    screen = console()
    screen.print(ledger.brief_table())
    screen.print(f"\n{ledger.closing_line}", highlight=False)


def _print_long(run: RunFolder, ledger: Ledger) -> None:
    told = any(claim.words is None for claim in ledger)  # a record of before: its story has the words
    words = ledger_words(run) if told else None
    screen = console()
    screen.print(ledger.records(words) if screen.width < TABLE_WIDTH else ledger.table(words))
    screen.print(ledger.closing_line, highlight=False)


def _print_list(runs: Iterable[RunFolder]) -> None:
    """Two lines for each run; one that cannot be read is said after all others."""
    faults = []
    for each in map(listed, runs):
        print(f"{each.study} {each.run.path}".lstrip())
        print(f"  {each.outcome}")
        faults += [each.fault] if each.fault is not None else []
    if faults:
        raise faults[0]
