"""The studies of one file in `examples`: run from an empty folder, by the command, with the package installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope as hs

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
STUDIES = [file for file in FILES if "hs.Study(" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_short_and_is_listed(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) < 200
    assert f"[{file.name}]({file.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_task_of_an_example_keeps_the_contract(file: Path) -> None:
    from hopscope.studies import find_study

    hs.testing.check_task(find_study(str(file)).study.task)


@pytest.mark.extras
@pytest.mark.long
def test_copying_by_its_installed_command(tmp_path: Path) -> None:
    """As in the README: the smoke preset from an empty folder; in the environment nothing points to the source."""
    (tmp_path / "copying.py").write_bytes((EXAMPLES / "copying.py").read_bytes())
    command = [str(Path(sys.executable).parent / "hopscope"), "run", "copying.py", "--preset", "smoke"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = hs.open_run(tmp_path / done.stdout.splitlines()[-1])
    assert len(run.members) == 8 and run.claims["C1"].leaning == "agrees"
    assert run.evidence.last("accuracy", **{"model.layers": 1}).min() > 0.9
    attention = run.evidence.last("attention_to_source", layer=0, head=0, **{"model.layers": 1})
    assert attention.min() > 0.5  # the mechanism, not only the answer
    assert json.loads((run.path / "story.json").read_text(encoding="utf-8"))["lead"]["figure"]


@pytest.mark.extras
@pytest.mark.long
def test_the_circuit_of_nearest_key_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nearest_key.py").write_bytes((EXAMPLES / "nearest_key.py").read_bytes())
    run = hs.run("nearest_key.py", seeds=1, fields={"training.steps": 800})
    read = run.circuit(0)
    assert read.verdict == "read", str(read)
    assert any("match (item)" in path.target for path in read.circuit.paths if path.query == "query"), str(
        read
    )
    losses = read.record["loss"]
    assert losses["rules"] < losses["random_circuits"] / 3


@pytest.mark.extras
@pytest.mark.long
def test_a_claim_about_a_built_in_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fields = {"training.steps": 60, "model.layers": [2, 3], "model.width": 16}
    run = hs.run(str(EXAMPLES / "layers_and_speed.py"), seeds=2, fields=fields)
    (claim,) = run.claims
    assert (
        claim.verdict == "not run" and "4 members measured" in claim.words
    )  # 60 steps are too few to learn x₁
    assert run.evidence.curve("loss_step_1").shape[1] == 4
