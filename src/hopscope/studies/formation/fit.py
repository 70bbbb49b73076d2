"""Power laws of times that are known to lie between two evaluations, or beyond the end: a censored fit."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

LEAST_SPREAD = 0.05
"""Least standard deviation of log times: evaluations are no closer to each other, so less cannot be told."""

NOT_KNOWN = (math.nan, math.nan)


class Seen(NamedTuple):
    """When one model of a cell formed its head.

    Attributes:
        context: tokens of a sample.
        batch: samples of a step.
        after: last evaluation at which it had not formed, in steps.
        by: first evaluation at which it had; infinite where it never did.
    """

    context: int
    batch: int
    after: float
    by: float


def exponents(cells: Sequence[Seen]) -> tuple[float, float]:
    """Exponents (a, b) of steps ∝ context^a · batch^b, by maximum likelihood.

    Logarithms of times are normal around a plane over log context and log batch (an accelerated failure time model).
    A model that formed between two evaluations adds the probability of that interval; one that never formed adds the
    probability of any later time, so that it is neither left out nor counted as formed at the end.

    Returns:
        NaN for both where they cannot be known: a time is missing, or the cells that formed do not have two contexts
        and two batches with at least four cells.
    """
    import numpy as np
    from scipy.optimize import minimize

    formed = [cell for cell in cells if math.isfinite(cell.by)]
    missing = any(math.isnan(cell.by) or math.isnan(cell.after) for cell in cells)
    varied = min(len({cell.context for cell in formed}), len({cell.batch for cell in formed})) >= 2
    if missing or not varied or len(formed) < 4:
        return NOT_KNOWN
    plane = np.array([[1.0, math.log(cell.context), math.log(cell.batch)] for cell in cells])
    with np.errstate(divide="ignore"):
        low, high = (np.log([getattr(cell, name) for cell in cells]) for name in ("after", "by"))
    middle = np.where(np.isfinite(high), high, low)
    start, *_ = np.linalg.lstsq(plane, middle, rcond=None)
    spread = max(float(np.std(middle - plane @ start)), 2 * LEAST_SPREAD)
    found = minimize(
        _surprise, [*start, math.log(spread)], args=(plane, low, high), method="L-BFGS-B",
        bounds=[(None, None)] * 3 + [(math.log(LEAST_SPREAD), math.log(10.0))],
    )  # fmt: skip
    return float(found.x[1]), float(found.x[2])


def _surprise(
    parameters: "np.ndarray[Any, Any]", plane: Any, low: "np.ndarray[Any, Any]", high: "np.ndarray[Any, Any]"
) -> float:
    """Negative log likelihood of log times between `low` and `high`."""
    import numpy as np
    from scipy.special import log_ndtr

    middle, spread = plane @ parameters[:3], math.exp(parameters[3])
    first, last = (low - middle) / spread, (high - middle) / spread
    # Of two tails, the difference of the smaller ones keeps its digits.
    swap = first > 0
    smaller, larger = np.where(swap, -last, first), np.where(swap, -first, last)
    top, bottom = log_ndtr(larger), log_ndtr(smaller)
    return float(-(top + np.log1p(-np.exp(np.minimum(bottom - top, -1e-12)))).sum())
