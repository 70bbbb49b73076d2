"""Studies of chains in both houses: the same members, the same numbers, and the same verdicts of committed runs."""

import json
import math
from pathlib import Path

import pytest

import hopscope
import hopscope_next
from hopscope.studies.loading import find_study
from hopscope_next.claims.judge import judge
from hopscope_next.runs import Evidence
from hopscope_next.studies.depth.options import DETAILS
from hopscope_next.study.jobs import plan
from hopscope_next.study.load import load

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
STUDIES = ("recipes", "first-steps", "depth")
PRESETS = [(name, preset) for name in STUDIES for preset in find_study(name).presets]
RUNS = {
    "recipes/laptop": {},
    "recipes/details": {"parts": ("without", "alone"), "seeds": 8},
    "recipes/factorial": {"parts": ("factorial",)},
    "recipes/starts": {"parts": ("starts",)},
    "first-steps/laptop": {},
    "depth/laptop": {},
    "depth/workstation": {},
    "depth/details": {
        "completion": "gpt2-base", "beta2": 0.95, "position": "token", "heads": 4, "width": 64, "head_size": None,
        "steps": 2, "steps_last": 2, "training_steps": 2500, "learning_rate": 1e-3, "checkpoint_every": 500,
        "evaluate_every": 50, "details": tuple(name for name in DETAILS if name != "completion"),
    },
}  # fmt: skip
"""Run → how its options differ from those of its preset."""

CHANGED = {("depth/details", "N11", "threshold")}
"""Committed before "less than four steps" was written as at most 3.99."""

TINY = {
    "first-steps": {"seeds": 2, "training.steps": 16, "model.width": 32, "layers": (1,), "most_steps": 1},
    "depth": {"seeds": 2, "deepest_seeds": 2, "training_steps": 16, "final_window": 8, "layers": (1, 2),
              "layers_last": (2,), "width": 16, "analysis_samples": 128},
}  # fmt: skip
"""Fields of runs that take seconds, beside those of `smoke`."""


def shared(one, other):
    """The fields of two records that both have, as JSON."""
    names = sorted({*one} & {*other})
    return [json.loads(json.dumps({name: each[name] for name in names})) for each in (one, other)]


@pytest.mark.parametrize("name, preset", PRESETS)
def test_the_same_members(name, preset):
    program = find_study(name)
    theirs = [(job, each) for job in program.jobs(program.configured(preset, {})) for each in job.members]
    study = load(name).study.chosen(preset)
    ours = [(job, each) for job in plan(study) for each in job.members]
    assert len(ours) == len(theirs) > 0
    for (own, member), (job, planned) in zip(ours, theirs, strict=True):
        found = (member.member, member.seed, member.init_seed, member.data_seed, own.label)
        assert found == (planned.member, planned.seed, planned.init_seed, planned.data_seed, job.label)
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
        assert own.held_out == held_out(program, preset, study)


def held_out(program, preset, study):
    if study.name == "depth":
        return program.configured(preset, {}).evaluation_samples
    return program.chosen(preset, {}).held_out


@pytest.mark.long
@pytest.mark.parametrize("name", ["first-steps", "depth"])
def test_the_same_numbers(tmp_path, monkeypatch, name):
    """Every number that both houses' evidence has, of a run of a few steps; and nothing that the first had is gone."""
    monkeypatch.setattr("hopscope_next.page.page.write_page", lambda run, loaded: None)
    tables = []
    for house in (hopscope, hopscope_next):
        run = house.run(
            name, preset="smoke", out=tmp_path / house.__name__, device="cpu", threads=1, fields=TINY[name]
        )
        table = run.evidence.to_pandas()
        keys = [
            "member",
            "seed",
            "configuration",
            "split",
            "step",
            "measure",
            "metric",
            "layer",
            "head",
            "part",
        ]
        tables.append(table.astype(dict.fromkeys(keys, "str")).set_index(keys)["value"])
    old, new = tables
    assert len(old) > 50 and not {*old.index} - {*new.index}
    for key, value in old.items():
        same = math.isclose(value, new[key], rel_tol=1e-5, abs_tol=1e-6) or near(value, new[key])
        assert same, (key, value, new[key])


def near(one, other):
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and other is not None:
        return (math.isnan(one) and math.isnan(other)) or math.isclose(
            one, other, rel_tol=1e-9, abs_tol=1e-12
        )
    return one == other


def judged(run):
    """Committed and our verdicts of a run, by the options that it was made with."""
    folder = RESULTS / run
    config = json.loads((folder / "config.json").read_text())
    study = load(config["study"]).study.chosen(config["preset"], RUNS[run])
    evidence = Evidence.read(folder / "evidence.parquet")
    dump = {name: getattr(study, name).model_dump(mode="json") for name in ("model", "training")}
    evidence.config = {"identity": {**dump, "completion": study.completion}}
    committed = {each["id"]: each for each in json.loads((folder / "claims.json").read_text())}
    ours = {each.id: judge(each, evidence, completion=study.completion) for each in study.all_claims()}
    return committed, ours


@pytest.mark.parametrize("run", RUNS)
def test_the_same_verdicts(run):
    committed, ours = judged(run)
    assert {*ours} == {*committed}
    for name, mine in ours.items():
        theirs, found = committed[name], mine.model_dump(mode="json")
        for field in ("statement", "source", "protocol", "threshold", "verdict", "value", "interval", "n"):
            expected = theirs[field]
            if field == "threshold":  # criteria name their unit now
                found[field] = without_units(found[field])
            changed = (run, name, field) in CHANGED
            assert changed or near(found[field], expected), (name, field, found[field], expected, mine.words)


def without_units(must):
    return {name: without_units(each) if isinstance(each, dict) else each for name, each in must.items()
            if name != "unit"}  # fmt: skip
