"""What a run lacks of its study, in words."""

import math

import pytest

from hopscope.runs.evidence import Evidence
from hopscope.studies.quick import between_seeds, smaller_scale


@pytest.mark.parametrize(
    ("steps", "width", "words"),
    [
        (400, 512, ""),
        (401, 513, ""),
        (40, 512, "40 of 400 steps"),
        (400, 64, "width 64, not 512"),
        (399, 511, "399 of 400 steps, width 511, not 512"),
    ],
)
def test_what_is_smaller_is_named(steps, width, words):
    evidence = Evidence.of([], [], {"training": {"steps": steps}, "model": {"width": width}})
    assert smaller_scale(evidence) == words


def test_what_is_not_known_between_two_seeds_is_missing():
    assert between_seeds({0: 4.0, 1: 1.0, 2: 2.0}).values == (3.0, 1.0, 2.0)
    found = between_seeds({0: 4.0, 1: 4.0, 2: math.inf, 3: math.nan})
    assert found.values == (0.0, None, None, None)
    assert between_seeds({0: math.inf, 1: math.inf}).note == "no two seeds have a value"
