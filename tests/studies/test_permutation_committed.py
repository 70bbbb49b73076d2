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


SPLIT = {"P6": "reproduced", "P7": "refuted"}
"""Claims that one split of the mappings decided, where ten are needed (docs/protocol_log.md): verdict of that day."""

SINCE = ("P9b", "P12")
"""Claims that were added after the run was judged."""

OPENED = ("P3", "P8", "P11")
"""Claims that the rule of that day refuted without the readings that the run lacks (docs/protocol_log.md)."""


def test_every_claim_comes_out_as_it_was_committed(run, judged):
    """To the last digit: the numbers are the same, only their way is another."""
    committed = {claim["id"]: claim for claim in run.read_json("claims.json")}
    assert [claim["id"] for claim in judged if claim["id"] not in SINCE] == [*committed]
    for found in judged:
        if found["id"] not in SINCE:
            changed = (
                ("verdict", "protocol")
                if found["id"] in OPENED
                else ("verdict",)
                if found["id"] in SPLIT
                else ()
            )
            keys = [key for key in KEYS if key not in changed]
            assert {key: found[key] for key in keys} == {key: committed[found["id"]][key] for key in keys}


def test_both_verdicts_of_a_rule_that_was_changed(run, judged):
    committed = {claim["id"]: claim["verdict"] for claim in run.read_json("claims.json")}
    now = {claim["id"]: claim for claim in judged}
    for name in OPENED:
        assert (committed[name], now[name]["verdict"]) == ("refuted", "inconclusive")
        assert now[name]["here"]["verdict"] == "refuted"
    assert all("not tried" in now[name]["words"] for name in ("P3", "P8"))
    for name, verdict in SPLIT.items():
        assert (committed[name], now[name]["verdict"]) == (verdict, "inconclusive")
        assert now[name]["here"]["verdict"] == verdict
        own = now[name]["readings"]["batch 256"]
        assert own["verdict"] == "inconclusive" and "1 of 10 splits of the mappings" in own["words"]
    assert [now[name]["verdict"] for name in SINCE] == ["refuted", "inconclusive"]


def test_values_seed_by_seed_are_the_committed_ones(run, judged):
    told = run.read_json("story.json")["claims"]
    for claim in (claim for claim in judged if claim["id"] not in SINCE):
        samples = claim["samples"] if isinstance(claim["samples"], dict) else {"value": claim["samples"]}
        assert samples == told[claim["id"]]["per_seed"], claim["id"]


def test_readings_are_the_batch_sizes(judged):
    for claim in judged:
        if claim["id"] in ("P1", "P2", "P4", "P6", "P7", "P9", "P9b", "P10a", "P10b"):
            assert list(claim["readings"]) == ["batch 256", "batch 128"], claim["id"]
        if claim["id"] == "P5":
            names = [
                f"{batch}, rise from {level}"
                for batch in ("batch 256", "batch 128")
                for level in ("zero", "chance")
            ]
            assert list(claim["readings"]) == names


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
