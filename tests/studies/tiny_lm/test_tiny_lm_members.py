"""Rows of small language models, from members that were never trained."""

from dataclasses import replace

import pytest

from hopscope.errors import UserError
from hopscope.studies.tiny_lm.config import TinyLmConfig

from .made_up import diverged, evidence_of, members_of

CONFIG = TinyLmConfig(depths=(1, 2, 3), seeds=2, training_steps=700)
RIGHT = {"uniform": 83, "zipf": 61}


def test_every_row_says_when_it_was_measured_and_where_it_stands_on_record():
    table = evidence_of(members_of(CONFIG, RIGHT), CONFIG).to_pandas()
    assert set(table["step"]) == {700} and set(table["split"]) == {"held_out"}
    assert table["file"].notna().all()
    assert set(table["measure"]) == {"exam", "reading", "formation"}
    assert list(table.columns)[-1] == "mixture"


def test_a_depth_has_its_answers_and_a_mixture_its_models():
    found = evidence_of(members_of(CONFIG, RIGHT), CONFIG)
    zipf = found.last("first_accuracy", part="depth_3", configuration="zipf")
    assert zipf.to_dict() == {2: 61 / 97, 3: 61 / 97}
    assert list(found.last("first_accuracy", part="depth_2")) == [89 / 97] * 4
    assert found.last("wrong", part="depth_3")[0] == 14
    assert (found.last("rose", part="depth_1")[0], found.last("rose_at_high", part="depth_1")[0]) == (
        1.0,
        5.0,
    )


def test_what_was_not_learned_is_no_time_but_the_last_look():
    members = members_of(CONFIG, RIGHT)
    members[1] = replace(members[1], accuracy={**members[1].accuracy, 3: ([0, 5], [0.25, 0.89])})
    found = evidence_of(members, CONFIG)
    assert list(found.last("rose", part="depth_3")) == [1.0, 0.0, 1.0, 1.0]
    assert found.last("rose_at", part="depth_3").isna().to_list() == [False, True, False, False]
    assert found.last("rose_at_low", part="depth_3")[1] == 5.0


def test_a_diverged_member_has_nulls_for_what_every_member_has_and_nothing_else():
    members = members_of(CONFIG, RIGHT)
    members[2] = diverged(members[2])
    table = evidence_of(members, CONFIG).to_pandas()
    own = table[table["member"] == 2]
    shares = {"accuracy", "first_accuracy", "acceptance", "answered"}
    assert set(own["metric"]) == shares | {"learned", "learned_all", "was_read"}
    assert own["value"].isna().all() and len(own) == 3 * 4 + 3 + 2
    assert table.loc[table["member"] != 2, "value"].notna().all()


@pytest.mark.parametrize("tallies", [{}, {1: {"depth": 1}}])
def test_an_exam_that_is_none_is_one_line(tallies):
    members = members_of(CONFIG, RIGHT)
    members[0] = replace(members[0], tallies=tallies)
    with pytest.raises(
        UserError, match=r"exam\.json: expected the exam of member 0, .* delete the file"
    ) as caught:
        evidence_of(members, CONFIG)
    assert "\n" not in str(caught.value)
