"""What a reading of a trained member costs: both ways find the same circuit, and the whole reading is the reader's."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.virtual_model import VirtualModel

Load = Callable[[str], ModuleType]


@pytest.fixture
def script(load: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a small model whose heads are as wide as its stream read by virtual weights too."""
    module = load("reading_of_run")
    monkeypatch.setattr(module, "fits", lambda _: True)
    monkeypatch.setitem(module.WAYS, "virtual", VirtualModel)
    return module


def test_a_member_of_a_run_is_read_in_both_ways(
    script: ModuleType, emergence_run: Path, tmp_path: Path
) -> None:
    out, printed = tmp_path / "result.json", io.StringIO()
    argv = ["--run", str(emergence_run), "--member", "1", "--rounds", "2", "--out", str(out)]
    assert script.main(argv, Console(file=printed, width=150)) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert (result["verdict"], result["settings"]["member"], result["settings"]["learned"]) == (
        "read",
        1,
        ["step_1"],
    )
    assert result["paths"] > 1 and result["seconds"] > 0 < result["cpu_seconds"]
    times = {way: each["rounds"] for way, each in result["first_circuit_cpu_seconds"].items()}
    ratios = [slow / fast for slow, fast in zip(times["stream"], times["virtual"], strict=True)]
    assert result["stream_over_virtual"]["rounds"] == pytest.approx(ratios)
    assert "round 2 of 2: virtual" in printed.getvalue() and "stream ÷ virtual" in printed.getvalue()


def test_circuits_that_differ_are_no_result(
    script: ModuleType,
    emergence_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    search = script.first_circuit

    def other(*arguments: object) -> tuple[float, Circuit]:
        seconds, circuit = search(*arguments)
        return seconds, Circuit(paths=()) if arguments[-1] == "stream" else circuit

    monkeypatch.setattr(script, "first_circuit", other)
    console = Console(file=io.StringIO())
    assert script.main(["--run", str(emergence_run), "--rounds", "1"], console) == 1
    assert capsys.readouterr().err.startswith("reading: expected the same first circuit")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--run", "nowhere"), "nowhere"),
        (("--run", "RUN", "--member", "97"), "member: expected 0 to"),
        (("--run", "RUN", "--rounds", "0"), "--rounds: expected at least 1"),
        (("--run", "RUN"), "expected a model without MLPs and with narrow heads"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_2(
    load: Load, emergence_run: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], found: str
) -> None:
    argv = [str(emergence_run) if word == "RUN" else word for word in words]
    with pytest.raises(SystemExit) as stopped:
        load("reading_of_run").main(argv)
    error = capsys.readouterr().err
    assert (stopped.value.code, error.count("\n")) == (2, 1)
    assert found in error
