"""Verdicts from made-up evidence, where the right one is known."""

import math

import pytest

from hopscope.claims import registered
from hopscope.claims.judge import judge
from hopscope.studies.permutation.study import study

FLOOR = math.log(120) / 5
IDS = ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P9b", "P10a", "P10b", "P11", "P12"]
PLAIN, RECALLING, MEMORISING = "d16/1 plain", "d32/2 repeats", ("d32/2 plain V=4", "d32/2 plain")
STUDY = study.changed({"all_configurations": True, "sweeps": ("memorisation",)})
LOST = {"recall_lost": (0.1, 0.6), "elimination_lost": (0.7, 0.05)}
MAPS = {
    "x_rows_to_earlier_y": (0.4, 0.95),
    "y_rows_to_themselves": (0.7, 0.1),
    "x_rows_to_preceding_y": (0.6, 0.2),
}


def at(metric, measure="probes", part=None, head=None, split="held_out"):
    return metric, measure, part, head, split


BELIEFS = {
    **{at("mae_uniform", "posteriors", f"step_{step}"): 0.02 if step == 2 else 0.0 for step in range(1, 6)},
    **{at("used_mass_mean", "posteriors", f"step_{step}"): {1: 0.9, 4: 0.004, 5: 0.9}.get(step, 0.0)
       for step in range(1, 6)},
    at("tilt_correlation", "posteriors"): -0.1,
    at("train_minus_held_out", "posteriors"): -0.02,
    at("tilt_control", "posteriors"): 0.0,
    at("accuracy", "posteriors", "step_4"): 0.45,
}  # fmt: skip
ALWAYS = {at("exhaustive", part=part): 1.0 for part in ("plain", "repeats")}
LOSS, FIRST = at("last_epoch_loss", "last_epoch", split="train"), at("loss", "training", split="train")
WIDTH = at("relative_width", "transition", "from_zero")
FFN = {at(skill, "battery", "clean"): 1.0 for skill in ("recall", "elimination")}
SHARE = at("memorised_share", "posteriors", split="train")
MEMORY = {at("recall"): 0.0, at("held_out_loss", "posteriors"): 0.8}
PERFECT = {
    PLAIN: {
        at("elimination"): 1.0, at("recall"): 0.0, at("mass_unused"): 0.995, at("mass_recalled"): 0.0, LOSS: FLOOR,
        FIRST: 1.6, at("repeat_mae"): 0.4, at("repeat_max_ae"): 1.0, **BELIEFS, **FFN,
        at("elimination", "battery", "mlp_ablation.mean"): 0.9,
    },
    "d16/1 repeats": {at("recall"): 0.01},
    "d32/1 repeats": {at("recall"): 0.5},
    RECALLING: {
        at("elimination"): 1.0, at("recall"): 1.0, at("mass_recalled"): 0.999, at("mass_unused"): 0.0,
        LOSS: FLOOR + 0.001, FIRST: 1.6, WIDTH: 0.1, at("relative_width", "transition", "from_chance"): 0.1,
        at("relative_width", "transition", "elimination.from_zero"): 0.9,
        at("recall", "battery", "mlp_ablation.mean"): 0.4, at("elimination", "battery", "mlp_ablation.mean"): 0.9,
        at("self_change", "battery", "head_interchange"): 0.0, at("repeat_max_ae"): 0.05,
        at("repeat_max_ae_of_sample"): 0.04, **BELIEFS, **FFN,
        **{at("last_row_change", "battery", f"earlier_rows.{by}.{kind}"): 0.01 * (kind == "plain")
           for by in ("uniform", "identity", "random") for kind in ("repeats", "plain")},
        **{at(name, "roles", None, head): value for name, of in LOST.items() for head, value in enumerate(of)},
        **{at(name, "roles", "heat_map", head): value for name, of in MAPS.items() for head, value in enumerate(of)},
    },
    MEMORISING[1]: {SHARE: 0.05, **MEMORY, **{at(name, "roles", None, head): 0.0 for name in LOST for head in (0, 1)}},
    MEMORISING[0]: {SHARE: 0.8, **MEMORY},
}  # fmt: skip
"""What every claim of the source would need."""

