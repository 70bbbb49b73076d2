"""Figures of costs in the user's cache folder: kept, found again, and ignored where they do not hold."""

import pytest

from hopscope.executors import costs
from hopscope.executors.costs import Cost, Costs, costs_file, duration, in_words, works_after_training
from hopscope.studies import find_study

MARKOV, CAPACITY = find_study("markov"), find_study("capacity")
SMOKE, LAPTOP = MARKOV.presets["smoke"], MARKOV.presets["laptop"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_kept_and_found_again(cache):
    assert Costs().of(MARKOV, SMOKE) is None
    kept = Costs().keep(MARKOV, "smoke", SMOKE, 47.0)
    assert costs_file() == cache / "hopscope" / "costs.json"
    assert Costs().of(MARKOV, SMOKE) == kept
    assert (kept.study, kept.preset, kept.seconds) == ("markov", "smoke", 47.0)
    assert Costs().of(MARKOV, LAPTOP) is None  # another configuration has no figure
    Costs().keep(MARKOV, "laptop", LAPTOP, None, "too long")
    assert Costs().of(MARKOV, SMOKE) == kept
    assert Costs().of(MARKOV, LAPTOP).reason == "too long"


@pytest.mark.parametrize(
    "changed", [{"cpu": "another"}, {"cores": 97}, {"torch": "0.1"}, {"hopscope": "97.0"}]
)
def test_another_machine_has_no_figure(changed, monkeypatch):
    Costs().keep(MARKOV, "smoke", SMOKE, 47.0)
    here = costs.this_machine()
    monkeypatch.setattr(costs, "this_machine", lambda: here.model_copy(update=changed))
    assert Costs().of(MARKOV, SMOKE) is None
    Costs().keep(MARKOV, "smoke", SMOKE, 53.0)
    monkeypatch.setattr(costs, "this_machine", lambda: here)
    assert Costs().of(MARKOV, SMOKE).seconds == 47.0  # and neither takes the other's place


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"schema_version": 1}', '{"schema_version": 97, "machines": {}}']
)
def test_a_damaged_file_is_ignored_and_made_anew(text):
    Costs().keep(MARKOV, "smoke", SMOKE, 47.0)
    costs_file().write_text(text, encoding="utf-8")
    found = Costs()
    assert str(costs_file()) in found.damage and len(found.damage.splitlines()) == 1
    assert found.of(MARKOV, SMOKE) is None
    found.keep(MARKOV, "smoke", SMOKE, 53.0)
    assert Costs().damage == "" and Costs().of(MARKOV, SMOKE).seconds == 53.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.3, "5 s"), (47.0, "45 s"), (89.0, "90 s"), (91.0, "2 min"), (8 * 60, "8 min"), (89 * 60, "89 min"),
        (5400.0, "1.5 h"), (3 * 3600 + 100, "3 h"), (40 * 3600, "40 h"), (3 * 86400, "3 days"),
    ],
)  # fmt: skip
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_words():
    cost = Cost(study="s", preset="p", seconds=480.0, date="2026-11-24")
    assert in_words(cost, 2) == "about 8 min on this machine (2 cores), probed 2026-11-24"
    assert in_words(cost.model_copy(update={"training_only": True}), 1) == (
        "about 8 min of training on this machine (1 core), probed 2026-11-24"
    )


def test_who_has_work_after_training():
    assert works_after_training(MARKOV, SMOKE)
    assert not works_after_training(CAPACITY, CAPACITY.presets["smoke"])
