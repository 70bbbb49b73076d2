import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.posteriors import mappings_posterior, uniform_posterior

from hopscope.theory import posteriors


def permutations(values):
    return list(itertools.permutations(range(1, values + 1)))


def mean_loss(mappings, predict, values, repeats=False):
    """Cross-entropy of a predictor over every mapping and order (and slot of the repeat), in nats."""
    total, count = 0.0, 0
    for mapping, order in itertools.product(mappings, permutations(values)):
        for last in order[:-1] if repeats else order[-1:]:
            xs = [*order[:-1], last]
            ys = [mapping[x - 1] for x in xs]
            for step in range(values):
                total -= math.log(predict(xs[:step], ys[:step], xs[step])[ys[step] - 1])
                count += 1
    return total / count


def test_published_floors():
    assert posteriors.elimination_floor(5) == pytest.approx(0.9575, abs=5e-5)
    assert posteriors.training_floor(5, 96) == pytest.approx(0.9129, abs=5e-5)
    assert posteriors.training_floor(5, 120) == posteriors.elimination_floor(5)


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("values", [2, 3, 4])
def test_the_uniform_posterior_reaches_the_elimination_floor(values, repeats):
    def predict(xs, ys, x):
        return uniform_posterior(xs, ys, x, values)

    found = mean_loss(permutations(values), predict, values, repeats)
    assert found == pytest.approx(posteriors.elimination_floor(values), abs=1e-12)


@pytest.mark.parametrize(("values", "training"), [(3, 5), (4, 19)])
def test_the_posterior_under_training_mappings_reaches_the_training_floor(values, training):
    mappings = random.Random(2).sample(permutations(values), training)

    def predict(xs, ys, x):
        return mappings_posterior(xs, ys, x, mappings, values)

    found = mean_loss(mappings, predict, values)
    assert found == pytest.approx(posteriors.training_floor(values, training), abs=1e-12)
    assert found < posteriors.elimination_floor(values)


def test_an_observer_blind_to_repeats_reaches_its_floor_and_no_other_guess_does_better():
    values, ratio = 4, 0.3

    def predictor(unused_mass):
        def predict(xs, ys, x):
            if len(xs) < values - 1:
                return uniform_posterior(xs, ys, x, values)
            return [
                (1 - unused_mass) / (values - 1) if y in ys else unused_mass for y in range(1, values + 1)
            ]

        return predict

    def loss(unused_mass):
        plain = mean_loss(permutations(values), predictor(unused_mass), values)
        repeated = mean_loss(permutations(values), predictor(unused_mass), values, repeats=True)
        return (1 - ratio) * plain + ratio * repeated

    floor = posteriors.blind_to_repeats_floor(values, ratio)
    assert loss(1 - ratio) == pytest.approx(floor, abs=1e-12)
    assert min(loss(1 - ratio - 0.05), loss(1 - ratio + 0.05)) > floor
    assert posteriors.blind_to_repeats_floor(5, 0.0) == posteriors.elimination_floor(5)
    assert posteriors.blind_to_repeats_floor(5, 1.0) == pytest.approx(
        posteriors.elimination_floor(5) + math.log(4) / 5
    )


def test_an_observer_that_notices_repeats_but_binds_nothing_reaches_its_floor():
    values, ratio = 4, 0.3

    def predict(xs, ys, x):
        if x in xs:
            return [1 / (values - 1) if y in ys else 0.0 for y in range(1, values + 1)]
        return uniform_posterior(xs, ys, x, values)

    plain = mean_loss(permutations(values), predict, values)
    repeated = mean_loss(permutations(values), predict, values, repeats=True)
    floor = posteriors.unbound_repeats_floor(values, ratio)
    assert (1 - ratio) * plain + ratio * repeated == pytest.approx(floor, abs=1e-12)
    below, above = posteriors.elimination_floor(values), posteriors.blind_to_repeats_floor(values, ratio)
    assert below < floor < above
    assert posteriors.unbound_repeats_floor(5, 0.0) == posteriors.elimination_floor(5)


def test_uniform_posterior_by_hand():
    assert uniform_posterior([], [], 3, 5) == [0.2] * 5
    assert uniform_posterior([2, 1], [3, 5], 4, 5) == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3, 0])
    assert uniform_posterior([2, 1], [3, 5], 2, 5) == [0, 0, 1, 0, 0]
    assert uniform_posterior([2, 1, 2], [3, 5, 3], 1, 5) == [0, 0, 0, 0, 1]


def test_mappings_posterior_by_hand():
    mappings = [(1, 2, 3), (1, 3, 2), (2, 1, 3)]
    assert mappings_posterior([], [], 1, mappings, 3) == pytest.approx([2 / 3, 1 / 3, 0])
    assert mappings_posterior([1], [1], 2, mappings, 3) == [0, 0.5, 0.5]
    assert mappings_posterior([2], [1], 3, mappings, 3) == [0, 0, 1]
    assert mappings_posterior([1], [3], 2, mappings, 3) is None


@given(st.permutations(range(1, 5)), st.permutations(range(1, 5)), st.integers(0, 4), st.integers(1, 4))
def test_all_mappings_together_are_the_uniform_prior(mapping, order, shown, query):
    xs, ys = order[:shown], [mapping[x - 1] for x in order[:shown]]
    uniform = uniform_posterior(xs, ys, query, 4)
    assert sum(uniform) == pytest.approx(1)
    assert mappings_posterior(xs, ys, query, permutations(4), 4) == pytest.approx(uniform)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: posteriors.elimination_floor(0), r"values out of range.*found 0"),
        (lambda: posteriors.training_floor(3, 7), r"expected 1 to 3! = 6, found 7"),
        (lambda: posteriors.training_floor(3, 0), r"found 0"),
        (lambda: posteriors.blind_to_repeats_floor(1, 0.3), r"expected at least 2, found 1"),
        (lambda: posteriors.unbound_repeats_floor(1, 0.3), r"expected at least 2, found 1"),
        (lambda: posteriors.unbound_repeats_floor(5, -0.1), r"repeat_ratio out of range.*found -0.1"),
        (lambda: posteriors.blind_to_repeats_floor(5, 1.1), r"repeat_ratio out of range.*found 1.1"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
