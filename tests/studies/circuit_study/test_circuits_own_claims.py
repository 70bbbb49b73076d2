"""Claims N10, N14 and N17 on members whose answers are known."""

import pytest

from hopscope.claims import Verdict, judge
from hopscope.studies.circuits.config import PRESETS
from hopscope.studies.circuits.own_claims import OWN, ahead

from .made_up import induction, member, path, proven

THREE = PRESETS["workstation"].model_copy(update={"steps": 3})
LEARNED = {"learned": (1, 2, 3)}


def judged(name, members, config=THREE, **given):
    """One claim of ours on members."""
    (claim,) = (claim for claim in OWN if claim.id == name)
    return judge(claim, proven(members, config, **given))


def chain(number, *further, fell=(100.0, 300.0, 500.0), **changes):
    """A member of three steps."""
    falls = dict(zip((1, 2, 3), fell, strict=True))
    return member(number, [*induction(), *further], falls=falls, **LEARNED, **changes)


def looks_ahead(number, needed_for=2):
    return chain(number, path(1, "second 1", "second 2", 300, needed_for))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("second 2 → second 3", True),
        ("first 1 → first 2 + second 2", True),
        ("second 2 → first 2", False),
        ("second 3 → second 2", False),
        ("query → second 2", False),
        ("second 2 → mean_map", False),
    ],
)
def test_a_pair_looks_ahead(read, expected):
    assert ahead(read) is expected


@pytest.mark.parametrize(
    ("doubling", "verdict"),
    [(32, Verdict.REPRODUCED), (31, Verdict.REPRODUCED), (24, Verdict.INCONCLUSIVE), (0, Verdict.REFUTED)],
)
def test_n14_is_the_share_that_doubles(doubling, verdict):
    found = judged("N14", [looks_ahead(n) if n < doubling else chain(n) for n in range(32)])
    assert found.verdict is verdict, found.words
    assert found.value["share that doubles"] == doubling / 32


def test_n14_counts_no_path_that_nothing_needs():
    found = judged("N14", [looks_ahead(n, needed_for=None) for n in range(32)])
    assert found.verdict is Verdict.REFUTED


def test_n14_wants_enough_circuits_of_three_steps():
    few = judged("N14", [looks_ahead(n) for n in range(8)])
    assert few.verdict is Verdict.INCONCLUSIVE and "8 of 32 read circuits" in few.words
    two = judged("N14", [looks_ahead(n) for n in range(32)], THREE.model_copy(update={"steps": 2}))
    assert two.verdict is Verdict.INCONCLUSIVE and "D 2, not 3" in two.words


QUICK = [(100.0 + 10 * n, 200.0 + 10 * n, 300.0 + 40 * n) for n in range(16)]
SLOW = [(100.0 + 10 * n, 400.0, 900.0 - 10 * n) for n in range(16)]


@pytest.mark.parametrize(("times", "verdict"), [(QUICK, Verdict.REPRODUCED), (SLOW, Verdict.REFUTED)])
def test_n17_correlates_the_first_fall_with_the_time_to_the_last(times, verdict):
    found = judged("N17", [chain(n, fell=fell) for n, fell in enumerate(times)])
    assert found.here.verdict is verdict, found.words


def test_n17_ranks_a_seed_that_never_ends_last():
    """If seeds that never learned the last step were left out, nothing of it would be seen."""
    times = [(100.0 + 10 * n, 500.0, None if n > 8 else 600.0 + n) for n in range(16)]
    found = judged("N17", [chain(n, fell=fell) for n, fell in enumerate(times)])
    assert len(found.samples) == 16 and found.here.verdict is Verdict.REPRODUCED
    assert (
        judged("N17", [chain(n, fell=fell) for n, fell in enumerate(times[:5])]).verdict
        is Verdict.INCONCLUSIVE
    )


PAPER = PRESETS["paper"]


@pytest.mark.parametrize(("loss", "verdict"), [(0.001, "inconclusive"), (0.3, "refuted")])
def test_n10_needs_both_completions_and_judges_its_own(loss, verdict):
    members = [member(n, loss=loss) for n in range(8)]
    found = judged("N10", members, PAPER)
    assert found.verdict is Verdict.INCONCLUSIVE and "no models of gpt2-schedule" in found.words
    assert found.value["torch-schedule"] == pytest.approx(loss)
    assert found.here.verdict == verdict
    other = judged("N10", members, type(PAPER)(**{**PAPER.model_dump(), "clip_norm": None}))
    assert other.verdict is Verdict.NOT_RUN
