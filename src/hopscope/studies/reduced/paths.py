"""Paths of weights through training: how much of the movement lies in its first directions, and what chance gives.

A path is `[checkpoint, weight]`: the weights at each checkpoint, less those at the start.  Its *directions* are the
right singular vectors of this matrix, which is not centred, because the start is a point that means something.
A random walk has large first directions too (Antognini and Sohl-Dickstein, arXiv 1806.08805), so that every share
stands beside that of a walk whose steps are as long.  There are many more weights than checkpoints: everything is
computed from the products of checkpoints, `[checkpoint, checkpoint]`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_DUST = 1e-12
"""Directions with less than this share of the movement are rounding."""


def products(path: Array) -> Array:
    """Inner products of every two checkpoints of a path, `[checkpoint, checkpoint]`."""
    return path @ path.T


def steps_of(products: Array) -> Array:
    """Inner products of the steps from each checkpoint to the next one, the first from the start.

    Args:
        products: inner products of the checkpoints after the start.
    """
    difference = np.eye(len(products)) - np.eye(len(products), k=-1)
    found: Array = difference @ products @ difference.T
    return found


def walk_products(lengths: Sequence[float] | Array) -> Array:
    """Inner products of the checkpoints of a random walk, in the limit of many weights.

    Steps of a random walk in many dimensions are at right angles to each other, so that two checkpoints share the steps
    up to the earlier one (Antognini and Sohl-Dickstein, section 2).

    Args:
        lengths: of each step.
    """
    travelled = np.cumsum(np.square(lengths))
    return np.minimum.outer(travelled, travelled)


def walk_like(products: Array) -> Array:
    """Those of a random walk whose steps are as long as those of a path."""
    return walk_products(np.sqrt(np.clip(np.diag(steps_of(products)), 0.0, None)))


def shares(products: Array, counts: Sequence[int]) -> list[float]:
    """Share of the summed squares that lies in the first directions, for each number of directions.

    NaN where nothing moves, or something is not finite.
    """
    if not np.isfinite(products).all() or np.trace(products) <= 0.0:
        return [float("nan")] * len(counts)
    sizes = np.clip(np.linalg.eigvalsh(products)[::-1], 0.0, None)
    return [float(sizes[:count].sum() / sizes.sum()) for count in counts]


def directions(path: Array, count: int) -> Array:
    """The first directions of a path `[direction, weight]`: orthonormal, each with the sign of the path's end.

    Fewer than `count` where the path has no more.
    """
    sizes, vectors = np.linalg.eigh(products(path))
    first = [place for place in np.argsort(-sizes)[:count] if sizes[place] > _DUST * sizes.sum()]
    found: Array = (vectors[:, first].T @ path) / np.sqrt(sizes[first])[:, None]
    ends = found @ path[-1]
    return found * np.where(ends < 0.0, -1.0, 1.0)[:, None]


def effective_rank(left: Array, right: Array) -> float:
    """How many directions a product `left @ right` has: (Σ s²)² / Σ s⁴ of its singular values s (participation ratio).

    Args:
        left: `[row, inner]`.
        right: `[inner, column]`; the product itself, which may be large, is never formed.

    Returns:
        1 for one direction, n for n directions of equal size, NaN for a product of zeros.
    """
    inner = _without_rotations(left, right)
    squares = np.square(np.linalg.svd(inner, compute_uv=False))
    return float(squares.sum() ** 2 / np.square(squares).sum()) if squares.sum() > 0.0 else float("nan")


def product_size(left: Array, right: Array) -> float:
    """Frobenius norm of a product, which is never formed; arguments as in `effective_rank`."""
    return float(np.linalg.norm(_without_rotations(left, right)))


def _without_rotations(left: Array, right: Array) -> Array:
    """A small matrix with the singular values of a product."""
    first, second = (np.asarray(np.linalg.qr(side, mode="r")) for side in (left, right.T))
    found: Array = first @ second.T
    return found


def of_rank(change: Array, rank: int) -> Array:
    """The nearest matrices of a rank, of matrices `[..., row, column]` (Eckart and Young 1936)."""
    left, sizes, right = np.linalg.svd(change, full_matrices=False)
    found: Array = (left[..., :rank] * sizes[..., None, :rank]) @ right[..., :rank, :]
    return found