SPLIT = ("P6", "P7", "P11")  # which ten splits of the mappings are needed for
OPEN = (
    "P3",
    "P5",
    "P8",
    "P11",
    "P12",
)  # which have readings that these runs lack: nothing refutes them as a whole


@pytest.fixture(scope="module")
def judged(evidence_of):
    def verdicts(changed=None, ids=IDS, seeds=10, of=STUDY, diverged=()):
        """Verdicts; `changed`: configuration → numbers that are others."""
        cells = {name: {**ALWAYS, **own, **(changed or {}).get(name, {})} for name, own in PERFECT.items()}
        table = evidence_of(cells, seeds, diverged)
        return {claim.id: judge(claim, table) for claim in of.all_claims() if claim.id in ids}

    return verdicts


def test_every_claim_holds_where_its_numbers_do(judged):
    found = judged()
    assert list(found) == IDS
    for name, verdict in found.items():
        assert verdict.here.verdict == "reproduced", (name, verdict.words)
        assert verdict.verdict == ("inconclusive" if name in SPLIT else "reproduced"), verdict.words
        assert verdict.structural == (name == "P10b") and verdict.controls and verdict.must_not


def one_of_ten(good, bad):
    return [good] * 9 + [bad]


def head(name, *values):
    return {at(name, "roles", "heat_map", number): each for number, each in enumerate(values)}


REFUTED = [
    ("P1", PLAIN, {at("elimination"): one_of_ten(1.0, 0.9989)}),
    ("P2", PLAIN, {at("recall"): one_of_ten(0.0, 0.011)}),
    ("P2", PLAIN, {at("mass_unused"): one_of_ten(1.0, 0.9899)}),
    ("P3", RECALLING, {at("mass_recalled"): one_of_ten(1.0, 0.9)}),
    ("P4", PLAIN, {LOSS: FLOOR + 0.004}),
    ("P4", RECALLING, {LOSS: FLOOR - 0.004}),
    ("P6", PLAIN, {at("mae_uniform", "posteriors", "step_2"): 0.026}),
    ("P6", PLAIN, {at("used_mass_mean", "posteriors", "step_4"): 0.006}),
    ("P7", PLAIN, {at("tilt_correlation", "posteriors"): 0.3, at("train_minus_held_out", "posteriors"): 0.1}),
    ("P8", "d32/1 repeats", {at("recall"): 0.95}),
    ("P8", RECALLING, {at("recall"): one_of_ten(1.0, 0.98)}),
    *(("P9", RECALLING, {at(name, "roles", None, head): one_of_ten(value, 0.3)})
      for name, of in LOST.items() for head, value in enumerate(of)),
    ("P9b", RECALLING, head("x_rows_to_earlier_y", 0.1, one_of_ten(0.95, 0.89))),
    ("P10a", RECALLING, {at("recall", "battery", "mlp_ablation.mean"): 0.6}),
    ("P10b", RECALLING, {at("last_row_change", "battery", f"earlier_rows.{by}.plain"): one_of_ten(0.1, 1e-7)
                         for by in ("uniform", "identity", "random")}),
    ("P11", MEMORISING[0], {SHARE: 0.4}),
    ("P11", MEMORISING[1], {SHARE: 0.2}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "name", "numbers"), REFUTED)
def test_what_refutes_a_claim(judged, id, name, numbers):
    found = judged({name: numbers}, [id])[id]
    assert found.here.verdict == "refuted", found.words
    assert found.verdict == ("inconclusive" if id in (*SPLIT, *OPEN) else "refuted")


