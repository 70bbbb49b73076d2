"""What is on record under docs/results says the same when it is judged from the evidence table."""

import csv
import json
from pathlib import Path

import pytest

from hopscope.claims import judge
from hopscope.figures import write_figures
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
RUNS = {
    "circuits/laptop": find_study("circuits"),
    "emergence/laptop": find_study("emergence"),
    "emergence/two-steps": find_study("emergence"),
    "campaign/transformer-d": find_study("emergence"),
}


@pytest.fixture(scope="module", params=RUNS)
def committed(request):
    """The study of a run on record, the run, its evidence, and its ledger and words."""
    folder = RESULTS / request.param
    run, study = RunFolder.open(folder), RUNS[request.param]
    config = study.recorded(run)
    evidence = Evidence.read(run)
    judged = [judge(claim, evidence) for claim in study.claims(config)]
    read = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("claims", "story")
    }
    return judged, read["claims"], read["story"]["claims"]


def test_every_key_of_the_ledger_is_as_it_was(committed):
    judged, before, _ = committed
    assert [claim.id for claim in judged] == [claim["id"] for claim in before]
    for claim, old in zip(judged, before, strict=True):
        new = claim.to_json()
        # A run has a registration of its own; evidence that is judged by itself has none.
        keys = old.keys() - {"registration"}
        if (
            claim.id == "R12" and not old["readings"]
        ):  # judged before it had a second one (docs/protocol_log.md)
            keys = {"verdict", "value", "interval", "n", "samples", "threshold"}
        assert {key: new[key] for key in keys} == {key: old[key] for key in keys}


def test_words_and_values_of_every_seed_are_as_they_were(committed):
    judged, before, told = committed
    if not told:  # words and samples stand in the ledger, which is compared above
        assert all(claim["words"] and claim["samples"] for claim in before)
    for claim in (each for each in judged if told and each.id in told):
        assert claim.words == told[claim.id]["words"]
        samples = claim.samples if isinstance(claim.samples, dict) else {"value": claim.samples}
        assert {name: samples[name] for name in told[claim.id]["per_seed"]} == told[claim.id]["per_seed"]


def rows(folder, name):
    with (folder / "figures" / f"{name}.csv").open(encoding="utf-8") as file:
        return sorted(csv.DictReader(file), key=lambda row: list(row.values()))


@pytest.mark.parametrize("name", ["circuits/laptop", "emergence/two-steps"])
def test_its_figures_are_the_same_when_they_are_drawn_anew(name, tmp_path):
    folder, study = RESULTS / name, RUNS[name]
    run, copy = RunFolder.open(folder), RunFolder(tmp_path)
    config = study.recorded(run)
    # The gallery is drawn from attention maps, which a committed run does not have.
    figures = [figure for figure in study.figures(config) if figure.name != "gallery"]
    write_figures(copy, figures, Evidence.read(run))
    compared = [figure.name for figure in figures if figure.series is None]
    assert compared
    for figure in compared:
        assert rows(copy.path, figure) == rows(folder, figure), figure
