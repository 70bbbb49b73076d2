"""Who has not learned yet: shares by hand, and the figure's rows."""

import math

from hopscope.runs.evidence import Evidence
from hopscope.studies.waiting import survival, waiting


def test_who_still_waits():
    assert survival([100.0, 300.0, math.inf, 100.0], 400) == [(0, 1), (100, 0.5), (300, 0.25), (400, 0.25)]
    assert survival([math.inf, math.inf], 400) == [(0, 1), (400, 1)]
    assert survival([math.nan], 400) == []
    assert survival([400.0, 200.0], 400) == [(0, 1), (200, 0.5), (400, 0)]


def test_the_figure_has_a_line_for_each_name():
    times = {
        "D = 2": {"whole": {0: 100.0, 1: math.inf}, "alone": {0: math.inf}},
        "D = 3": {"whole": {0: math.nan}},
    }
    figure = waiting(lambda evidence: times, "x_D")
    _, rows = figure.function(Evidence.of([], [], {"training": {"steps": 400}}))
    assert [(row["panel"], row["way"], row["step"], row["share"]) for row in rows] == [
        ("D = 2", "whole", 0, 1), ("D = 2", "whole", 100, 0.5), ("D = 2", "whole", 400, 0.5),
        ("D = 2", "alone", 0, 1), ("D = 2", "alone", 400, 1),
    ]  # fmt: skip
    assert "x_D" in figure.caption
