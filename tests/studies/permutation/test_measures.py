"""Measures on hand-built models whose answers are known, on ideal observers, and against slow references."""

import itertools
import math
import statistics

import pandas as pd
import pytest
import torch

from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation import answers, causal, measures
from hopscope.study.measure import CHUNK
from hopscope.tasks import Permutation

TASK = Permutation(values=4, repeat_ratio=0.3)
MODEL = Model(layers=1, heads=2, width=14, mlp_ratio=2.0, norm="post", activation="relu", init="encoder")


@pytest.fixture(scope="module")
def plants():
    return {plant.name: plant for plant in permutation_plants(4)}


@pytest.fixture(scope="module")
def model():
    return Transformer.initial(MODEL.for_task(TASK.shape()), torch.tensor([3, 5, 7]))


# Skills and causal tests of planted circuits.

TESTS = ("position_code_swap", "y_swap", "attention_swap", "head_interchange", "mlp_interchange")


@pytest.mark.parametrize(
    ("name", "pointer"), [("recall by head 0, V = 4", 0), ("recall by head 1, V = 4", 1)]
)
def test_a_planted_circuit_is_taken_apart(name, pointer, plants, measure_of):
    plant = plants[name]
    found = measure_of(measures.battery, plant.model, plant.task)

    def value(metric, part):
        (number,) = found[metric, part, "held_out", None]
        return number

    assert value("recall", "clean") == value("elimination", "clean") == 1.0
    for test in TESTS:
        assert (value("to_other", test), value("stays", test)) == (1.0, 0.0), test
    for test in TESTS[:3]:
        assert value("control_stays", test) == value("plain_accuracy", test) == 1.0
    # Equal weights of the y keep what was shown, and lose where (one slot of the plant has just this weight).
    assert value("recall", "equal_y_weights") < 0.2 and value("elimination", "equal_y_weights") == 1.0
    for by in ("mean", "zero"):
        assert value("recall", f"mlp_ablation.{by}") < 0.5
    for rule, kind in itertools.product(("uniform", "identity", "random"), ("repeats", "plain")):
        part = f"earlier_rows.{rule}.{kind}"
        assert value("last_row_change", part) == 0.0 < value("earlier_rows_change", part)
    assert value("self_change", "head_interchange") == 0.0

    found = measure_of(measures.roles, plant.model, plant.task)
    lost = {
        metric: [found[metric, None, "held_out", head][0] for head in (0, 1)]
        for metric in ("recall_lost", "elimination_lost")
    }
    assert lost["recall_lost"][pointer] > 0.5 and lost["elimination_lost"][pointer] == 0.0
    assert lost["elimination_lost"][1 - pointer] > 0.5


@pytest.mark.parametrize(("name", "recall"), [("elimination, V = 4", 0.0), ("recall by head 0, V = 4", 1.0)])
def test_both_skills(name, recall, plants, measure_of):
    model = plants[name].model
    found = measure_of(measures.probes, model, TASK)
    numbers = {place[:2]: value for place, value in found.items()}
    assert numbers["elimination", None] == [1.0] and numbers["recall", None] == [recall]
    assert numbers["exhaustive", "repeats"] == [1.0]
    assert numbers["mass_recalled", None][0] == pytest.approx(recall, abs=1e-3)
    assert numbers["mass_unused", None][0] == pytest.approx(1.0 - recall, abs=1e-3)
    assert numbers["repeat_max_ae", None][0] == pytest.approx(1.0 - recall, abs=1e-2)
    some = measure_of(measures.probes, model, TASK, evaluation_limit=100)
    assert some["exhaustive", "repeats", "held_out", None] == [0.0]
    curve = measure_of(measures.training, model, TASK)
    assert [curve[skill, None, "held_out", None] for skill in ("elimination", "recall")] == [[1.0], [recall]]


def test_what_a_sweep_does_not_need_is_not_measured(model, measure_of):
    for measure in (measures.battery, measures.roles, measures.patterns, measures.explorer):
        assert measure_of(measure, model, TASK, measurements="basic") == {}
    assert measure_of(measures.circuits, model, TASK) == {}


def test_maps_of_the_first_member(model, measure_of):
    found = measure_of(measures.patterns, model, TASK)
    row = [
        found["attention", f"plain.x4.{key}", "held_out", 1]
        for key in ("x1", "y1", "x2", "y2", "x3", "y3", "x4")
    ]
    assert sum(row) == pytest.approx(1.0) and len(found) == 2 * 2 * 28
    own = model.select([0]).cache(TASK.listed("plain").inputs, [causal.PATTERN])[causal.PATTERN]
    assert row[3] == pytest.approx(float(own[0, :, 1, 6, 3].mean()), abs=1e-6)


# Ideal observers.


