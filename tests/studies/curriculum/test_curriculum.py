"""The study of the curriculum: its task, its ways to ask, and how far circuits are apart."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopscope import train
from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.curriculum import circuits
from hopscope.studies.curriculum.study import (
    GROWING,
    OWN,
    OWN_ALONE,
    SWITCHED,
    TAUGHT,
    Curriculum,
    Options,
    configurations,
    curricula,
    dose,
    study,
    ways,
)
from hopscope.studies.curriculum.wide import MODEL
from hopscope.tasks import Draws, check_task, draw
from hopscope.training.config import Training

SEEDS = torch.tensor([3, 5])


def task(**fields):
    return Curriculum(steps=3, chains=5, symbol_dim=2, position="pair", **fields)


@pytest.mark.parametrize("steps", [2, 3])
def test_every_way_to_ask_is_a_task(steps):
    for name, fields in curricula(steps).items():
        check_task(Curriculum(steps=steps, position="pair", **fields))
        assert name in ways(Options(), steps)


def test_each_step_at_a_position_of_its_own():
    own, plain = task(own_positions=True), task()
    batch, same = (draw(each, SEEDS, "train", 7, 11) for each in (own, plain))
    pairs = same.inputs.shape[2] - 5
    assert own.shape().positions == pairs + 15 and own.shape().output_size == 2
    assert torch.equal(batch.inputs[:, :, :pairs, :2], same.inputs[:, :, :pairs, :2])
    for query in range(5):
        for step in range(3):
            at = 3 * query + step
            assert torch.equal(batch.inputs[:, :, pairs + at, :2], same.inputs[:, :, pairs + query, :2])
            assert torch.equal(batch.targets[:, :, at], same.targets[:, :, query, 2 * step : 2 * step + 2])
    codes = batch.inputs[0, 0, :, 2:]
    assert len(codes[::2].unique(dim=0)) == len(codes[::2]) and torch.equal(codes[0], codes[1])


@pytest.mark.parametrize(
    "fields", [{}, {"shares": (0.1, 0.5, 1.0)}, {"shares": (0.2, 0.3, 0.5), "emphasis": "one"}]
)
def test_losses_are_those_of_one_position_for_all(fields):
    own, plain = task(own_positions=True, **fields), task(**fields)
    batch, same = (draw(each, SEEDS, "train", 7, 11) for each in (own, plain))
    noise = torch.randn(2, 11, 5, 6, generator=torch.Generator().manual_seed(13))
    for function in ("parts", "scores"):
        found = getattr(own, function)(noise.reshape(2, 11, 15, 2), batch)
        expected = getattr(plain, function)(noise, same)
        assert {*found} == {*expected}
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)


def test_a_padded_sample_ends_with_what_it_asks_for():
    padded = task(shares=(0.2, 0.3, 0.5), emphasis="one", padded=True)
    plain = task(shares=(0.2, 0.3, 0.5), emphasis="one")
    batch, whole = (each.sample(Draws(SEEDS, "train", 7, 23)) for each in (padded, plain))
    asked = batch.weights[:, :, 0, ::2].argmax(-1) + 1
    beyond = whole.roles["step"] > asked[..., None]
    assert beyond.any() and not batch.inputs[..., :2][beyond].any()
    assert torch.equal(batch.inputs[~beyond], whole.inputs[~beyond])
    held_out = (each.sample(Draws(SEEDS, "held-out", 0, 23)).inputs for each in (padded, plain))
    assert torch.equal(*held_out)


def test_own_positions_are_of_pairs():
    with pytest.raises(UserError, match="share a position code"):
        Curriculum(own_positions=True)


def test_own_positions_train_and_have_no_exchange():
    own = task(own_positions=True)
    ensemble = train(own, MODEL.model_copy(update={"width": 16}), Training(steps=2, batch_size=7), seeds=2)
    assert len(ensemble) == 2 and own.counterfactuals(ensemble.batch(3)) is None


def test_what_is_read_is_what_taught():
    labels = [each.label for each in configurations(Options(steps=(2,), read=True), study)]
    assert labels == [f"D=2, {name}" for name in curricula(2) if name in TAUGHT] and OWN not in TAUGHT
    with pytest.raises(UserError):
        study.changed({"steps": ("two",)})


def evidence_of(rows, ways=("one way", "another"), seeds=range(5)):
    places = [(way, seed) for way in ways for seed in seeds]
    members = [
        {"member": number, "seed": seed, "configuration": way, "overrides": {}, "unit": way}
        for number, (way, seed) in enumerate(places)
    ]
    return Evidence.of(rows(members), members, {"identity": {"training": {"steps": 90}}})


def test_a_dose_is_a_rank_correlation_by_seed():
    names = [
        "D=2, whole chain",
        *(f"D=2, easier symbols weigh {weight}" for weight in (0.01, 0.03, 0.1, 0.3)),
    ]
    by_seed = {0: [10, 50, 40, 30, 20], 1: [math.inf] * 5, 2: [10, math.inf, math.inf, 30, 20]}

    def rows(members):
        for each in members:
            time = float(by_seed[each["seed"]][names.index(each["configuration"])])
            yield {
                "member": each["member"],
                "metric": "learned_at",
                "part": "step_2",
                "step": 90,
                "value": time,
            }

    found = dose(Options(steps=(2,)), evidence_of(rows, names, by_seed))["D = 2"].values
    assert found[0] == pytest.approx(-1.0) and math.isnan(found[1]) and -1.0 < found[2] < -0.9


READS = st.frozensets(
    st.frozensets(st.tuples(st.integers(0, 2), st.sampled_from("abc")), min_size=1), min_size=1
)


@given(READS, READS)
def test_a_distance_is_symmetric_and_zero_for_the_same(one, other):
    apart = circuits.path_distance(one, other)
    assert apart == circuits.path_distance(other, one) and 0.0 <= apart <= 1.0
    assert (apart == 0.0) == (one == other)


def test_distances_tell_ways_from_seeds(monkeypatch):
    def reading_of(context, file, member):
        paths = [SimpleNamespace(layer=0, query="x", read=file)]
        return SimpleNamespace(minimal=[(SimpleNamespace(paths=paths), 0.0)])

    monkeypatch.setattr(circuits, "reading_of", reading_of)
    rows = [{"metric": "was_read", "member": member, "file": reads} for member, reads in enumerate("aabc")]
    who = [("one way", 0), ("one way", 1), ("another", 0), ("another", 1)]
    members = [SimpleNamespace(member=n, configuration=way, seed=seed) for n, (way, seed) in enumerate(who)]
    context = SimpleNamespace(rows=lambda name: rows, unit=SimpleNamespace(members=members))
    found = {
        (row["metric"], row["member"]): row["value"]
        for row in circuits.distances.function(context)
        if row["metric"] != "distance"
    }
    assert (
        found["within", 0] == 0.0
        and found["within", 2] == found["between", 0] == found["same_start", 0] == 1.0
    )


@pytest.mark.parametrize("gone", [(), (3,)])
def test_the_excess_is_of_other_ways_over_other_seeds(gone):
    def rows(members):
        known = [each for each in members if each["seed"] not in gone]
        for one in known:
            yield {
                "member": one["member"],
                "metric": "reread",
                "measure": "circuit",
                "step": 90,
                "value": 0.1,
            }
            for other in known:
                if one is not other:
                    apart = 0.4 if one["configuration"] == other["configuration"] else 0.7
                    yield {"member": one["member"], "metric": "distance", "measure": "distances", "step": 90,
                           "part": f"member {other['member']}", "value": apart}  # fmt: skip

    found, control = (each(evidence_of(rows)) for each in (circuits.excess, circuits.rereading))
    for samples, value in ((found, 0.3), (control, -0.3)):
        assert [math.isnan(each) for each in samples.values] == [seed in gone for seed in range(5)]
        assert [each for each in samples.values if not math.isnan(each)] == pytest.approx(
            [value] * (5 - len(gone))
        )
        assert samples.interval == pytest.approx((value, value))


def test_the_control_of_positions_of_their_own_has_them_and_is_asked_for_the_last_symbol_alone():
    fields = curricula(3)
    own, control = (Curriculum(steps=3, position="pair", **fields[name]) for name in (OWN, OWN_ALONE))
    assert control.shape() == own.shape()
    weights = draw(control, torch.tensor([1]), "train", 0, 2).weights
    assert (weights[0, 0].any(-1).tolist()) == [False, False, True] * 4


def test_circuits_are_read_of_two_steps():
    with pytest.raises(UserError, match=r"steps: expected \(2,\) where circuits are read"):
        study.changed({"read": True, "steps": (2, 3)})


def test_stages_end_with_the_training_of_the_run():
    cells = study.changed({"training.steps": 1600, "steps": (2,)}).grid()
    schedules = {each.label: each.overrides.get("task.schedule") for each in cells}
    assert schedules[f"D=2, {SWITCHED}"] == ((800, "last"),)
    assert [begin for begin, _ in schedules[f"D=2, {GROWING}"]] == [533]
