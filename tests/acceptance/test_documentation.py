"""What the documentation says is what the results say, and what the README shows runs."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_tables_are_those_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert load_script("tables").filled(text) == text, "python docs/tables.py makes the tables anew"


def test_a_changed_number_would_be_noticed() -> None:
    text = (DOCS / "permutation.md").read_text(encoding="utf-8")
    changed = text.replace("1.0000", "0.9999", 1)
    assert changed != text
    assert load_script("tables").filled(changed) == text


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    for target in targets:
        if "://" not in target:
            assert (page.parent / target).exists(), target


def readme_examples() -> list[str]:
    """Python of the README; the last is run where nnsight is, in `tests/models/test_export_nnsight.py`."""
    examples: list[str] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 4
    return examples


def test_readme_study_of_one_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hopscope as hs
    from hopscope.studies import find_study

    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.py").write_text(readme_examples()[0], encoding="utf-8")
    study = find_study("copying.py").study
    hs.testing.check_task(study.task)
    fields = {"training.steps": 20, "model.layers": [1], "task.back": [3]}
    run = hs.run(study.changed(fields), seeds=2, out=tmp_path / "runs")
    assert run.claims["C1"].verdict in ("inconclusive", "refuted") and run.claims["C1"].n == 2


def test_readme_circuit_example_runs(emergence_run: Path, tmp_path: Path) -> None:
    example = readme_examples()[2]
    assert len([line for line in example.splitlines() if line.strip()]) <= 5
    copy = shutil.copytree(emergence_run, tmp_path / "run")  # a reading is kept in the run's folder
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{example.replace('runs/emergence', str(copy))}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=180)
    assert re.match(r"(read|unexplained)", done.stdout)
    assert "second 1 → first 1" in done.stdout


@pytest.mark.extras
@pytest.mark.long
def test_readme_library_example_runs(tmp_path: Path) -> None:
    example = readme_examples()[1]
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 5
    fewer = 'preset="smoke", samples_per_epoch=2048, batch_size=64, measurements="basic"'
    small = example.replace('preset="smoke"', fewer)
    assert small != example
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{small}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=180)
    shown = re.fullmatch(r"tensor\(\[[\d.e, +-]+\].*?\)\s(.*)", done.stdout, re.DOTALL)
    assert shown and shown[1].count("Step ") == 5


RESULTS = DOCS / "results"
RUNS = sorted(path.parent for path in RESULTS.rglob("claims.json"))


def test_every_folder_of_results_is_listed_with_its_command() -> None:
    rows = re.findall(
        r"^\| \[[^\]]+\]\(([^)]+)\) \| .*`.+`.* \|$", (RESULTS / "README.md").read_text("utf-8"), re.MULTILINE
    )
    listed = {(RESULTS / target).resolve() for target in rows}
    files = {path.resolve() for path in RESULTS.rglob("*") if path.is_file()} - {RESULTS / "README.md"}
    missing = {file for file in files if not listed & {file, *file.parents}}
    assert not missing, "every file under docs/results belongs to a line of its README"
    assert {run.resolve() for run in RUNS} <= listed


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.relative_to(RESULTS).as_posix())
def test_results_hold_conclusions_alone(run: Path) -> None:
    """As docs/collect.py leaves them: checkpoints, maps and logs are made again by the command that stands beside."""
    from hopscope.runs import RunFolder, is_slim

    assert is_slim(run) and RunFolder.open(run).is_done
    assert not list(run.glob("units/*")) and not (run / "metrics.parquet").exists()
    collect = load_script("collect")
    pictures = {path.name for path in (run / "figures").glob("*") if path.suffix in (".png", ".svg")}
    assert pictures == collect.shown(run)


def test_results_are_small() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 12_000_000


def test_readme_counts_the_verdicts() -> None:
    words = (
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    )
    ledger = json.loads(
        (DOCS / "results" / "permutation" / "paper" / "claims.json").read_text(encoding="utf-8")
    )
    verdicts = [claim["verdict"] for claim in ledger]
    told = (len(ledger), verdicts.count("reproduced"), verdicts.count("refuted"))
    total, reproduced, refuted = (words[count] for count in told)
    sentence = f"Of {total} claims of the source {reproduced} were reproduced and {refuted} refuted"
    assert sentence in " ".join(README.split())


def test_readme_commands_exist() -> None:
    from hopscope.cli.main import COMMANDS

    shown = set(re.findall(r"^hopscope (\w+)", README, re.MULTILINE))
    assert shown == set(COMMANDS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
