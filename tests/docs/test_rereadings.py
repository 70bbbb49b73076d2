"""`docs/rereadings.py` compares readings of one model with those of others."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def rereadings():
    spec = importlib.util.spec_from_file_location("rereadings", DOCS / "rereadings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def circuits(*heads):
    return frozenset({frozenset((0, head, "q", "k") for head in heads)})


def test_distances_within_a_model_and_to_the_nearest_other(rereadings):
    own = [circuits(0, 1), circuits(0, 1), circuits(0, 2)]
    others = [[circuits(3)], [circuits(0), circuits(3)], []]
    found = rereadings.compared(own, others)
    assert found["readings"] == 3
    # Two of three pairs share one of three heads; the nearest other's first reading has one of two heads.
    assert found["by_paths"] == {"own": pytest.approx(4 / 9), "nearest_other": pytest.approx(1 / 2)}
    assert found["whole"] == {"own": pytest.approx(2 / 3), "nearest_other": 1.0}


def test_where_nothing_was_read_there_is_no_distance(rereadings):
    assert rereadings.compared([], [[circuits(3)]])["by_paths"] == {"own": None, "nearest_other": None}
    assert rereadings.compared([circuits(1)], [])["whole"] == {"own": None, "nearest_other": None}
    nothing = {"minimal_circuits": []}
    assert rereadings.found_by([nothing, nothing]) == []
