"""Members of runs, read again and again: how far the circuits of one model's readings are apart, beside other models.

`python docs/rereadings.py OUT RUN [RUN …]` reads the members of runs whose checkpoints are there six times by each
proof, on other sequences and in other orders, and writes OUT.  A study that says how it searches is read by that search
and that proof alone.  Readings are kept in the run's folder; what is there is not made again.  Members are compared
within their configuration; one that is alone in it, with the models of its shape.
"""

import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hopscope.circuits.config import Proof, ReaderConfig
from hopscope.circuits.record import read_again, read_member
from hopscope.circuits.rereading import Circuits, distance, found_by, mean_distance, path_distance
from hopscope.runs import RunFolder
from hopscope.training.config import job_of
from hopscope.training.threads import prepare

AGAIN = 5
PROOFS: tuple[Proof, ...] = ("both", "rules")
SEARCH = ("orders", "further_orders", "most_circuits", "random_circuits")
Distance = Callable[[Circuits, Circuits], float]


def search(run: RunFolder) -> dict[str, Any]:
    """How the study of a run searches where it says when to stop; empty where it leaves that to the reader."""
    own = "further_orders" in run.config
    return {name: run.config[name] for name in SEARCH} if own else {}


def readings(place: tuple[Path, int, Proof]) -> list[dict[str, Any]]:
    """The first reading of a member and `AGAIN` more."""
    prepare(threads=1)
    path, member, proof = place
    run = RunFolder.open(path)
    config = ReaderConfig(proof=proof, **search(run))
    return [read_member(run, member, None, config), *read_again(run, member, AGAIN, None, config)]


def of_run(path: Path, pool: Any) -> list[dict[str, Any]]:
    """Every member of a run by each proof: its own distances, and those to the nearest other member."""
    run, found = RunFolder.open(path), []
    members = [each for each in run.members if run.unit(each.unit).path.is_dir()]
    jobs = {each.member: job_of(run.unit(each.unit)) for each in members}
    names = {member: job.label.partition(",")[0] for member, job in jobs.items()}
    proofs = PROOFS[:1] if search(run) else PROOFS
    places = [(path, member, proof) for proof in proofs for member in names]
    read = dict(zip(places, pool.imap(readings, places), strict=True))
    for (_, member, proof), records in read.items():
        own = [other for other, name in names.items() if name == names[member] and other != member]
        alike = [other for other, job in jobs.items() if job.model == jobs[member].model and other != member]
        others = [found_by(read[path, other, proof]) for other in own or alike]
        found.append(
            {
                "study": run.study,
                "configuration": names[member],
                "seed": next(each.seed for each in members if each.member == member),
                "proof": proof,
                "verdicts": [each["verdict"].partition(":")[0] for each in records],
                **compared(found_by(records), others),
            }
        )
    return sorted(found, key=lambda each: (each["configuration"], each["proof"], each["seed"]))


def compared(own: Sequence[Circuits], others: Sequence[Sequence[Circuits]]) -> dict[str, Any]:
    """Distances within a member and to the first reading of the nearest other one; null where there is none."""
    found: dict[str, Any] = {"readings": len(own)}
    kinds: dict[str, Distance] = {"by_paths": path_distance, "whole": distance}
    for name, apart in kinds.items():
        near = [apart(own[0], other[0]) for other in others if own and other]
        found[name] = {
            "own": mean_distance(own, apart) if len(own) > 1 else None,
            "nearest_other": min(near, default=None),
        }
    return found


def main(out: str, *runs: str) -> None:
    """Read, compare and write."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = [each for run in runs for each in of_run(Path(run), pool)]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
    Path(out).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
