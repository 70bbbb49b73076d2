import time

import pytest

from hopscope.errors import TimeBudgetReached
from hopscope.training.budget import TimeBudget


def test_without_a_budget_nothing_ends():
    budget = TimeBudget()
    assert budget.left == float("inf")
    budget.check(needed=1e9)


def test_counts_down():
    budget = TimeBudget(1000.0, started=time.monotonic() - 900.0)
    assert 0.0 < budget.left <= 100.0
    budget.check()
    with pytest.raises(TimeBudgetReached, match="1000 s reached") as caught:
        budget.check(needed=105.0)
    assert caught.value.exit_status == 75


def test_spent():
    with pytest.raises(TimeBudgetReached):
        TimeBudget(3.0, started=time.monotonic() - 5.0).check()
