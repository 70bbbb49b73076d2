"""A slim run folder says what the whole run says, and what it lacks is told."""

import json
import shutil

import pytest

import hopscope
from hopscope.errors import UserError
from hopscope.runs import RunFolder, is_slim, slim_copy


@pytest.fixture(scope="module")
def whole(emergence_run):
    return RunFolder.open(emergence_run)


@pytest.fixture(scope="module")
def slim(whole, tmp_path_factory):
    to = tmp_path_factory.mktemp("slim") / "run"
    slim_copy(whole, to, pictures={"crossings.png"})
    return RunFolder.open(to)


def files(run):
    return {path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file()}


def test_it_has_conclusions_and_no_units(whole, slim):
    assert is_slim(slim.path) and not is_slim(whole.path)
    data = {
        name for name in files(whole) if name.startswith("figures/") and name.endswith((".csv", ".vl.json"))
    }
    assert files(slim) == data | {
        "config.json", "members.json", "units.json", "evidence.parquet", "claims.json", "registration.json",
        "conclusion.json", "story.json", "DONE", "figures/crossings.png", "seals.jsonl",
    }  # fmt: skip


def test_records_of_units_are_those_of_the_run(whole, slim):
    assert [unit.record for unit in slim.units] == [unit.record for unit in whole.units]


def test_evidence_claims_and_training_record_are_read_as_before(whole, slim):
    before, after = hopscope.open_run(whole.path), hopscope.open_run(slim.path)
    assert after.evidence.to_pandas().equals(before.evidence.to_pandas())
    assert after.claims.to_json() == before.claims.to_json()
    rows = [run.metrics().select(["member", "step", "split", "metric", "value"]) for run in (before, after)]
    keys = [(name, "ascending") for name in ("metric", "split", "member", "step")]
    assert rows[0].num_rows and rows[0].sort_by(keys).equals(rows[1].sort_by(keys))


def test_a_slim_copy_of_a_slim_run_is_the_same(slim, tmp_path):
    slim_copy(slim, tmp_path / "run", pictures={"crossings.png"})
    again = RunFolder.open(tmp_path / "run")
    assert files(again) == files(slim)
    assert all(
        (again.path / name).read_bytes() == (slim.path / name).read_bytes()
        for name in files(slim) - {"seals.jsonl"}  # in the order in which files were written
    )


@pytest.mark.parametrize("ask", [lambda run: run.member(0), lambda run: run.circuit(0)])
def test_what_needs_checkpoints_says_where_they_come_from(slim, ask):
    with pytest.raises(UserError, match=r"expected a run with its checkpoints, .* make the run again"):
        ask(hopscope.open_run(slim.path))


def test_arrays_are_said_to_be_missing(slim):
    with pytest.raises(UserError, match="make the run again: this folder has no arrays"):
        hopscope.open_run(slim.path).evidence.arrays("units/u/analysis/maps.npz")


def test_a_run_that_is_not_finished_is_refused(whole, tmp_path):
    copy = RunFolder(shutil.copytree(whole.path, tmp_path / "copy"))
    (copy.path / "story.json").unlink()
    with pytest.raises(UserError, match=r"expected a finished run, found no story\.json"):
        slim_copy(copy, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_damaged_record_of_units_is_named(slim, tmp_path):
    copy = RunFolder(shutil.copytree(slim.path, tmp_path / "copy"))
    (copy.path / "seals.jsonl").unlink()
    (copy.path / "units.json").write_text(json.dumps({"schema_version": 1, "units": {}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"units\.json: expected a record with a schema version"):
        _ = copy.units[0].record


def test_an_altered_drawing_is_not_kept(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "run")
    for name in ("crossings.png", "crossings.svg"):
        path = tmp_path / "run" / "figures" / name
        content = path.read_bytes()
        path.write_bytes(content.replace(content[100:101], b"?", 1))
        with pytest.raises(
            UserError, match=r"crossings\.\w+: expected the drawing that was made, found another"
        ):
            slim_copy(RunFolder.open(tmp_path / "run"), tmp_path / "slim", pictures={name})
        path.write_bytes(content)
    slim_copy(RunFolder.open(tmp_path / "run"), tmp_path / "slim", pictures={"crossings.png"})


def test_what_a_campaign_noted_comes_along(slim, tmp_path):
    noted = shutil.copytree(slim.path, tmp_path / "noted")
    RunFolder.open(noted).write_json("campaign.json", {"reading": "r"})
    slim_copy(RunFolder.open(noted), tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "campaign.json").read_text(encoding="utf-8")) == {"reading": "r"}
