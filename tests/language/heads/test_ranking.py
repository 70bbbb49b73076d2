"""Which heads are taken out, what they are compared with, and what the costs say about S2."""

from itertools import combinations

import numpy as np
import pytest

from hopscope.claims import Verdict
from hopscope.errors import UserError
from hopscope.language.heads.attention import Scores
from hopscope.language.heads.claim import judge, judged
from hopscope.language.heads.cost import Cost, Estimate, two_way
from hopscope.language.heads.ranking import matched, ranked, sizes


def scores(mean, floor):
    mean = np.array(mean)
    return Scores(mean, mean, mean, floor, 7)


def test_heads_are_ranked_by_what_they_pay_above_a_uniform_one():
    found = {
        "query:previous": scores([[0.99, 0.1, 0.1], [0.1, 0.1, 0.1]], 0.1),
        "answer:hop_1": scores([[0.0, 0.5, 0.0], [0.0, 0.0, 0.7]], 0.0),
        "facts:pair_mate": scores([[0.5, 0.5, 0.5], [0.8, 0.5, 0.5]], 0.5),
    }
    assert ranked(found)[:3] == [(1, 2), (1, 0), (0, 1)]
    assert ranked(found, "query:previous")[0] == (0, 0)
    assert sorted(ranked(found)) == [(layer, head) for layer in range(2) for head in range(3)]
    with pytest.raises(UserError, match="'nose'"):
        ranked(found, "nose")
    # Where the name that is asked for is the last token but one, reading it is reading the token before.
    found["query:again"] = found["query:previous"]
    assert ranked(found)[:3] == [(1, 2), (1, 0), (0, 1)] and ranked(found, "query:again")[0] == (0, 0)


def test_sizes():
    assert sizes(144) == [1, 2, 4, 8]
    assert sizes(32) == [1, 2, 4]
    assert sizes(8) == sizes(2) == [1]
    assert sizes(16, (5, 3, 3)) == [3, 5]
    for wrong in ((0,), (9,)):
        with pytest.raises(UserError, match="top: expected"):
            sizes(16, wrong)


def test_others_are_matched_layer_by_layer():
    top = [(0, 1), (2, 3), (2, 0)]
    sets = matched(top, (3, 7), 11, seed=5)
    assert len(set(sets)) == 11
    for each in sets:
        assert not each & set(top)
        assert sorted(layer for layer, _ in each) == [0, 2, 2]
    assert matched(top, (3, 7), 11, seed=5) == sets != matched(top, (3, 7), 11, seed=6)
    # Each head is drawn about as often: 2 of 5 in layer 2.
    often = matched([(1, 0), (1, 1)], (2, 7), 400, seed=0)
    assert len(often) == 10
    every = {frozenset(pair) for pair in combinations([(1, head) for head in range(2, 7)], 2)}
    assert set(often) == every


def test_draws_are_even():
    top = [(0, head) for head in range(5)]
    sets = matched(top, (1, 23), 997, seed=3)
    counts = np.zeros(23)
    for each in sets:
        for _, head in each:
            counts[head] += 1
    assert not counts[:5].any()
    expected = 997 * 5 / 18
    assert np.abs(counts[5:] - expected).max() < 5 * np.sqrt(expected)


def test_a_full_layer_takes_its_others_from_the_next():
    (only,) = matched([(1, 0), (1, 1), (1, 2)], (3, 3), 1, seed=0)[:1]
    assert len(only) == 3 and {layer for layer, _ in only} == {0}


def test_the_interval_resamples_questions_and_draws():
    generator = np.random.Generator(np.random.Philox(key=1))
    values = (generator.random((7, 61)) < 0.4).astype(float)
    low, high = two_way(values)
    draws, columns = generator.integers(7, size=(4000, 7)), generator.integers(61, size=(4000, 61))
    means = [values[np.ix_(d, c)].mean() for d, c in zip(draws, columns, strict=True)]
    assert (low, high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.01)
    assert two_way(np.ones((3, 5))) == (1.0, 1.0)
    assert two_way(np.ones((3, 1))) is None


def cost(depth=1, k=4, clean=(0.95, 0.9, 0.99), top=(0.5, 0.4, 0.6), random=(0.02, 0.0, 0.05), questions=64):
    def share(value, low, high):
        return Estimate(value, (low, high))

    nothing = Estimate(0.0, (0.0, 0.0))
    return Cost(
        depth, k, ((0, 0),) * k, questions, 0.25, share(*clean), nothing, nothing, 8, share(*top), share(*random),
        (0.0, 0.0, 0.0), nothing,
    )  # fmt: skip


UNABLE, BARELY = (0.3, 0.2, 0.4), (0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("costs", "pretrained", "verdict", "words"),
    [
        ([cost()], True, Verdict.REPRODUCED, "depth 1, 4 heads"),
        ([cost()], False, Verdict.INCONCLUSIVE, "not said to be pretrained"),
        ([cost(questions=63)], True, Verdict.INCONCLUSIVE, "63 of 64 questions"),
        ([cost(top=(0.1, 0.05, 0.2))], True, Verdict.REFUTED, "below the threshold"),
        ([cost(random=(0.2, 0.15, 0.3))], True, Verdict.REFUTED, "above the threshold"),
        ([cost(top=(0.3, 0.25, 0.35))], True, Verdict.INCONCLUSIVE, "across"),
        ([cost(clean=UNABLE)], True, Verdict.NOT_RUN, "does not answer these questions: accuracy 0.30"),
        ([cost(clean=BARELY)], True, Verdict.INCONCLUSIVE, "no 30 points to lose"),
        (
            [cost(1), cost(2), cost(3, clean=BARELY), cost(4, clean=UNABLE)],
            True,
            Verdict.REPRODUCED,
            "depth 2",
        ),
        ([cost(k=2, top=(0.0, 0.0, 0.0)), cost(k=4)], True, Verdict.REPRODUCED, "4 heads"),
    ],
)
def test_what_the_costs_say(costs, pretrained, verdict, words):
    found = judge(costs, pretrained)
    assert found.verdict is verdict
    assert words in found.words


def test_the_record_says_what_holds_here_and_where_it_points():
    reproduced, _ = judged([cost()], pretrained=True)
    assert (reproduced.here.verdict, reproduced.leaning) == (Verdict.REPRODUCED, None)
    small, judgement = judged([cost(questions=7)], pretrained=False)
    assert (small.verdict, small.here.verdict, small.leaning) == (
        Verdict.INCONCLUSIVE, Verdict.REPRODUCED, "agrees",
    )  # fmt: skip
    assert (small.words, small.n_counts, small.unit["cost of random heads"]) == (
        judgement.words, "question", "fraction",
    )  # fmt: skip
    unable, _ = judged([cost(clean=UNABLE)], pretrained=True)
    assert (unable.here, unable.leaning) == (None, None)
