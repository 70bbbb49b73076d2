"""Circuits by way to ask: which options read them, their distances, what S1f says of known ones, and the page."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from tests.story.user_run import texts

import hopscope as hs
from hopscope.claims import Ledger, judge
from hopscope.report.figures import figure_names, render_figure
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies import find_study
from hopscope.studies.curriculum import circuits
from hopscope.studies.curriculum.study import (
    TAUGHT,
    Options,
    ReadingOptions,
    claims,
    configurations,
    label,
    ways,
)

SEEDS, LAST = 8, 400
READING = ReadingOptions(steps=(2,), read=True)


# What is asked for.


def test_only_the_reading_preset_reads():
    program = find_study("curriculum")
    assert list(ways(READING, 2)) == list(TAUGHT)
    assert [claim.id for claim in claims(READING)] == ["S1f"]
    for preset, config in program.presets.items():
        ids = {claim.id for claim in program.claims(config)}
        assert (ids == {"S1f"}) == (preset == "circuits"), preset


def test_runs_from_before_circuits_were_read_keep_their_name():
    assert ReadingOptions().model_dump() == Options().model_dump()
    assert READING.model_dump()["read"] is True


def test_all_ways_are_read_on_the_same_samples():
    program = find_study("curriculum")
    jobs = program.jobs(program.presets["circuits"])
    assert len(jobs) == len(configurations(READING))
    assert len({circuits._task(job).model_dump_json() for job in jobs}) == 1
    assert {job.model.output_size for job in jobs} == {circuits._task(jobs[0]).shape().output_size}


# Readings.


def reading(*paths):
    """A reading with one minimal circuit, of (layer, head, rows, what they read)."""
    found = [
        {"layer": layer, "head": head, "query": rows, "target": read, "rule": {"kind": "hop"}}
        for layer, head, rows, read in paths
    ]
    return {"minimal_circuits": [{"circuit": {"paths": found}}]}


def test_heads_of_a_layer_have_no_order():
    one = circuits.reads_of(reading((0, 3, "second", "first"), (2, 1, "query", "second")))
    other = circuits.reads_of(reading((0, 1, "second", "first"), (2, 0, "query", "second")))
    deeper = circuits.reads_of(reading((1, 1, "second", "first"), (2, 0, "query", "second")))
    assert one == other != deeper
    assert circuits.path_distance(one, deeper) == pytest.approx(1 - 1 / 3)


def test_distances_of_known_circuits(monkeypatch):
    """Five members of two ways; one of them has no circuit."""
    units = {number: SimpleNamespace(hash="a" if number < 3 else "b") for number in range(5)}
    seeds = [0, 1, 2, 0, 1]
    run = SimpleNamespace(
        members=[SimpleNamespace(member=m, unit=units[m], seed=seeds[m]) for m in range(5)],
        unit=lambda unit: unit,
    )
    held = {0: {1, 2}, 1: {1, 2}, 3: {1, 3}, 4: {5}}
    monkeypatch.setattr(
        circuits,
        "_first_reading",
        lambda run, member: frozenset({frozenset((layer, 0, "x", "y") for layer in held[member])}),
    )
    context = SimpleNamespace(run=run, rows=lambda name: [Row(m, "circuit", "paths", 1.0) for m in held])
    rows = list(circuits.distances.function(context))
    found = {(row["metric"], row["member"], row.get("part")): row["value"] for row in rows}
    assert found["distance", 0, "member 1"] == 0.0
    assert found["distance", 0, "member 3"] == pytest.approx(2 / 3)
    assert found["within", 0, None] == 0.0
    assert found["same_start", 0, None] == pytest.approx(2 / 3)
    assert found["between", 0, None] == 1.0
    assert len([name for name in found if name[0] == "distance"]) == 12
    assert not any(member == 2 for _, member, _ in found)


# The claim.


def evidence(within=0.3, between=0.6, reread=0.1, learned=lambda way, seed: True, diverged=(), noise=0.02):
    """A run whose distances are known, up to noise that is the same at every call."""
    draws = np.random.default_rng(5)
    members, rows, places = [], [], []
    for way in TAUGHT:
        for seed in range(SEEDS):
            member = len(members)
            members.append({"member": member, "seed": seed, "configuration": label(2, way),
                            "overrides": {"task.steps": 2}})  # fmt: skip
            gone, known = member in diverged, learned(way, seed) and member not in diverged
            loss = None if gone else 0.1 if known else 0.76
            rows += [
                Row(member, "training", "loss_step_2", value, step=at)
                for at, value in ((0, 1.1), (LAST, loss))
            ]
            time = None if gone else 100.0 if known else math.inf
            rows.append(Row(member, "learned_at", "learned_at", time, step=LAST, part="step_2"))
            if known:
                places.append((member, way, seed))
                counts = {"heads": 5.0, "paths": 7.0, "layers": 3.0, "was_read": 1.0, "reread": reread}
                rows += [Row(member, "circuit", name, value, step=LAST) for name, value in counts.items()]
    for one, way, _ in places:
        for other, of_way, _ in places:
            if one < other:
                value = (within if way == of_way else between) + noise * draws.normal()
                for pair in ((one, other), (other, one)):
                    rows.append(Row(pair[0], "distances", "distance", value, part=f"member {pair[1]}"))
        for name, value in (("within", within), ("between", between), ("same_start", between)):
            rows.append(Row(one, "distances", name, value))
    config = {"task": {}, "model": {"width": 512}, "training": {"steps": LAST},
              "options": READING.model_dump(mode="json"), "seeds": SEEDS}  # fmt: skip
    return Evidence.of(members, rows, config)


def nobody(way, seed):
    return False


def few(way, seed):
    return seed < 2


CASES = {
    "farther": ({}, "reproduced", "leaves its mark on the circuit"),
    "alike": ({"between": 0.3}, "inconclusive", "this run does not settle"),
    "nearer": ({"between": 0.2}, "refuted", "leaves no mark on its circuit"),
    "as far as readings": ({"reread": 0.5}, "inconclusive", "this run does not settle"),
    "nobody learned": ({"learned": nobody}, "not run", "says nothing of circuits"),
    "two seeds learned": ({"learned": few}, "not run", "this run does not settle"),
    "one diverged": ({"diverged": (3,)}, "reproduced", "leaves its mark on the circuit"),
    "all diverged": ({"diverged": range(1000)}, "not run", "says nothing of circuits"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts_of_known_distances(case):
    changed, expected, _ = CASES[case]
    (claim,) = claims(READING)
    judged = judge(claim, evidence(**changed))
    assert ("not run" if judged.here is None else judged.here.verdict) == expected
    if case == "farther":
        assert judged.value == pytest.approx(0.3, abs=0.02)
        assert judged.interval[0] < judged.value < judged.interval[1]


def test_pairs_of_one_seed_play_no_part():
    """Members of one seed begin with the same weights: their distances must not decide."""
    found = evidence()
    table = found.rows("distance", measure="distances")
    same, other = circuits._by_seeds(found)
    assert np.isnan(np.diag(same)).all() and np.isnan(np.diag(other)).all()
    assert len(table) and same.shape == (SEEDS, SEEDS)
    np.testing.assert_allclose(same[~np.eye(SEEDS, dtype=bool)], 0.3, atol=0.05)


def test_a_seed_without_circuits_is_left_out():
    found = circuits.excess(evidence(learned=lambda way, seed: seed != 4))
    assert found.values[4] is None
    assert [value for value in found.values if value is not None] == pytest.approx([0.3] * 7, abs=0.03)


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    changed, _, said = CASES[case]
    program, found = find_study("curriculum"), evidence(**changed)
    config = program.configured("circuits", {})
    run = RunFolder.create(tmp_path, "curriculum", config.model_dump(mode="json"), [], None)
    program.present(run, config, found, Ledger([judge(claim, found) for claim in claims(READING)]))
    if case == "one diverged":
        for name in figure_names(run.path / "figures"):
            render_figure(run.path / "figures", name)
    words = texts(run.read_json("story.json")).replace("\u00a0", " ")
    assert said in words
    assert not any(other in words for _, _, other in CASES.values() if other != said)
    assert "last symbol alone" not in words.lower()


# From end to end.


def tiny():
    """The reading preset as a study of this process, which needs no workers."""
    fields = {
        "seeds": 2,
        "training.steps": 2,
        "model.width": 24,
        "model.head_dim": 2,
        "training.batch_size": 5,
    }
    chosen = find_study("curriculum").chosen("circuits", fields)
    return chosen.model_copy(update={"name": "here", "page": None, "page_names": None})


def test_a_run_in_which_nobody_learns(tmp_path):
    run = hs.run(tiny(), out=tmp_path)
    assert "paths" not in run.evidence
    assert [judged.verdict for judged in run.claims] == ["not run"]


def test_members_that_learned_are_read_twice(tmp_path, monkeypatch):
    """With a bar that everyone passes, untrained members stand in for those that learned."""
    from hopscope.circuits import record

    asked = []

    def read(run, member, step, config, *, task):
        asked.append((member, config.seed))
        found = reading((0, 0, "a", "b"), (config.seed, 1, "c", "d"))
        paths = [{"layer": 0, "head": 0}, {"layer": 2, "head": 1}]
        name = circuits.reading_name(member, config)
        run.unit(run.members[member].unit).write_analysis(name, step, found)
        assert task(run.unit(run.members[member].unit)).config.targets == "ic"
        return {**found, "paths": paths, "learned": ["step_1", "step_2"], "verdict": "read"}

    monkeypatch.setattr(record, "read_member", read)
    monkeypatch.setattr(circuits, "LEARNED", math.inf)
    run = hs.run(tiny(), out=tmp_path)
    count = 2 * len(TAUGHT)
    assert sorted(asked) == sorted((member, seed) for member in range(count) for seed in (0, 1))
    evidence = run.evidence
    assert evidence.last("layers").tolist() == [2.0] * count
    assert evidence.last("reread").tolist() == pytest.approx([1 - 1 / 3] * count)
    assert set(evidence.rows("distance", measure="distances")["value"]) == {0.0}
