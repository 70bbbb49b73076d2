"""Keep what a finished run came to under docs/results: `python docs/collect.py RUN permutation/laptop`.

A committed run is `config.json` (its identity, without members and units, which the evidence has), `evidence.parquet`
and `claims.json`, and of its figures those that README.md or a page under docs/ shows.  Run it again after a page has
come to show another figure.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import hopscope
from hopscope.errors import UserError
from hopscope.runs import Evidence, RunFolder
from hopscope.runs.evidence import COLUMNS

DOCS = Path(__file__).resolve().parent
KEPT = ("study", "preset", "question", "identity")
OF_PAGES = ("circuit", "explorer")
"""Metrics of the explorer and the player, whose files are not kept."""
UNUSED = {"permutation": r"accuracy|loss_step_\d+"}
"""By study, curves of training that neither its claims nor what the documentation shows of it use."""


def shown(folder: Path) -> set[str]:
    """Names of the files of a folder that README.md or a page of the documentation links to."""
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    links = [
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    return {link.name for link in links if link.parent == folder}


def collect(run: RunFolder, to: Path) -> None:
    """Copy what is kept of a run; `UserError`: it is not finished, or a file is damaged."""
    if not run.is_done:
        raise UserError(f"{run.path}: expected a finished run, found one that is not; run its command again")
    config = {name: run.config[name] for name in KEPT} | {"version": hopscope.__version__}
    files = {"claims.json": run.read("claims.json")}
    files |= {f"figures/{name}": run.read(f"figures/{name}") for name in shown(to / "figures")}
    own = [name for name in COLUMNS if name not in ("seed", "configuration")]  # these two are of members
    table = Evidence.read(run).to_pandas()[own].astype(object)
    curves = (table["measure"] == "training") & table["metric"].str.fullmatch(
        UNUSED.get(config["study"], "-")
    )
    kept = table[~(curves | table["metric"].isin(OF_PAGES))]
    rows = kept.where(kept.notna(), None).to_dict("records")
    evidence = Evidence.of(rows, run.members, run.config)
    shutil.rmtree(to, ignore_errors=True)  # when all that is kept has been read
    folder = RunFolder(to).create(json.loads(json.dumps(config)))
    for name, content in files.items():
        folder.write(name, content)
    evidence.write(to / "evidence.parquet")
    (to / ".lock").unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Copy a run; exit status 2 with one line where that cannot be done."""
    try:
        if len(arguments) != 2:
            raise UserError(
                "collect: expected RUN and NAME, as in: docs/collect.py runs/depth/HASH depth/laptop"
            )
        collect(RunFolder.opened(arguments[0]), DOCS / "results" / arguments[1])
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
