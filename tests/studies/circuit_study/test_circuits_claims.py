"""Claims R4 to R7 on members whose answers are known."""

import dataclasses

import pytest

from hopscope.claims import Verdict
from hopscope.studies.circuits.config import PRESETS, CircuitsConfig

from . import made_up
from .made_up import induction, member, path, reflected, unseen_of

PAPER = PRESETS["paper"].model_copy(update={"steps": 2})


@pytest.fixture
def at_scale(monkeypatch):
    """Nothing departs from the paper but for D, so that members of two steps can be judged."""
    monkeypatch.setattr(CircuitsConfig, "paper", {})


def judged(members, config=PAPER, **given):
    return made_up.judged("circuits", members, config, **given)


def alternating(count: int = 10):
    return [member(n, reflected() if n % 2 else induction()) for n in range(count)]


def test_the_papers_preset_departs_in_nothing_from_what_the_paper_states():
    assert PRESETS["paper"].protocol_deviations == []


def test_smaller_runs_say_how_they_depart():
    words = PRESETS["laptop"].protocol_deviations
    assert "1,000 of 24,000 training steps" in words
    assert "layers 4, not 12" in words
    assert "pool without end, not 262,144" in words


@pytest.mark.parametrize(
    ("losses", "here"),
    [
        ([0.004, 0.008] * 4, Verdict.REPRODUCED),
        ([0.03, 0.02] * 4, Verdict.REFUTED),
        ([0.004] * 3, Verdict.INCONCLUSIVE),
        # Most seeds learn and some stay at the plateau: a mean of both kinds decides nothing.
        ([0.001] * 14 + [0.75] * 2, Verdict.INCONCLUSIVE),
        # Seven of eight are no share that an exact interval tells from one half, whatever their mean is.
        ([0.001] * 7 + [0.011], Verdict.INCONCLUSIVE),
    ],
)
def test_r4_is_about_the_share_of_seeds_and_the_mean(at_scale, losses, here):
    found = judged([member(n, loss=loss) for n, loss in enumerate(losses)])["R4"]
    assert found.here.verdict is here, found.words
    # What one completion refutes waits for the others.
    assert found.verdict is (here if here is Verdict.REPRODUCED else Verdict.INCONCLUSIVE)


def test_r4_counts_members_that_diverged_against_the_claim(at_scale):
    near = judged([member(n, loss=None if n == 3 else 0.001) for n in range(11)])["R4"]
    assert (near.verdict, near.n) == (Verdict.REPRODUCED, 10)
    assert "1 of 11 seeds has no number, and it holds with that one counted against it" in near.words
    losses = [None, 0.02, *[0.002] * 9]
    far = judged([member(n, loss=loss) for n, loss in enumerate(losses)])["R4"]
    assert far.verdict is Verdict.INCONCLUSIVE
    assert "it does not hold with that one counted against it" in far.words
    assert far.samples["mean loss"] == losses


def test_a_diverged_member_is_missing_from_what_is_said_of_circuits(at_scale):
    found = judged([member(n, induction(), loss=None if n == 3 else 0.004) for n in range(11)])
    assert found["R5"].samples["heads that read"] == [3.0, 3.0, 3.0, None, *[3.0] * 7]
    assert found["R5"].verdict is Verdict.INCONCLUSIVE  # the missing one counts as a violation of "always"
    assert found["R7"].n == 10
    assert "1 of 11 seeds has no number" in found["R7"].words


def test_r5_counts_heads_and_looks_at_the_first_of_them(at_scale):
    every = judged([member(n, induction()) for n in range(8)])["R5"]
    assert every.verdict is Verdict.REPRODUCED
    assert every.value == {"heads that read": 3.0, "first one links a pair": 1.0}
    some = judged(alternating(8))["R5"]
    assert some.here.verdict is Verdict.REFUTED
    assert some.value["first one links a pair"] == 0.5


def test_a_statement_about_every_model_takes_eight(at_scale):
    seven = judged([member(n, induction()) for n in range(7)])["R5"]
    assert seven.verdict is Verdict.INCONCLUSIVE
    assert "first one links a pair: 7 of 7 seeds agree; needs 8" in seven.words


