"""Shares of a number's variance by two crossed factors, such as initial weights and order of the data.

Every level of one factor is combined once with every level of the other.  The sum of squares of the table about its
mean is split, without rest, into that of its row means, that of its column means, and what neither explains: the
interaction of both and chance (two-way analysis of variance without replication; Fisher 1925).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Shares:
    """Shares of the sum of squares; they add up to 1.

    Attributes:
        rows, columns, rest: of the row means, of the column means, and of what is left.
        rows_by_chance, columns_by_chance: what they are on average if the table is shuffled.
        rows_p, columns_p: share of shuffled tables whose share is at least as large: small where the factor matters.
    """

    rows: float
    columns: float
    rest: float
    rows_by_chance: float
    columns_by_chance: float
    rows_p: float
    columns_p: float


def variance_shares(table: Sequence[Sequence[float]], *, shuffles: int = 10_000) -> Shares | None:
    """Split the variance of a crossed table.

    Args:
        table: one number for each row and column.
        shuffles: tables that chance is measured with.

    Returns:
        None if all numbers are equal: there is no variance to split.

    Raises:
        ValueError: fewer than two rows or columns, rows of different lengths, or a number that is not finite.
    """
    if len(table) < 2 or len({len(row) for row in table}) != 1 or len(table[0]) < 2:
        raise ValueError(
            f"a crossed table: expected at least 2 rows of the same length, 2 or more, "
            f"found lengths {[len(row) for row in table]}"
        )
    values = np.asarray(table, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a crossed table must be finite: expected numbers, found NaN or infinity")
    if np.ptp(values) == 0.0:
        return None
    generator = np.random.Generator(np.random.Philox(key=0))
    flat = np.broadcast_to(values.ravel(), (shuffles, values.size))
    shuffled = generator.permuted(flat, axis=1).reshape(shuffles, *values.shape)
    rows, columns = (float(share[0]) for share in _shares(values[None]))
    by_chance = _shares(shuffled)
    # The table itself is one of its orders, so that no p is ever zero; equal shares must not differ by rounding.
    p = [
        float((1 + np.count_nonzero(chance >= share - 1e-9)) / (1 + shuffles))
        for share, chance in zip((rows, columns), by_chance, strict=True)
    ]
    means = [float(chance.mean()) for chance in by_chance]
    return Shares(rows, columns, max(0.0, 1.0 - rows - columns), means[0], means[1], p[0], p[1])


def _shares(tables: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of rows and of columns, for each table `[table, row, column]`."""
    centred = tables - tables.mean((1, 2), keepdims=True)
    total = (centred**2).sum((1, 2))
    rows = (centred.mean(2) ** 2).sum(1) * tables.shape[2]
    columns = (centred.mean(1) ** 2).sum(1) * tables.shape[1]
    return rows / total, columns / total
