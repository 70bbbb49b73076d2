"""Claims R4 to R7 on members whose answers are known."""

import dataclasses

import pytest

from hopscope.claims import Verdict
from hopscope.claims.intervals import interval_of_pairs
from hopscope.claims.registration import register
from hopscope.studies.circuit_study.members import links_a_pair
from hopscope.studies.circuits.claims import claims, first_and_later, reads_by_rules
from hopscope.studies.circuits.config import PRESETS

from . import made_up
from .made_up import evidence_of, induction, member, path, reflected

PAPER = PRESETS["paper"]


def judged(members, config=PAPER):
    return made_up.judged(claims(config), members, config)


def alternating(count: int = 10):
    return [member(n, reflected() if n % 2 else induction()) for n in range(count)]


def test_the_papers_preset_departs_in_nothing_from_what_the_paper_states():
    assert PAPER.departures == []


def test_smaller_runs_say_how_they_depart():
    words = PRESETS["two-steps"].departures
    assert "3,000 of 24,000 training steps" in words
    assert "layers 8, not 12" in words
    assert "pool without end, not 262,144" in words


def test_every_claim_is_judged_and_registered():
    assert list(judged(alternating())) == ["R4", "R5", "R6", "R7"]
    assert list(register(claims(PAPER))["claims"]) == ["R4", "R5", "R6", "R7"]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [([0.004, 0.008] * 4, Verdict.REPRODUCED), ([0.03, 0.02] * 4, Verdict.REFUTED),
     ([0.004, 0.03] * 4, Verdict.INCONCLUSIVE), ([0.004] * 3, Verdict.INCONCLUSIVE)],
)  # fmt: skip
def test_r4_is_about_the_mean_loss(losses, verdict):
    assert judged([member(n, loss=loss) for n, loss in enumerate(losses)])["R4"].verdict is verdict


def test_r4_counts_members_that_diverged_against_the_claim():
    near = judged([member(n, loss=None if n == 3 else 0.001) for n in range(11)])["R4"]
    assert (near.verdict, near.n) == (Verdict.REPRODUCED, 10)
    assert "1 of 11 seeds has no number, and it holds with that one counted against it" in near.words
    losses = [None, 0.02, *[0.002] * 9]
    far = judged([member(n, loss=loss) for n, loss in enumerate(losses)])["R4"]
    assert far.verdict is Verdict.INCONCLUSIVE
    assert "it does not hold with that one counted against it" in far.words
    assert far.samples == losses


def test_a_diverged_member_is_missing_from_what_is_said_of_circuits():
    found = judged([member(n, induction(), loss=None if n == 3 else 0.004) for n in range(11)])
    assert found["R5"].samples["heads that read"] == [3.0, 3.0, 3.0, None, *[3.0] * 7]
    assert found["R5"].verdict is Verdict.INCONCLUSIVE  # the missing one counts as a violation of "always"
    assert found["R7"].n == 10
    assert "1 of 11 seeds has no number" in found["R7"].words


def test_a_pair_is_linked_in_either_direction_and_only_within_one_step():
    assert links_a_pair(path(0, "second 1", "first 1", 0, None))
    assert links_a_pair(path(0, "first 2", "second 2", 0, None))
    assert not links_a_pair(path(0, "second 1", "first 2", 0, None))
    assert not links_a_pair(path(0, "query", "second 1", 0, None))


def test_r5_counts_heads_and_looks_at_the_first_of_them():
    every = judged([member(n, induction()) for n in range(10)])["R5"]
    assert every.verdict is Verdict.REPRODUCED
    assert every.value == {"heads that read": 3.0, "first one links a pair": 1.0}
    some = judged(alternating())["R5"]
    assert some.verdict is Verdict.REFUTED
    assert some.value["first one links a pair"] == 0.5


def test_a_statement_about_every_model_takes_ten_and_one_about_the_mean_eight():
    nine = judged([member(n, induction()) for n in range(9)])
    assert nine["R5"].verdict is Verdict.INCONCLUSIVE
    assert "first one links a pair: 9 of 9 seeds agree; needs 10" in nine["R5"].words
    assert nine["R7"].verdict is Verdict.REPRODUCED


