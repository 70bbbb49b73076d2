"""`hopscope zoo`: what it lists, writes and scores, and what it refuses."""

import json
import shutil
from pathlib import Path

import pytest

import hopscope as hs


def test_export_then_score(hopscope, tmp_path):
    said = hopscope("zoo", "export", "--to", tmp_path, "--names", "chain-000", "permutation-00")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines() == [str(tmp_path / "chain-000"), str(tmp_path / "permutation-00")]
    assert hs.load(tmp_path / "chain-000").config.layers == 2
    truth = json.loads((tmp_path / "chain-000" / "circuit.json").read_text())
    rows = [{**row, "score": 1.0} for row in truth["circuits"][0] if row["rows"] != row["reads"]]
    circuits = tmp_path / "circuits.json"
    circuits.write_text(
        json.dumps(
            {
                "format": "hopscope-circuits",
                "schema_version": 1,
                "finder": "the truth",
                "circuits": [{"model": "chain-000", "heads": rows}],
            }
        )
    )
    said = hopscope("zoo", "score", circuits, "--json")
    assert (said.status, said.err) == (0, "")
    found = json.loads(said.out)
    assert found["finder"] == "the truth" and found["conventions"]["ablation"].startswith("interchange")
    assert (found["scores"][0]["row_precision"], found["scores"][0]["row_recall"]) == (1.0, 1.0)
    assert found["mean"]["head_recall"] == {"mean": 1.0, "interval": None, "n": 1}
    said = hopscope("zoo", "score", circuits)
    assert said.status == 0 and "cmd: area between f and 1" in said.out
    assert "1 models" in said.out


def test_what_is_refused(hopscope, tmp_path):
    assert (
        "expected one of list, export, score, run, members, build-members, found 'tame'"
        in hopscope("zoo", "tame").complaint
    )
    assert "expected a file of circuits, found none" in hopscope("zoo", "score", tmp_path / "x").complaint
    assert "found 'nobody'" in hopscope("zoo", "export", "--to", tmp_path, "--names", "nobody").complaint
    assert "found 'nobody'" in hopscope("zoo", "run", "--to", tmp_path / "x", "--finders", "nobody").complaint
    (tmp_path / "bad.json").write_text("{")
    assert str(tmp_path / "bad.json") in hopscope("zoo", "score", tmp_path / "bad.json").complaint


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_the_commands(hopscope, arguments):
    said = hopscope("zoo", *arguments)
    assert said.status == (0 if arguments else 2)
    assert all(f"  {name}" in said.out for name in ("list", "export", "score", "run", "members"))


def test_every_model_is_listed(hopscope, monkeypatch):
    from hopscope.finders import catalogue

    few = [model for model, _ in zip(catalogue.zoo_models(), range(2), strict=False)]
    monkeypatch.setattr(catalogue, "zoo_models", lambda folder: iter(few))
    said = hopscope("zoo", "list")
    assert said.out.splitlines()[0].split()[:5] == ["chain-000", "2", "x", "1", "1"]
    assert len(said.out.splitlines()) == 2


MEMBERS = Path(__file__).parents[2] / "docs" / "results" / "zoo" / "members"


def test_members_are_listed(hopscope, tmp_path):
    said = hopscope("zoo", "members", MEMBERS)
    assert (said.status, said.err) == (0, "")
    listed = json.loads(hopscope("zoo", "members", MEMBERS, "--json").out)
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == [row["name"] for row in listed]
    assert {"task", "model", "held_out", "floors", "learned", "files"} <= set(listed[0])
    complaint = hopscope("zoo", "members", tmp_path).complaint
    assert "expected a collection of members, found no members.jsonl" in complaint


def test_members_are_collected(hopscope, emergence_run, tmp_path):
    run = shutil.copytree(emergence_run, tmp_path / "run")
    said = hopscope(
        "zoo", "build-members", f"{run}:0", "--made-by", "hopscope run emergence", "--to", tmp_path / "to"
    )
    assert (said.status, said.err) == (0, "")
    name, folder = said.out.splitlines()
    assert folder == str(tmp_path / "to")
    assert hs.load(tmp_path / "to" / name).batch(3).inputs.shape[0] == 3
    weights = tmp_path / "to" / name / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(hs.errors.UserError, match="SHA-256"):
        hs.load(weights.parent)
    complaint = hopscope(
        "zoo", "build-members", run, run, "--made-by", "one", "--to", tmp_path / "x"
    ).complaint
    assert "made-by: expected one command for each of 2 runs, found 1" in complaint
    complaint = hopscope("zoo", "build-members", tmp_path / "none", "--to", tmp_path / "x").complaint
    assert str(tmp_path / "none") in complaint
