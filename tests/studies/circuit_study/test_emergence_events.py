"""Orders, alignments and crossed seeds on members whose answers are known."""

import dataclasses

import pytest

from hopscope.studies.emergence import events
from hopscope.studies.emergence.config import EmergenceConfig

from .made_up import evidence_of, induction, member, path, reflected

CONFIG = EmergenceConfig(seeds=6, crossed=0, steps=2, training_steps=1_000)


def of_read(*members):
    """Reads for x₁, loss of x₁, reads for x₂, loss of x₂: when each came, of the members that were read."""
    found = evidence_of(members, CONFIG)
    return events.events(found, 2, events.read_of(found, found.members))


def hops(*members):
    return of_read(*members)[::2]


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
    found = events.before(*hops(*members))
    assert (found.before, found.after, found.ties, found.unknown) == (2, 1, 1, 0)


def test_a_step_that_was_not_learned_is_censored_and_not_left_out():
    late = member(0, induction(), learned=(1,))
    assert late.hop_formed(2).censored_at == 1000.0
    found = events.before(*hops(late, member(1, induction())))
    assert (found.before, found.known) == (2, 2)


def test_members_that_were_not_read_have_no_reads_that_form():
    unread = member(0, induction(), verdict="unexplained: no rule")
    assert unread.hop_formed(1) is None
    assert events.before(*hops(unread)).known == 0


def test_reads_of_all_tokens_of_a_role_are_no_reads_of_a_hop():
    vague = dataclasses.replace(path(0, "first 2", "second 2", 50, 1), target="all second 2")
    assert vague not in member(0, [*induction(), vague]).hop(1)


def test_events_come_in_the_order_of_the_chain_and_have_names():
    found = of_read(member(0, induction(150, 450)), member(1, induction(), verdict="unexplained: no rule"))
    assert [event.name for event in found] == [
        "reads for x₁ formed", "loss of x₁ fell", "reads for x₂ formed", "loss of x₂ fell",
    ]  # fmt: skip
    assert [event.step for event in found] == [1, 1, 2, 2]
    assert [list(event.times) for event in found] == [[0]] * 4


def test_waits_are_between_events_that_both_came():
    members = [
        member(0, induction(100, 400)),
        member(1, induction(100, None)),
        member(2, induction(200, 300)),
    ]
    assert events.waits(*hops(*members)) == pytest.approx([300.0, 100.0])


def test_a_loss_is_matched_with_the_paths_of_its_step():
    found = member(0, induction(250, 550), falls={1: 300.0, 2: 700.0})
    every = of_read(found)
    lags = [events.waits(hop, loss) for hop, loss in zip(every[::2], every[1::2], strict=True)]
    # Attention crosses 0.5 half way between the checkpoints at 200 and 300 (0.1 and 0.9); losses within 10 steps.
    assert lags[0] == pytest.approx([296.4 - 250.0], abs=4)
    assert lags[1] == pytest.approx([696.4 - 550.0], abs=4)


# Crossed seeds.

CROSSED = EmergenceConfig(seeds=3, crossed=3, training_steps=1_000)


CROSSED_PLANS = {(plan.init_seed, plan.data_seed): plan.member for plan in CROSSED.members()}


def crossed(formed, unread=()):
    """Evidence of a crossed table, by what weights and data make of the time of the first hop; and that event."""
    found = evidence_of(
        [
            member(number, induction(formed(init, data), 850), init=init, data=data,
                   verdict="unexplained" if number in unread else "read")
            for (init, data), number in CROSSED_PLANS.items()
        ],
        CROSSED,
    )  # fmt: skip
    return events.events(found, 2, found.members)[0]


def test_every_weights_are_combined_with_every_data_once():
    pairs = [(plan.init_seed, plan.data_seed) for plan in CROSSED.members()]
    assert sorted(pairs) == [(init, data) for init in range(3) for data in range(3)]
    assert [plan.member for plan in CROSSED.members()] == list(range(9))
    assert pairs[:3] == [(0, 0), (1, 1), (2, 2)]


def test_a_time_that_follows_the_weights_is_told_from_one_that_follows_the_data():
    by_weights = events.shares(CROSSED, crossed(lambda init, data: 150 + 200 * init))
    by_data = events.shares(CROSSED, crossed(lambda init, data: 150 + 200 * data))
    assert (by_weights.rows, by_weights.columns) == (pytest.approx(1.0), pytest.approx(0.0))
    assert (by_data.rows, by_data.columns) == (pytest.approx(0.0), pytest.approx(1.0))


def test_what_never_came_counts_as_the_end_and_is_told():
    found = crossed(lambda init, data: None if init == data else 150)
    assert events.censored(CROSSED, found) == 3
    assert events.shares(CROSSED, found).rows == pytest.approx(0.0)


def test_a_crossed_member_that_says_nothing_leaves_no_shares():
    found = crossed(lambda init, data: 150 + 200 * init, unread=[4])
    assert events.shares(CROSSED, found) is None
    assert events.censored(CROSSED, found) == 0


def test_circuits_are_compared_by_what_two_members_share():
    members = [
        member(number, induction() if init else reflected(), init=init, data=data)
        for (init, data), number in CROSSED_PLANS.items()
    ]
    found = events.alike(CROSSED, evidence_of(members, CROSSED))
    # Equal weights: 3 pairs for each of 3. Equal data: one of three pairs is of weights 1 and 2. Neither: 18 pairs.
    assert found == {"initial weights": (9, 9), "data": (3, 9), "neither": (6, 18)}


def test_only_members_that_were_read_are_compared():
    members = [
        member(number, induction(), init=init, data=data, verdict="read" if data else "unexplained")
        for (init, data), number in CROSSED_PLANS.items()
    ]
    found = events.alike(CROSSED, evidence_of(members, CROSSED))
    assert found == {"initial weights": (3, 3), "data": (6, 6), "neither": (6, 6)}


@pytest.mark.parametrize("crossed", [1, 4])
def test_crossing_more_seeds_than_there_are_is_refused(crossed):
    with pytest.raises(ValueError, match="crossed: expected 0, or 2 to 3"):
        EmergenceConfig(seeds=3, crossed=crossed)
