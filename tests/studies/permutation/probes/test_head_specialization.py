"""Words for how skills are spread over heads, and who has which role, by hand."""

import pytest

from hopscope.studies.permutation.probes.head_specialization import assigned, spread


def losses(recall, elimination):
    return {"recall": recall, "elimination": elimination}


@pytest.mark.parametrize(
    ("recall", "elimination", "word"),
    [
        ([0.9, 0.05], [0.1, 0.5], "one each"),
        ([0.0, 0.5], [1.0, 0.1], "one each"),
        ([0.9, 0.2], [0.1, 0.9], "shared"),
        ([0.9, 0.0], [0.2, 0.9], "shared"),
        ([0.9, 0.0], [0.0, 0.3], "shared"),
        ([0.9, 0.1], [0.7, 0.1], "one head does both"),
        ([0.9, 0.2], [0.7, 0.0], "shared"),
        ([0.9, 0.9], [0.7, 0.7], "shared"),
        ([0.49, 0.3], [0.4, 0.49], "neither"),
        ([0.0, 0.0], [0.0, 0.0], "neither"),
        ([0.8, 0.0, 0.0], [0.0, 0.8, 0.0], "one each"),
        ([0.8, 0.6, 0.0], [0.0, 0.0, 0.6], "one each"),
        ([0.8], [0.9], "one head does both"),
        ([0.8], [0.3], "shared"),
        ([0.2], [0.3], "neither"),
        ([-0.2, 0.6], [0.7, -0.1], "one each"),
    ],
)
def test_words_for_losses(recall, elimination, word):
    clean = {"recall": [1.0], "elimination": [0.5]}
    assert spread(clean, losses([recall], [elimination])) == [word]


def test_a_skill_that_is_not_there_is_said_to_be_missing():
    lost = losses([[0.4, 0.0]] * 3, [[0.0, 0.9]] * 3)
    clean = {"recall": [0.49, 0.9, 0.5], "elimination": [1.0, 0.3, 1.0]}
    assert spread(clean, lost) == ["a skill is missing", "a skill is missing", "shared"]


def test_assignments_by_hand():
    found = assigned(losses([[0.1, 0.9, 0.3], [0.6, 0.7, 0.0]], [[0.8, 0.2, 0.0], [0.05, 0.0, 0.45]]))
    # The second member's heads 0 and 1 would do equally well beside head 2, whose loss costs too little.
    assert (found["recall_head"], found["elimination_head"]) == ([1, 0], [0, 2])
    assert found["recall_lost_with_recall_head"] == pytest.approx([0.9, 0.6])
    assert found["elimination_lost_with_recall_head"] == pytest.approx([0.2, 0.05])
    assert found["recall_lost_with_elimination_head"] == pytest.approx([0.1, 0.0])
    assert found["elimination_lost_with_elimination_head"] == pytest.approx([0.8, 0.45])
    assert found["margin"] == pytest.approx([-0.1, -0.05])
