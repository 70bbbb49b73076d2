"""Whatever the user can mend is said in one line, exit 2, before anything is written."""

import os
import shlex

import pytest
import torch

from hopscope.cli.main import COMMANDS, main

NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")

REFUSED = {
    "frobnicate": ["command", "studies, new, run, claims", "'frobnicate'", "--help"],
    "--frobnicate": ["command", "'--frobnicate'"],
    "run": ["study", "permutation"],
    "run --seeds 3": ["study", "expected one of permutation", "found none"],
    "run retrieval": ["study", "expected one of permutation", "'retrieval'", "hopscope studies"],
    "run permutation --preset tiny": ["preset", "smoke, laptop, paper", "'tiny'"],
    "run permutation --preset=tiny": ["preset", "smoke, laptop, paper", "'tiny'"],
    "run permutation --preset": ["--preset"],
    "run permutation --depth 3": ["--depth", "run permutation --help"],
    "run permutation --repeat-ration 0.2": ["--repeat-ration", "run permutation --help"],
    "run permutation extra": ["extra", "run permutation --help"],
    "run permutation --V 2": ["values", "3", "found 2"],
    "run permutation --V 13": ["values", "12", "found 13"],
    "run permutation --values 2": ["values", "3", "found 2"],
    "run permutation --V five": ["--V", "'five'"],
    "run permutation --epochs-plain 1e308": ["epochs_plain", "1e+308"],
    "run permutation --epochs-plain 999999 --batch-size 1": ["steps", "100000000"],
    "run permutation --repeat-ratio 1.5": ["repeat_ratio", "1", "found 1.5"],
    "run permutation --repeat-ratio -0.1": ["repeat_ratio", "0", "found -0.1"],
    "run permutation --repeat_ratio 1.5": ["repeat_ratio", "found 1.5"],
    "run permutation --repeat-ratio nan": ["repeat_ratio", "finite", "found nan"],
    "run permutation --learning-rate inf": ["learning_rate", "finite", "found inf"],
    "run permutation --learning-rate 0": ["learning_rate", "greater than 0"],
    "run permutation --betas 0.9": ["--betas", "2"],
    "run permutation --betas 0.9 1": ["betas", "less than 1", "found 1"],
    "run permutation --width 15 --heads 2": ["width", "multiple of heads = 2", "found 15"],
    "run permutation --heads 3": ["width", "multiple of heads = 3", "found 16"],
    "run permutation --configurations 'd15/2 repeats'": ["multiple of heads = 2", "found 15"],
    "run permutation --configurations d32": ["configurations", "'d32/2 repeats'", "'d32'"],
    "run permutation --configurations": ["configurations", "found none"],
    "run permutation --seeds 0": ["seeds", "1", "found 0"],
    "run permutation --seeds -1": ["seeds", "1", "found -1"],
    "run permutation --seeds 100000000000": ["seeds", "at most 10,000", "found 100000000000", "take fewer"],
    "run depth --sweep-seeds 10001": ["sweep_seeds", "at most 10,000", "found 10001"],
    "run circuits --seeds 100000000000": ["seeds", "at most 10,000", "found 100000000000"],
    "run tiny-lm --seeds 100000000000": ["seeds", "at most 10,000", "found 100000000000"],
    "run permutation --out ''": ["--out", "expected a path, found an empty one", "--help"],
    "run permutation --out=": ["--out", "expected a path, found an empty one"],
    "claims ''": ["PATH", "''", "claims --help"],
    "export runs --member 0 --to ''": ["--to", "expected a path, found an empty one"],
    "run permutation --seeds 1.5": ["--seeds", "'1.5'"],
    "run permutation --threads 0": ["threads", "at least 1", "found 0"],
    "run permutation --time-budget 0": ["time-budget", "more than 0", "found 0"],
    "run permutation --time-budget nan": ["time-budget", "more than 0", "found nan"],
    "run permutation --device tpu": ["--device", "'tpu'", "'cpu', 'cuda'"],
    "run permutation --optimizer sgd": ["--optimizer", "'sgd'", "'adam', 'adamw'"],
    "run permutation --repeat-slots 7": ["repeat_slots", "1 to 5", "[7]"],
    "run permutation --repeat-slots 1": ["repeat_slots", "source before a slot"],
    "run permutation --held-out-share 1": ["held_out_share", "less than 1"],
    "run permutation --samples-per-epoch 0": ["samples_per_epoch", "found 0"],
    "claims nowhere": ["nowhere", "found nothing there"],
    "claims --frobnicate": ["--frobnicate", "claims --help"],
    "report": ["PATH"],
    "report nowhere": ["nowhere", "found nothing there"],
    "export": ["--member", "--to", "export --help"],
    "export nowhere --member 0 --to x": ["nowhere", "found nothing there"],
    "export nowhere --member one --to x": ["--member", "'one'"],
    "studies extra": ["extra", "studies --help"],
    "bench --suite tpu": ["--suite", "'tpu'", "'cpu', 'gpu'"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused(line, hopscope, no_training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complaint = hopscope(*shlex.split(line)).complaint
    for words in REFUSED[line]:
        assert words in complaint
    assert "----" not in complaint
    assert list(tmp_path.iterdir()) == []


@NO_CUDA
def test_cuda_absent(hopscope, no_training, tmp_path):
    said = hopscope("run", "permutation", "--device", "cuda", "--out", tmp_path / "runs")
    assert "expected a CUDA device" in said.complaint
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("below", ["", "folder", "folder/deeper"])
def test_root_is_a_file(hopscope, no_training, tmp_path, below):
    (tmp_path / "file").write_text("foreign")
    said = hopscope("run", "permutation", "--out", tmp_path / "file" / below)
    assert str(tmp_path / "file") in said.complaint
    assert "choose another folder" in said.complaint
    assert (tmp_path / "file").read_text() == "foreign"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["permutation", "permutation/0123456789ab"])
def test_a_file_is_in_the_way(hopscope, no_training, tmp_path, name, monkeypatch):
    """Of the study's folder, or of the run's own."""
    monkeypatch.setattr("hopscope.runs.store.config_hash", lambda study, config: "0123456789ab")
    path = tmp_path / "runs" / name
    path.parent.mkdir(parents=True)
    path.write_text("foreign")
    said = hopscope("run", "permutation", "--out", tmp_path / "runs")
    assert str(path) in said.complaint
    assert path.read_text() == "foreign"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux")  # noqa: PTH112
def test_root_cannot_be_written(hopscope, no_training):
    said = hopscope("run", "permutation", "--out", "/proc/runs")
    assert "cannot write /proc/runs" in said.complaint
    assert "expected a writable folder" in said.complaint


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_root_is_read_only(hopscope, no_training, tmp_path):
    tmp_path.chmod(0o500)
    said = hopscope("run", "permutation", "--out", tmp_path / "runs")
    tmp_path.chmod(0o700)
    assert "choose a folder that you may write to" in said.complaint
    assert not (tmp_path / "runs").exists()


def test_a_fault_of_the_system_is_one_line(hopscope, monkeypatch):
    def fail(arguments):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("hopscope.cli.studies.main", fail)
    assert "/some/file: Permission denied" in hopscope("studies").complaint


@pytest.mark.parametrize("terminal", ["ascii", "utf-8"])
def test_errors_read_the_same_on_any_terminal(terminal, monkeypatch, capsys):
    """The parser draws its boxes by what standard output can show; nothing of them may be left."""

    class Output:
        encoding = terminal
        errors = "strict"

        def write(self, text):
            raise AssertionError("expected nothing on standard output")

        def flush(self):
            pass

        def isatty(self):
            return False

    monkeypatch.setattr("sys.stdout", Output())
    assert main(["export", "runs", "--member", "one", "--to", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(part in line for part in ("hopscope: ", "--member", "'one'", "hopscope export --help"))


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help(hopscope, arguments):
    said = hopscope(*arguments)
    assert (said.status, said.err) == (0, "")
    assert "usage" in said.out.lower()
    if arguments[0] not in COMMANDS:
        for name, words in COMMANDS.items():
            assert name in said.out
            assert words in said.out


def test_help_of_a_study_names_every_field(hopscope):
    from hopscope.studies.permutation.config import PermutationStudyConfig

    said = hopscope("run", "permutation", "--help")
    assert said.status == 0
    for field in [*PermutationStudyConfig.model_fields, "preset", "out", "device", "threads", "time_budget"]:
        flag = field.replace("_", "-")  # a field that is true by default is a flag that switches it off
        assert f"--{flag}" in said.out or f"--no-{flag}" in said.out


def test_no_command_shows_the_usage(hopscope):
    said = hopscope()
    assert said.status == 2
    assert "usage" in said.out + said.err


def test_version(hopscope):
    import hopscope as package

    assert hopscope("--version").out.split() == ["hopscope", package.__version__]


def test_language_models_are_not_asked_without_a_model(hopscope, tmp_path):
    said = hopscope("run", "llm", "--preset", "smoke", "--out", tmp_path / "runs")
    assert "model: expected at least one to ask, found none" in said.complaint
    assert "--model openai/gpt-4o" in said.complaint
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_machine_without_memory_is_no_fault_of_ours(monkeypatch, capsys, error):
    def starved(arguments):
        raise error

    monkeypatch.setattr("hopscope.cli.studies.main", starved)
    assert main(["studies"]) == 2
    assert capsys.readouterr().err == (
        "hopscope: the memory of this machine ran out; what is done is kept, the same command goes on\n"
    )
