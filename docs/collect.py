"""Keep what a finished run concluded under docs/results: `python docs/collect.py RUN permutation/laptop [EVERY]`.

The copy is a slim run folder (`hopscope.runs.slim_copy`): evidence table, claims, registration, page and the data of
the figures, and of the drawings only those that README.md or a page under docs/ shows, as small as the eye allows.
Everything else is made again by the command that docs/results/README.md names, or by `hopscope report`.

With EVERY, a whole number, the evidence table keeps of every curve of training its first and last point and every so
many in between: the curves of hundreds of models are most of its bytes, and no claim reads them but at their ends.
"""

import json
import re
import sys
from pathlib import Path

from hopscope.errors import UserError
from hopscope.runs import RunFolder, slim_copy, write_json
from hopscope.runs.metrics import write_table

DOCS = Path(__file__).resolve().parent


def main(arguments: list[str], docs: Path = DOCS) -> int:
    """Copy a run."""
    every = arguments.pop() if len(arguments) == 3 else "1"
    if len(arguments) != 2 or not every.isdecimal() or int(every) < 1:
        print(
            "collect: expected RUN, NAME and possibly a whole number, as in: python docs/collect.py runs/… "
            "permutation/laptop 20",
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
    for drawing in to.glob("figures/*.png"):
        shrink(drawing)
    if int(every) > 1:
        thin(to / "evidence.parquet", int(every))
    return 0


def thin(evidence: Path, every: int) -> None:
    """Leave out most points of the curves of training, in place."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(evidence)
    frame = table.select(["member", "split", "metric", "part", "measure"]).to_pandas()
    of = frame.groupby(["member", "split", "metric", "part", "measure"], dropna=False, sort=False)
    place, last = of.cumcount(), of["member"].transform("size") - 1
    kept = (frame["measure"] != "training") | (place % every == 0) | (place == last)
    write_table(evidence, table.filter(kept.to_numpy()))


def shrink(drawing: Path) -> None:
    """Keep a PNG with its 256 chief colours, in place: an eye sees the same chart, in a sixth of the bytes."""
    from PIL import Image

    with Image.open(drawing) as picture:
        palette = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette.save(drawing, optimize=True)


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
        write_json(study, record)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
