"""Memory of a worker does not grow with the steps that it takes."""

from pathlib import Path

import pytest

import hopscope as hs

pytestmark = pytest.mark.extras

STUDY = f"{Path(__file__).with_name('memory_study.py')}"
ALLOWED = 12.0
"""MiB that a worker may grow by between a quarter of its steps and their end."""


def growth(here, out, *fields):
    """MiB by which the worker grew after the first quarter of training, and after how many steps that was told."""
    ended = here("run", STUDY, "--out", out, "--threads", 1, "--device", "cpu", *fields)
    assert ended.status == 0, ended.stderr
    told = hs.open_run(ended.last_line).evidence.curve("resident")[0]
    later = told[told.index >= told.index.max() / 4]
    assert len(told) > 20 and later.min() > 50
    return later.iloc[-3:].mean() - later.iloc[:3].mean(), int(told.index.max())


@pytest.mark.parametrize("steps", [600, pytest.param(10_000, marks=pytest.mark.soak)])
def test_memory_is_flat(here, tmp_path, steps):
    grown, taken = growth(here, tmp_path, "--training.steps", steps, "--training.evaluate-every", steps // 40)
    assert taken == steps
    assert grown < ALLOWED


def test_a_leak_would_be_seen(here, tmp_path):
    grown, _ = growth(
        here, tmp_path, "--training.steps", 120, "--training.evaluate-every", 3, "--task.leak", 3
    )
    assert grown > 4 * ALLOWED
