"""The command line: exit status, one line for what a user can mend, and what commands print."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import hopscope
from hopscope import api
from hopscope.circuits.reader import Reading
from hopscope.cli import COMMANDS, main
from hopscope.cli.parsing import console
from hopscope.cli.run import _helps
from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.study.load import BUILT_IN, load

STUDY = '''
import hopscope as hs

class Copy(hs.Task):
    """Repeat a token."""

    length: int = 3
    loud: bool = False

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=self.length, readout=(2,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., 1:2])

study = hs.Study(
    name="tiny", question="Can it copy?", task=Copy(), model=hs.Model(layers=1, heads=1, width=8), seeds=2,
    training=hs.Training(steps=60, batch_size=2, checkpoint_every=60), held_out=7,
    vary={"model.layers": [1, 2]}, presets={"smoke": {"training.steps": 20}},
    claims=[hs.Claim(id="C1", statement="It copies.", source="here", protocol="accuracy at the end",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.99))],
    figures=[hs.figures.curves("loss")],
)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies – ä b")
    (path / "tiny.py").write_text(STUDY, encoding="utf-8")
    return path


def called(capsys, *words):
    status = main([str(word) for word in words])
    said = capsys.readouterr()
    return status, said.out, said.err


def refused(capsys, *words):
    status, _, err = called(capsys, *words)
    assert status == 2 and err.count("\n") == 1 and err.startswith("hopscope: ") and "Traceback" not in err
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys, command):
    status, out, _ = called(capsys, command, "--help")
    assert status == 0 and command in out


@pytest.mark.parametrize("command", ["circuit", "export", "heads", "theory"])
def test_sentences_of_help_are_not_broken_where_the_docstring_is(capsys, command):
    _, out, _ = called(capsys, command, "--help")
    lines = [line.strip("│|\n") for line in out.splitlines()]
    for line, following in pairwise(lines):
        if line[:8] == following[:8] == " " * 8 and following.strip():  # two lines of one description
            assert len(line.rstrip()) + len(following.split()[0]) + 2 > len(line), line


@pytest.mark.parametrize("study", BUILT_IN)
def test_every_field_of_a_study_is_told_in_words_of_its_own(study):
    fields = load(study).study.fields()
    told = [_helps(each.owner)[each.name.rpartition(".")[2]] for each in fields]
    assert all(told) and len({*told}) == len(told) and not any("\n" in words for words in told)


def test_what_is_on_by_default_and_what_is_empty_is_said(capsys):
    _, out, _ = called(capsys, "run", "permutation", "--help")
    said = " ".join(out.replace("│", " ").split())
    assert re.search(r"--model.no-causal [^(]*\(on by default: this turns it off\)", said)
    assert (
        re.search(r"--task.repeat-slots [^(]*\(1…V\)[^(]*\(default: none\)", said)
        and "(default: )" not in said
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["walk"], "command: expected one of studies, new, run"),
        (["run"], "study: expected one of"),
        (["run", "nothing"], "found 'nothing'"),
        (
            ["theory"],
            "theory: expected --steps INT (D: the retrieval steps of the chain, 1 to 1024), found none",
        ),
        (["new"], "new: expected {study} (What to begin) and NAME (Name of the study"),
        (["export", "x"], "export: expected --member INT (Number of the member in the run) and --to PATH ("),
        (["theory", "--steps", "none"], "steps"),
        (["claims", "nowhere"], "nowhere: expected a run, or a root of runs, found nothing there"),
        (["claims", ""], "PATH"),
        (["export", "x", "--member", "0", "--to="], "found an empty word"),
        (["new", "study", "x", "--to="], "found an empty word"),
        (
            ["questions", "--formulation", "equations"],
            "formulation: expected the value alone, found --formulation",
        ),
        (["circuit", "--path=runs"], "path: expected the value alone, found --path; leave --path out"),
        (["circuit", "x", "--tau", "nan"], "tau: expected a loss from 0, found nan"),
        (["circuit", "x", "--tau", "-1"], "tau: expected a loss from 0, found -1.0"),
        (["report", "x", "--to", "x/config.json"], "expected the name of an HTML file"),
        (["report"], "expected at least one PATH"),
        (["new", "study", "Über"], "name: expected small letters"),
        (["new", "study", "copy"], "name: expected one that Python does not know"),
        (["new", "study", "class"], "name: expected one that Python does not know"),
        (["bench", "--suite", "none"], "suite: expected one of"),
        (["run", "depth", "--options.layers", "2", "1"], "layers: expected ascending numbers of layers"),
    ],
)
def test_what_a_user_can_mend_is_one_line(capsys, words, found):
    assert found in refused(capsys, *words)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--preset", "large"], "preset: expected one of smoke, found 'large'"),
        (["--training.lr", "1"], "did you mean 'training.learning_rate'?"),
        (["--task.loud", "True"], "found 'True'; write --task.loud"),
        (["--task.loud", "false"], "found 'false'; leave it out, for so it is"),
        (
            ["--model.causal"],
            "--model.causal: expected a switch that is off, found one that is on; leave it out",
        ),
        (["--model.layers", "0"], "model.layers"),
        (["--training.steps", "abc"], "steps"),
        (["--completion", "torch"], "completion"),
        (["--threads", "0"], "threads: expected a whole number from 1"),
        (["--time-budget", "0"], "time-budget: expected a number of seconds above 0"),
        (["--seeds", "0"], "seeds"),
        (["--executor", "grid"], "executor"),
    ],
)
def test_a_field_that_does_not_fit_is_told_before_anything_is_written(capsys, folder, words, found):
    assert found in refused(capsys, "run", folder / "tiny.py", "--out", folder / "none", *words)
    assert not (folder / "none").exists()


def test_a_run_from_its_command_to_its_page(capsys, folder):
    command = ["run", folder / "tiny.py", "--preset", "smoke", "--out", folder / "runs", "--seeds", "3"]
    status, out, err = called(capsys, *command, "--model.layers", "1")
    assert status == 0, err
    path = out.splitlines()[-1]
    assert (status, path.startswith(str(folder))) == (0, True), err
    assert "C1" in out and "trained and measured" in err
    status, out, _ = called(capsys, "claims", folder / "runs", "--json")
    (claim,) = json.loads(out)
    assert status == 0 and {"id", "statement", "verdict", "value", "interval", "n", "leaning", "here"} <= {
        *claim
    }
    assert called(capsys, "claims", path, "--long")[0] == 0
    status, out, _ = called(capsys, "report", path, "--to", folder / "page.html")
    assert status == 0 and "</html>" in (folder / "page.html").read_text(encoding="utf-8")
    status, again, err = called(capsys, *command, "--model.layers", "1")
    assert status == 0 and again.splitlines()[-1] == path and "trained" not in err
    assert "member: expected one of 0 to 2, found 7" in refused(capsys, "circuit", path, "--member", "7")


def test_infinite_losses_of_a_circuit_are_null_in_json(capsys, monkeypatch):
    reading = Reading(verdict="read", learned=(), threshold=0.1, least_effect=0.01, loss={"full": math.inf})
    monkeypatch.setattr(api, "open_run", lambda path: SimpleNamespace(circuit=lambda *_, **__: reading))
    status, out, _ = called(capsys, "circuit", "runs", "--json")
    assert status == 0 and json.loads(out, parse_constant=pytest.fail)["loss"] == {"full": None}


def test_studies_of_a_file_are_listed(capsys, folder):
    status, out, _ = called(capsys, "studies", "--from", folder / "tiny.py", "--json")
    (study,) = json.loads(out)
    assert status == 0 and study["study"] == "tiny" and "task.length" in study["fields"]


def test_a_new_study_runs_as_it_is(capsys, tmp_path):
    assert called(capsys, "new", "study", "mine", "--to", tmp_path)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "mine.md.j2", "test_mine.py"}
    assert "expected no such file yet" in refused(capsys, "new", "study", "mine", "--to", tmp_path)


def test_theory_as_json(capsys):
    status, out, _ = called(capsys, "theory", "--steps", "5", "--json")
    assert status == 0 and json.loads(out)["exact_layers"] == 4


def test_an_interrupt_is_told_and_what_is_done_is_kept(folder):
    code = "import sys; from hopscope.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["run", str(folder / "tiny.py"), "--out", str(folder / "long"), "--training.steps", "2000000"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as command:
        while not list((folder / "long").rglob("*.safetensors")):
            time.sleep(0.1)
        command.send_signal(signal.SIGTERM)
        said = command.communicate(timeout=60)[1]
    assert command.returncode == 143
    assert said.splitlines()[-1] == "hopscope: interrupted; what is done is kept, the same command goes on"


@pytest.mark.parametrize(
    ("name", "words", "fields"),
    [
        (
            "permutation",
            ["--values", "4", "--batch-size=128"],
            {"task.values": 4, "training.batch_size": 128},
        ),
        (
            "tiny-lm",
            ["--no-repeated", "--training-steps", "300"],
            {"task.repeated": False, "training.steps": 300},
        ),
        ("depth", ["--seeds", "5"], {"seeds": 5}),
    ],
)
def test_a_flag_may_leave_out_the_part_of_the_study_that_it_is_of(name, words, fields):
    from hopscope.cli.run import read_options
    from hopscope.study.load import load

    assert read_options(load(name), words, name)[1] == fields


def test_what_is_given_counts_although_it_is_the_default(folder):
    from hopscope.cli.run import read_options
    from hopscope.study.load import load

    words = ["--training.steps", "20", "--training.warmup-steps", "6"]  # a tenth of the 60 steps of the study
    given = read_options(load(str(folder / "tiny.py")), words, "tiny")[1]
    assert given == {"training.steps": 20, "training.warmup_steps": 6}


ODD = """
import math

