"""A change of numbers raises the results version, so that runs of before are not continued by other code."""

import copy
import json
from pathlib import Path

import pytest

from hopscope.runs.hashing import RESULTS_VERSION

from .release_scripts import load

ROOT = Path(__file__).parents[2]


golden = load("golden")
KEPT = json.loads((ROOT / "tests" / "release" / "golden.json").read_text("utf-8"))


def test_the_kept_numbers_are_those_of_this_results_version() -> None:
    assert KEPT["results_version"] == RESULTS_VERSION, "python release/golden.py writes them anew"
    assert KEPT["numbers"].keys() == golden.jobs().keys()


def test_names_are_the_same_under_every_python() -> None:
    assert golden.names() == KEPT["names"]


@pytest.mark.parametrize("name", KEPT["numbers"])
def test_a_change_of_numbers_raises_the_results_version(name: str) -> None:
    engine, job = golden.jobs()[name]
    from hopscope.training.engines import ENGINES

    if not ENGINES[engine].installed():
        pytest.skip("numba is optional")
    found = {"names": {}, "numbers": {name: golden.trained(engine, job)}}
    told = golden.differences(KEPT, found)
    assert not told, "\n".join(
        [*told, "numbers have changed: raise RESULTS_VERSION, then python release/golden.py"]
    )


def test_a_changed_number_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = copy.deepcopy(KEPT)
    changed["numbers"]["chains by autograd"]["step 4"][1] *= 1 + 3 * golden.TOLERANCE
    changed["names"]["task"] = "another"
    told = golden.differences(KEPT, changed)
    assert [line.partition(":")[0] for line in told] == ["names, task", "chains by autograd, step 4"]
    assert golden.differences(KEPT, KEPT) == []
    monkeypatch.setattr(golden, "computed", lambda: changed)
    assert golden.main() == 1 and "raise RESULTS_VERSION" in capsys.readouterr().out
