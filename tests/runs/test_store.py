import json
from functools import partialmethod
from pathlib import Path

import pytest
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.runs.hashing import config_hash
from hopscope.runs.members import read_members
from hopscope.runs.metrics import METRICS_SCHEMA, write_part
from hopscope.runs.store import RunFolder

from .conftest import CONFIG, MEMBERS


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_refused(path, match):
    with pytest.raises(UserError, match=match) as caught:
        RunFolder.open(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_run_says_what_it_was_asked(run, tmp_path):
    assert run.path == tmp_path / "runs" / "permutation" / config_hash("permutation", CONFIG)
    for found in (run, RunFolder.open(run.path)):
        assert (found.study, found.preset, found.hash) == ("permutation", "smoke", run.path.name)
        assert found.config == CONFIG
        assert [member.model_dump() for member in found.members] == MEMBERS


def test_records_are_as_the_format_says(run):
    record = json.loads((run.path / "config.json").read_text())
    assert list(record) == ["schema_version", "results_version", "study", "preset", "hash", "config"]
    assert json.loads((run.path / "members.json").read_text()) == MEMBERS


def test_members_are_frozen(run):
    with pytest.raises(ValidationError):
        run.members[0].seed = 17


def test_the_same_question_finds_the_same_run(run, tmp_path):
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    again = RunFolder.create(
        tmp_path / "runs", "permutation", dict(reversed(CONFIG.items())), MEMBERS, "paper"
    )
    assert again == run
    assert again.preset == "smoke"
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_another_question_makes_another_run(run, make_run):
    paths = {run.path, make_run(depth=5).path, make_run(study="depth").path}
    assert len(paths) == 3


def test_units_are_in_member_order(run):
    assert [unit.hash for unit in run.units] == ["bbb", "aaa"]
    assert run.unit("aaa").path == run.path / "units" / "aaa"
    assert run.unit("aaa").run_path == run.path
    with pytest.raises(UserError, match="expected one of the units bbb, aaa, found ccc"):
        run.unit("ccc")


def test_members_are_read_once_for_all_units_and_again_where_they_changed(run, monkeypatch, unseal):
    monkeypatch.setattr("hopscope.runs.store.read_members", lambda *of: looks.append(of) or read_members(*of))
    looks = []
    for _ in range(7):
        assert run.unit("aaa") in run.units
    assert len(looks) <= 1
    unseal(run.path)
    path = run.path / "members.json"
    path.write_text(path.read_text().replace("aaa", "longer"))
    with pytest.raises(UserError, match="expected one of the units bbb, longer, found aaa"):
        run.unit("aaa")
    path.unlink()
    with pytest.raises(UserError, match=r"members\.json: expected a file, found none"):
        run.unit("longer")


def test_creation_goes_on_where_it_was_killed(run, make_run):
    (run.path / "config.json").unlink()
    assert make_run().config == CONFIG


def test_done_is_marked_and_cleared(run):
    run.clear_done()
    assert not run.is_done
    run.mark_done()
    assert run.is_done
    run.clear_done()
    assert not run.is_done


def test_files_and_events_of_a_run(run):
    run.write_json("claims.json", [{"id": "P1"}])
    assert run.read_json("claims.json") == [{"id": "P1"}]
    with pytest.raises(UserError, match=r"story.json: .* run the same command again"):
        run.read_json("story.json")
    run.event("started", device="cpu")
    assert [(event["kind"], event["device"]) for event in run.events()] == [("started", "cpu")]


def test_metrics_of_a_run(run):
    assert run.metrics().num_rows == 0
    rows = dict(zip(METRICS_SCHEMA.names, ([1], [3], [5], ["train"], ["loss"], [0.7]), strict=True))
    write_part(run.unit("aaa").path, 0, 3, rows)
    assert run.metrics().to_pydict() == rows


@pytest.mark.parametrize("name", ["config.json", "members.json"])
def test_a_record_that_is_missing_or_cut_short_is_refused(run, make_run, name, unseal):
    unseal(run.path)
    whole = (run.path / name).read_bytes()
    for length in range(0, len(whole) - 1, 5):
        (run.path / name).write_bytes(whole[:length])
        assert_refused(run.path, f"{name}: expected whole JSON")
    with pytest.raises(UserError, match=f"{name}: expected whole JSON"):
        make_run()
    (run.path / name).unlink()
    assert_refused(run.path, f"{name}: expected a file, found none")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", "[]", "expected a record with a schema version"),
        ("config.json", '{"schema_version": "1"}', "expected a record with a schema version"),
        ("config.json", '{"schema_version": 1, "study": "a"}', "found no valid preset, hash, config"),
        ("members.json", "{}", "expected a list of members, found at the file"),
        ("members.json", '[{"member": 0}]', r"found at 0\.unit: Field required"),
    ],
)
def test_a_record_of_something_else_is_refused(run, name, content, match, unseal):
    unseal(run.path)
    (run.path / name).write_text(content)
    assert_refused(run.path, match)


