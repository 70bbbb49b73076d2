"""Verdicts from made-up evidence, where the right one is known."""

import math

import pytest

from hopscope.claims import Verdict
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.ledger import entries, judge

from .made_up import evidence

FLOOR = math.log(120) / 5
CONFIG = PermutationStudyConfig()
IDS = ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10a", "P10b", "P11"]
REPRODUCED, REFUTED, INCONCLUSIVE, NOT_RUN = Verdict

HEADS = {
    "recall_lost_with_recall_head": 0.6, "elimination_lost_with_recall_head": 0.05,
    "elimination_lost_with_elimination_head": 0.7, "recall_lost_with_elimination_head": 0.1,
}  # fmt: skip
BELIEFS = {"mae": 0.02, "used": 0.004, "tilt": -0.1, "gap": -0.02}
PERFECT = {
    "d16/1 plain": {"elimination": 1.0, "recall": 0.0, "mass_unused": 0.995, "loss": FLOOR, **BELIEFS},
    "d16/1 repeats": {"recall": 0.01},
    "d32/1 repeats": {"recall": 0.5},
    "d32/2 repeats": {
        "elimination": 1.0, "recall": 1.0, "mass_recalled": 0.999, "loss": FLOOR + 0.001, "rise": 100.0,
        "ffn_recall": 0.4, "ffn_elimination": 0.9, "last_row": 0.01, **BELIEFS, **HEADS,
    },
    "d32/2 plain": {"memorised": 0.05},
    "d32/2 plain V=4": {"memorised": 0.8},
}  # fmt: skip
"""What every claim of the source would need."""


def evidence_of(name, **changed):
    """Evidence of one configuration; a changed value is that of every seed, or a list of theirs."""
    departures = changed.pop("departures", None)
    if departures is None:
        departures = CONFIG.departures(Configuration.parse(name))
    return evidence(name, departures=departures, **{**PERFECT[name], **changed})


def everything(**changed_by_name):
    return {name: evidence_of(name, **changed_by_name.get(name, {})) for name in PERFECT}


def judged(evidence, config=CONFIG):
    return {claim.id: (claim, judgement) for claim, judgement in judge(evidence, config)}


def verdict(evidence, name):
    return judged(evidence)[name][0].verdict


def changed(name, **fields):
    return everything(**{name: fields})


def test_every_claim_in_order():
    ledger = judge(everything(), CONFIG)
    assert [claim.id for claim, _ in ledger] == IDS
    for claim, judgement in ledger:
        assert claim.verdict is REPRODUCED, (claim.id, judgement.words)
        assert claim.n == 10
        assert claim.source.startswith("presentation §")
        assert claim.protocol and claim.trust and claim.threshold


def one_of_ten(good, bad):
    return [good] * 9 + [bad]


