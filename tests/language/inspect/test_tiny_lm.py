"""The study of a small language model from training to page, through Inspect."""

import html
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hopscope.cli.main import main
from hopscope.executors.finish import finish
from hopscope.runs import find_run
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study
from hopscope.studies.tiny_lm.config import TinyLmConfig

FIELDS = {
    "seeds": 1, "mixtures": "zipf", "chains": 3, "depths": "1 2", "layers": 2, "heads": 3, "width": 33,
    "training-steps": 8, "batch-size": 5, "checkpoint-every": 4, "evaluate-every": 4, "evaluation-samples": 7,
    "questions": 11,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    fields = [word for name, value in FIELDS.items() for word in (f"--{name}", *str(value).split())]
    assert main(["run", "tiny-lm", "--out", str(root), *fields]) == 0
    (path,) = (root / "tiny-lm").iterdir()
    return path


def test_a_run_is_whole(run):
    assert (run / "DONE").is_file()
    (claim,) = json.loads((run / "claims.json").read_text())
    assert claim["id"] == "S6"
    assert claim["verdict"] == "inconclusive"
    page = (run / "report.html").read_text()
    assert "A small language model of our own" in page
    for name in ("accuracy", "curves"):
        assert (run / "figures" / f"{name}.svg").is_file()


def test_every_number_of_the_exam_is_in_the_evidence(run):
    story = json.loads((run / "story.json").read_text())
    found = Evidence.read(find_run(run))
    shown = 0
    for number in story["numbers"].values():
        key = re.search(
            r"metric = (\w+), split = held_out, measure = exam, member = 0, part = (\w+)", number["key"]
        )
        if key:
            assert number["file"] == "evidence.parquet"
            assert found.last(key[1], measure="exam", part=key[2])[0] == number["value"]
            shown += 1
    # Of two depths: what was right and acceptable at once, with intervals, and a guess; accuracy if any was acceptable.
    assert shown >= 2 * 7


def test_the_exam_was_held_out_and_complete(run):
    (exam,) = run.glob("units/*/analysis/exam-step-000000008.json")
    (member,) = json.loads(exam.read_text())["members"]
    assert member["folder"] == "models/member-0"
    assert (run / member["folder"] / "model.safetensors").is_file()
    assert [(tally["depth"], tally["questions"]) for tally in member["tallies"]] == [(1, 11), (2, 11)]
    assert all(tally["guess"] == pytest.approx(1 / 3) for tally in member["tallies"])


def test_what_was_answered_is_in_the_evidence_and_the_claim_rests_on_it(run):
    (exam,) = run.glob("units/*/analysis/exam-step-000000008.json")
    (member,) = json.loads(exam.read_text())["members"]
    found = Evidence.read(find_run(run))
    for tally in member["tallies"]:
        share = found.last("first_accuracy", part=f"depth_{tally['depth']}")
        assert share.to_list() == [tally["first_accuracy"]["value"]]
    (claim,) = json.loads((run / "claims.json").read_text())
    assert claim["value"] == {"zipf": share[0]} and claim["samples"] == {"zipf": [share[0]], "uniform": []}
    assert claim["registration"]["state"] == "registered"


def test_every_tally_of_the_exam_is_in_the_table(run):
    folder = find_run(run)
    config, evidence = TinyLmConfig.model_validate(folder.config), Evidence.read(folder)
    asked = 0
    for record in folder.members:
        (path,) = (run / "units" / record.unit).glob("analysis/exam-*.json")
        (exam,) = [
            each for each in json.loads(path.read_text())["members"] if each["member"] == record.member
        ]
        for tally in exam["tallies"]:
            part = f"depth_{tally['depth']}"
            table = evidence.rows(measure="exam", member=record.member, part=part).set_index("metric")
            for name in ("accuracy", "first_accuracy", "acceptance", "answered"):
                share = tally[name]
                for metric, value in ((name, share["value"]), (f"{name}_low", share["low"])):
                    found = table.loc[metric, "value"]
                    assert found == value if value is not None else math.isnan(found)
            for name in ("guess", "attempts", "questions", "stuck", "lost_chain"):
                assert table.loc[name, "value"] == tally[name]
            assert table.loc["wrong", "value"] == tally["accuracy"]["of"] - tally["accuracy"]["count"]
            assert set(table["file"]) == {str(path.relative_to(run))}
            assert set(table["step"]) == {config.training_steps}
            lost = evidence.rows("lost_steps", member=record.member) if "lost_steps" in evidence else []
            if tally["lost_steps"]:
                of_depth = [row for row in lost.itertuples() if row.part.startswith(f"{part}: ")]
                counts = {row.part.removeprefix(f"{part}: "): row.value for row in of_depth}
                assert counts == tally["lost_steps"]
            asked += 1
    assert asked == len(folder.members) * len(config.depths)


def test_the_same_command_finds_it(run, capsys):
    fields = [word for name, value in FIELDS.items() for word in (f"--{name}", *str(value).split())]
    assert main(["run", "tiny-lm", "--out", str(run.parents[1]), *fields]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(run)


def test_a_model_that_never_learned_has_no_circuit(run, capsys):
    assert main(["circuit", str(run), "--member", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["paths"], found["verdict"]) == ([], "no circuit: above plateau")
    (followed,) = run.glob("units/*/analysis/formation-0-step-000000008.json")
    tokens = json.loads(followed.read_text())["tokens"]
    assert [token["label"] for token in tokens[1::3]][:6] == ["="] * 6


@pytest.mark.soak
def test_a_run_with_a_text_and_a_control_is_whole_and_needs_the_text_no_more(run, tmp_path, capsys):
    text = tmp_path / "ships.txt"
    text.write_text(
        "Anna knows Bert. Bert paints ships. Ships need tar. Anna ships. Bert tar.", encoding="utf-8"
    )
    fields = [word for name, value in FIELDS.items() for word in (f"--{name}", *str(value).split())]
    command = ["run", "tiny-lm", "--out", str(tmp_path / "runs"), *fields, "--corpus", str(text), "--control"]
    assert main(command) == 0
    path = Path(capsys.readouterr().out.strip().splitlines()[-1])
    assert path.name != run.name
    text.unlink()
    for name in ("claims.json", "story.json"):
        (path / name).unlink()
    found = find_run(path)
    finish(found, find_study("tiny-lm"), TinyLmConfig.model_validate(found.config))
    records = json.loads((path / "members.json").read_text())
    assert [each["overrides"]["mixture"] for each in records] == ["zipf", "corpus", "deepest"]
    (claim,) = json.loads((path / "claims.json").read_text())
    assert set(claim["threshold"]) == {"zipf", "uniform", "corpus"}
    (name,) = claim["controls"]
    assert name == "deepest, texts of depth 2 alone" and claim["controls"][name]["n"] == 1
    assert claim["must_not"] == {"at_least": 0.9, "unit": "fraction"}
    assert claim["registration"]["state"] == "registered"
    page = (path / "report.html").read_text()
    assert f"control {name}" in html.unescape(page).replace("\u00a0", " ")
    assert "How often each depth is trained" in page and "ships.txt" in page


def test_the_documented_commands_ask_it_again_and_score_its_heads(run, tmp_path, capsys):
    """The sequence of docs/tiny_lm.md, at the smallest scale; nothing reaches the network."""
    folder = run / "models" / "member-0"
    inspect = Path(sys.executable).with_name("inspect")
    asked = [
        "-T",
        "depths=1,2",
        "-T",
        "chains=3",
        "-T",
        "held_out=0.2",
        "-T",
        "count=3",
        "--temperature",
        "0",
    ]
    done = subprocess.run(
        [inspect, "eval", "hopscope/equations", *asked, "--model", f"hopscope/{folder}", "--display", "none"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "logs").iterdir()
    assert log.suffix == ".eval"
    scored = ["--formulation", "equations", "--depth", "2", "--chains", "3", "--count", "5", "--json"]
    assert main(["heads", "--model", str(folder), *scored]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["layers"], found["heads"]) == (2, 3)
    assert {"answer:hop_1", "answer:hop_2", "query:same_symbol", "facts:pair_mate"} <= set(found["targets"])
    (claim,) = found["claims"]
    assert claim["id"] == "S2"