SHOWN = {
    "P1": (PLAIN, {at("accuracy", "posteriors", "step_4"): 1.0}),
    "P2": (RECALLING, {at("recall"): 0.0, at("mass_unused"): 1.0}),
    "P3": (PLAIN, {at("recall"): 1.0, at("mass_recalled"): 1.0}),
    "P4": (RECALLING, {FIRST: FLOOR}),
    "P5": (RECALLING, {at("relative_width", "transition", "elimination.from_zero"): 0.1}),
    "P6": (PLAIN, {at("repeat_mae"): 0.01}),
    "P7": (PLAIN, {at("tilt_control", "posteriors"): 0.2}),
    "P8": (MEMORISING[1], {at("recall"): 0.5}),
    "P9": (MEMORISING[1], {at(name, "roles", None, head): value
                           for name, of in LOST.items() for head, value in enumerate(of)}),
    "P9b": (RECALLING, head("x_rows_to_earlier_y", 0.95, 0.95) | head("y_rows_to_themselves", 0.7, 0.6)
            | head("x_rows_to_preceding_y", 0.6, 0.6)),
    "P10a": (PLAIN, {at("elimination", "battery", "mlp_ablation.mean"): 0.1}),
    "P10b": (RECALLING, {at("self_change", "battery", "head_interchange"): 0.5}),
    "P11": (MEMORISING[0], {at("held_out_loss", "posteriors"): 0.74}),
    "P12": (PLAIN, {at("repeat_max_ae"): 0.02}),
}  # fmt: skip
"""For each claim, what makes its control show what it must not."""


@pytest.mark.parametrize("id", IDS)
def test_a_control_takes_a_verdict_back(judged, id):
    name, numbers = SHOWN[id]
    found = judged({name: numbers}, [id])[id]
    assert found.verdict == found.here.verdict == "inconclusive" and "shows it too" in found.here.words


def test_two_readings_that_disagree_decide_nothing(judged):
    assert judged({RECALLING: {WIDTH: 0.8}}, ["P5"])["P5"].here.verdict == "inconclusive"
    assert judged({RECALLING: {at("repeat_max_ae"): 0.4}}, ["P12"])["P12"].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("fields", "changed", "words"),
    [
        ({"epochs_plain": 3.0}, {}, "3 of 20 epochs"),
        (
            {},
            {PLAIN: {at("exhaustive", part="repeats"): 0.0}},
            "measured on a part of the held-out sequences",
        ),
    ],
)
def test_below_the_scale_of_the_source_a_verdict_holds_here_alone(judged, fields, changed, words):
    found = judged(changed, ["P1"], of=STUDY.changed(fields))["P1"]
    assert (found.verdict, found.here.verdict) == ("inconclusive", "reproduced") and words in found.words


def test_too_few_seeds_and_lost_ones(judged):
    assert "10 seeds are needed" in judged(seeds=9, ids=["P1"])["P1"].words
    found = judged(diverged=(0, 1, 2), ids=["P1"])["P1"]
    assert found.verdict == "inconclusive" and "3 of 10" in found.words
    assert judged({PLAIN: {at("elimination"): 0.5}}, diverged=(0,), ids=["P1"])["P1"].verdict == "refuted"


def test_no_transition_is_no_slow_one(judged):
    never = {at("relative_width", "transition", f"from_{level}"): math.inf for level in ("zero", "chance")}
    found = judged({RECALLING: never}, ["P5"])["P5"]
    assert found.verdict == "not run" and "no seed learned recall" in found.words


def test_splits_of_the_mappings_have_an_interval_of_both(evidence_of):
    names = [PLAIN, *(f"{PLAIN} split={split}" for split in range(1, 10))]
    lean = at("tilt_correlation", "posteriors")
    cells = {name: {**ALWAYS, **PERFECT[PLAIN], lean: 0.2 + 0.1 * at_} for at_, name in enumerate(names)}
    (claim,) = (each for each in study.chosen("readings").all_claims() if each.id == "P7")
    found = judge(claim, evidence_of(cells))
    assert found.n == 100 and "over 10 splits" in found.words
    assert found.parts["tilt_correlation"].interval[0] < 0.6 and found.parts[
        "tilt_correlation"
    ].value == pytest.approx(0.65)


def test_a_rule_is_known_again_and_a_changed_one_is_not():
    rules, again = (registered(STUDY.changed({}).all_claims()) for _ in range(2))
    other = registered(STUDY.changed({"training.batch_size": 64}).all_claims())
    assert rules == again and all(rules[id] != other[id] for id in IDS)
