"""Claims N11, N13 and N15 on runs whose answers are known."""

import pytest

from hopscope.claims import Verdict, judge
from hopscope.completion import COMPLETION_NAMES
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.config import Configuration, DepthStudyConfig, Reading
from hopscope.studies.recipe import exact_by_step

from .made_up import PAPER_SCALE, Models, changed, evidence_of, staircase

QUICK = DepthStudyConfig(
    completion="torch-schedule", seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=(1, 8), steps=4,
    steps_last=3, position="pair",
)  # fmt: skip
EXACT = exact_by_step(QUICK, QUICK.steps)
AT_MINIMUM = {layers: sum(layers >= least for least in EXACT.values()) for layers in QUICK.layers}
"""Layers → steps that can be learned with them."""


def judged(name, made, config=QUICK):
    (claim,) = (claim for claim in claims(config) if claim.id == name)
    return judge(claim, evidence_of(config, made))


def test_models_at_the_minimum_reach_it_and_none_goes_below():
    made = staircase(QUICK, AT_MINIMUM)
    assert judged("N13a", made).verdict is Verdict.REPRODUCED
    found = judged("N13b", made)
    assert found.here.verdict is Verdict.REPRODUCED and found.verdict is Verdict.INCONCLUSIVE
    assert "gpt2-base" in found.words  # what is said in general waits for the other completions


def test_one_layer_more_than_the_minimum_does_not_reach_it():
    late = {layers: AT_MINIMUM.get(layers - 1, 0) for layers in QUICK.layers}
    found = judged("N13a", staircase(QUICK, late))
    assert found.here.verdict is Verdict.REFUTED and found.verdict is Verdict.INCONCLUSIVE


def test_one_seed_below_the_minimum_refutes_the_second_half():
    made = staircase(QUICK, AT_MINIMUM)
    partial = [[0.05] + [0.75] * 3] * 8
    some = changed(made, "IC", 1, by_seed=[[0.1, 0.75, 0.75, 0.75], *partial[1:]])
    found = judged("N13b", some)
    assert EXACT[1] > 1 and found.verdict is Verdict.REFUTED


def test_few_seeds_or_depths_decide_nothing():
    config = QUICK.model_copy(update={"seeds": 3, "deepest_seeds": 3, "layers": (1, 4)})
    found = judged("N13a", staircase(config, AT_MINIMUM), config)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "3 of 8 seeds" in found.words and "no models of 2, 3 layers" in found.words


COMPLETIONS = {"sweeps": ("details",), "details": ("completion",), "sweep_layers": (8,), "sweep_seeds": 8}

ALL = QUICK.model_copy(update=COMPLETIONS)


def of_completions(loss):
    """Models that are asked for the last symbol, under all completions; the own one is `torch-schedule`."""
    plain = staircase(ALL, AT_MINIMUM)
    for name in COMPLETION_NAMES:
        if name != ALL.completion:
            plain[Configuration("non-IC", 3, 8, Reading(completion=name))] = Models(
                [loss.get(name, 0.75)], seeds=8
            )
    return plain


def test_the_last_symbol_alone_needs_every_completion():
    found = judged("N15", of_completions({}), ALL)
    assert found.verdict is Verdict.REPRODUCED, found.words
    assert [*found.readings] == [
        "torch-schedule",
        *(each for each in COMPLETION_NAMES if each != "torch-schedule"),
    ]
    assert judged("N15", of_completions({"torch-base": 0.3}), ALL).verdict is Verdict.REFUTED
    alone = judged("N15", staircase(QUICK, AT_MINIMUM))
    assert alone.verdict is Verdict.INCONCLUSIVE and "gpt2-schedule" in alone.words


FIGURE4 = PAPER_SCALE.model_copy(update=COMPLETIONS)


def schedules(**steps):
    """Steps that models of eight layers learn, by completion; the own one is `gpt2-base`."""
    made = staircase(FIGURE4, dict.fromkeys(range(1, 9), steps["gpt2_base"]))
    for name in COMPLETION_NAMES:
        if name != "gpt2-base":
            learned = steps[name.replace("-", "_")]
            each = Configuration("IC", 5, 8, Reading(completion=name))
            made[each] = Models([0.05] * learned + [0.75] * (5 - learned), seeds=8)
    return made


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ({"gpt2_base": 1, "torch_base": 2, "gpt2_schedule": 5, "torch_schedule": 5}, Verdict.REPRODUCED),
        ({"gpt2_base": 1, "torch_base": 5, "gpt2_schedule": 5, "torch_schedule": 5}, Verdict.REFUTED),
        ({"gpt2_base": 1, "torch_base": 1, "gpt2_schedule": 2, "torch_schedule": 5}, Verdict.REFUTED),
    ],
)
def test_the_schedule_decides_at_eight_layers(steps, verdict):
    found = judged("N11", schedules(**steps), FIGURE4)
    assert found.verdict is verdict, found.words
