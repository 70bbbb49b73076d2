"""The capacity study: its grid, what its claims say of runs with a known result, its page, and where models begin."""

import math

import pytest
import torch
from tests.studies.quick_evidence import SEEDS, evidence, page, verdicts

import hopscope as hs
from hopscope.claims import judge
from hopscope.studies import find_study
from hopscope.studies.capacity.study import (
    EXACT,
    RATES,
    STANDARD,
    WITNESS_SHAPE,
    Options,
    at_witness,
    begun,
    configurations,
    depths,
    drawn,
    label,
    start,
    study,
    variants,
)
from hopscope.studies.quick import SETTLED_STEPS
from hopscope.zoo.witnesses import witness

OPTIONS = Options()


def as_the_summary_says(each, step, seed):
    """Small models need six layers, others four; the hand-built solution stays."""
    if each.label.startswith("begun"):
        return 0.01
    small = each.overrides.get("model.width") == 64 or each.overrides.get("model.heads") == 1
    layers = each.overrides["model.layers"]
    return 0.1 if layers >= (6 if small else 4) else 0.76


def all_alike(each, step, seed):
    return 0.1 if each.overrides["model.layers"] >= 4 else 0.76


def nothing(each, step, seed):
    return 0.76


def everything(each, step, seed):
    return 0.1


def one_is_lucky(each, step, seed):
    lucky = each.label == label("heads of 16", 2) and seed == 5
    return 0.4 if lucky else as_the_summary_says(each, step, seed)


def every_seed_its_own(each, step, seed):
    """What a seed needs varies as much as what a width needs."""
    needs = 6 if seed % 2 else 4
    return 0.1 if each.overrides["model.layers"] >= needs else 0.76


def judged(loss, **changed):
    return verdicts(study, OPTIONS, evidence(study, OPTIONS, loss, **changed))


def test_every_variant_differs_in_one_field():
    names = [each.name for each in variants(OPTIONS)]
    assert names[0] == STANDARD and len(set(names)) == len(names) == 14
    assert all(len(each.overrides) == 1 for each in variants(OPTIONS)[1:])
    labels = [each.label for each in configurations(OPTIONS)]
    assert len(set(labels)) == len(labels) == 14 * 4 + len(RATES) + 2 + 1


def test_a_run_as_the_summary_says():
    found = judged(as_the_summary_says, training_steps=SETTLED_STEPS)
    assert found == dict.fromkeys(("S4b", "S4c", "S4d"), "reproduced")


def test_what_is_not_learned_takes_a_settled_loss_and_every_completion():
    assert judged(as_the_summary_says)["S4c"] == "inconclusive"
    found = evidence(study, OPTIONS, as_the_summary_says, training_steps=SETTLED_STEPS)
    (claim,) = (claim for claim in study.claims(OPTIONS) if claim.id == "S4c")
    judgement = judge(claim, found)
    assert judgement.verdict == "inconclusive" and "not tried: gpt2-schedule, torch-base" in judgement.words


def test_a_variant_that_no_depth_learns_says_nothing_of_a_bound():
    """Its control is the same variant with the most layers, not another one that learns."""

    def narrow_fails(each, step, seed):
        return 0.76 if each.overrides.get("model.width") == 64 else as_the_summary_says(each, step, seed)

    assert judged(narrow_fails, training_steps=SETTLED_STEPS)["S4c"] == "inconclusive"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (all_alike, {"S4b": "refuted", "S4c": "reproduced", "S4d": "refuted"}),
        (nothing, {"S4d": "refuted"}),
        (everything, {"S4b": "refuted", "S4c": "refuted", "S4d": "refuted"}),
        (one_is_lucky, {"S4b": "reproduced", "S4c": "refuted"}),
    ],
)
def test_a_run_that_goes_another_way(loss, expected):
    found = judged(loss, training_steps=SETTLED_STEPS)
    assert {name: found[name] for name in expected} == expected


def test_what_varies_from_seed_to_seed_is_no_effect_of_capacity():
    assert judged(every_seed_its_own)["S4b"] != "reproduced"


