"""A study of one file on the command line: it runs, and every fault in it is one line that names the file."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hopscope as hs
from hopscope.cli.main import main
from hopscope.errors import UserError
from hopscope.runs import find_run
from hopscope.studies import find_study
from hopscope.studies.loading import naming
from hopscope.studies.record import check_source

from .conftest import Said

Command = Callable[..., Said]

STUDY = '''
"""Repeat the first token."""
import hopscope as hs


class Echo(hs.Task):
    """Repeat the first token."""

    length: int = 3
    values: int = 5

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=self.values, positions=self.length,
                        readout=(self.length - 1,), output_size=self.values)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1],
                        relations={"first": draws.constant(0, (self.length,))})


@hs.measure(when="end")
def largest(context):
    """Largest logit of each member."""
    return {"largest": context.ensemble(context.held_out.inputs).amax((1, 2, 3))}


study = hs.Study(
    name="echo",
    question="Does it repeat?",
    task=Echo(),
    model=hs.Model(width=8),
    training=hs.Training(steps=11, batch_size=13, checkpoint_every=7, evaluate_every=5),
    seeds=2,
    held_out=17,
    measures=[hs.measures.attention_to("first"), largest],
    claims=[hs.Claim(id="E", statement="It repeats.", source="here", protocol="accuracy",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.5, unit="fraction"))],
    figures=[hs.figures.curves("loss")],
    presets={"smoke": {"seeds": 2, "training.steps": 7}},
)
'''


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "echo_study.py"
    path.write_text(STUDY, encoding="utf-8")
    return path


def mend(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_file_is_trained_judged_found_again_and_shown(hopscope: Command, file: Path) -> None:
    said = hopscope("run", file.name, "--seeds", 3, "--training.steps", 8, "--model.width", 16)
    assert said.status == 0, said.err
    run = find_run(Path(said.out.splitlines()[-1]))
    assert (
        len(run.members) == 3 and run.config["training"]["steps"] == 8 and run.config["model"]["width"] == 16
    )
    assert (run.path / "source" / file.name).read_text(encoding="utf-8") == STUDY
    record = json.loads((run.path / "study.json").read_text(encoding="utf-8"))
    assert record["reference"] == f"{file}:study" and len(record["sha256"]) == 64
    assert {"loss", "accuracy", "attention_to_first", "largest"} <= set(_metrics(run.path))
    (claim,) = json.loads((run.path / "claims.json").read_text(encoding="utf-8"))
    assert claim["id"] == "E" and claim["registration"]["state"] == "registered"
    before = (run.path / "claims.json").stat().st_mtime_ns
    assert hopscope("run", file.name, "--seeds", 3, "--training.steps", 8, "--model.width", 16).status == 0
    assert (run.path / "claims.json").stat().st_mtime_ns == before
    assert "It repeats." in hopscope("claims", run.path).out
    assert hopscope("report", run.path).status == 0
    assert "Does it repeat?" in (run.path / "report.html").read_text(encoding="utf-8")


def _metrics(path: Path) -> list[str]:
    from hopscope.runs.evidence import Evidence

    return list(Evidence.read(find_run(path)).metrics)


def test_the_studies_of_a_file_are_listed(hopscope: Command, file: Path) -> None:
    said = hopscope("studies", "--from", file.name)
    assert said.out.splitlines() == ["echo: Does it repeat?", "  --preset smoke: (not probed here)"]
    (listed,) = json.loads(hopscope("studies", "--from", file.name, "--json").out)
    assert listed["presets"][0]["config"]["training"]["steps"] == 7


def test_help_lists_every_field(hopscope: Command, file: Path) -> None:
    text = hopscope("run", file.name, "--help").out
    for flag in (
        "--task.length",
        "--model.layers",
        "--training.learning-rate",
        "--seeds",
        "--held-out",
        "--preset",
    ):
        assert flag in text


FAULTS = [
    ("study = hs.Study(", "other = hs.Study(name='echo')\nstudy = hs.Study(", "'echo' twice"),
    (
        "study = hs.Study(",
        "a = hs.Study(name='x')\nb = hs.Study(",
        "expected one study, or one named 'study', found 2",
    ),
    (
        "import hopscope as hs",
        "import hopscope as hs\nimport no_such_package",
        "No module named 'no_such_package'",
    ),
    ("import hopscope as hs", "import hopscope as hs\n1 +", "SyntaxError"),
    ("seeds=2,\n", "seeds=2,\n    vary={'task.lenght': [3]},\n", "no field 'task.lenght'"),
    ("seeds=2,\n", "seeds='two',\n", "seeds: expected"),
    ("measures=[", "measures=[hs.measures.attention_to, ", "attention_to(…)"),
]


@pytest.mark.parametrize(("old", "new", "words"), FAULTS)
def test_a_file_that_cannot_be_planned_is_one_line_that_names_it(
    hopscope: Command, file: Path, no_training: None, old: str, new: str, words: str
) -> None:
    mend(file, old, new)
    complaint = hopscope("run", file.name).complaint
    assert words in complaint and file.name in complaint
    assert not (file.parent / "runs").exists() or not list(
        (file.parent / "runs").glob("*/*/units/*/checkpoints")
    )


def test_a_file_without_a_study(hopscope: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("import hopscope as hs\n", encoding="utf-8")
    assert f"{empty}: expected a study" in hopscope("run", empty).complaint
    assert "expected a readable file" in hopscope("run", tmp_path / "gone.py").complaint
    assert "expected one of" in hopscope("run", "no-such-study").complaint


WRONG_BATCHES = [
    ("targets=tokens[..., :1]", "targets=tokens[..., :2]", ["targets", "[1, 2, 1]", "[1, 2, 2]"]),
    ("inputs=tokens,", "inputs=tokens + 5,", ["inputs", "0 to 4"]),
    ("inputs=tokens,", "inputs=tokens.to('meta'),", ["inputs", "meta"]),
    ("readout=(self.length - 1,)", "readout=(self.length,)", ["readout"]),
    ("return hs.Batch(", "return dict(", ["Batch", "dict"]),
    ("tokens = draws", "tokens = 1 / 0 + draws", ["ZeroDivisionError", "line 17"]),
]


@pytest.mark.parametrize(("old", "new", "words"), WRONG_BATCHES)
def test_a_task_whose_batch_is_wrong_is_one_line_that_names_it(
    file: Path, old: str, new: str, words: list[str]
) -> None:
    mend(file, old, new)
    program = find_study(str(file))
    with pytest.raises(UserError) as error, naming(program):
        program.task(program.jobs(program.configured(None, {}))[0], "cpu")
    for word in [*words, "Echo", str(file)]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_worker_hands_on_what_is_wrong_with_a_batch(hopscope: Command, file: Path) -> None:
    mend(file, "targets=tokens[..., :1]", "targets=tokens[..., :1].float()")
    said = hopscope("run", file.name)
    assert said.status == 2
    complaint = said.err.splitlines()[-1]
    assert f"{file}:study: Echo.sample: targets: expected torch.int64, found torch.float32" in complaint


LATE_FAULTS = [
    ('evidence.last("accuracy")', "[1.0]", ["claim 'E'", "2"]),
    ('evidence.last("accuracy")', "1 / 0", ["claim 'E'", "ZeroDivisionError"]),
    ('curves("loss")', 'curves("lost")', ["figure", "'lost'", "loss"]),
    ("amax((1, 2, 3))", "amax((0, 1, 2))", ["measure largest", "[5]"]),
    ("amax((1, 2, 3))", "amax((1, 2, 3)) + unknown", ["measure largest", "NameError"]),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, training_here: Callable[[], Any]) -> Path:
    """A folder with the file, and a finished run of it under `runs`."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "echo_study.py").write_text(STUDY, encoding="utf-8")
    with training_here():
        assert main(["run", str(folder / "echo_study.py"), "--out", str(folder / "runs")]) == 0
    return folder