@pytest.mark.parametrize(
    ("claim", "evidence", "expected"),
    [
        ("P1", changed("d16/1 plain", elimination=0.999), REPRODUCED),
        ("P1", changed("d16/1 plain", elimination=one_of_ten(1.0, 0.9989)), REFUTED),
        ("P1", changed("d16/1 plain", elimination=one_of_ten(1.0, 0.99), exhaustive=False), INCONCLUSIVE),
        ("P1", changed("d16/1 plain", elimination=one_of_ten(1.0, 0.97), exhaustive=False), INCONCLUSIVE),
        ("P1", changed("d16/1 plain", seeds=9), INCONCLUSIVE),
        ("P2", changed("d16/1 plain", recall=one_of_ten(0.0, 0.011)), REFUTED),
        ("P2", changed("d16/1 plain", mass_unused=one_of_ten(1.0, 0.9899)), REFUTED),
        ("P2", changed("d16/1 plain", recall=0.01, mass_unused=0.99), REPRODUCED),
        ("P3", changed("d32/2 repeats", elimination=one_of_ten(1.0, 0.9)), REFUTED),
        ("P3", changed("d32/2 repeats", recall=one_of_ten(1.0, 0.9)), REFUTED),
        ("P3", changed("d32/2 repeats", mass_recalled=one_of_ten(1.0, 0.9)), REFUTED),
        ("P3", changed("d32/2 repeats", seeds=4), INCONCLUSIVE),
        ("P4", changed("d16/1 plain", loss=FLOOR + 0.004), REFUTED),
        ("P4", changed("d32/2 repeats", loss=FLOOR - 0.004), REFUTED),
        ("P4", changed("d16/1 plain", loss=[FLOOR, FLOOR + 0.006] * 5), INCONCLUSIVE),
        ("P4", changed("d16/1 plain", loss=FLOOR + 0.0029), REPRODUCED),
        ("P4", changed("d16/1 plain", loss=FLOOR + 0.004, seeds=4), INCONCLUSIVE),
        ("P5", changed("d32/2 repeats", rise=800.0), REFUTED),
        ("P5", changed("d32/2 repeats", rise=380.0), INCONCLUSIVE),  # one reading of the rise refutes, one does not
        ("P5", changed("d32/2 repeats", rise=one_of_ten(100.0, None)), INCONCLUSIVE),
        ("P5", changed("d32/2 repeats", rise=100.0, seeds=4), INCONCLUSIVE),
        ("P6", changed("d16/1 plain", mae=0.026), REFUTED),
        ("P6", changed("d32/2 repeats", mae=0.026), REFUTED),
        ("P6", changed("d16/1 plain", used=0.006), REFUTED),
        ("P6", changed("d16/1 plain", used=[0.004, 0.007] * 5), INCONCLUSIVE),
        ("P7", changed("d16/1 plain", tilt=0.3, gap=0.1), REFUTED),
        ("P7", changed("d16/1 plain", tilt=0.3), REPRODUCED),
        ("P7", changed("d16/1 plain", gap=0.1), REPRODUCED),
        ("P7", changed("d16/1 plain", tilt=0.3, gap=[-0.1, 0.1] * 5), INCONCLUSIVE),
        ("P8", changed("d16/1 repeats", recall=one_of_ten(0.0, 0.06)), REFUTED),
        ("P8", changed("d32/1 repeats", recall=0.95), REFUTED),
        ("P8", changed("d32/1 repeats", recall=0.05), REFUTED),
        ("P8", changed("d32/1 repeats", recall=[0.05, 0.15] * 5), INCONCLUSIVE),
        ("P8", changed("d32/1 repeats", recall=[0.0, 1.0] * 5), REPRODUCED),  # the mean is what "partly" is about
        ("P8", changed("d32/2 repeats", recall=one_of_ten(1.0, 0.98)), REFUTED),
        ("P8", changed("d32/2 repeats", seeds=7), INCONCLUSIVE),
        ("P9", changed("d32/2 repeats", recall_lost_with_recall_head=one_of_ten(0.6, 0.49)), REFUTED),
        ("P9", changed("d32/2 repeats", elimination_lost_with_recall_head=one_of_ten(0.0, 0.11)), REFUTED),
        ("P9", changed("d32/2 repeats", elimination_lost_with_elimination_head=one_of_ten(0.6, 0.4)), REFUTED),
        ("P9", changed("d32/2 repeats", recall_lost_with_elimination_head=one_of_ten(0.0, 0.2)), REFUTED),
        ("P9", changed("d32/2 repeats", seeds=9), INCONCLUSIVE),
        ("P10a", changed("d32/2 repeats", ffn_recall=0.6), REFUTED),
        ("P10a", changed("d32/2 repeats", ffn_elimination=0.8), REFUTED),
        ("P10a", changed("d32/2 repeats", ffn_recall=[0.3, 0.6] * 5), INCONCLUSIVE),
        ("P10b", changed("d32/2 repeats", last_row=0.0), REFUTED),
        ("P10b", changed("d32/2 repeats", last_row=one_of_ten(0.1, 1e-7)), REFUTED),
        ("P11", changed("d32/2 plain V=4", memorised=0.4), REFUTED),
        ("P11", changed("d32/2 plain", memorised=0.2), REFUTED),
        ("P11", changed("d32/2 plain V=4", memorised=[0.4, 0.7] * 5), INCONCLUSIVE),
    ],
)  # fmt: skip
def test_verdicts(claim, evidence, expected):
    ledger = judged(evidence)
    assert ledger[claim][0].verdict is expected, ledger[claim][1].words


@pytest.mark.parametrize(("claim", "name"), [("P1", "d16/1 plain"), ("P3", "d32/2 repeats")])
@pytest.mark.parametrize("good", [True, False])
def test_below_scale_decides_nothing(claim, name, good):
    fields = {} if good else {"elimination": 0.1}
    found, judgement = judged(changed(name, departures=["3 of 20 epochs"], **fields))[claim]
    assert found.verdict is INCONCLUSIVE
    assert "below the protocol's scale: 3 of 20 epochs" in judgement.words
    value = found.value["elimination"] if isinstance(found.value, dict) else found.value
    assert value == pytest.approx(1.0 if good else 0.1)


