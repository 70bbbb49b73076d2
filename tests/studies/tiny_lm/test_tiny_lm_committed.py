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
from hopscope.studies.tiny_lm.config import TinyLmConfig

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "tiny_lm"
STUDY = find_study("tiny-lm")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["laptop", "seeds"])
def committed(request):
    """A run on record, its configuration and its evidence."""
    run = RunFolder.open(RESULTS / request.param)
    config = TinyLmConfig.model_validate(run.config)
    return run, config, Evidence.read(run)


def test_every_key_of_the_ledger_is_as_it_was(committed):
    run, config, evidence = committed
    path = run.path / "registration.json"  # runs of before there were registrations have none
    registered = read(path) if path.is_file() else None
    judged = [judge(claim, evidence, registered) for claim in STUDY.claims(config)]
    before = read(run.path / "claims.json")
    assert [claim.id for claim in judged] == [claim["id"] for claim in before] == ["S6"]
    for claim, old in zip(judged, before, strict=True):
        new = claim.to_json()
        assert {key: new[key] for key in old} == old


def test_values_of_every_seed_and_what_is_missing_are_as_they_were(committed):
    run, config, evidence = committed
    (claim,) = [judge(each, evidence) for each in STUDY.claims(config)]
    (kept,) = read(run.path / "claims.json")
    # Runs of before a claim was one record have its words and values in the story.
    told = read(run.path / "story.json")["claims"].get("S6")
    old = told or {"words": kept["words"], "per_seed": kept["samples"]}
    assert {part: claim.samples[part] for part in old["per_seed"]} == old["per_seed"]
    lack = "below the protocol's scale: 2,000 of 30,000 steps"
    assert lack in old["words"] and lack in claim.words
    for words in ("1 of 1 seed meets it", "2 of 3 seeds meet it", "3 of 3 seeds meet it"):
        assert (words in old["words"]) == (words in claim.words)


def views(story):
    """What the page's player knows of each circuit."""
    blocks = [block for section in story["sections"] for block in section["blocks"]]
    return [each["view"] for block in blocks if block["kind"] == "circuit" for each in block["circuits"]]


def test_circuits_and_their_formation_are_in_the_table(committed):
    """As far as the page shows them: the paths that have a name."""
    run, _, evidence = committed
    shown = views(read(run.path / "story.json"))
    assert shown
    for view in shown:
        number = view["member"]
        assert evidence.last("was_read")[number] == (view["verdict"] == "read")
        for part in ("full", "rules", "recomputed", "complement", "random_circuits"):
            assert evidence.last("circuit_loss", part=part)[number] == view["loss"][part]
        assert evidence.last("paths")[number] >= len(view["paths"]) > 0
        assert evidence.last("heads")[number] >= len({(p["layer"], p["head"]) for p in view["paths"]})
        for path in view["paths"]:
            place = {"layer": path["layer"], "head": path["head"]}
            place["part"] = f"{path['query_role']} → {path['target_role']}"
            # The page shows some of the checkpoints, and rounds.
            curve = evidence.curve("attention", member=number, **place)[number][view["checkpoints"]]
            assert curve.to_list() == pytest.approx(path["attention"], abs=6e-5)
            assert evidence.last("mean_attention", **place)[number] == path["mean_attention"]


def test_when_depths_were_learned_is_what_the_page_says(committed):
    run, config, evidence = committed
    numbers = read(run.path / "story.json")["numbers"].values()
    told = {number["key"]: number["value"] for number in numbers if number["file"] == "metrics.parquet"}
    if not told:  # pages of today name the row of the evidence table
        named = {number["key"]: number["value"] for number in numbers}
        for depth in config.depths:
            times = evidence.last("rose_at", part=f"depth_{depth}").dropna()
            said = [
                value for key, value in named.items() if "rose_at" in key and f"part = depth_{depth}" in key
            ]
            assert sorted(said) == sorted(times)
        return
    found = 0
    for depth in config.depths:
        times = evidence.last("rose_at", part=f"depth_{depth}")
        happened = evidence.last("rose", part=f"depth_{depth}")
        for member in evidence.members:
            key = f"held-out accuracy at depth {depth} of member {member} reaches 0.9, step"
            assert (key in told) == (happened[member] == 1.0)
            if key in told:
                assert times[member] == told[key]
                found += 1
    assert found == len(told) > 0


def csv_rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_figures_show_what_they_showed(tmp_path):
    """Every point and curve of the run's figures when it was committed."""
    run = RunFolder.open(RESULTS / "laptop")
    config = TinyLmConfig.model_validate(run.config)
    copy = RunFolder(tmp_path)
    write_figures(copy, STUDY.figures(config), Evidence.read(run))
    old, new = ([folder / f"{name}.csv" for name in ("accuracy", "curves")]
                for folder in (RESULTS / "laptop" / "figures", copy.path / "figures"))  # fmt: skip
    points = {(row["mixture"], row["depth"], row["accuracy"], row["low"]) for row in csv_rows(old[0])}
    seeds = [row for row in csv_rows(new[0]) if row["kind"] == "seed"]
    assert {(row["name"], row["x"], row["value"], row["low"]) for row in seeds} == points
    curves = {(row["model"], row["depth"], row["step"], row["accuracy"]) for row in csv_rows(old[1])}
    assert {(row["panel"], row["name"], row["at"], row["value"]) for row in csv_rows(new[1])} == curves
