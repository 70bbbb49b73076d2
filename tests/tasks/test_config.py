import pytest
from pydantic import ValidationError

from hopscope.tasks.config import PermutationConfig


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"values": 2}, "values"),
        ({"values": 13}, "values"),
        ({"repeat_ratio": -0.1}, "repeat_ratio"),
        ({"repeat_ratio": 1.1}, "repeat_ratio"),
        ({"repeat_ratio": float("nan")}, "repeat_ratio"),
        ({"held_out_share": 0.0}, "held_out_share"),
        ({"held_out_share": 1.0}, "held_out_share"),
        ({"split_seed": -1}, "split_seed"),
        ({"split_seed": 1 << 63}, "split_seed"),
        ({"repeat_slots": (6,)}, r"repeat_slots: expected slots from 1 to 5, found \[6\]"),
        ({"repeat_slots": (0, 3)}, r"repeat_slots: expected slots from 1 to 5, found \[0\]"),
        ({"repeat_sources": (7,)}, r"repeat_sources: expected slots from 1 to 5, found \[7\]"),
        ({"repeat_slots": (1,)}, "expected at least one source before a slot"),
        ({"repeat_slots": (2, 3), "repeat_sources": (3, 4)}, "expected at least one source before a slot"),
        ({"colour": 3}, "colour"),
    ],
)
def test_what_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        PermutationConfig(**changes)


@pytest.mark.parametrize("values", range(3, 13))
def test_by_default_the_last_slot_copies_any_before_it(values):
    config = PermutationConfig(values=values)
    assert config.positions == 2 * values - 1
    assert config.repeat_pairs() == [(values, source) for source in range(1, values)]


def test_pairs_are_every_allowed_source_before_every_allowed_slot():
    config = PermutationConfig(values=7, repeat_slots=(5, 3, 3), repeat_sources=(4, 2))
    assert config.repeat_pairs() == [(3, 2), (5, 2), (5, 4)]
