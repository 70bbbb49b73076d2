"""Keep what a campaign has trained: `collecting.py HOME RESULTS`, which `background.py collect` calls.

For every trained model its job, its training record in one file, by which commit and which file of rules it was trained
(`collected.json`), the analyses that there are (of attention maps, those of the last checkpoint), and of the first of a
reading the last weights as float16: of two, or of as many as the queue says.  A model that is kept is never changed
again, but for analyses that are added, and weights that go when the queue says fewer.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from background import REPOSITORY, TOGETHER, Home, Refused

from hopscope.circuits.config import maps_name
from hopscope.errors import UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.metrics import METRICS_SCHEMA, read_parts, write_table
from hopscope.runs.thinning import frozen_members, note_thinned, save_rounded, steps_left_out

WEIGHTS = 2
"""Models of a reading whose weights are kept, where the queue of this source tree does not say `weights`."""

_OF_RUN = ("config.json", "members.json")


def collect(home: Path, results: Path) -> list[str]:
    """Copy what is new; returns a line for each model that was added.

    Raises:
        UserError, Refused: a file is damaged or cannot be written.
    """
    added = []
    queue = json.loads((REPOSITORY / Home(home).record()["queue"]).read_text(encoding="utf-8"))
    for model in Home(home).models():
        unit = UnitFolder(home / model["folder"])
        to = results / model["reading"]
        kept = UnitFolder(to / "units" / unit.hash)
        collected = (kept.path / "collected.json").is_file()
        weights = queue["readings"].get(model["reading"], {}).get("weights", WEIGHTS)
        keeps_weights = _rank(unit, model["member"]) < weights
        if collected and not keeps_weights:
            _drop_weights(kept)
        if model["steps"] not in dict(unit.checkpoints()):
            continue
        for name in _OF_RUN:
            _copy(unit.run_path / name, to / name)
        if not collected:
            _keep(unit, model, kept, keeps_weights)
            added.append(f"{model['reading']} seed {model['member']}")
        for path in sorted((unit.path / "analysis").glob("*.json")):
            if "-stages-" in path.name:
                continue  # of a reading that is under way
            _copy(path, kept.path / "analysis" / path.name)
        _keep_maps(unit, model["member"], model["steps"], kept)
    return added


def _keep_maps(unit: UnitFolder, member: int, step: int, to: UnitFolder) -> None:
    """Keep the attention maps of the last checkpoint: a gallery shows those, and the others are most of the bytes."""
    name = maps_name(member)
    if unit.analysis_path(name, step, "npz").is_file() and not to.analysis_path(name, step, "npz").is_file():
        kept = unit.read_analysis(name, step)
        to.write_analysis(name, step, {key: np.asarray(kept[key])[-1:] for key in ("steps", "maps")})


def _keep(unit: UnitFolder, model: dict[str, Any], to: UnitFolder, weights: bool) -> None:
    shutil.rmtree(to.path, ignore_errors=True)  # what an interrupted command left
    _copy(unit.path / "unit.json", to.path / "unit.json")
    record = read_parts([unit.path])
    name = f"part-{0:09d}-{model['steps']:09d}.parquet"
    write_table(to.path / "metrics" / name, record.select(METRICS_SCHEMA.names))
    steps, last = {*dict(unit.checkpoints()), *steps_left_out(unit)}, model["steps"]
    kept = [last] if weights else []
    for step in kept:
        to.checkpoint_path(step).parent.mkdir(parents=True, exist_ok=True)
        save_rounded(unit.checkpoint_path(step), to.checkpoint_path(step))
    note_thinned(to.path, kept, [step for step in steps if step not in kept], frozen_members(unit, last))
    campaign = RunFolder(unit.run_path).read_json("campaign.json")
    told = {name: campaign.get(name) for name in ("commit", "commits", "protocols")}
    if (unit.path / TOGETHER).is_file():
        told["together"] = json.loads((unit.path / TOGETHER).read_text(encoding="utf-8"))
    record = {"member": model["member"], "steps": last, "campaign": told}
    # Last: where it is, everything is.
    RunFolder(to.run_path).write_json(f"units/{unit.hash}/collected.json", record)


def _drop_weights(kept: UnitFolder) -> None:
    """Delete the weights of a collected model, and note that they are gone."""
    steps = [step for step, _ in kept.checkpoints()]
    if not steps:
        return
    gone = {*steps_left_out(kept), *steps}
    note_thinned(kept.path, [], gone, frozen_members(kept, steps[-1]))
    for step in steps:
        kept.checkpoint_path(step).unlink()


def _rank(unit: UnitFolder, member: int) -> int:
    """Place of a member among those of its run."""
    return sorted(each.member for each in RunFolder.open(unit.run_path).members).index(member)


def _copy(source: Path, to: Path) -> None:
    if not to.is_file() or to.read_bytes() != source.read_bytes():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)


def main(home: str, results: str) -> int:
    """Collect, and say what is new."""
    try:
        added = collect(Path(home), Path(results))
    except (UserError, Refused, OSError) as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    print("\n".join([*(f"collected {each}" for each in added), f"{len(added)} new; commit {results}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
