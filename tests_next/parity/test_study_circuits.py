"""The studies of circuits and of emergence in both houses: the same members, and verdicts of committed runs."""

import json
import math
from pathlib import Path

import pytest

from hopscope.studies.loading import find_study
from hopscope_next.claims.judge import judge
from hopscope_next.runs import Evidence
from hopscope_next.study.jobs import plan
from hopscope_next.study.load import load

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
STUDIES = ("circuits", "emergence")
PRESETS = [(name, preset) for name in STUDIES for preset in find_study(name).presets]
RUNS = {
    "circuits/laptop": {},
    "circuits/workstation": {"seeds": 17, "read_again": 0},
    "emergence/laptop": {},
    "emergence/two-steps": {
        "position": "token", "heads": 2, "width": 64, "training_steps": 2000, "learning_rate": 1e-3, "layers": 6,
        "head_size": None, "checkpoint_every": 50, "evaluate_every": 25, "evaluation_samples": 512,
        "analysis_samples": 4096, "members_per_unit": 4, "searched": 1.0, "read_again": 5, "clamp_steps": 800,
        "completion": "gpt2-base", "beta2": 0.95,
    },
}  # fmt: skip
"""Run → how its options differ from those of its preset."""


def shared(one, other):
    """The fields of two records that both have, as JSON."""
    names = sorted({*one} & {*other})
    return [json.loads(json.dumps({name: each[name] for name in names})) for each in (one, other)]


@pytest.mark.parametrize("name, preset", PRESETS)
def test_the_same_members(name, preset):
    program = find_study(name)
    config = program.configured(preset, {})
    theirs = [(job, each) for job in program.jobs(config) for each in job.members]
    ours = [(job, each) for job in plan(load(name).study.chosen(preset)) for each in job.members]
    assert len(ours) == len(theirs) > 0
    for (own, member), (job, planned) in zip(ours, theirs, strict=True):
        found = member.member, member.seed, member.init_seed, member.data_seed
        assert found == (planned.member, planned.seed, planned.init_seed, planned.data_seed)
        task, training = job.task.model_dump(mode="json"), job.training.model_dump(mode="json")
        training["examples"] = own.training.examples
        assert own.training.examples == task.pop("pool")
        for new, old in (
            (own.config.model_dump(mode="json"), job.model.model_dump(mode="json")),
            (own.training.model_dump(mode="json"), training),
            (own.task["fields"], task),
        ):
            one, other = shared(new, old)
            assert one == other and len(one) > 5
        assert own.held_out == config.evaluation_samples


def near(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and other is not None:
        both = math.isnan(one) and math.isnan(other)
        return both or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


@pytest.mark.parametrize("run", RUNS)
def test_the_same_verdicts(run):
    folder = RESULTS / run
    config = json.loads((folder / "config.json").read_text())
    study = load(config["study"]).study.chosen(config["preset"], RUNS[run])
    evidence = Evidence.read(folder / "evidence.parquet")
    committed = {each["id"]: each for each in json.loads((folder / "claims.json").read_text())}
    ours = {each.id: judge(each, evidence, completion=study.completion) for each in study.all_claims()}
    assert {*ours} == {*committed}
    wrong = []
    for name, mine in ours.items():
        theirs, found = committed[name], mine.model_dump(mode="json")
        for field in ("statement", "source", "protocol", "verdict", "value", "interval", "n"):
            if not near(found[field], theirs[field]):
                wrong.append((name, field, found[field], theirs[field], mine.words))
    assert not wrong
