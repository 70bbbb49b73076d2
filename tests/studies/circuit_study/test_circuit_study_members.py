"""Rows of the evidence table, from members whose answers are known."""

import pytest

from hopscope.circuits.places import FELL, FORMED, Place, followed_paths, of_places, times
from hopscope.claims.crossings import Crossing
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.circuit_study.members import links_a_pair
from hopscope.studies.circuits.config import CircuitsConfig

from .made_up import CHECKPOINTS, evidence_of, induction, last_look, member, path, reflected

CONFIG = CircuitsConfig(steps=2, training_steps=1_000, batch_size=7)


def evidence(*members):
    return evidence_of(members, CONFIG)


def test_every_row_says_when_it_was_measured_and_where_it_stands_on_record():
    table = evidence(member(0, induction()), member(1, induction(), loss=None)).to_pandas()
    assert set(table["step"]) == set(CHECKPOINTS)
    assert set(table.loc[table["metric"] != "attention", "step"]) == {1_000}
    assert table["file"].notna().all()
    assert table.loc[table["metric"] == "maps", "member"].tolist() == [0]
    assert set(table["split"]) == {"held_out"}


def test_what_was_learned_and_read_are_flags():
    found = evidence(
        member(0, induction()),
        member(1, reflected(), verdict="unexplained: no rule"),
        member(2, learned=(1,)),
    )
    assert list(found.last("was_read")) == [1.0, 0.0, 1.0]
    assert list(found.last("learned_all")) == [1.0, 1.0, 0.0]
    assert list(found.last("learned", part="step_2")) == [1.0, 1.0, 0.0]


def test_a_diverged_member_has_nulls_for_what_every_member_has_and_nothing_else():
    table = evidence(member(0, induction()), member(1, induction(), loss=None)).to_pandas()
    own = table[table["member"] == 1]
    assert set(own["metric"]) == {"final_loss", "learned", "learned_all", "was_read"}
    assert own["value"].isna().all()
    assert table.loc[table["member"] == 0, "value"].notna().all()


def test_circuits_with_the_same_reads_are_of_one_class_in_whatever_heads():
    higher = [path(4, "second 1", "first 1", 50, 1), path(6, "query", "second 1", 50, 1),
              path(7, "query", "second 2", 50, 2)]  # fmt: skip
    found = evidence(member(0, induction()), member(1, reflected()), member(2, higher), member(3, learned=()))
    assert found.last("circuit_class").fillna(-1.0).to_list() == [0.0, 1.0, 0.0, -1.0]


def test_crossed_members_are_not_independent():
    crossed = member(2, reflected(), init=0, data=1)
    assert independent(evidence(member(0, induction()), member(1, induction()), crossed)) == [0, 1]


def test_a_diverged_member_has_learned_nothing():
    assert not member(0, induction(), loss=None).learned_all


def test_a_pair_is_linked_in_either_direction_and_only_within_one_step():
    assert links_a_pair(path(0, "second 1", "first 1", 0, None))
    assert links_a_pair(path(0, "first 2", "second 2", 0, None))
    assert not links_a_pair(path(0, "second 1", "first 2", 0, None))
    assert not links_a_pair(path(0, "query", "second 1", 0, None))


def test_heads_that_could_be_merged_count_once_and_losses_have_their_parts():
    found = evidence(member(0, reflected(), merges=2, rules=0.043, full=0.017))
    assert (found.last("heads")[0], found.last("heads_needed")[0]) == (4.0, 3.0)
    losses = {
        part: found.last("circuit_loss", part=part)[0] for part in ("full", "rules", "random_circuits_high")
    }
    assert losses == {"full": 0.017, "rules": 0.043, "random_circuits_high": 1.1}


def test_a_path_stands_at_its_head_under_what_it_reads():
    vague = path(5, "first 2", "all second 2", 50, None, clean=0.21)
    found = of_places(
        evidence(member(3, [*induction(), vague])),
        "circuit",
        ("mean_attention", "to_one_token", "needed_for", "loss_without_clean"),
    )
    assert found[Place(3, 2, 0, "query → second 2")] == {
        "mean_attention": 0.9, "to_one_token": 1.0, "needed_for": 2.0, "loss_without_clean": 0.4,
    }  # fmt: skip
    assert found[Place(3, 5, 0, "first 2 → all second 2")] == {
        "mean_attention": 0.9, "to_one_token": 0.0, "loss_without_clean": 0.21,
    }  # fmt: skip


def test_attention_can_be_followed_through_training():
    (curve,) = (
        evidence(member(0, induction(later=450)))
        .curve("attention", layer=2, head=0, part="query → second 2")
        .items()
    )
    assert curve[1].to_dict() == {step: 0.1 if step <= 450 else 0.9 for step in CHECKPOINTS}


@pytest.mark.parametrize("formed", [-1, 150, 450, None])
def test_times_come_back_from_the_table_as_they_were(formed):
    made = member(0, [path(1, "query", "second 1", formed, 1)], falls={1: formed, 2: None})
    found, fell = times(evidence(made), FORMED), times(evidence(made), FELL)
    (read,) = made.paths
    assert found[Place(0, 1, 0, read.read)] == found[Place(0, None, None, "step_1")] == made.formed(read)
    assert Place(0, None, None, "step_2") not in found  # no read of its own
    assert fell[Place(0, None, None, "step_1")] == made.learned_at(1)
    assert fell[Place(0, None, None, "step_2")] == Crossing(None, None, None, 1_000.0)


def test_without_its_first_checkpoints_nobody_knows_when_a_read_formed():
    """What is there at the first look that is left would else count as formed at that very step."""
    early, late = member(0, induction()), last_look(member(1, induction()))
    found = evidence(early, late)
    assert {place.member for place in times(found, FORMED)} == {0}
    assert {place.member for place in times(found, FELL)} == {0, 1}
    assert [place.member for place in followed_paths(found)].count(1) == len(late.paths)
    assert set(found.rows("attention", measure="formation").query("member == 1")["step"]) == {1_000}


def test_what_never_happened_is_no_number_but_the_last_look():
    found = evidence(member(0, induction()), member(1, induction(later=None)))
    assert found.last("formed", part="step_2").to_list() == [1.0, 0.0]
    assert found.last("formed_at", part="step_2").isna().to_list() == [False, True]
    assert found.last("formed_at_low", part="step_2").to_list() == [400.0, 1_000.0]
