"""Words that nobody can hear end no work; a result that cannot be written is told in one line, with exit status 2."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope.errors
from hopscope.cli import streams
from hopscope.cli.main import main
from hopscope.runs import RunFolder

SOURCE = Path(hopscope.errors.__file__).parents[1]

STUDY = '''"""Repeat the first token."""
import hopscope as hs


class Copy(hs.Task):
    """Repeat the first token."""

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=3, readout=(2,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (3,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


study = hs.Study(
    name="copy", task=Copy(), model=hs.Model(width=8), seeds=2, held_out=23,
    training=hs.Training(steps=11, batch_size=13, evaluate_every=3, checkpoint_every=7),
)
'''


class Gone(io.StringIO):
    """A terminal, or a file, that goes away after some writes."""

    def __init__(self, error: Exception, writes: int, terminal: bool):
        super().__init__()
        self.error, self.writes, self.terminal = error, writes, terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise self.error
        return super().write(text)


@pytest.mark.usefixtures("units_here")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("writes", [0, 3])
@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ValueError("I/O operation on closed file")]
)
def test_training_goes_on_when_nobody_can_be_told(tmp_path, monkeypatch, capsys, terminal, writes, error):
    (tmp_path / "study.py").write_text(STUDY, encoding="utf-8")
    gone = Gone(error, writes, terminal)
    monkeypatch.setattr(sys, "stderr", gone)
    arguments = ["run", str(tmp_path / "study.py"), "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(arguments) == 0
    assert gone.writes < 0 and sys.stderr is gone
    run = RunFolder(Path(capsys.readouterr().out.splitlines()[-1]))
    assert run.is_done and all(unit.is_done for unit in run.units)


def test_an_error_that_cannot_be_told_has_its_exit_status(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Gone(OSError(5, "Input/output error"), 0, False))
    assert main(["frobnicate"]) == 2


def python(*arguments: str, before: str = "", **streams: object) -> "subprocess.CompletedProcess[str]":
    """The command as a shell starts it, with output that waits in a buffer."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shell = ["sh", "-c", f'exec "$@" {before}', "sh"] if before else []
    command = [*shell, sys.executable, "-m", "hopscope", *arguments]
    return subprocess.run(command, env=known | {"PYTHONPATH": str(SOURCE)}, text=True, check=False, **streams)


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["studies", "--help"], ["theory", "--steps", "3"]]
)
def test_a_result_that_cannot_be_written(arguments):
    with Path("/dev/full").open("w") as full:
        done = python(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("hopscope: ") and "No space left on device" in line


def test_a_reader_that_has_gone_is_no_fault():
    reading, writing = os.pipe()
    os.close(reading)
    done = python("--help", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed(closed):
    done = python("theory", "--steps", "3", before=closed, capture_output=True)
    assert done.returncode == 0 and done.stderr == ""


def test_a_closed_stream_leaves_its_number_to_no_file(tmp_path):
    """Whatever a library prints would be written into that file."""
    code = (
        "from hopscope.cli import streams; streams.open_closed(); "
        f"file = open({str(tmp_path / 'file')!r}, 'w'); import os; os.system('echo printed'); assert file.fileno() > 2"
    )
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(shell, env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=False).returncode == 0
    assert (tmp_path / "file").read_text() == ""


def test_a_terminal_that_is_gone(monkeypatch):
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", buffering=1) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        os.close(master)
        with pytest.raises(OSError, match="Input/output error"):
            print("word", file=sys.stderr, flush=True)
        with streams.saying():
            print("word", file=sys.stderr, flush=True)
        monkeypatch.undo()
        with pytest.raises(OSError, match="Input/output error"):
            terminal.close()
