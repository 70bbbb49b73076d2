"""Predictors of the time of learning: the small model against its equation, and fits against grids."""

import math

import numpy as np
import pytest

from hopscope.studies.reduced.surrogate import (
    PREDICTORS,
    SHUFFLED,
    SURROGATE,
    Run,
    Surrogate,
    between,
    emergence,
    fitted,
    mean_time,
    median_interval,
    power_law,
    shuffled,
)

SIZES = (4.0, 16.0, 64.0, 256.0)


def runs(time, seeds=3, end=10_000.0):
    return [Run(size, time(size) * (1 + 0.1 * (seed - 1)), end) for size in SIZES for seed in range(seeds)]


@pytest.mark.parametrize(("noise", "batch"), [(37.0, 4.0), (37.0, 128.0), (0.0, 8.0)])
def test_the_time_is_that_of_the_equation(noise, batch):
    """Integrated step by step from its start to where the loss falls."""
    from scipy.integrate import solve_ivp

    rate, start, end = 0.1, 0.01, 0.5

    def reached(time, m):
        return m[0] - end

    reached.terminal = True
    slowed = 1 + noise / batch
    found = solve_ivp(lambda t, m: rate * m * (1 - m) / slowed, (0, 1e5), [start], events=reached, rtol=1e-9)
    fastest = (math.log(end / (1 - end)) - math.log(start / (1 - start))) / rate
    assert found.t_events[0][0] == pytest.approx(emergence(fastest, noise, batch), rel=1e-4)


def test_the_fit_finds_the_constants():
    found = fitted(runs(lambda size: emergence(40.0, 37.0, size)))
    assert found.noise == pytest.approx(37.0, rel=0.01)
    assert found.at(16.0) == pytest.approx(emergence(40.0, 37.0, 16.0), rel=0.02)


def test_no_pair_of_constants_of_a_grid_is_better():
    given = [
        Run(4.0, 900.0, 2500.0),
        Run(4.0, math.inf, 2500.0),
        Run(16.0, 150.0, 700.0),
        Run(256.0, 50.0, 140.0),
    ]

    def left(model):
        return sum((run.logarithm - math.log(model.at(run.batch))) ** 2 for run in given)

    best = left(fitted(given))
    grid = [Surrogate(t, b) for t in np.geomspace(1, 1000, 151) for b in np.geomspace(0.01, 1e5, 151)]
    assert best <= min(map(left, grid)) + 1e-9


def test_a_run_that_never_learned_counts_with_its_last_step():
    assert mean_time([Run(4.0, math.inf, 100.0), Run(8.0, 400.0, 900.0)])(5.0) == pytest.approx(200.0)


def test_power_laws():
    given = runs(lambda size: 1000 * size**-0.5)
    assert power_law(given, None)(25.0) == pytest.approx(200.0, rel=0.02)
    fixed = power_law(given)
    assert fixed(10.0) / fixed(20.0) == pytest.approx(2.0)
    logs = [math.log(run.time * run.batch) for run in given]
    assert fixed(1.0) == pytest.approx(math.exp(sum(logs) / len(logs)))


def test_lines_between_sizes():
    found = between([Run(4.0, 100.0, 1e4), Run(16.0, 400.0, 1e4), Run(4.0, 100.0, 1e4)])
    assert [found(size) for size in (1.0, 4.0, 8.0, 16.0, 64.0)] == pytest.approx([100, 100, 200, 400, 400])


def test_sizes_are_exchanged_and_times_are_not():
    given = runs(lambda size: size)
    other = shuffled(given)
    assert [run.time for run in other] == [run.time for run in given]
    assert {(a.batch, b.batch) for a, b in zip(given, other, strict=True)} == {
        (4.0, 64.0), (16.0, 256.0), (64.0, 4.0), (256.0, 16.0)}  # fmt: skip


def test_shuffled_sizes_predict_nothing():
    given = runs(lambda size: emergence(40.0, 37.0, size))
    at = {name: PREDICTORS[name][1](given)(8.0) for name in (SURROGATE, SHUFFLED)}
    true = emergence(40.0, 37.0, 8.0)
    assert abs(at[SURROGATE] - true) < 0.05 * true < 0.25 * true < abs(at[SHUFFLED] - true)


def test_the_interval_of_a_median():
    values = [0.1, 0.1, 0.2, 0.2, 0.9, 0.9]
    low, high = median_interval(values, [0, 0, 1, 1, 2, 2])
    assert (low, high) == (0.1, 0.9)
    assert median_interval([0.3] * 5, [0, 1, 2, 3, 5]) == (0.3, 0.3)
