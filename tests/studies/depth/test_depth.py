"""The depth study: its grid and readings, and what its claims are judged on, of made-up losses."""

import math
from itertools import combinations

import numpy as np
import pytest

from hopscope.claims.judge import judge
from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.depth import values
from hopscope.studies.depth.options import CROSSED, DETAILS, Cell, Options, words_of
from hopscope.studies.depth.study import study

SMALL = {"layers": (1, 2, 3), "layers_last": (2,), "steps": 2, "steps_last": 2, "deepest_seeds": 2}


def planned(**fields):
    return study.chosen("smoke", {**SMALL, **fields})


@pytest.mark.parametrize("completion", ["torch-schedule", "gpt2-base"])
def test_a_detail_is_changed_to_every_other_value(completion):
    readings = Options(sweeps=("details",)).readings(completion)
    tried = {name: {value for of in readings for each, value in of if each == name} for name in DETAILS}
    own = {"torch-schedule": {"beta2": 0.95, "clip_norm": 1.0, "schedule": "cosine"},
           "gpt2-base": {"beta2": 0.999, "clip_norm": "none", "schedule": "constant"}}[completion]  # fmt: skip
    for name, choices in DETAILS.items():
        mine = completion if name == "completion" else own.get(name, getattr(Options(), name, None))
        assert {*choices} - tried[name] == {mine}
    assert len({words_of(each) for each in readings}) == len(readings) and readings[0] == ()


def test_the_specification_goes_through_all_combinations():
    readings = Options(sweeps=("specification",), mlp_ratio=4.0).readings("gpt2-base")
    changes = [*map(len, readings)]
    assert len(readings) == math.prod(len(DETAILS[name]) for name in CROSSED) and changes == sorted(changes)


@pytest.mark.parametrize("reading, field, value", [
    ((("clip_norm", "none"),), "training.clip_norm", None),
    ((("causal", False),), "model.causal", False),
    ((("completion", "gpt2-base"),), "completion", "gpt2-base"),
    ((("order", "random"),), "task.order", "random"),
])  # fmt: skip
def test_a_reading_changes_its_field(reading, field, value):
    options = Options(init=0.5, sweeps=("details",))
    fields = options.fields_of(Cell("IC", 2, 3, reading))
    assert fields[field] == value
    # Under a completion, its own fields hold.
    assert ("model.init" in fields) == (reading[0][0] != "completion")


def test_the_deepest_model_has_more_seeds():
    chosen = planned(seeds=3, deepest_seeds=5)
    counts = {each.label: len(chosen.seeds_of(each)) for each in chosen.grid()}
    assert counts == {
        "IC D=2, 1 layer": 3,
        "IC D=2, 2 layers": 3,
        "IC D=2, 3 layers": 5,
        "non-IC D=2, 2 layers": 3,
    }
    assert {len(chosen.seeds_of(each)) for each in planned(seeds=7).grid()} == {7}


@pytest.mark.parametrize("fields, said", [
    ({"layers": (2, 1)}, "layers: expected ascending"),
    ({"sweeps": ("step",)}, "sweeps"), ({"details": ("mask",)}, "details: expected some of"),
])  # fmt: skip
def test_options_that_do_not_fit(fields, said):
    with pytest.raises(UserError, match=said):
        study.changed(fields)


def made_up(chosen, final, times=None):
    """Evidence whose members end at losses: a function of cell, seed and step; all fall at `times`, step by step."""
    members, rows = [], []
    cells = {each.label: each for each in chosen.options.cells(chosen.completion)}
    for each in chosen.grid():
        for seed in chosen.seeds_of(each):
            number, cell = len(members), cells[each.label]
            members.append(
                {"member": number, "seed": seed, "configuration": each.label, "overrides": {}, "unit": "a"}
            )
            asked = range(1, cell.steps + 1) if cell.asked == "IC" else [cell.steps]
            losses = {step: final(cell, seed, step) for step in asked}
            known = [loss for loss in losses.values() if loss is not None]
            of_parts = {f"step_{step}": loss for step, loss in losses.items()} | {
                None: max(known) if known else None
            }
            for part, loss in of_parts.items():
                at = {"member": number, "part": part, "step": 300, "split": "held_out"}
                rows.append({**at, "measure": "final", "metric": "final_loss", "value": loss})
                rows.append({**at, "measure": "retrieval", "metric": "checkpoint_loss_error", "value": 0.001})
            for step, loss in losses.items():
                fall = (times or {}).get(step, 100 * step)
                curve = ((0, 1.0), (fall - 10, 1.0), (fall, loss), (300, loss))
                rows += [{"member": number, "metric": f"loss_step_{step}", "step": at, "value": value}
                         for at, value in curve if at < 300 or fall < 300]  # fmt: skip
    return Evidence.of(rows, members, {"identity": {"completion": chosen.completion}})


