"""Circuits of the same members by both packages' readers: `python tests_next/parity/reader_table.py [RUN] > FILE`.

One line of JSON for each collected member that has a circuit, and for each member of a run of `recipes` that was
trained with all details on.  Seconds are of a core; both readers search up to three quarters of what may be lost.
"""

import json
import sys
import time
from pathlib import Path

import torch
from test_reader import MEMBERS, models, paths

from hopscope.circuits.built_in_tasks import task_of
from hopscope.circuits.config import ReaderConfig as OldReaderConfig
from hopscope.circuits.reader import read_circuit
from hopscope.runs import RunFolder
from hopscope.training.config import job_of
from hopscope.training.restore import load_ensemble
from hopscope_next.circuits.reader import ReaderConfig, read
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Retrieval

SEARCHED = 0.75


def of_run(folder):
    """Name, both models and both tasks of every member with all details on."""
    run = RunFolder.open(Path(folder))
    for unit in (run.unit(name) for name in dict.fromkeys(each.unit for each in run.members)):
        label = json.loads((unit.path / "unit.json").read_text(encoding="utf-8"))["label"]
        if not label.endswith("all on"):
            continue
        job, ensemble = job_of(unit), load_ensemble(unit)
        fields = job.task.model_dump()
        task = Retrieval(**{name: fields[name] for name in fields if name in Retrieval.model_fields})
        for index, member in enumerate(job.members):
            old = ensemble.select([index])
            shape = old.config.model_dump()
            shape = {name: shape[name] for name in shape if name in TransformerConfig.model_fields}
            weights = {name: weight[0] for name, weight in old.parameters.views().items()}
            new = Transformer(TransformerConfig(**shape)).load(weights)
            yield f"{label}, seed {member.seed}", (old, task_of(job.task), new, task)


def timed(function, *given):
    began = time.process_time()
    found = function(*given)
    return found, round(time.process_time() - began, 1)


def compared(name, old_model, old_task, model, task):
    old, old_seconds = timed(read_circuit, old_model, old_task, OldReaderConfig(searched=SEARCHED))
    new, new_seconds = timed(read, model, task, ReaderConfig(searched=SEARCHED))
    theirs, ours = paths(old.circuit), paths(new.circuit)
    return {
        "member": name,
        "verdict": [old.verdict, new.verdict],
        "seconds": [old_seconds, new_seconds],
        "paths": [len(theirs), len(ours)],
        "same_reads": old.circuit.reads == new.circuit.reads,
        "only_old": sorted(map(str, theirs - ours)),
        "only_new": sorted(map(str, ours - theirs)),
        "loss": [
            {mode: each.loss.get(mode) for mode in ("full", "rules", "recomputed")} for each in (old, new)
        ],
    }


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    kinds = ("emergence", "first-steps", "permutation")
    folders = sorted(path.name for path in MEMBERS.iterdir() if path.name.startswith(kinds))
    members = [
        *((name, models(name)) for name in folders),
        *(each for run in sys.argv[1:] for each in of_run(run)),
    ]
    for name, both in members:
        print(json.dumps(compared(name, *both)), flush=True)


if __name__ == "__main__":
    main()
