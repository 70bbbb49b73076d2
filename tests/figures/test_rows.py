"""Rows of a figure's data: seeds and their means, cut labels, thinned curves."""

import pytest

from hopscope.claims.intervals import bootstrap_mean
from hopscope.figures.marks import in_lines
from hopscope.figures.rows import averaged, summary_rows, thinned


def test_seeds_and_their_mean():
    rows = summary_rows([5, 6, 7], [0.25, None, 0.5], skill="recall")
    assert [row for row in rows if row["kind"] == "seed"] == [
        {"skill": "recall", "kind": "seed", "seed": 5, "value": 0.25},
        {"skill": "recall", "kind": "seed", "seed": 7, "value": 0.5},
    ]
    (mean,) = [row for row in rows if row["kind"] == "mean"]
    low, high = bootstrap_mean([0.25, 0.5])
    assert mean == {"skill": "recall", "kind": "mean", "value": 0.375, "low": low, "high": high}


def test_one_seed_has_no_interval_and_none_has_no_rows():
    assert summary_rows([5], [0.1])[1:] == [{"kind": "mean", "value": 0.1, "low": None, "high": None}]
    assert summary_rows([5, 6], [None, None]) == []


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("short", ["short"]),
        ("aaa bbb ccc ddd", ["aaa bbb", "ccc ddd"]),  # and not "aaa bbb ccc", "ddd"
        ("aaaaaaaaaaaaaaaaa b", ["aaaaaaaaaaaaaaaaa", "b"]),  # a word stays whole
    ],
)
def test_labels_are_cut_evenly(label, lines):
    assert in_lines(label, 11) == "|".join(lines)


def test_thinned_from_the_end():
    curve = ([2, 3, 5, 7, 11], [0.2, 0.3, 0.5, 0.7, 1.1])
    assert thinned(curve, 1) == curve
    assert thinned(curve, 2) == ([2, 5, 11], [0.2, 0.5, 1.1])
    assert thinned(curve, 3) == ([3, 11], [0.3, 1.1])
    assert thinned(([], []), 2) == ([], [])


def test_averaged_losses_stay_means_over_what_was_trained():
    """Against the loss of each single sample."""
    samples, values = [2.0, 3.0, 5.0, 10.0, 17.0], [7.0, 5.0, 3.0, 2.0, 1.0]
    single = [7.0] * 2 + [5.0] + [3.0] * 2 + [2.0] * 5 + [1.0] * 7
    assert averaged((samples, values), 1) == (samples, values)
    for every, kept in ((2, [2, 5, 17]), (3, [3, 17])):
        found_samples, found_values = averaged((samples, values), every)
        assert found_samples == kept
        starts = [0, *kept[:-1]]
        expected = [sum(single[a:b]) / (b - a) for a, b in zip(starts, kept, strict=True)]
        assert found_values == pytest.approx(expected)
    assert averaged(([], []), 2) == ([], [])
