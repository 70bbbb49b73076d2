"""What the row of a repeat attends by: permutation models read, and their attention rebuilt from parts of its scores.

`python docs/repeat_rows.py RUN [RUN …]` reads every member of runs of the permutation study and writes
docs/results/permutation/repeat_rows.json.  In one layer a score is a sum of terms: of the key's place, of the symbols
of row and key, and of one's symbol with the other's place.  For each choice of terms the pattern of the row of the
repeat is put in place of the model's own, in all heads at once; what recall is left says which terms the model needs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.built_in_tasks import circuit_task_of
from hopscope.circuits.execution import Execution
from hopscope.circuits.record import model_and_task, read_member
from hopscope.circuits.virtual_model import quickest
from hopscope.runs import RunFolder
from hopscope.training.config import job_of
from hopscope.training.restore import member_record

OUT = Path(__file__).resolve().parent / "results" / "permutation" / "repeat_rows.json"

TERMS = {
    "place": ["place"],
    "place, key": ["place key"],
    "place, match": ["place match"],
    "place, row, match": ["place row match"],
    "place; row, key": ["place", "row key"],
    "place, row; row, key": ["place row", "row key"],
}
"""Terms of the score: each is a table over what it names; `match` is whether row and key have the same symbol."""


def rebuilt(own: Tensor, features: Mapping[str, tuple[Tensor, int]], terms: Sequence[str]) -> Tensor:
    """The pattern `[row, key]` whose scores have these terms and come nearest to the logarithm of the head's own."""
    columns = []
    for term in terms:
        index, size = torch.zeros_like(features["place"][0]), 1
        for name in term.split():
            values, count = features[name]
            index, size = index * count + values, size * count
        columns.append(functional.one_hot(index, size).double())
    cells, logs = torch.cat(columns, -1), own.double().clamp(min=1e-30).log()[..., None]
    given, wanted = (each - each.mean(1, keepdim=True) for each in (cells, logs))
    # Normal equations: there are up to a million cells.
    square, right = (torch.einsum("rkf,rkg->fg", given, each) for each in (given, wanted))
    scores = torch.linalg.lstsq(square, right, driver="gelsd").solution
    return torch.softmax((cells @ scores)[..., 0], -1).float()


def interventions(run: RunFolder, member: int) -> dict[str, float]:
    """Terms → recall, where the row of the repeat attends by these terms alone; `model`: as it is."""
    model, task = model_and_task(run, member, None)
    setting = circuit_task_of(task)
    batch = setting.batch(0, setting.validation, "report")
    grammar = setting.grammar(batch, causal=True)
    execution = Execution(quickest(model), grammar)
    criterion = setting.criterion(execution.clean.predictions, batch, None)
    if "recall" not in criterion.names:
        return {}
    role = next(place for place, roles in enumerate(grammar.roles) if roles["repeat"])
    samples, rows = grammar.rows[role].nonzero(as_tuple=True)
    tokens = batch.inputs[0]
    count, places = int(tokens.max()) + 1, torch.arange(tokens.shape[1]).expand(len(samples), -1)
    row, key = tokens[samples, rows][:, None].expand_as(places), tokens[samples]
    features = {
        "place": (places, tokens.shape[1]), "row": (row, count), "key": (key, count), "match": ((row == key).long(), 2)
    }  # fmt: skip
    found = {"model": criterion.accuracies["recall"]}
    for name, terms in TERMS.items():
        given = execution.patterns[0].clone()
        for head in range(given.shape[2]):
            given[0, samples, head, rows] = rebuilt(given[0, samples, head, rows], features, terms)
        passed = execution.run(replace(execution.untouched(), given=(given,)), "rules")
        found[name] = criterion.skills.accuracy("recall", passed.predictions, batch)
    return {name: round(value, 4) for name, value in found.items()}


def record(run: RunFolder, member: int) -> dict[str, Any]:
    """What is kept of one member."""
    reading, of = read_member(run, member), member_record(run, member)
    return {
        "configuration": job_of(run.unit(of.unit)).label.partition(",")[0],
        "seed": of.seed,
        "learned": reading["learned"],
        "verdict": reading["verdict"],
        "loss": {name: value for name, value in reading["loss"].items() if name != "random_circuits_range"},
        "paths": [
            [path["query_role"], path["head"], path["rule"], path["target_role"]] for path in reading["paths"]
        ],
        "exchanges": [
            [each["head"], each["exchanged"], each["answers_follow"]]
            for each in reading["exchanges"]
            if each["query_role"].endswith("repeat")
        ],
        "recall": interventions(run, member),
    }


def main() -> int:
    """Write the record of every member of the runs that are named."""
    runs = [RunFolder.open(Path(name)) for name in sys.argv[1:]]
    found = [record(run, member.member) for run in runs for member in run.members]
    found.sort(key=lambda each: (each["configuration"], each["seed"]))
    lines = ",\n".join(json.dumps(each) for each in found)
    OUT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
