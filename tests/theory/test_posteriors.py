"""Floors against counting over every mapping."""

import itertools
import math

import pytest

from hopscope import theory
from hopscope.errors import UserError


def posterior(xs, ys, x, mappings, values):
    fitting = [each for each in mappings if all(each[i - 1] == y for i, y in zip(xs, ys, strict=True))]
    return [sum(each[x - 1] == value for each in fitting) / len(fitting) for value in range(1, values + 1)]


def mean_loss(mappings, predict, values, repeats):
    losses = [
        -math.log(predict(xs[:at], [mapping[x - 1] for x in xs[:at]], xs[at])[mapping[xs[at] - 1] - 1])
        for mapping in mappings
        for order in itertools.permutations(range(1, values + 1))
        for xs in [(*order[:-1], last) for last in (order[:-1] if repeats else order[-1:])]
        for at in range(values)
    ]
    return sum(losses) / len(losses)


def test_floors_are_the_losses_of_their_observers():
    values, ratio = 4, 0.3
    every = list(itertools.permutations(range(1, values + 1)))
    some = every[::3]

    def known(mappings):
        return lambda xs, ys, x: posterior(xs, ys, x, mappings, values)

    def blind(xs, ys, x):
        if len(xs) < values - 1:
            return known(every)(xs, ys, x)
        return [ratio / (values - 1) if y in ys else 1 - ratio for y in range(1, values + 1)]

    def unbound(xs, ys, x):
        return [(y in ys) / len(ys) for y in range(1, values + 1)] if x in xs else known(every)(xs, ys, x)

    def both(predict):
        plain, repeats = (mean_loss(every, predict, values, each) for each in (False, True))
        return (1 - ratio) * plain + ratio * repeats

    assert both(known(every)) == pytest.approx(theory.elimination_floor(values))
    assert both(blind) == pytest.approx(theory.blind_to_repeats_floor(values, ratio))
    assert both(unbound) == pytest.approx(theory.unbound_repeats_floor(values, ratio))
    assert mean_loss(some, known(some), values, False) == pytest.approx(
        theory.training_floor(values, len(some))
    )
    assert theory.blind_to_repeats_floor(5, 0.0) == theory.elimination_floor(5)
    assert theory.elimination_floor(5) == pytest.approx(0.9575, abs=5e-5)  # published, as the next
    assert theory.training_floor(5, 96) == pytest.approx(0.9129, abs=5e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.elimination_floor(0), "values: expected a whole number from 1 to 1024, found 0"),
        (
            lambda: theory.training_floor(3, 7),
            "training_mappings: expected a whole number from 1 to 6, found 7",
        ),
        (lambda: theory.training_floor(3, 0), "found 0"),
        (
            lambda: theory.unbound_repeats_floor(1, 0.3),
            "values: expected a whole number from 2 to 1024, found 1",
        ),
        (lambda: theory.unbound_repeats_floor(5, math.nan), "repeat_ratio: .* from 0 to 1, found nan"),
        (
            lambda: theory.blind_to_repeats_floor(5, 1.5),
            "repeat_ratio: expected a share from 0 to 1, found 1.5",
        ),
    ],
)
def test_what_is_no_number_of_values_or_share_is_one_line(call, words):
    with pytest.raises(UserError, match=words):
        call()
