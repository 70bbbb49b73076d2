"""The censored fit of power laws: on times whose exponents are known, and where nothing can be known."""

import math

import numpy as np
import pytest

from hopscope.studies.formation.fit import Seen, exponents

CONTEXTS, BATCHES = (8, 16, 32), (32, 64, 128)


def observed(time, context, batch, every, end):
    by = math.ceil(time / every) * every
    return Seen(context, batch, by - every, by) if by <= end else Seen(context, batch, end, math.inf)


def cells(context_exponent, batch_exponent, spread, random, every=20.0, end=math.inf):
    found = []
    for context in CONTEXTS:
        for batch in BATCHES:
            middle = 400 * (context / 16) ** context_exponent * (batch / 64) ** batch_exponent
            found.append(observed(middle * math.exp(random.normal(0, spread)), context, batch, every, end))
    return found


@pytest.mark.parametrize("law", [(2.0, -0.5), (-0.5, -0.5), (0.0, 0.0)])
def test_exponents_are_found(law):
    random = np.random.default_rng(3)
    found = np.array([exponents(cells(*law, 0.1, random)) for _ in range(11)]).mean(0)
    assert found == pytest.approx(law, abs=0.12)


def test_censored_times_do_not_bend_the_law():
    """A quarter of the cells end before they form.  Leaving them out, or counting them as the end, gives less."""
    random = np.random.default_rng(5)
    whole, naive = [], []
    for _ in range(17):
        seen = cells(2.0, -0.5, 0.2, random, end=900.0)
        never = sum(math.isinf(cell.by) for cell in seen)
        assert never >= 1
        whole.append(exponents(seen)[0])
        naive.append(
            exponents([cell if math.isfinite(cell.by) else Seen(*cell[:2], 880.0, 900.0) for cell in seen])[0]
        )
    assert np.mean(whole) == pytest.approx(2.0, abs=0.2)
    assert np.mean(naive) < 1.8


def test_exact_times_give_the_exact_law():
    assert exponents(cells(1.0, -1.0, 0.0, np.random.default_rng(7), every=1.0)) == pytest.approx(
        (1, -1), abs=0.02
    )


@pytest.mark.parametrize(
    "kept",
    [
        lambda cell: cell.context == 8,
        lambda cell: cell.batch == 32,
        lambda cell: cell.context == cell.batch / 4,
        lambda cell: False,
    ],
)
def test_too_few_that_formed_give_no_exponent(kept):
    seen = cells(1.0, 0.0, 0.1, np.random.default_rng(11))
    seen = [cell if kept(cell) else cell._replace(after=900.0, by=math.inf) for cell in seen]
    assert all(math.isnan(each) for each in exponents(seen))


def test_a_time_that_is_missing_gives_no_exponent():
    seen = cells(1.0, 0.0, 0.1, np.random.default_rng(13))
    seen[4] = seen[4]._replace(after=math.nan, by=math.nan)
    assert all(math.isnan(each) for each in exponents(seen))
