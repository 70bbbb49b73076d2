"""Judge what was collected of a reading: `concluding.py HOME RESULTS READING`, which `background.py conclude` calls.

The members with seeds 0 to n - 1 become a run of n seeds under HOME/concluded.  It is measured, judged and drawn as any
other run; nothing is trained.  Claims are judged by the rules of this source tree; `campaign.json` says by which
commits the members were trained, and which file of rules was fixed before.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from background import Home, Refused

from hopscope.circuits.built_in_tasks import circuit_task_of, task_of
from hopscope.circuits.config import SEQUENCES, maps_name
from hopscope.circuits.path_formation import maps
from hopscope.errors import UserError
from hopscope.executors.finish import finish
from hopscope.executors.local import prepare
from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies import find_study
from hopscope.training.config import job_of
from hopscope.training.restore import load_ensemble


def conclude(home: Home, results: Path, reading: str) -> RunFolder:
    """Make a concluded run of the collected members of a reading.

    Returns:
        The run, with its evidence, claims, figures and page.

    Raises:
        Refused: the queue has no such reading, or its seed 0 is not collected.
        UserError: a file is damaged, or an analysis is missing.
    """
    readings = json.loads((home.source / home.record()["queue"]).read_text(encoding="utf-8"))["readings"]
    if reading not in readings:
        raise Refused(f"expected a reading of the queue ({', '.join(readings)}), found {reading!r}")
    asked, collected = readings[reading], results / reading
    members = RunFolder.open(collected).members if collected.is_dir() else []
    folders = {each.member: collected / "units" / each.unit for each in members}
    units = {member: folder for member, folder in folders.items() if (folder / "collected.json").is_file()}
    seeds = next(number for number in range(len(units) + 1) if number not in units)
    if not seeds:
        raise Refused(f"{collected}: expected collected models from seed 0 on, found none; collect first")
    study = find_study(asked["study"])
    config = study.configured(asked["preset"], {**asked["fields"], "seeds": seeds})
    run = prepare(study, config, out=home.path / "concluded", preset=asked["preset"])
    with run.lock():
        run.clear_done()
        run.write_json("campaign.json", {"reading": reading, "trained": _trained(run, units)})
        for member in run.members:
            if member.unit != units[member.member].name:
                raise Refused(f"{units[member.member]}: expected unit {member.unit}; the queue was changed")
            _bring(units[member.member], run.unit(member.unit), member.member)
        finish(run, study, config, print)
    return run


def _trained(run: RunFolder, units: Mapping[int, Path]) -> list[dict[str, Any]]:
    """Which members each campaign trained, with its commits and the file that holds the rules."""
    found: list[dict[str, Any]] = []
    for member in run.members:
        record = json.loads((units[member.member] / "collected.json").read_text(encoding="utf-8"))["campaign"]
        if not found or found[-1]["campaign"] != record:
            found.append({"members": [], "campaign": record})
        found[-1]["members"].append(member.member)
    return found


def _bring(collected: Path, unit: UnitFolder, member: int) -> None:
    """Copy a collected unit into the run, with attention maps where its weights are there to make them."""
    shutil.rmtree(unit.path, ignore_errors=True)
    shutil.copytree(collected, unit.path)
    unit.mark_done()
    last = job_of(unit).training.steps
    weights = last in dict(unit.checkpoints())
    if weights and not unit.analysis_path(maps_name(member), last, "npz").is_file():
        task = circuit_task_of(task_of(job_of(unit).task))
        models = [(last, task.model(load_ensemble(unit, last)))]
        of_heads = [found.numpy() for _, found in maps(models, task.batch(0, SEQUENCES, "watch"))]
        unit.write_analysis(maps_name(member), last, {"steps": np.array([last]), "maps": np.stack(of_heads)})


def main(home: str, results: str, reading: str) -> int:
    """Conclude, and say where the run is."""
    try:
        run = conclude(Home(Path(home)), Path(results), reading)
    except (UserError, Refused, OSError) as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    print(f"{len(run.members)} seeds of {reading}: {run.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