def by_depth(cell, seed, step):
    """Each step needs as many layers as its number and one more; alone, nothing is learned."""
    return 0.05 if cell.asked == "IC" and cell.layers > step else 0.9


def verdicts(chosen, evidence):
    return {each.id: judge(each, evidence, completion=chosen.completion) for each in chosen.all_claims()}


def test_what_the_claims_say_of_the_law():
    chosen = planned(seeds=11, deepest_seeds=11, layers=(1, 2, 3, 4))
    found = verdicts(chosen, made_up(chosen, by_depth))
    for name in ("R1", "R2", "R3", "R9b", "R9c", "R11", "N13b", "N15"):
        assert found[name].here.verdict == "reproduced", (name, found[name].here)
        assert found[name].verdict == "inconclusive" and "below the protocol's scale" in found[name].words, (
            name
        )
    assert found["N13a"].leaning == "agrees" and found["N13a"].value == 0.0
    assert found["R9a"].verdict == "reproduced" and found["N11"].verdict == "not run"


def test_a_minimum_at_which_no_model_has_a_loss_says_nothing():
    deep = planned(layers=(6,), deepest_seeds=2)
    assert verdicts(deep, made_up(deep, by_depth))["N13a"].verdict == "not run"
    chosen = planned(layers=(2, 3), deepest_seeds=2)  # of two layers all diverged; x₁ takes two, x₂ three

    def final(cell, seed, step):
        return None if cell.layers == 2 else 0.05

    found = verdicts(chosen, made_up(chosen, final))["N13a"]
    assert (found.n, found.value, found.here.verdict) == (1, 0.0, "inconclusive")


def test_luck_that_hangs_on_no_depth_is_no_law():
    """Each model learns as many steps as it likes: single seeds jump, and late steps first come where it is deep."""
    chosen = planned(seeds=11, deepest_seeds=11, layers=(1, 2, 3, 4, 5), steps=3)
    known = np.random.default_rng(0).integers(0, 4, (11, 6))

    def lucky(cell, seed, step):
        return 0.05 if cell.asked == "IC" and known[seed, cell.layers] >= step else 0.9

    found = verdicts(chosen, made_up(chosen, lucky))
    assert found["R11"].here.verdict == "refuted" and found["R2"].here.verdict == "inconclusive"
    assert "layers from first to last" in found["R2"].parts and found["R2"].leaning == "mixed"
    assert found["R2"].controls["growth beyond that of shuffled depths"].verdict == "reproduced"


def test_the_first_of_shuffled_depths_is_their_mean_over_all_orders():
    chosen = planned(seeds=2, layers=(1, 2, 4, 5), deepest_seeds=2)
    learned = {(0, 1): {2, 5}, (0, 2): {4}, (1, 1): {1, 4, 5}, (1, 2): set()}

    def final(cell, seed, step):
        return 0.05 if cell.layers in learned[seed, step] else 0.9

    found = values.models(chosen.options, made_up(chosen, final), "IC")
    orders = {
        count: np.mean([min(each) for each in combinations((1, 2, 4, 5), count)]) for count in (1, 2, 3)
    }
    means = values.needed_layers(chosen.options, found, by_chance=True)
    assert means == pytest.approx(np.array([[orders[2], orders[1]], [orders[3], 6]]))


