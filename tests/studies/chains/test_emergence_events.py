"""Orders, alignments and crossed seeds on members whose answers are known."""

import dataclasses

import pytest

from hopscope.studies.emergence import events
from hopscope.studies.emergence.config import EmergenceConfig

from .made_up import induction, member, path, reflected


def hops():
    return events.hop_events(2)


def test_a_hop_has_formed_when_its_last_read_has():
    found = member(0, [path(0, "second 1", "first 1", 110, 1), path(1, "query", "second 1", 310, 1)])
    assert (found.hop_formed(1).low, found.hop_formed(1).high) == (300, 400)
    assert found.hop_formed(2) is None


def test_a_read_has_formed_when_the_first_of_its_heads_has():
    twice = [path(0, "second 1", "first 1", 510, 1), path(1, "second 1", "first 1", 110, 1)]
    found = member(0, [*twice, path(2, "query", "second 1", 310, 1)])
    assert (found.hop_formed(1).low, found.hop_formed(1).high) == (300, 400)
    assert member(0, twice).hop_formed(1).low == 100


def test_a_hop_of_which_one_path_never_formed_has_not():
    found = member(0, [path(0, "second 1", "first 1", None, 1), path(1, "query", "second 1", 310, 1)])
    assert found.hop_formed(1).time is None


def test_orders_over_members_count_ties_and_what_never_came():
    members = [
        member(0, induction(150, 450)),
        member(1, induction(450, 150)),
        member(2, induction(150, 170)),  # within one interval between checkpoints
        member(3, induction(150, None)),
        member(4),  # no paths: says nothing
        member(5, induction(), loss=None),  # diverged
    ]
    found = events.before(members, *hops())
    assert (found.before, found.after, found.ties, found.unknown) == (2, 1, 1, 0)


def test_a_step_that_was_not_learned_is_censored_and_not_left_out():
    late = member(0, induction(), learned=(1,))
    assert late.hop_formed(2).censored_at == 1000.0
    found = events.before([late, member(1, induction())], *hops())
    assert (found.before, found.known) == (2, 2)


def test_members_that_were_not_read_have_no_reads_that_form():
    unread = member(0, induction(), verdict="unexplained: no rule")
    assert unread.hop_formed(1) is None
    assert events.before([unread], *hops()).known == 0


def test_reads_of_all_tokens_of_a_role_are_no_reads_of_a_hop():
    vague = dataclasses.replace(path(0, "first 2", "second 2", 50, 1), target="all second 2")
    assert vague not in member(0, [*induction(), vague]).hop(1)


def test_waits_are_between_events_that_both_came():
    members = [
        member(0, induction(100, 400)),
        member(1, induction(100, None)),
        member(2, induction(200, 300)),
    ]
    assert events.waits(members, *hops()) == pytest.approx([300.0, 100.0])


def test_a_loss_is_matched_with_the_paths_of_its_step():
    found = member(0, induction(250, 550), falls={1: 300.0, 2: 700.0})
    lags = [events.waits([found], hop, loss) for hop, loss in zip(hops(), events.loss_events(2), strict=True)]
    # Attention crosses 0.5 half way between the checkpoints at 200 and 300 (0.1 and 0.9); losses within 10 steps.
    assert lags[0] == pytest.approx([296.4 - 250.0], abs=4)
    assert lags[1] == pytest.approx([696.4 - 550.0], abs=4)


# Crossed seeds.

CROSSED = EmergenceConfig(seeds=3, crossed=3, training_steps=1_000)


def crossed(formed):
    """Members of a crossed table, by what their weights and data make of the time of the first hop."""
    return [
        member(plan.member, induction(formed(plan.init_seed, plan.data_seed), 850), init=plan.init_seed,
               data=plan.data_seed)
        for plan in CROSSED.members()
    ]  # fmt: skip


def test_every_weights_are_combined_with_every_data_once():
    pairs = [(plan.init_seed, plan.data_seed) for plan in CROSSED.members()]
    assert sorted(pairs) == [(init, data) for init in range(3) for data in range(3)]
    assert [plan.member for plan in CROSSED.members()] == list(range(9))
    assert pairs[:3] == [(0, 0), (1, 1), (2, 2)]


def test_a_time_that_follows_the_weights_is_told_from_one_that_follows_the_data():
    by_weights = events.shares(crossed(lambda init, data: 150 + 200 * init), CROSSED, hops()[0])
    by_data = events.shares(crossed(lambda init, data: 150 + 200 * data), CROSSED, hops()[0])
    assert (by_weights.rows, by_weights.columns) == (pytest.approx(1.0), pytest.approx(0.0))
    assert (by_data.rows, by_data.columns) == (pytest.approx(0.0), pytest.approx(1.0))


def test_what_never_came_counts_as_the_end_and_is_told():
    members = crossed(lambda init, data: None if init == data else 150)
    assert events.censored(members, CROSSED, hops()[0]) == 3
    assert events.shares(members, CROSSED, hops()[0]).rows == pytest.approx(0.0)


def test_a_crossed_member_that_says_nothing_leaves_no_shares():
    members = crossed(lambda init, data: 150 + 200 * init)
    members[4] = member(members[4].member, induction(), verdict="unexplained", init=members[4].init_seed,
                        data=members[4].data_seed)  # fmt: skip
    assert events.shares(members, CROSSED, hops()[0]) is None
    assert events.censored(members, CROSSED, hops()[0]) == 0


def test_circuits_are_compared_by_what_two_members_share():
    members = [
        member(
            plan.member,
            induction() if plan.init_seed else reflected(),
            init=plan.init_seed,
            data=plan.data_seed,
        )
        for plan in CROSSED.members()
    ]
    found = {each.what: (each.equal, each.pairs) for each in events.alike(members, CROSSED)}
    # Equal weights: 3 pairs for each of 3. Equal data: one of three pairs is of weights 1 and 2. Neither: 18 pairs.
    assert found == {"initial weights": (9, 9), "data": (3, 9), "neither": (6, 18)}


@pytest.mark.parametrize("crossed", [1, 4])
def test_crossing_more_seeds_than_there_are_is_refused(crossed):
    with pytest.raises(ValueError, match="crossed: expected 0, or 2 to 3"):
        EmergenceConfig(seeds=3, crossed=crossed)
