"""Verdicts from made-up evidence, where the right one is known."""

import math

import pytest

from hopscope.claims import Verdict
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.ledger import entries, judge

FLOOR = math.log(120) / 5
CONFIG = PermutationStudyConfig()
IDS = ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10a", "P10b", "P11"]
MEASURED = ("P1", "P2", "P3", "P4", "P8")
REPRODUCED, REFUTED, INCONCLUSIVE, NOT_RUN = Verdict

PERFECT = {
    "d16/1 plain": {"elimination": 1.0, "recall": 0.0, "mass_unused": 0.995, "loss": FLOOR},
    "d16/1 repeats": {"recall": 0.01},
    "d32/1 repeats": {"recall": 0.5},
    "d32/2 repeats": {"elimination": 1.0, "recall": 1.0, "mass_recalled": 0.999, "loss": FLOOR + 0.001},
}


def evidence_of(name, seeds=10, departures=(), frozen=(), exhaustive=True, **changed):
    """Evidence of one configuration; a changed value is that of every seed, or a list of theirs."""
    measured = {"elimination": 0.5, "recall": 0.5, "mass_unused": 0.5, "mass_recalled": 0.5, "loss": 1.0}
    measured = measured | PERFECT[name] | changed
    lists = {
        probe: list(value) if isinstance(value, list) else [value] * seeds
        for probe, value in measured.items()
    }
    return Evidence(
        configuration=Configuration.parse(name),
        departures=list(departures),
        members=list(range(100, 100 + seeds)),
        seeds=list(range(seeds)),
        files=[("units/x/analysis/probes.json", index) for index in range(seeds)],
        probes=lists,
        exhaustive=exhaustive,
        training_loss=lists.pop("loss"),
        frozen=list(frozen),
    )


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
        expected = REPRODUCED if claim.id in MEASURED else NOT_RUN
        assert claim.verdict is expected, (claim.id, judgement.words)
        assert claim.n == (10 if claim.id in MEASURED else 0)
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
        ("P8", changed("d16/1 repeats", recall=one_of_ten(0.0, 0.06)), REFUTED),
        ("P8", changed("d32/1 repeats", recall=0.95), REFUTED),
        ("P8", changed("d32/1 repeats", recall=0.05), REFUTED),
        ("P8", changed("d32/1 repeats", recall=[0.05, 0.15] * 5), INCONCLUSIVE),
        ("P8", changed("d32/1 repeats", recall=[0.0, 1.0] * 5), REPRODUCED),  # the mean is what "partly" is about
        ("P8", changed("d32/2 repeats", recall=one_of_ten(1.0, 0.98)), REFUTED),
        ("P8", changed("d32/2 repeats", seeds=7), INCONCLUSIVE),
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


@pytest.mark.parametrize("claim", MEASURED)
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


@pytest.mark.parametrize("claim", ["P1", "P2", "P3", "P4", "P8"])
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