@pytest.mark.parametrize("layers, seeds, n", [((), 2, 0), ((1, 2, 3, 4), 1, 0), ((1, 2, 3, 4), 2, 2)])
def test_without_models_or_other_seeds_there_is_no_depth_to_look_at(layers, seeds, n):
    chosen = planned(layers=layers, seeds=seeds, deepest_seeds=seeds)
    found = verdicts(chosen, made_up(chosen, by_depth))
    assert found["R11"].n == n and "no seed learned" not in found["R11"].words
    assert found["R2"].verdict == ("inconclusive" if layers else "not run")


def test_what_speaks_against_them():
    chosen = planned(seeds=11, deepest_seeds=11)
    everything = made_up(chosen, lambda cell, seed, step: 0.05, times={1: 200, 2: 100})
    found = verdicts(chosen, everything)
    for name in ("R1", "R3", "R9b", "R9c", "N13b", "N15"):
        assert found[name].here.verdict == "refuted", (name, found[name].here)
    # What must never be is decided by one model, however short its training.
    assert found["N13b"].verdict == "refuted" and "settled" not in found["N15"].words


def test_one_chain_is_answered_by_position_and_refutes_nothing():
    chosen = planned(seeds=11, deepest_seeds=11, chains=1)
    found = verdicts(chosen, made_up(chosen, lambda cell, seed, step: 0.01))
    for name in ("N13b", "N15"):
        assert found[name].verdict == "inconclusive" and "one chain" in found[name].words


def test_a_diverged_model_is_missing_and_not_left_out():
    chosen = planned(seeds=3, layers=(1, 2, 3, 4))

    def final(cell, seed, step):
        return None if (cell.layers, seed) == (2, 1) else by_depth(cell, seed, step)

    evidence = made_up(chosen, final)
    needed = values.needed_layers(chosen.options, values.models(chosen.options, evidence, "IC"))
    assert needed[0].tolist() == [2, 3] and math.isnan(needed[1][0])
    gains = values.largest_gains(chosen.options, evidence).values
    assert gains[0] == gains[2] == 1.0 and math.isnan(gains[1])
    assert values.losses_without_curriculum(chosen.options, evidence).values.tolist()[0] == 0.9


def test_readings_that_are_completions_are_named_so():
    chosen = planned(sweeps=("details",), details=("completion",), sweep_layers=(3,))
    claim = next(each for each in chosen.all_claims() if each.id == "R1")
    evidence = made_up(chosen, by_depth)
    assert {*claim.readings(evidence)} == {"torch-schedule", "gpt2-base", "gpt2-schedule", "torch-base"}
    given = planned(sweeps=("details",), details=("completion",), sweep_layers=(3,), warmup_steps=7)
    claim = next(each for each in given.all_claims() if each.id == "R1")
    assert "as configured" in claim.readings(made_up(given, by_depth))


@pytest.mark.parametrize("chains, loss", [(4, 0.5), (1, 0.5), (2, 1 / 3), (16, 0.625)])
def test_a_loss_keeps_its_share_of_the_plateau(chains, loss):
    assert Options(chains=chains).of_plateau(0.5) == pytest.approx(loss)


def test_where_nothing_is_learned_nothing_is_said_and_few_seeds_decide_nothing():
    chosen = planned(layers=(1, 2, 3, 4), deepest_seeds=2)
    options, nothing = chosen.options, made_up(chosen, lambda cell, seed, step: 0.9)
    ordered, grown = values.steps_out_of_order(options, nothing), values.growth_of_layers(options, nothing)
    gains = values.largest_gains(options, nothing)
    assert all(each.excluded for each in (ordered, gains, *grown.values()))
    claims = {each.id: each.readings(nothing)[""](nothing) for each in chosen.all_claims() if each.id != "R9a"
              and each.id != "N11"}  # fmt: skip
    for name in ("N13a", "N13b", "N15", "R9c"):
        assert "of 8 seeds" in claims[name].missing, name
    assert "settled" in claims["N13a"].missing
    learned = made_up(chosen, lambda cell, seed, step: 0.05)
    assert not any(
        values.losses_below("exact minimum", options, learned, every_step=each).missing
        for each in (True, False)
    )
