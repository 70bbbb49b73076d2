"""Claims R4 to R7 on members whose answers are known."""

import dataclasses

import pytest

from hopscope.claims import Verdict
from hopscope.studies.circuits import judges
from hopscope.studies.circuits.config import PRESETS
from hopscope.studies.circuits.ledger import ENTRIES, judge

from .made_up import induction, member, path, reflected

PAPER = PRESETS["paper"]


def alternating(count: int = 10):
    return [member(n, reflected() if n % 2 else induction()) for n in range(count)]


def test_the_papers_preset_departs_in_nothing_from_what_the_paper_states():
    assert PAPER.departures == []


def test_smaller_runs_say_how_they_depart():
    words = PRESETS["laptop"].departures
    assert "3,000 of 24,000 training steps" in words
    assert "layers 8, not 12" in words
    assert "pool without end, not 262,144" in words


def test_every_claim_is_judged_once():
    judged = judge(alternating(), PAPER)
    assert [claim.id for claim, _ in judged] == ["R4", "R5", "R6", "R7"] == [entry.id for entry in ENTRIES]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [([0.004, 0.008] * 4, Verdict.REPRODUCED), ([0.03, 0.02] * 4, Verdict.REFUTED),
     ([0.004, 0.03] * 4, Verdict.INCONCLUSIVE), ([0.004] * 3, Verdict.INCONCLUSIVE)],
)  # fmt: skip
def test_r4_is_about_the_mean_loss(losses, verdict):
    assert judges.r4([member(n, loss=loss) for n, loss in enumerate(losses)], PAPER).verdict is verdict


def test_r4_says_so_where_a_member_diverged():
    found = judges.r4([member(n, loss=None if n == 3 else 0.004) for n in range(9)], PAPER)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "1 diverged run left out" in found.words


def test_a_pair_is_linked_in_either_direction_and_only_within_one_step():
    assert judges.links_a_pair(path(0, "second 1", "first 1", 0, None))
    assert judges.links_a_pair(path(0, "first 2", "second 2", 0, None))
    assert not judges.links_a_pair(path(0, "second 1", "first 2", 0, None))
    assert not judges.links_a_pair(path(0, "query", "second 1", 0, None))


def test_r5_counts_heads_and_looks_at_the_first_of_them():
    every = judges.r5([member(n, induction()) for n in range(10)], PAPER)
    assert every.verdict is Verdict.REPRODUCED
    assert every.value == {"heads that read": 3.0, "first one links a pair": 1.0}
    some = judges.r5(alternating(), PAPER)
    assert some.verdict is Verdict.REFUTED
    assert some.value["first one links a pair"] == 0.5


def test_heads_that_read_all_tokens_of_a_role_alike_are_no_first_useful_head():
    vague = dataclasses.replace(path(0, "first 2", "first 2", 100, 2), target="all first 2")
    later = [dataclasses.replace(each, layer=each.layer + 1) for each in induction()]
    found = member(0, [vague, *later])
    assert [each.read for each in found.first_reads] == ["second 1 → first 1"]
    assert judges.removals(found) == ([0.07], [0.8, 0.3])
    assert len(found.heads) == 4


def test_r5_and_r6_leave_out_members_that_were_not_read_or_did_not_learn_the_chain():
    read = [member(n, induction()) for n in range(3)]
    others = [
        member(7, reflected(), verdict="unexplained: no rule"),
        member(8, reflected(), learned=(1,)),
        member(9, verdict="no circuit: above plateau", learned=()),
    ]
    assert judges.r5([*read, *others], PAPER).n == 3
    assert judges.r6([*read, *others], PAPER).value["share of other seeds with another circuit"] == 0.0
    assert judges.r5(others, PAPER).verdict is Verdict.NOT_RUN
    assert judges.r6(read[:1], PAPER).verdict is Verdict.NOT_RUN


def test_r6_counts_other_seeds_with_another_circuit():
    found = [member(0, induction()), member(1, induction()), member(2, reflected())]
    assert judges.others_differ(found) == [0.5, 0.5, 1.0]


def test_r6s_interval_resamples_members_and_not_pairs():
    alike = [member(n, induction()) for n in range(5)]
    assert judges.share_that_differs(alike) == (0.0, (0.0, 0.0))
    mixed = judges.share_that_differs(alternating(6))
    assert mixed[0] == pytest.approx(3 / 5)
    assert mixed[1][0] < 3 / 5 < mixed[1][1] <= 1.0


def test_a_diverged_member_has_learned_nothing():
    assert not member(0, induction(), loss=None).learned_all


def test_r6_holds_heads_against_the_exact_minimum():
    judged = judges.r6(alternating(), PAPER)
    # D = 3 takes three layers: three heads are none too many, four are one.
    assert judged.per_seed["heads beyond the minimum"] == (0.0, 1.0) * 5
    assert judged.verdict is Verdict.REFUTED


def test_heads_that_could_be_one_are_counted_as_one():
    assert judges.heads_needed(member(0, reflected())) == 4
    assert judges.heads_needed(member(0, reflected(), merges=2)) == 3


def test_r7_reads_removals_in_the_papers_mode():
    judged = judges.r7([member(n, induction()) for n in range(8)], PAPER)
    assert judged.value == pytest.approx(
        {
            "loss under the rules": 0.04,
            "least loss without a path of a later layer": 0.3,
            "largest loss without a path of a later layer": 0.8,
            "loss without the first head": 0.07,
        }
    )
    assert judged.verdict is Verdict.REPRODUCED


def test_r7_is_refuted_by_a_path_that_costs_nothing():
    cheap = [*induction(), path(3, "query", "second 2", 500, None, rules=0.05)]
    assert judges.r7([member(n, cheap) for n in range(8)], PAPER).verdict is Verdict.REFUTED


def test_below_the_papers_scale_nothing_is_settled():
    for claim, _ in judge(alternating(), PRESETS["laptop"]):
        assert claim.verdict is Verdict.INCONCLUSIVE
