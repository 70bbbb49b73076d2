"""What a run lacks of its study, in words."""

import pytest

from hopscope.runs.evidence import Evidence
from hopscope.studies.quick import smaller_scale


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