def test_nothing_learned_says_nothing_of_depths():
    """Without a model that learns, no depth is known, and what is never learned is no proof of a bound."""
    found = judged(nothing, training_steps=SETTLED_STEPS)
    assert found["S4b"] not in ("reproduced", "refuted") and found["S4c"] != "reproduced"


def test_short_runs_are_not_decided():
    found = judged(as_the_summary_says, training_steps=40)
    assert set(found.values()) == {"inconclusive"}


def test_the_smallest_depth_of_a_seed():
    found = evidence(study, OPTIONS, one_is_lucky)
    assert depths(found, OPTIONS, STANDARD) == dict.fromkeys(range(SEEDS), 4.0)
    assert depths(found, OPTIONS, "width 64") == dict.fromkeys(range(SEEDS), 6.0)
    assert depths(found, OPTIONS, "heads of 16") == {seed: 2.0 if seed == 5 else 4.0 for seed in range(SEEDS)}
    gone = evidence(study, OPTIONS, nothing, diverged=range(SEEDS))
    assert all(math.isnan(layers) for layers in depths(gone, OPTIONS, STANDARD).values())


CASES = {
    "as the summary says": (as_the_summary_says, {}, "So training can stay at such a solution"),
    "nothing": (nothing, {}, "So training leaves this solution at every learning rate"),
    "left at once": (
        lambda each, step, seed: 0.01 if at_witness(RATES[-1]) == each.label else all_alike(each, step, seed)
        if "begun" not in each.label else 1.4,
        {},
        "So it is no stable point of this training",
    ),
    "diverged": (as_the_summary_says, {"diverged": (0,)}, "Training diverged in 1 of them"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_what_is_so(case, tmp_path):
    loss, changed, said = CASES[case]
    assert said in page(study, evidence(study, OPTIONS, loss, **changed), tmp_path)


def job(name):
    """What the first two members of a configuration are trained by."""
    program = find_study("capacity")
    return next(
        each for each in program.jobs(program.configured("workstation", {"seeds": 2})) if each.label == name
    )


def test_models_begin_at_the_hand_built_solution():
    assert start(job(label(STANDARD, 4))) is None and start(job(drawn(RATES[0]))) is None
    solution = witness(hs.tasks.Retrieval(steps=2, chains=4, position="pair"))
    assert {name: getattr(solution.config, name.partition(".")[2]) for name in WITNESS_SHAPE} == WITNESS_SHAPE
    exact = start(job(at_witness(RATES[0])))
    for name, weight in solution.weights.items():
        assert torch.equal(exact[name], weight.expand(2, *weight.shape[1:])), name


def test_noise_is_a_share_of_each_weight():
    name = next(name for name, (_, noise) in begun(OPTIONS).items() if noise == 0.01)
    exact, noisy, again = start(job(at_witness(RATES[0]))), start(job(name)), start(job(name))
    there = exact["layers.1.attention.query.weight"] != 0
    for weight in exact:
        assert torch.equal(noisy[weight], again[weight])
        assert torch.equal(noisy[weight] == 0, exact[weight] == 0)
    query = noisy["layers.1.attention.query.weight"][there] / exact["layers.1.attention.query.weight"][there]
    assert 0.005 < float((query - 1).std()) < 0.02
    assert not torch.equal(noisy["readout.weight"][0], noisy["readout.weight"][1])


def test_a_model_that_begins_at_the_solution_is_solved_at_once(tmp_path):
    fields = {
        "seeds": 2, "training.steps": 2, "training.batch_size": 5, "training.evaluate_every": 1, "model.width": 16,
        "model.head_dim": 2, "options.layers": (EXACT,), "options.widths": (16,), "options.heads": (4,),
        "options.head_sizes": (2,), "options.symbol_dims": (4,), "options.chains": (4,), "options.noises": (),
    }  # fmt: skip
    run = hs.run("capacity", fields=fields, out=tmp_path)
    curves = run.evidence.curve("loss_step_2")
    for member, name in run.evidence.configurations.items():
        assert (curves.loc[0, member] < 1e-3) == name.startswith("begun"), name
