"""What is on record under docs/results says the same when it is judged from the evidence table."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
RUNS = {
    "circuits/laptop": find_study("circuits"),
    "circuits/two-steps": find_study("circuits"),
    "emergence/laptop": find_study("emergence"),
    "emergence/two-steps": find_study("emergence"),
    "emergence/seeds": find_study("emergence"),
}


@pytest.fixture(scope="module", params=RUNS)
def committed(request):
    """The study of a run on record, the run, its evidence, and its ledger and words."""
    folder = RESULTS / request.param
    run, study = RunFolder.open(folder), RUNS[request.param]
    config = study.recorded(run)
    evidence = Evidence.of_run(run, study.measurements(run, config))
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
        assert {key: new[key] for key in old if key != "registration"} == {
            key: value for key, value in old.items() if key != "registration"
        }


def test_words_and_values_of_every_seed_are_as_they_were(committed):
    judged, before, told = committed
    if not told:  # words and samples stand in the ledger, which is compared above
        assert all(claim["words"] and claim["samples"] for claim in before)
    for claim in judged if told else ():
        assert claim.words == told[claim.id]["words"]
        samples = claim.samples if isinstance(claim.samples, dict) else {"value": claim.samples}
        assert {name: samples[name] for name in told[claim.id]["per_seed"]} == told[claim.id]["per_seed"]


TABLES = {
    "circuits/two-steps": ["circuits found", "first useful head"],
    "emergence/two-steps": ["circuits found", "first useful head", "clamped"],
}
"""Tables of the pages, by a column that no other has."""


def table(folder, column):
    """Cells of a table of a run's page, written without thousands separators."""
    story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
    blocks = (block for section in story["sections"] for block in section["blocks"])
    (found,) = (block for block in blocks if block["kind"] == "table" and column in block["columns"])
    numbers = {name: number["text"] for name, number in story["numbers"].items()}
    cells = [
        [re.sub(r"\{(n\d+)\}", lambda key: numbers[key[1]], cell) for cell in row] for row in found["rows"]
    ]
    return [[re.sub(r"(?<=\d),(?=\d{3})", "", cell) for cell in row] for row in cells]


def rows(folder, name):
    with (folder / "figures" / f"{name}.csv").open(encoding="utf-8") as file:
        return sorted(csv.DictReader(file), key=lambda row: list(row.values()))


@pytest.mark.parametrize("name", TABLES)
def test_its_page_and_figures_are_the_same_when_they_are_made_anew(name, tmp_path):
    folder, study = RESULTS / name, RUNS[name]
    shutil.copytree(folder, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    config = study.recorded(run)
    evidence = Evidence.of_run(run, study.measurements(run, config))
    study.present(run, config, evidence, Ledger([judge(claim, evidence) for claim in study.claims(config)]))
    for column in TABLES[name]:
        assert table(run.path, column) == table(folder, column)
    for figure in study.figures(config):
        if figure.series is None:
            assert rows(run.path, figure.name) == rows(folder, figure.name), figure.name
