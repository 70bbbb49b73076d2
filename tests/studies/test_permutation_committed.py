"""The committed results of the permutation study, judged anew from their evidence table."""

from pathlib import Path

import pytest

from hopscope.claims import judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.config import PermutationStudyConfig

PAPER = Path(__file__).parents[2] / "docs" / "results" / "permutation" / "paper"
KEYS = ("id", "statement", "source", "protocol", "threshold", "value", "interval", "n", "verdict", "trust")


@pytest.fixture(scope="module")
def run():
    return RunFolder(PAPER)


@pytest.fixture(scope="module")
def judged(run):
    config = PermutationStudyConfig.model_validate(run.config)
    evidence = Evidence.read(run)
    return [judge(claim, evidence).to_json() for claim in claims(config)]


def test_every_claim_comes_out_as_it_was_committed(run, judged):
    """To the last digit: the numbers are the same, only their way is another."""
    committed = run.read_json("claims.json")
    assert [claim["id"] for claim in judged] == [claim["id"] for claim in committed]
    for found, expected in zip(judged, committed, strict=True):
        assert {key: found[key] for key in KEYS} == {key: expected[key] for key in KEYS}


def test_values_seed_by_seed_are_the_committed_ones(run, judged):
    told = run.read_json("story.json")["claims"]
    for claim in judged:
        samples = claim["samples"] if isinstance(claim["samples"], dict) else {"value": claim["samples"]}
        assert samples == told[claim["id"]]["per_seed"], claim["id"]


def test_readings_are_the_batch_sizes(judged):
    for claim in judged:
        names = ["batch 256", "batch 128"]
        if claim["id"] == "P5":
            names = [f"{batch}, rise from {level}" for batch in names for level in ("zero", "chance")]
        assert list(claim["readings"]) == names, claim["id"]


def test_the_second_reading_of_the_loss_is_that_of_whole_epochs(judged):
    """As the log of protocol changes says: an epoch at batch 128 has twice the steps of one at 256."""
    (p4,) = (claim for claim in judged if claim["id"] == "P4")
    first, second = p4["readings"].values()
    assert (
        first["value"]
        == p4["value"]
        == pytest.approx({"d16/1 plain": 0.958399, "d32/2 repeats": 0.957385}, abs=1e-6)
    )
    assert second["value"] == pytest.approx({"d16/1 plain": 0.958436, "d32/2 repeats": 0.956998}, abs=1e-6)
    assert second["interval"]["d16/1 plain"] == pytest.approx([0.958141, 0.958804], abs=1e-6)
    assert second["interval"]["d32/2 repeats"] == pytest.approx([0.956585, 0.957433], abs=1e-6)
    assert {first["verdict"], second["verdict"]} == {"reproduced"}