@pytest.mark.parametrize("claim", IDS)
def test_nothing_was_trained_for_it(claim):
    found, judgement = judged({})[claim]
    assert (found.verdict, found.value, found.interval, found.n) == (NOT_RUN, None, None, 0)
    assert "not trained" in judgement.words


def test_a_part_that_was_not_trained_cannot_be_reproduced_but_refuted():
    only = {"d16/1 plain": evidence_of("d16/1 plain")}
    assert verdict(only, "P4") is INCONCLUSIVE
    assert verdict({"d16/1 plain": evidence_of("d16/1 plain", loss=2.0)}, "P4") is REFUTED
    assert verdict(only, "P8") is NOT_RUN
    some = {name: found for name, found in everything().items() if name != "d32/1 repeats"}
    found, judgement = judged(some)["P8"]
    assert found.verdict is INCONCLUSIVE
    assert "d32/1 repeats: not trained" in judgement.words


@pytest.mark.parametrize("claim", ["P1", "P2", "P4"])
def test_diverged_seeds_keep_a_claim_open(claim):
    """They are left out of the numbers, and the words say so."""
    poor = {
        "elimination": one_of_ten(1.0, 0.0), "recall": one_of_ten(0.0, 1.0),
        "mass_unused": one_of_ten(1.0, None), "loss": one_of_ten(FLOOR, 77.0),
    }  # fmt: skip
    found, judgement = judged(changed("d16/1 plain", frozen=[109], **poor))[claim]
    assert found.verdict is INCONCLUSIVE
    assert "1 diverged seeds left out" in judgement.words
    values = found.value if isinstance(found.value, dict) else {"value": found.value}
    expected = {"P1": {"value": 1.0}, "P2": {"recall": 0.0, "mass_unused": 1.0},
                "P4": {"d16/1 plain": FLOOR, "d32/2 repeats": FLOOR + 0.001}}[claim]  # fmt: skip
    assert values == pytest.approx(expected)
    assert found.n == 9


@pytest.mark.parametrize("claim", IDS)
def test_every_seed_diverged(claim):
    everyone = list(range(100, 110))
    gone = {name: evidence_of(name, frozen=everyone, loss=None) for name in PERFECT}
    assert judged(gone)[claim][0].verdict is NOT_RUN


def test_p4_says_by_how_much():
    words = judged(changed("d16/1 plain", loss=FLOOR - 0.0123))["P4"][1].words
    assert "0.0123 nats below the floor" in words
    assert "0.0010 nats above the floor" in words


def test_p4_threshold_follows_v():
    (p4,) = (entry for entry in entries(PermutationStudyConfig(values=7)) if entry.id == "P4")
    low, high = p4.thresholds["d16/1 plain"].bounds
    assert (low + high) / 2 == pytest.approx(math.log(math.factorial(7)) / 7)
    assert high - low == pytest.approx(0.006)


def test_seeds_are_kept_apart():
    values = [0.91 + 0.01 * seed for seed in range(10)]
    _, judgement = judged(changed("d16/1 plain", elimination=values))["P1"]
    assert list(judgement.per_seed["value"]) == values


# Readings of what the source leaves open.


def both(other, **changed):
    """All configurations at the default batch size, and one at another."""
    config = PermutationStudyConfig(sweeps=("batch",))
    found = everything(**{name: {} for name in changed})
    for name, fields in changed.items():
        found[f"{name} batch=128"] = evidence(
            f"{name} batch=128", departures=[], **{**PERFECT[name], **fields}
        )
    return found | other, config


def test_a_refutation_needs_every_reading():
    good, bad = {}, {"recall": one_of_ten(1.0, 0.9)}
    for default, other, expected in ((bad, bad, REFUTED), (bad, good, INCONCLUSIVE), (good, bad, INCONCLUSIVE),
                                     (good, good, REPRODUCED)):  # fmt: skip
        found, config = both(
            {"d32/2 repeats": evidence_of("d32/2 repeats", **default)}, **{"d32/2 repeats": other}
        )
        claim, judgement = judged(found, config)["P3"]
        assert claim.verdict is expected, judgement.words
        assert "batch 256" in judgement.words
        if default is not other:
            assert "batch 128" in judgement.words


def test_a_reading_that_was_not_run_changes_nothing():
    found, config = both({}, **{"d32/2 repeats": {}})
    assert judged(found, config)["P1"][0].verdict is REPRODUCED
