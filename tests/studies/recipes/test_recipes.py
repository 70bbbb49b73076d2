"""The study of recipes: its grid, and the slope of the start that just fails."""

import math

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.recipes.study import (
    ALL_ON,
    OFF,
    SHAPES,
    Options,
    configurations,
    lacks,
    recipe,
    recipes,
    slope,
    starts,
    study,
    threshold_slope,
)
from hopscope.training.config import departures


def test_all_on_and_all_off_are_completions():
    for on, completion in ((ALL_ON, "torch-schedule"), ((), "gpt2-base")):
        for shape in SHAPES:
            of = study.of(next(each for each in configurations(Options(parts=("alone",)), study)
                               if each.label == recipe(shape, on).label))  # fmt: skip
            assert departures(completion, of.model, of.training) == {}


def test_every_way_once():
    every = recipes(("without", "alone", "factorial"))
    words = {recipe("12 layers of 1 head", on).words for on in every}
    assert len(words) == len(every) == 2 ** len(OFF)
    labels = [each.label for each in configurations(Options(parts=("factorial", "starts", "without")), study)]
    assert len(labels) == len({*labels})


@pytest.mark.parametrize("seeds, decisive, most", [(5, 3, 5), (3, 7, 7)])
def test_decisive_recipes_have_at_least_as_many_seeds(seeds, decisive, most):
    chosen = study.chosen(
        "laptop", {"seeds": seeds, "decisive_seeds": decisive, "parts": ("starts", "without")}
    )
    counts = {each.label: len(chosen.seeds_of(each)) for each in chosen.grid()}
    decides = [count for label, count in counts.items() if ":" in label]
    assert {*decides} == {most} and {*counts.values()} - {*decides} <= {seeds}


def test_an_unknown_part_is_one_line():
    with pytest.raises(UserError, match=r"parts.*without.*alone"):
        study.changed({"parts": ("withuot",)})


@pytest.mark.parametrize("slope", [-0.1, 0.0, 0.2])
def test_the_slope_of_the_threshold_is_found(slope):
    rows = [(gamma, depth, float(gamma < 0.6 + slope * (depth - 1.5)))
            for gamma in np.linspace(0.0, 1.2, 61) for depth in np.linspace(0.5, 2.5, 5)]  # fmt: skip
    assert threshold_slope(np.array(rows)) == pytest.approx(slope, abs=0.02)
    assert math.isnan(threshold_slope(np.array([(gamma, depth, 1.0 - each) for gamma, depth, each in rows])))


def test_seeds_of_which_a_model_diverged_are_missing():
    members, rows = [], []
    for (gamma, layers), each in starts(1).items():
        for seed in range(7):
            own = {"member": len(members), "seed": seed, "configuration": each.label, "unit": "u"}
            members.append(own | {"overrides": {}})
            loss = 0.1 if gamma + 0.01 * layers < 0.8 else 0.9
            loss = math.nan if (gamma, layers, seed) == (0.45, 3, 5) else loss
            last = {"member": own["member"], "step": 9, "value": loss}
            rows += [{**last, "metric": f"loss_step_{step}"} for step in (1, 2, 3)]
    found = slope(Evidence.of(rows, members), 1, resamples=8)
    assert np.isnan(found.values).sum() == 1 and len(found.values) == 7 and np.nanmax(found.values) < 0.0


@pytest.mark.parametrize("width, steps, words", [(128, 1_000, []), (32, 1_000, ["width 32, not 128"]),
                                                 (128, 7, ["steps 7, not 1,000"])])  # fmt: skip
def test_smaller_runs_decide_nothing(width, steps, words):
    member = {"member": 0, "seed": 3, "configuration": "own", "overrides": {}, "unit": "u"}
    identity = {"model": {"width": width}, "training": {"steps": steps}}
    assert lacks(Evidence.of([], [member], {"identity": identity}), 1) == words
