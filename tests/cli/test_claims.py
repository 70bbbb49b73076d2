"""`hopscope claims` prints from claims.json alone; stories are read for the words of older runs only."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from hopscope.claims import Claim, Ledger, at_least, at_most, judge
from hopscope.claims.registration import register

OLD = Path(__file__).parents[2] / "docs" / "results" / "permutation" / "paper"


class Members:
    """Four seeds."""

    members = (0, 1, 2, 3)
    seeds = {0: 5, 1: 7, 2: 11, 3: 13}


def value(evidence):
    return pd.Series([0.9991, 1.0, 1.0, 1.0])


def ledger():
    texts = {"source": "this file", "protocol": "p"}
    share = Claim(id="C1", statement="It copies.", value=value, must=at_least(0.999, "fraction"), **texts)
    parts = {"accuracy": at_least(0.999, "fraction"), "time": at_most(1000, "steps")}
    both = Claim(
        id="C3",
        statement="Soon.",
        value=lambda e: {"accuracy": value(e), "time": value(e)},
        must=parts,
        **texts,
    )
    other = Claim(id="C1", statement="", value=len, must=at_least(1), **texts)
    return Ledger([judge(share, Members(), register([other])), judge(both, Members())])


def copied(root, *names):
    """Some files of a committed run."""
    run = root / "run"
    run.mkdir()
    for name in names:
        shutil.copy(OLD / name, run / name)
    return run


@pytest.fixture
def run_folder(tmp_path):
    """A run without a story."""
    run = copied(tmp_path, "config.json", "members.json")
    (run / "claims.json").write_text(json.dumps(ledger().to_json()), encoding="utf-8")
    return run


def test_the_ledger_needs_no_story(hopscope, run_folder):
    said = hopscope("claims", run_folder, "--long")
    assert (said.status, said.err) == (0, "")
    text = " ".join(said.out.replace("│", " ").split())
    for part in (
        "≥ 99.9 %",
        "accuracy ≥ 99.9 %",
        "time ≤ 1,000 steps",
        "99.98 % [99.93, 100]",
        "inconclusive",
    ):
        assert part in text
    for word in ("agree;", "needs 10", "changed after", "never judged"):
        assert word in text


def test_equal_criteria_look_alike(hopscope, run_folder):
    said = hopscope("claims", run_folder, "--long")
    assert said.out.count("≥ 99.9 %") == 2
    assert said.out.count("99.98 % [99.93, 100]") == 2


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("long", [[], ["--long"]])
def test_the_ledger_fits_the_terminal_and_ends_with_its_counts(
    hopscope, run_folder, monkeypatch, columns, long
):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = hopscope("claims", run_folder, *long)
    heading, *lines = said.out.splitlines()
    assert heading == f"permutation {run_folder}"
    assert all(len(line) <= columns for line in lines)
    assert lines[-1] == "2 agree so far"
    text = " ".join(said.out.split())
    assert "It copies." in text and "agrees so far" in text
    assert ("threshold" in text and "[99.93, 100]" in text) == bool(long)
    assert hopscope("claims", run_folder, "--long").out.splitlines()[-1] == "2 agree so far"


def test_json_is_the_record(hopscope, run_folder):
    said = hopscope("claims", run_folder, "--json")
    assert json.loads(said.out) == json.loads((run_folder / "claims.json").read_text(encoding="utf-8"))


def test_an_older_run_has_the_words_of_its_story(hopscope, tmp_path):
    run = copied(tmp_path, "config.json", "members.json", "claims.json")
    assert "0.999" in hopscope("claims", run, "--long").out  # plain numbers: the record has no units
    assert "10 seeds meet it" not in hopscope("claims", run, "--long").out
    shutil.copy(OLD / "story.json", run / "story.json")
    assert "10 seeds meet it" in hopscope("claims", run, "--long").out
    (run / "story.json").write_text('{"claims": [1]}', encoding="utf-8")
    assert hopscope("claims", run).status == 0