@pytest.fixture
def again(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a copy of that folder, which is the working directory."""
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy" / "echo_study.py"


@pytest.mark.usefixtures("units_here")
@pytest.mark.parametrize(("old", "new", "words"), LATE_FAULTS)
def test_a_fault_after_training_keeps_what_was_trained_and_the_report_finishes_the_run(
    hopscope: Command, again: Path, old: str, new: str, words: list[str]
) -> None:
    (run,) = (again.parent / "runs" / "echo").iterdir()
    weights = {path: path.read_bytes() for path in run.glob("units/*/checkpoints/*")}
    mend(again, old, new)
    said = hopscope("run", again.name)
    assert said.status == 2
    complaint = said.err.splitlines()[-1]
    for word in [*words, str(again)]:
        assert word in complaint, complaint
    assert not (run / "DONE").exists()
    mend(again, new, old)
    said = hopscope("report", run)
    assert said.status == 0, said.err
    assert (run / "DONE").exists()
    assert weights == {path: path.read_bytes() for path in run.glob("units/*/checkpoints/*")}


def test_a_changed_task_refuses_batches_and_leaves_the_rest(hopscope: Command, again: Path) -> None:
    file = again
    (run,) = (again.parent / "runs" / "echo").iterdir()
    assert hopscope("run", file.name).out.splitlines()[-1] == str(run.relative_to(again.parent))
    mend(file, "targets=tokens[..., :1]", "targets=tokens[..., 1:2]")
    opened = hs.open_run(run)
    member = opened.member(1)
    assert list(opened.evidence.last("loss").index) == [0, 1] and opened.claims["E"].n == 2
    tokens = torch.zeros(7, 3, dtype=torch.int64)
    assert member.cache(tokens)["blocks.0.attn.hook_pattern"].shape == (7, 1, 3, 3)
    with pytest.raises(hs.UserError, match="expected the task with which") as error:
        member.batch(3)
    assert str(file) in str(error.value)
    assert hopscope("report", run).status == 0
    program = find_study(str(file))
    with pytest.raises(UserError, match="expected the task with which"):
        check_source(opened, program)
    file.unlink()
    with pytest.raises(hs.UserError):
        hs.open_run(run).member(0).batch(3)
    assert hopscope("report", run).status == 0


def test_a_changed_claim_is_judged_again_and_shows_both_verdicts(hopscope: Command, again: Path) -> None:
    (run,) = (again.parent / "runs" / "echo").iterdir()
    mend(again, "hs.at_least(0.5", "hs.at_least(0.75")
    assert hopscope("run", again.name).status == 0
    (claim,) = json.loads((run / "claims.json").read_text(encoding="utf-8"))
    assert claim["registration"]["state"] == "changed" and claim["threshold"] == {"at_least": 0.75}
    assert claim["registration"]["under_registered"]["verdict"] in ("inconclusive", "refuted")
    assert "changed after the run" in " ".join(hopscope("claims", run, "--long").out.split())
    assert "changed after the run" in (run / "report.html").read_text(encoding="utf-8")


def test_a_new_study_passes_its_test_and_nothing_is_overwritten(
    hopscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hopscope("new", "study", "first_try").status == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["first_try.md.j2", "first_try.py", "test_first_try.py"]
    assert len((tmp_path / "first_try.py").read_text(encoding="utf-8").splitlines()) <= 90
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_first_try.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "expected no such file yet" in hopscope("new", "study", "first_try").complaint
    assert "letters, digits" in hopscope("new", "study", "First-Try").complaint
    assert "expected one of study" in hopscope("new", "task", "x").complaint
    said = hopscope("run", "first_try.py", "--preset", "smoke", "--task.back", 1, "--training.steps", 20)
    assert said.status == 0, said.err
    page = (Path(said.out.splitlines()[-1]) / "report.html").read_text(encoding="utf-8")
    assert "How many layers does it take to copy from a fixed distance?" in page
