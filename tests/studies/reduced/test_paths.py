"""Paths of weights: shares, directions and ranks against slow obvious references, and random walks by simulation."""

import numpy as np
import pytest

from hopscope.studies.reduced.paths import (
    directions,
    effective_rank,
    of_rank,
    product_size,
    products,
    shares,
    steps_of,
    walk_like,
    walk_products,
)


def drawn(*shape, seed=0):
    return np.random.Generator(np.random.Philox(key=seed)).standard_normal(shape)


def test_directions_are_eigenvectors_of_the_full_covariance():
    path = drawn(7, 13).cumsum(0)
    sizes, vectors = np.linalg.eigh(path.T @ path)  # [weight, weight], which is never formed otherwise
    found = directions(path, 3)
    for place, own in enumerate(found):
        assert abs(own @ vectors[:, -1 - place]) == pytest.approx(1.0)
        assert own @ path[-1] > 0
    expected = [sizes[::-1][:count].sum() / sizes.sum() for count in (1, 2, 5)]
    assert shares(products(path), (1, 2, 5)) == pytest.approx(expected)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-10)


def test_a_straight_way_has_one_direction():
    path = np.outer(np.arange(1.0, 6.0), drawn(11))
    assert directions(path, 3).shape == (1, 11)
    assert shares(products(path), (1,)) == pytest.approx([1.0])


def test_products_of_steps_are_those_of_a_loop():
    path = drawn(5, 11)
    steps = np.array([path[0], *(path[n] - path[n - 1] for n in range(1, 5))])
    np.testing.assert_allclose(steps_of(products(path)), steps @ steps.T, atol=1e-12)


def test_a_random_walk_in_many_dimensions():
    """By simulation; and its first direction has most of the squares, though the walk has no direction at all."""
    lengths = np.array([3.0, 1.0, 2.0, 1.0, 5.0, 1.0, 1.0])
    steps = drawn(7, 200_003)
    steps *= (lengths / np.linalg.norm(steps, axis=1))[:, None]
    found = products(steps.cumsum(0))
    np.testing.assert_allclose(found, walk_products(lengths), atol=0.3)
    np.testing.assert_allclose(walk_like(found), walk_products(lengths), rtol=1e-9)
    even = shares(walk_products(np.ones(1000)), (1, 2, 3))
    odd = [8 / np.pi**2 / n**2 for n in (1, 3, 5)]  # of Brownian motion: 8 / (π² (2k - 1)²)
    assert even == pytest.approx(np.cumsum(odd), abs=1e-3)


def test_nothing_that_moves_has_no_share():
    assert np.isnan(shares(np.zeros((3, 3)), (1,))).all()
    assert np.isnan(shares(np.full((3, 3), np.nan), (1, 2))).all()


@pytest.mark.parametrize("sizes", [(11, 5, 13), (3, 7, 11)])
def test_rank_and_size_of_a_product_that_is_not_formed(sizes):
    left, right = drawn(*sizes[:2]), drawn(*sizes[1:], seed=1)
    values = np.linalg.svd(left @ right, compute_uv=False) ** 2
    assert effective_rank(left, right) == pytest.approx(values.sum() ** 2 / (values**2).sum())
    assert product_size(left, right) == pytest.approx(np.linalg.norm(left @ right))
    assert effective_rank(left[:, :1], right[:1]) == pytest.approx(1.0)
    assert np.isnan(effective_rank(0 * left, right))


def test_the_nearest_matrices_of_a_rank():
    change = drawn(2, 3, 7, 5)
    for rank in (1, 2, 5):
        cut = of_rank(change, rank)
        for place in np.ndindex(2, 3):
            values = np.linalg.svd(change[place], compute_uv=False)
            assert np.linalg.matrix_rank(cut[place]) == rank
            missing = np.sqrt((values[rank:] ** 2).sum())
            assert np.linalg.norm(change[place] - cut[place]) == pytest.approx(missing, abs=1e-9)
