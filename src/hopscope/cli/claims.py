"""`hopscope claims`."""

import dataclasses
import json
from pathlib import Path

from tyro.conf import Positional

from hopscope.claims import Ledger
from hopscope.cli.parsing import parse
from hopscope.cli.terminal import console, ledger_words
from hopscope.errors import UserError
from hopscope.runs import find_runs


@dataclasses.dataclass
class Options:
    """Print the ledger of runs: every claim of the study with threshold, value, interval and verdict."""

    paths: Positional[tuple[Path, ...]] = (Path("runs"),)
    """Run folders, or roots that hold exactly one run."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    """Run the command; a refuted claim is a result, not a failure."""
    options = parse(Options, arguments, "claims")
    runs = find_runs(options.paths)
    for run in runs:
        if not (run.path / "claims.json").is_file():
            raise UserError(
                f"{run.path}: expected a finished run, found no claims.json; run the same study again first"
            )
    ledgers = [(run, Ledger.read(run.path / "claims.json")) for run in runs]
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
        told = any(claim.words is None for claim in ledger)  # a record of before: its story has the words
        console().print(ledger.table(ledger_words(run) if told else None))
    return 0
