"""Studies of open questions in both houses: the same members, samples, numbers, and verdicts of committed runs."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import hopscope
import hopscope_next
from hopscope.circuits.reader import read_circuit
from hopscope.circuits.rereading import path_distance
from hopscope.studies.capacity.study import start as old_start
from hopscope.studies.conditional.task import Branching
from hopscope.studies.curriculum.circuits import READINGS
from hopscope.studies.curriculum.task import Curriculum
from hopscope.studies.loading import find_study
from hopscope.studies.sharing.task import Sharing
from hopscope.tasks.draws import Draws as OldDraws
from hopscope_next.claims.judge import judge
from hopscope_next.runs import Evidence
from hopscope_next.studies.capacity.study import start as new_start
from hopscope_next.studies.curriculum.circuits import circuits
from hopscope_next.studies.curriculum.task import Curriculum as NewCurriculum
from hopscope_next.study.jobs import plan
from hopscope_next.study.load import load
from hopscope_next.tasks import Draws

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
TASKS = {"curriculum": Curriculum, "sharing": Sharing, "conditional": Branching}
STUDIES = ("curriculum", "capacity", "sharing", "conditional")
PRESETS = [(name, preset) for name in STUDIES for preset in find_study(name).presets]
RUNS = [
    f"{name}/{run.name}" for name in STUDIES for run in sorted((RESULTS / name).iterdir()) if run.is_dir()
]

TINY = {
    "curriculum": {"seeds": 2, "training.steps": 16, "model.width": 16},
    "conditional": {"seeds": 2, "training.steps": 16, "model.width": 16, "model.layers": 2},
}
"""Fields of runs that take seconds, beside those of `smoke`."""


@pytest.mark.parametrize("name, preset", PRESETS)
def test_the_same_members(name, preset):
    program = find_study(name)
    theirs = [(job, each) for job in program.jobs(program.configured(preset, {})) for each in job.members]
    ours = [(job, each) for job in plan(load(name).study.chosen(preset)) for each in job.members]
    assert len(ours) == len(theirs) > 0
    for (own, member), (job, planned) in zip(ours, theirs, strict=True):
        found = (member.member, member.seed, member.init_seed, member.data_seed, own.label)
        assert found == (planned.member, planned.seed, planned.init_seed, planned.data_seed, job.label)
        model, training, task = (each.model_dump(mode="json") for each in (job.model, job.training, job.task))
        for new, old in (
            (own.config.model_dump(mode="json"), model),
            (own.training.model_dump(mode="json"), training),
            (own.task["fields"], task.get("fields", task)),
        ):
            names = {*new} & {*old}
            assert {name: new[name] for name in names} == {name: old[name] for name in names}
            assert len(names) > 5
        assert own.held_out == program.chosen(preset, {}).held_out


@pytest.mark.parametrize("run", RUNS)
def test_the_same_verdicts(run):
    folder = RESULTS / run
    name, preset = run.split("/")
    study = load(name).study.chosen(preset)
    evidence = Evidence.read(folder / "evidence.parquet")
    dump = {part: getattr(study, part).model_dump(mode="json") for part in ("model", "training")}
    evidence.config = {"identity": {**dump, "completion": study.completion}}
    committed = {each["id"]: each for each in json.loads((folder / "claims.json").read_text())}
    ours = {claim.id: judge(claim, evidence, completion=study.completion) for claim in study.all_claims()}
    assert {*ours} == {*committed}
    for claim, mine in ours.items():
        found = mine.model_dump(mode="json")
        for field in ("statement", "source", "protocol", "threshold", "verdict", "value", "interval", "n"):
            one, other = (written_alike(each[field]) for each in (found, committed[claim]))
            assert near(one, other), (claim, field, one, other, mine.words)


def written_alike(value):
    """Criteria name their unit now, and both their ends."""
    if not isinstance(value, dict):
        return value
    if "between" in value:
        value = dict(zip(("at_least", "at_most"), value["between"], strict=True))
    return {name: written_alike(each) for name, each in value.items() if name != "unit"}


def near(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and other is not None:
        same = math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
        return same or (math.isnan(one) and math.isnan(other))
    return one == other


@pytest.mark.parametrize("name", TASKS)
def test_the_same_samples_and_losses(name):
    """Of every task of the grid: samples for training at several steps and held out, and losses of noise on them."""
    theirs, seen = find_study(name), set()
    jobs = {job.label: job for job in theirs.jobs(theirs.configured("workstation", {}))}
    for own in plan(load(name).study.chosen("workstation")):
        fields = jobs[own.label].task.model_dump(mode="json")
        task = type(load(name).study.task).model_validate(own.task["fields"])
        if (known := repr(task)) in seen:
            continue
        seen.add(known)
        old_task = TASKS[name].model_validate(fields.get("fields", fields))
        for use, steps in (("train", range(0, 400, 57)), ("held-out", range(1))):
            seeds = torch.tensor([3, 5])
            old = old_task.sample(OldDraws.of(seeds, use, steps, 7))
            new = task.sample(Draws(seeds, use, steps, 7))
            assert torch.equal(old.inputs, new.inputs) and torch.equal(old.targets, new.targets), own.label
            predictions = torch.randn(new.targets.shape, generator=torch.Generator().manual_seed(11))
            before, after = old_task.parts(predictions, old), task.parts(predictions, new)
            assert {*before} == {*after}
            for part in before:
                torch.testing.assert_close(after[part], before[part], rtol=1e-5, atol=1e-6)


def test_the_same_solution_to_begin_from():
    ours = [job for job in plan(load("capacity").study) if job.label.startswith("begun at")]
    program = find_study("capacity")
    theirs = {job.label: job for job in program.jobs(program.configured("workstation", {}))}
    for job in (ours[0], ours[-1]):
        old = SimpleNamespace(label=job.label, task=theirs[job.label].task, members=job.members)
        before, after = old_start(old), new_start(job)
        assert [*before] == [*after]
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.long
def test_the_same_circuits(monkeypatch, member="first-steps-d-2-3-layers-seed-1"):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    from test_reader import models

    old_model, old_task, model, task = models(member)
    old = [read_circuit(old_model, old_task, config) for config in READINGS]
    own = NewCurriculum(
        steps=2, chains=task.chains, symbol_dim=task.symbol_dim, position="pair", shares=(0.5, 1.0)
    )
    context = SimpleNamespace(
        options=SimpleNamespace(read=True), members=(5,), task=own,
        evidence=SimpleNamespace(last=lambda metric: {5: 0.1}), part=lambda name, rows: rows(),
        ensemble=SimpleNamespace(member=lambda place: model),
    )  # fmt: skip
    found = [*circuits.function(context)]
    values = {row["metric"]: row["value"] for row in found if row["metric"] != "reads"}
    reads = [
        frozenset(
            frozenset((path.layer, 0, path.query, path.target or path.rule.kind) for path in circuit.paths)
            for circuit, _ in each.minimal
        )
        for each in old
    ]
    heads = {(path.layer, path.head) for path in old[0].circuit.paths}
    layers = {layer for layer, _ in heads}
    expected = (old[0].verdict == "read", len(heads), len(old[0].circuit.paths), len(layers))
    assert tuple(values[name] for name in ("was_read", "heads", "paths", "layers")) == expected
    # Samples of the readers differ a little, and with them which of the further circuits are found.
    assert values["reread"] == pytest.approx(path_distance(*reads), abs=0.05)
    smallest = {
        (path.layer, f"{path.query} → {path.target or path.rule.kind}") for path in old[0].circuit.paths
    }
    assert smallest <= {
        (row["layer"], row["part"].partition(": ")[2]) for row in found if row["metric"] == "reads"
    }


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_the_same_numbers(tmp_path, monkeypatch, name):
    """Every number that both houses' evidence has, of a run of a few steps; and nothing that the first had is gone."""
    monkeypatch.setattr("hopscope_next.page.page.write_page", lambda run, loaded: None)
    keys = ["member", "seed", "configuration", "split", "step", "measure", "metric", "layer", "head", "part"]
    tables = []
    for house in (hopscope, hopscope_next):
        out = tmp_path / house.__name__
        run = house.run(name, preset="smoke", out=out, device="cpu", threads=1, fields=TINY[name])
        table = run.evidence.to_pandas()
        tables.append(table.astype(dict.fromkeys(keys, "str")).set_index(keys)["value"])
    old, new = tables
    assert len(old) > 50 and not {*old.index} - {*new.index}
    for key, value in old.items():
        close = math.isclose(value, new[key], rel_tol=1e-5, abs_tol=1e-6)
        assert close or near(value, new[key]), (key, value, new[key])
