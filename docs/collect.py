"""Keep what a finished run concluded under docs/results: `python docs/collect.py RUN permutation/laptop`.

The copy is a slim run folder (`hopscope.runs.slim_copy`): evidence table, claims, registration, page and the data of
the figures, and of the drawings only those that README.md or a page under docs/ shows.  Everything else is made again
by the command that docs/results/README.md names, or by `hopscope report`.
"""

import json
import re
import sys
from pathlib import Path

from hopscope.errors import UserError
from hopscope.runs import RunFolder, slim_copy

DOCS = Path(__file__).resolve().parent


def main(arguments: list[str], docs: Path = DOCS) -> int:
    """Copy a run."""
    if len(arguments) != 2:
        print(
            "collect: expected RUN and NAME, as in: python docs/collect.py runs/… permutation/laptop",
            file=sys.stderr,
        )
        return 2
    to = docs / "results" / arguments[1]
    try:
        slim_copy(RunFolder.open(Path(arguments[0])), to, shown(to, docs))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    _without_folder(to / "study.json")
    return 0


def shown(folder: Path, docs: Path = DOCS) -> set[str]:
    """File names of the drawings of a results folder that README.md or a page of the documentation shows."""
    pages = [docs.parent / "README.md", *docs.glob("*.md")]
    targets = [
        (page.parent / target).resolve()
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+\.(?:png|svg))\)", page.read_text(encoding="utf-8"))
    ]
    return {target.name for target in targets if target.parent == folder / "figures"}


def _without_folder(study: Path) -> None:
    """The record of a study of one's own names its file; where that stood is the machine's affair."""
    if study.is_file():
        record = json.loads(study.read_text(encoding="utf-8"))
        record["reference"] = Path(record["reference"]).name
        study.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