def test_heads_that_read_all_tokens_of_a_role_alike_are_no_first_useful_head():
    vague = dataclasses.replace(path(0, "first 2", "first 2", 100, 2), target="all first 2")
    later = [dataclasses.replace(each, layer=each.layer + 1) for each in induction()]
    found = member(0, [vague, *later])
    assert [each.read for each in found.first_reads] == ["second 1 → first 1"]
    assert len(found.heads) == 4
    judgement = judged([found])["R5"]
    rules, both = (each.value["heads that read"] for each in judgement.readings.values())
    assert (rules, both) == (3.0, 4.0)


def test_only_members_that_learned_the_chain_are_counted():
    read = [member(n, induction()) for n in range(3)]
    others = [
        member(7, reflected(), verdict="unexplained: no rule"),
        member(8, reflected(), learned=(1,)),
        member(9, verdict="no circuit: above plateau", learned=()),
    ]
    found = judged([*read, *others])
    assert found["R5"].samples["heads that read"] == [3.0, 3.0, 3.0, None]
    assert found["R7"].n == 4  # the unread one counts with its nearest circuit
    none = judged(others)["R5"]
    assert none.verdict is Verdict.NOT_RUN
    assert "no member that learned the chain was read" in none.words
    assert "fewer than two members that learned the chain were read twice" in judged(read[:1])["R6"].words


def test_a_run_in_which_nothing_was_learned_is_judged(at_scale):
    found = judged([member(n, verdict="no circuit: above plateau", learned=(), loss=0.7) for n in range(8)])
    assert found["R4"].here.verdict is Verdict.REFUTED
    assert {found[name].verdict for name in ("R5", "R6", "R7", "R12")} == {Verdict.NOT_RUN}


def test_r6_holds_heads_against_the_exact_minimum(at_scale):
    config = PAPER.model_copy(update={"steps": 3})
    learned = {3: 300.0, **dict.fromkeys((1, 2), 300.0)}
    members = [
        member(n, reflected() if n % 2 else induction(), falls=learned, learned=(1, 2, 3)) for n in range(8)
    ]
    found = judged(members, config)["R6"]
    # D = 3 takes three layers: three heads are none too many, four are one.
    assert found.samples["heads beyond the minimum"] == [0.0, 1.0] * 4
    assert found.here.verdict is Verdict.REFUTED


def test_r7_reads_removals_in_the_papers_mode(at_scale):
    found = judged([member(n, induction()) for n in range(8)])["R7"]
    assert found.value == pytest.approx(
        {
            "loss under the rules": 0.04,
            "least loss without a read of a later layer": 0.3,
            "largest loss without a read of a later layer": 0.8,
            "loss without the first head": 0.07,
        }
    )
    assert found.verdict is Verdict.REPRODUCED


def test_r7_is_refuted_by_a_read_that_costs_nothing(at_scale):
    cheap = [*induction(), path(3, "query", "second 2", 500, None, rules=0.05)]
    assert judged([member(n, cheap) for n in range(8)])["R7"].here.verdict is Verdict.REFUTED


def test_r7_knows_no_later_read_of_a_member_whose_reads_are_in_one_layer(at_scale):
    flat = member(8, [path(0, "second 1", "first 1", 100, 1)])
    found = judged([*(member(n, induction()) for n in range(8)), flat])["R7"]
    assert found.samples["least loss without a read of a later layer"] == [0.3] * 8 + [None]
    assert found.samples["loss without the first head"] == [0.07] * 9
    assert "least loss without a read of a later layer: 95 % interval 0.3 to 0.3 wholly meets" in found.words
    assert "1 of 9 seeds has no number, and it holds with that one counted against it" in found.words


def test_r7_takes_what_was_measured_on_unseen_sequences(at_scale):
    members = [member(n, induction()) for n in range(8)]
    found = judged(members, unseen=[unseen_of(each, loss=0.03, first=0.09) for each in members])["R7"]
    assert found.value["loss under the rules"] == pytest.approx(0.03)
    assert found.value["loss without the first head"] == pytest.approx(0.09)
