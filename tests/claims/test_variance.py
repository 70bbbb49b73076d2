import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.claims.variance import variance_shares


def reference(table):
    """The textbook sums of squares, in plain loops."""
    rows, columns = len(table), len(table[0])
    grand = sum(map(sum, table)) / (rows * columns)
    row_means = [sum(row) / columns for row in table]
    column_means = [sum(row[c] for row in table) / rows for c in range(columns)]
    total = sum((value - grand) ** 2 for row in table for value in row)
    of_rows = columns * sum((m - grand) ** 2 for m in row_means)
    of_columns = rows * sum((m - grand) ** 2 for m in column_means)
    rest = sum(
        (table[r][c] - row_means[r] - column_means[c] + grand) ** 2
        for r in range(rows)
        for c in range(columns)
    )
    return of_rows / total, of_columns / total, rest / total


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(-50, 50), min_size=columns, max_size=columns), min_size=2, max_size=5
        )
    )
)
def test_shares_are_those_of_the_textbook(table):
    found = variance_shares(table, shuffles=11)
    if found is None:
        assert len({value for row in table for value in row}) == 1
        return
    assert (found.rows, found.columns, found.rest) == pytest.approx(reference(table), abs=1e-9)
    assert found.rows + found.columns + found.rest == pytest.approx(1.0)


def test_a_table_that_follows_its_rows_is_all_rows():
    found = variance_shares([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0], [9.0, 9.0, 9.0]])
    assert (found.rows, found.columns) == (pytest.approx(1.0), pytest.approx(0.0))
    # 9! / (3!)³ = 1,680 tables, of which 6 have equal rows.
    assert found.rows_p == pytest.approx(6 / 1680, abs=2.5e-3)
    assert found.columns_p == 1.0


def test_chance_gives_factors_their_degrees_of_freedom():
    noise = np.random.Generator(np.random.Philox(key=3)).normal(size=(4, 3))
    found = variance_shares(noise.tolist())
    assert found.rows_by_chance == pytest.approx(3 / 11, abs=0.02)
    assert found.columns_by_chance == pytest.approx(2 / 11, abs=0.02)


def test_equal_numbers_have_no_variance_to_split():
    assert variance_shares([[2.0, 2.0], [2.0, 2.0]]) is None


@pytest.mark.parametrize("table", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [1.0]], []])
def test_what_is_not_crossed_is_refused(table):
    with pytest.raises(ValueError, match="a crossed table"):
        variance_shares(table)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite"):
        variance_shares([[1.0, float("nan")], [1.0, 2.0]])