def test_the_informed_observer_is_that_of_a_count():
    """Against one that goes through all mappings by hand."""
    batch, mappings = TASK.listed("plain", False), TASK.mapping(torch.arange(TASK.mappings(False)), False)
    found = answers.informed(batch.take(slice(0, None, 37)), mappings)[0]
    for tokens, targets, own in zip(
        batch.inputs[0, ::37].tolist(), batch.targets[0, ::37].tolist(), found, strict=True
    ):
        for slot, x in enumerate(tokens[::2]):
            shown = list(zip(tokens[: 2 * slot : 2], targets[:slot], strict=True))
            fitting = [each for each in mappings.tolist() if all(each[a - 1] == b for a, b in shown)]
            counts = [sum(each[x - 1] == y for each in fitting) / len(fitting) for y in range(1, 5)]
            assert own[slot].tolist() == pytest.approx([0.0, *counts])


def test_observers_are_told_from_each_other(monkeypatch, model, measure_of):
    """Members that answer as one of the two observers do; a third leans the other way."""
    mappings = TASK.mapping(torch.arange(TASK.mappings(False)), False)

    def predicted(model, batch):
        even, informed = answers.even(batch), answers.informed(batch, mappings).nan_to_num(0.0)
        known = informed.sum(-1, keepdim=True) > 0
        informed = torch.where(known, informed, even)
        return torch.cat((even, informed, 2 * even - informed))

    monkeypatch.setattr(answers, "predicted", predicted)
    found = {place[:3]: value for place, value in measure_of(measures.posteriors, model, TASK).items()}
    assert found["memorised_share", None, "train"][:2] == pytest.approx([0.0, 1.0], abs=1e-5)
    assert found["kl_uniform", "step_2", "held_out"][0] == pytest.approx(0.0, abs=1e-6)
    assert (
        found["kl_training", "step_3", "train"][0] > 0.05
        and found["kl_training", "step_3", "train"][1] == 0.0
    )
    assert found["tilt_correlation", None, "held_out"] == [None, pytest.approx(1.0), pytest.approx(-1.0)]
    assert found["tilt_slope", None, "held_out"] == pytest.approx([0.0, 1.0, -1.0], abs=1e-6)
    assert abs(found["tilt_control", None, "held_out"][1]) < 0.2
    assert found["used_mass_mean", "step_4", "held_out"] == pytest.approx([0.0] * 3, abs=1e-6)
    assert ("kl_training", "step_4", "held_out") not in found  # whole mappings are never training ones
    gap = found["train_minus_held_out", None, "held_out"]
    assert gap[1] > gap[0] > gap[2]


@pytest.mark.parametrize(("count", "sample"), [(7, 1), (7, 3), (7, 7), (7, 11)])
def test_the_expected_maximum_is_the_mean_over_all_samples(count, sample):
    values = torch.rand(2, count, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    drawn = [*itertools.combinations(range(count), min(sample, count))]
    expected = [statistics.fmean(max(float(own[at]) for at in each) for each in drawn) for own in values]
    assert answers.expected_maximum(values, sample).tolist() == pytest.approx(expected)


# Read off the record.


def test_a_rise_is_timed_from_its_lowest_point():
    """An untrained member guesses right at times; that is not when recall came."""
    values = [0.3, 0.0, 0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0]
    curve = pd.Series(values, index=range(0, 770, 70))
    relative, width, *times = measures.risen(curve, 0.25, 0.0)
    assert times == pytest.approx([7 * 35, 7 * 55, 7 * 75])
    assert relative == pytest.approx(40 / 55) and width == pytest.approx(7 * 40)
    assert {*measures.risen(curve, 1.1, 0.0)} == {math.inf}
    sudden = measures.risen(pd.Series([0.0, 0.0, 1.0, 1.0, 1.0], index=[0, 40, 50, 60, 70]), 0.25, 0.0)
    assert sudden[:2] == pytest.approx((8 / 45, 8))


def test_a_skill_that_never_came_is_censored_and_a_lost_member_missing(model, measure_of):
    record = [
        {"split": "held_out", "metric": metric, "step": step, "value": [min(step / 500, 1.0), 0.1, None]}
        for step in range(0, 1000, 50)
        for metric in ("elimination", "recall", "mass_recalled")
    ]
    record += [{**row, "split": "train", "metric": "loss"} for row in record[3::3]]
    given = {"record": record, "diverged": [None, None, 50], "samples_per_epoch": 1000}
    found = measure_of(measures.transition, model, TASK, **given)
    time, width = (found[metric, part, "held_out", None] for metric, part in
                   (("time", "from_zero.half"), ("relative_width", "from_chance")))  # fmt: skip
    assert time == [pytest.approx(2500.0), math.inf, None] and width[1:] == [math.inf, None]
    found = measure_of(measures.last_epoch, model, TASK, **given)
    assert found["last_epoch_loss", None, "train", None] == [pytest.approx(1.0), pytest.approx(0.1), None]
    assert measure_of(measures.transition, model, Permutation(values=4), **given) == {}


def test_pieces_change_nothing(monkeypatch, model, measure_of):
    whole = measure_of(measures.battery, model, TASK)
    for module in (answers, causal):
        monkeypatch.setattr(module, "PIECE", 13)
    for place, values in measure_of(measures.battery, model, TASK).items():
        assert values == pytest.approx(whole[place], abs=1e-5), place
    assert answers.PIECE < CHUNK