def test_heads_that_read_all_tokens_of_a_role_alike_are_no_first_useful_head():
    vague = dataclasses.replace(path(0, "first 2", "first 2", 100, 2), target="all first 2")
    later = [dataclasses.replace(each, layer=each.layer + 1) for each in induction()]
    found = member(0, [vague, *later])
    assert [each.read for each in found.first_reads] == ["second 1 → first 1"]
    assert first_and_later(reads_by_rules(evidence_of([found], PAPER))[0]) == ([0.07], [0.8, 0.3])
    assert len(found.heads) == 4


def test_only_members_that_learned_the_chain_and_were_read_are_counted():
    read = [member(n, induction()) for n in range(3)]
    others = [
        member(7, reflected(), verdict="unexplained: no rule"),
        member(8, reflected(), learned=(1,)),
        member(9, verdict="no circuit: above plateau", learned=()),
    ]
    found = judged([*read, *others])
    assert found["R5"].n == 3
    assert found["R6"].value["share of other seeds with another circuit"] == 0.0
    none = judged(others)["R5"]
    assert none.verdict is Verdict.NOT_RUN
    assert "no member that learned the chain was read" in none.words
    assert judged(read[:1])["R6"].verdict is Verdict.NOT_RUN


def test_a_run_in_which_nothing_was_learned_is_judged():
    found = judged([member(n, verdict="no circuit: above plateau", learned=(), loss=0.7) for n in range(8)])
    assert found["R4"].verdict is Verdict.REFUTED
    assert {found[name].verdict for name in ("R5", "R6", "R7")} == {Verdict.NOT_RUN}


def test_r6_counts_other_seeds_with_another_circuit():
    found = judged([member(0, induction()), member(1, induction()), member(2, reflected())])["R6"]
    assert found.samples["share of other seeds with another circuit"] == [0.5, 0.5, 1.0]


def test_r6s_interval_resamples_members_and_not_pairs():
    alike = judged([member(n, induction()) for n in range(5)])["R6"]
    share = "share of other seeds with another circuit"
    assert (alike.value[share], alike.interval[share]) == (0.0, (0.0, 0.0))
    mixed = judged(alternating(6))["R6"]
    assert mixed.value[share] == pytest.approx(3 / 5)
    assert mixed.interval[share] == interval_of_pairs([0, 1] * 3)
    assert mixed.interval[share][0] < 3 / 5 < mixed.interval[share][1] <= 1.0


def test_a_diverged_member_has_learned_nothing():
    assert not member(0, induction(), loss=None).learned_all


def test_r6_holds_heads_against_the_exact_minimum():
    found = judged(alternating())["R6"]
    # D = 3 takes three layers: three heads are none too many, four are one.
    assert found.samples["heads beyond the minimum"] == [0.0, 1.0] * 5
    assert found.verdict is Verdict.REFUTED


def test_heads_that_could_be_one_are_counted_as_one():
    assert member(0, reflected()).heads_needed == 4
    assert member(0, reflected(), merges=2).heads_needed == 3


def test_r7_reads_removals_in_the_papers_mode():
    found = judged([member(n, induction()) for n in range(8)])["R7"]
    assert found.value == pytest.approx(
        {
            "loss under the rules": 0.04,
            "least loss without a path of a later layer": 0.3,
            "largest loss without a path of a later layer": 0.8,
            "loss without the first head": 0.07,
        }
    )
    assert found.verdict is Verdict.REPRODUCED


def test_r7_is_refuted_by_a_path_that_costs_nothing():
    cheap = [*induction(), path(3, "query", "second 2", 500, None, rules=0.05)]
    assert judged([member(n, cheap) for n in range(8)])["R7"].verdict is Verdict.REFUTED


def test_r7_leaves_out_members_without_reads_in_two_layers():
    flat = [path(0, "second 1", "first 1", 100, 1)]
    found = judged([*(member(n, induction()) for n in range(8)), member(8, flat)])["R7"]
    assert (found.n, found.verdict) == (8, Verdict.REPRODUCED)
    assert judged([member(n, flat) for n in range(8)])["R7"].verdict is Verdict.NOT_RUN


def test_below_the_papers_scale_nothing_is_settled():
    small = judged(alternating(), PRESETS["two-steps"])
    for claim in small.values():
        assert claim.verdict is Verdict.INCONCLUSIVE
        assert "3,000 of 24,000 training steps" in claim.words