def test_a_newer_schema_is_refused(run, make_run, unseal):
    unseal(run.path)
    edit(run.path / "config.json", schema_version=2)
    assert_refused(
        run.path, "expected schema 1 or older, found 2, made by a newer Hopscope: upgrade Hopscope"
    )
    with pytest.raises(UserError, match="upgrade Hopscope"):
        make_run()


def test_a_run_that_holds_another_question_is_refused(run, make_run, tmp_path, unseal):
    unseal(run.path)
    with pytest.raises(UserError, match="expected the members that this command asks for"):
        RunFolder.create(tmp_path / "runs", "permutation", CONFIG, MEMBERS[:2], "smoke")
    edit(run.path / "config.json", config=CONFIG | {"depth": 7})
    with pytest.raises(UserError, match="expected the configuration that the run is named after"):
        make_run()


def test_a_root_that_is_no_folder_is_refused(make_run, tmp_path):
    (tmp_path / "file").write_text("mine")
    for root in (tmp_path / "file", tmp_path / "file" / "runs", Path("/dev/null"), Path("/proc/runs")):
        with pytest.raises(UserError, match=r"choose another folder|cannot write") as caught:
            make_run(root)
        assert str(root) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_is_not_made_while_another_command_makes_it(run, make_run, monkeypatch):
    monkeypatch.setattr(RunFolder, "lock", partialmethod(RunFolder.lock, 0.1))
    with run.lock(), pytest.raises(UserError, match="another hopscope command is working on this run"):
        make_run()


CREATING = """
import sys
from pathlib import Path
import numpy as np
from hopscope.runs import Row, RunFolder, save_checkpoint, write_evidence, write_part
from hopscope.runs.metrics import METRICS_SCHEMA
overrides = [{"z": 1, "a": {"d": 2, "c": 3}}, {"y": 2, "a": {"d": 3, "c": 5}}]
members = [{"member": n, "unit": "u", "index": n, "seed": 2, "overrides": each} for n, each in enumerate(overrides)]
run = RunFolder.create(Path(sys.argv[1]), "depth", {"b": 1, "a": 0.1}, members, None)
unit = run.unit("u").create({"label": "l"})
names = {f"weights/{name}" for name in "abcdefghij"} | {f"optimiser/{name}" for name in "klmno"}
tensors = {name: np.full((2, 3), float(len(name))) for name in names}
save_checkpoint(unit.checkpoint_path(5), tensors, {"step": 5, "frozen_at": [-1, -1]} | {name: 1 for name in names})
rows = dict(zip(METRICS_SCHEMA.names, ([1, 0], [3, 3], [5, 5], ["train"] * 2, ["loss"] * 2, [0.7, 0.2])))
write_part(unit.path, 0, 3, rows)
unit.write_analysis("heads", 5, {name: tensors[f"weights/{name}"] for name in {"a", "b", "c", "d"}})
write_evidence(run, [Row(0, "heads", name, 0.5, step=5) for name in names])
run.mark_done()
"""


def test_two_processes_write_the_same_bytes(tmp_path, start_python):
    roots = [tmp_path / "one", tmp_path / "other"]
    processes = [start_python(CREATING, root, hash_seed=seed) for root, seed in zip(roots, "37", strict=True)]
    assert [process.wait(60) for process in processes] == [0, 0]
    trees = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in roots
    ]
    assert trees[0] == trees[1]
    assert {path.suffix for path in trees[0]} >= {".json", ".safetensors", ".parquet", ".npz"}
