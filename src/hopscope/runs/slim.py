"""Slim run folders: what a run concluded, without the folders of its units.

A finished run of the paper's scale takes gigabytes, nearly all of it checkpoints.  The documentation needs its evidence
table, its claims and its page.  A slim folder holds these, and one file in place of `units/`.  Commands that only read
conclusions work on it as on the whole run.
"""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import proofs
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.runs.files import is_file, read_bytes, read_json, seal, write_atomic, write_json
from hopscope.runs.hashing import SCHEMA_VERSION
from hopscope.runs.store import RunFolder
from hopscope.runs.units import SLIM

_NEEDED = ("config.json", "members.json", EVIDENCE, "claims.json", "story.json", "DONE")
_IF_THERE = ("registration.json", "study.json", "conclusion.json", "campaign.json")
_REMEDY = "run the same command again to make it anew"


def is_slim(path: Path) -> bool:
    """Whether a run folder holds the conclusions of a run without its units."""
    return is_file(path / SLIM)


def slim_copy(run: RunFolder, to: Path, pictures: Collection[str] = ()) -> None:
    """Write a slim copy of a finished run.

    It has the evidence table, claims, registration, what a campaign noted, page and the data of all figures.  It lacks
    checkpoints, analyses, the attention maps of the page's circuits, `metrics.parquet` (the evidence table has its
    rows), logs, events, and the drawings and the HTML file that `hopscope report` makes.

    Args:
        run: a finished run; its own folder may be slim.
        to: the folder to write; one that is there is replaced.
        pictures: file names of drawings under `figures/` to keep, such as `loss.png`.

    Raises:
        UserError: the run is not finished, a drawing was altered, or a file cannot be read or written.
    """
    missing = [name for name in _NEEDED if not is_file(run.path / name)]
    if missing:
        raise UserError(
            f"{run.path}: expected a finished run, found no {missing[0]}; run the same command again first"
        )
    records = {unit.hash: unit.record for unit in run.units}
    shutil.rmtree(to, ignore_errors=True)
    seal(to)
    for name in (*_NEEDED, *_IF_THERE):
        if is_file(run.path / name):
            _copy(run.path / name, to / name)
    write_json(to / "story.json", _without_maps(read_json(run.path / "story.json", _REMEDY)))
    write_json(to / SLIM, {"schema_version": SCHEMA_VERSION, "units": records})
    for path in sorted((run.path / "figures").glob("*")):
        if path.name in pictures:
            _check_drawing(path, run)
        if path.name.endswith((".csv", ".vl.json")) or path.name in pictures:
            _copy(path, to / "figures" / path.name)
    for path in sorted((run.path / "source").rglob("*")):
        if is_file(path):
            _copy(path, to / path.relative_to(run.path))


def _copy(path: Path, to: Path) -> None:
    write_atomic(to, read_bytes(path, _REMEDY))


def _check_drawing(path: Path, run: RunFolder) -> None:
    """Refuse an altered drawing; one whose SVG was left behind, as in a slim folder, has no proof."""
    if proofs.state(path.with_suffix(".svg"), beside=path.with_suffix(".png")) == "altered":
        raise UserError(
            f"{path}: expected the drawing that was made, found another; `hopscope report {run.path}` draws it again"
        )


def _without_maps(story: dict[str, Any]) -> dict[str, Any]:
    """A story whose circuits have no attention maps: they are most of its bytes."""
    for section in story["sections"]:
        for block in section["blocks"]:
            for circuit in block.get("circuits", ()):
                circuit["view"]["maps"] = None
    return story
