"""A study of one file that trains in seconds, its command, and packages that stand in for trackers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopscope.cli.main import main
from hopscope.runs import RunFolder, find_run
from hopscope.studies import find_study

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
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])


study = hs.Study(
    name="echo",
    question="Does it repeat?",
    task=Echo(),
    model=hs.Model(width=8),
    training=hs.Training(steps=11, batch_size=13, checkpoint_every=7, evaluate_every=5),
    seeds=2,
    held_out=17,
    claims=[hs.Claim(id="E", statement="It repeats.", source="here", protocol="accuracy",
                     value=lambda evidence: evidence.last("accuracy"), must=hs.at_least(0.5, unit="fraction"))],
)
'''


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file; what the user's machine has told of costs plays no part."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "echo_study.py"
    path.write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a finished run that no test may change: it was trained without any tracker."""
    place = tmp_path_factory.mktemp("trained")
    (place / "echo_study.py").write_text(STUDY, encoding="utf-8")
    run_study(find_study(f"{place / 'echo_study.py'}:study"), threads=1, place=place / "runs")
    return place / "runs"


def run_study(program: Any, threads: int, place: Path) -> None:
    from hopscope.executors import local

    local.run_study(program, program.configured(None, {}), out=place, threads=threads)


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> RunFolder:
    """A copy of it, under the root `runs`."""
    shutil.copytree(trained, tmp_path / "runs")
    return find_run(tmp_path / "runs")


@pytest.fixture
def run(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the study in this process with further flags: status, run and the lines of standard error."""

    def run(*flags: str, out: str = "runs") -> Any:
        capsys.readouterr()
        status = main(["run", str(study), "--out", str(tmp_path / out), "--threads", "1", *flags])
        said = capsys.readouterr()
        folder = RunFolder.open(Path(said.out.splitlines()[-1])) if status == 0 else None
        return status, folder, said.err.splitlines()

    return run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes a package that this process and those that it starts find before any other."""
    place = tmp_path / "packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))

    def make(name: str, source: str) -> None:
        (place / f"{name}.py").write_text(source, encoding="utf-8")

    return make
