"""What is on record under docs/results says the same when it is judged from the evidence table."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from hopscope.claims import Ledger, judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.studies.tiny_lm.members import gather

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results" / "tiny_lm"
STUDY = find_study("tiny-lm")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["laptop", "seeds"])
def committed(request):
    """A run on record, its configuration and its evidence."""
    run = RunFolder.open(RESULTS / request.param)
    config = TinyLmConfig.model_validate(run.config)
    return run, config, Evidence.of_run(run, STUDY.measurements(run, config))


def test_every_key_of_the_ledger_is_as_it_was(committed):
    run, config, evidence = committed
    judged = [judge(claim, evidence) for claim in STUDY.claims(config)]
    before = read(run.path / "claims.json")
    assert [claim.id for claim in judged] == [claim["id"] for claim in before] == ["S6"]
    for claim, old in zip(judged, before, strict=True):
        new = claim.to_json()
        assert {key: new[key] for key in old} == old


def test_values_of_every_seed_and_what_is_missing_are_as_they_were(committed):
    run, config, evidence = committed
    (claim,) = [judge(each, evidence) for each in STUDY.claims(config)]
    old = read(run.path / "story.json")["claims"]["S6"]
    assert {part: claim.samples[part] for part in old["per_seed"]} == old["per_seed"]
    lack = "below the protocol's scale: 2,000 of 30,000 steps"
    assert lack in old["words"] and lack in claim.words
    for words in ("1 of 1 seed meets it", "2 of 3 seeds meet it", "3 of 3 seeds meet it"):
        assert (words in old["words"]) == (words in claim.words)


def test_the_exam_is_in_the_table(committed):
    run, config, evidence = committed
    asked = 0
    for record in run.members:
        (path,) = (run.path / "units" / record.unit).glob("analysis/exam-*.json")
        (found,) = [each for each in read(path)["members"] if each["member"] == record.member]
        for tally in found["tallies"]:
            part = f"depth_{tally['depth']}"
            table = evidence.rows(measure="exam", member=record.member, part=part).set_index("metric")
            for name in ("accuracy", "first_accuracy", "acceptance", "answered"):
                share = tally[name]
                assert table.loc[name, "value"] == share["value"]
                assert table.loc[f"{name}_low", "value"] == share["low"]
            for name in ("guess", "attempts", "questions", "stuck", "lost_chain"):
                assert table.loc[name, "value"] == tally[name]
            assert table.loc["wrong", "value"] == tally["questions"] - tally["accuracy"]["count"]
            assert set(table["file"]) == {str(path.relative_to(run.path))}
            assert set(table["step"]) == {config.training_steps}
            lost = evidence.rows("lost_steps", member=record.member) if "lost_steps" in evidence else []
            if tally["lost_steps"]:
                of_depth = [row for row in lost.itertuples() if row.part.startswith(f"{part}: ")]
                counts = {row.part.removeprefix(f"{part}: "): row.value for row in of_depth}
                assert counts == tally["lost_steps"]
            asked += 1
    assert asked == len(run.members) * len(config.depths)


def test_circuits_and_their_formation_are_in_the_table(committed):
    run, config, evidence = committed
    members = gather(run, config)
    flags = {name: evidence.last(name) for name in ("learned_all", "was_read")}
    for each in members:
        number, reading = each.member, each.reading
        assert flags["was_read"][number] == (reading["verdict"] == "read")
        assert flags["learned_all"][number] == (reading["learned"] == ["D = 1", "D = 2"])
        assert evidence.last("learned", part="depth_2")[number] == ("D = 2" in reading["learned"])
        for part in ("full", "rules", "recomputed", "random_circuits"):
            assert evidence.last("circuit_loss", part=part)[number] == reading["loss"][part]
        lost = evidence.last("accuracy_lost", part="worst_recomputed")
        assert lost[number] == reading["worst_recomputed"]
        assert evidence.last("paths")[number] == len(reading["paths"])
        assert evidence.last("heads")[number] == len({(p["layer"], p["head"]) for p in reading["paths"]})
        path = each.paths[-1]
        place = {"layer": path.layer, "head": path.head, "part": path.read}
        curve = evidence.curve("attention", member=number, **place)[number]
        assert curve.to_dict() == dict(zip(each.checkpoints, path.attention, strict=True))
        assert evidence.last("mean_attention", **place)[number] == path.mean_attention
        for found in reading["exchanges"]:
            where = {"layer": found["layer"], "head": found["head"]}
            where["part"] = f"{found['query_role']}: {found['exchanged']}"
            told = (
                evidence.rows(measure="circuit", member=number, **where)
                .set_index("metric")["value"]
                .to_dict()
            )
            expected = {
                "rise_if_exchanged": found["rise"],
                "kept_if_exchanged": found["answers_kept"],
                "follow_if_exchanged": found["answers_follow"],
            }
            assert told == {name: value for name, value in expected.items() if value is not None}
        formed = each.formed(path)
        assert evidence.last("formed", **place)[number] == (formed.time is not None)
    reads = {each.member: each.reading["reads"] for each in members}
    classes = evidence.last("circuit_class")
    for one in reads:
        for other in reads:
            assert (classes[one] == classes[other]) == (reads[one] == reads[other])


def test_when_depths_were_learned_is_what_the_page_says(committed):
    run, config, evidence = committed
    numbers = read(run.path / "story.json")["numbers"].values()
    told = {number["key"]: number["value"] for number in numbers if number["file"] == "metrics.parquet"}
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


def views(story):
    """What the page's player knows of each circuit."""
    blocks = [block for section in story["sections"] for block in section["blocks"]]
    return [each["view"] for block in blocks if block["kind"] == "circuit" for each in block["circuits"]]


def csv_rows(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_page_lost_nothing(tmp_path):
    """Every number, curve and circuit that the page of the run showed when it was committed."""
    before = read(RESULTS / "laptop" / "story.json")
    run = RunFolder.open(Path(shutil.copytree(RESULTS / "laptop", tmp_path / "laptop")))
    config = TinyLmConfig.model_validate(run.config)
    evidence = Evidence.of_run(run, STUDY.measurements(run, config))
    ledger = Ledger([judge(claim, evidence) for claim in STUDY.claims(config)])
    STUDY.present(run, config, evidence, ledger)
    after = run.read_json("story.json")
    values = {number["value"] for number in after["numbers"].values()}
    assert [number for number in before["numbers"].values() if number["value"] not in values] == []
    shown = views(after)
    for view in shown:
        # How much of a circuit is not drawn was not told then.
        assert view["undrawn"] == len(view.pop("listed"))
        assert view.pop("undrawn") >= 0 <= view.pop("undrawn_heads")
    assert shown == views(before)
    old, new = ([folder / f"{name}.csv" for name in ("accuracy", "curves")]
                for folder in (RESULTS / "laptop" / "figures", run.path / "figures"))  # fmt: skip
    points = {(row["mixture"], row["depth"], row["accuracy"], row["low"]) for row in csv_rows(old[0])}
    seeds = [row for row in csv_rows(new[0]) if row["kind"] == "seed"]
    assert {(row["name"], row["x"], row["value"], row["low"]) for row in seeds} == points
    curves = {(row["model"], row["depth"], row["step"], row["accuracy"]) for row in csv_rows(old[1])}
    assert {(row["panel"], row["name"], row["at"], row["value"]) for row in csv_rows(new[1])} == curves