import numpy as np
from pydantic import BaseModel

import hopscope as hs
from tiny import Copy, study as plain


class Odd(Copy):
    def floors(self):
        return {"loss": {"a guess": np.float32(1.6)}}


class Inner(BaseModel, frozen=True):
    p: int = 1


class Options(BaseModel, frozen=True):
    run: int = 1
    n: Inner = Inner()
    most: float = 2.0
    remember: bool = False


@hs.measure
def mine(context):
    return {"loss": [0.5] * len(context.members)}


fields = {name: getattr(plain, name) for name in ("model", "training", "question")}
study = hs.Study(name="odd", task=Odd(), options=Options(), measures=[mine], seeds=1, **fields)
"""


def test_names_and_numbers_of_a_user_are_no_fault_of_the_library(capsys, folder):
    (folder / "odd.py").write_text(ODD, encoding="utf-8")
    command = [
        "run",
        folder / "odd.py",
        "--out",
        folder / "odd",
        "--training.steps",
        "10",
        "--training.batch-size",
        "2",
    ]
    status, out, err = called(capsys, *command, "--run", "3", "--n.p", "5")
    assert status == 0, err
    config = json.loads((Path(out.splitlines()[-1]) / "config.json").read_text())
    assert config["identity"]["options"] == {"run": 3, "n": {"p": 5}, "most": 2.0, "remember": False}
    assert "expected finite numbers" in refused(capsys, *command, "--most", "inf")
    assert "write --remember" in refused(capsys, *command, "--remember", "true")


def test_a_url_is_where_a_copy_is_kept(capsys, folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["--preset", "smoke", "--seeds", "1", "--model.layers", "1", "--out", f"file://{tmp_path}/mirror"]
    status, _, err = called(capsys, "run", folder / "tiny.py", *words)
    assert status == 0 and "a copy is kept at" in err and list((tmp_path / "mirror").rglob("report.html")), (
        err
    )


def test_a_copied_study_is_trained_from_the_file_that_is_given(capsys, folder):
    words = ["--preset", "smoke", "--seeds", "1", "--model.layers", "1", "--out", folder / "copied"]
    first, second = folder / "first.py", folder / "second.py"
    first.write_text(STUDY, encoding="utf-8")
    assert called(capsys, "run", first, *words)[0] == 0
    second.write_text(
        STUDY.replace("figures=[", "measures=[hs.measures.by_readout], figures=["), encoding="utf-8"
    )
    first.unlink()
    status, out, err = called(capsys, "run", second, *words)
    assert status == 0, err
    assert "loss_at" in hopscope.open_run(out.splitlines()[-1]).evidence


def test_a_run_that_has_not_ended_says_so(capsys, folder):
    words = ["--preset", "smoke", "--seeds", "2", "--model.layers", "1", "--out", folder / "begun"]
    path = Path(called(capsys, "run", folder / "tiny.py", *words)[1].splitlines()[-1])
    assert "(0, 1, 2, 4, 8, 16, 20), found 3" in refused(capsys, "circuit", path, "--checkpoint", "3")
    for name in ("manifest.json", "claims.json"):
        (path / name).unlink()
    unit = RunFolder(path).units[1]
    shutil.rmtree(unit.path)
    assert "(none yet)" in refused(capsys, "circuit", path, "--member", "1")
    status, out, _ = called(capsys, "claims", path)
    assert status == 0 and "not finished: run the same study again" in out
    with pytest.raises(UserError, match="expected a finished run"):
        hopscope.open_run(path).claims  # noqa: B018


def test_a_reader_that_has_gone_ends_a_command_in_silence():
    with pytest.raises(BrokenPipeError):  # rich would end the process with status 1
        console().on_broken_pipe()
