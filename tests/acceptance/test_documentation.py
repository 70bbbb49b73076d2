"""What the documentation says is what the results say, and what the README shows runs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hopscope.claims import judge
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Evidence
from hopscope.studies import find_study

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_tables_are_those_of_the_results(page: Path, docs_tables: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    assert docs_tables.filled(text) == text, "python docs/tables.py makes the tables anew"


def test_a_changed_number_would_be_noticed(docs_tables: ModuleType) -> None:
    text = (DOCS / "circuits.md").read_text(encoding="utf-8")
    changed = text.replace("1.0000", "0.9999", 1)
    assert changed != text
    assert docs_tables.filled(changed) == text


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    for target in targets:
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the sources were not cloned, git cannot be asked")
def test_pages_show_and_name_nothing_that_git_leaves_out() -> None:
    """A picture that lies here and is ignored by git is missing in every clone."""
    named = [
        os.path.relpath(page.parent / target, ROOT)
        for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    done = subprocess.run(
        ["git", "check-ignore", "--stdin"],
        input="\n".join(named),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", ""), "add it with git add -f"


def readme_examples() -> list[str]:
    """Python of the README; the last is run where nnsight is, in `tests/models/test_export_nnsight.py`."""
    examples: list[str] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 3
    return examples


def test_readme_study_of_one_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hopscope as hs
    from hopscope.studies import find_study

    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.py").write_text(readme_examples()[1], encoding="utf-8")
    study = find_study("copying.py").study
    hs.testing.check_task(study.task)
    fields = {"training.steps": 20, "model.layers": [1], "task.back": [3]}
    run = hs.run(study.changed(fields), seeds=2, out=tmp_path / "runs")
    assert run.claims["C1"].verdict in ("inconclusive", "refuted") and run.claims["C1"].n == 2


FIRST = 'hopscope.run("emergence", seeds=2)'


def printed_by(example: str, folder: Path) -> str:
    """What an example prints, as a program of its own."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{example}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, timeout=900)
    return done.stdout


def test_readme_first_example_reads_a_circuit(emergence_run: Path, tmp_path: Path) -> None:
    """On a run that is there already: the next test trains the one of the README."""
    example = readme_examples()[0]
    assert FIRST in example and len([line for line in example.splitlines() if line.strip()]) <= 5
    copy = shutil.copytree(emergence_run, tmp_path / "run")  # a reading is kept in the run's folder
    said = printed_by(example.replace(FIRST, f"hopscope.open_run({str(copy)!r})"), tmp_path)
    assert re.match(r"member 1, step 200: (read|unexplained)", said)
    assert "second 1 → first 1" in said


@pytest.mark.extras
@pytest.mark.long
def test_readme_first_example_succeeds_as_the_readme_says(tmp_path: Path) -> None:
    """Heads may differ where the processor rounds otherwise; that the model doubles does not."""
    shown = re.search(r"```\n(member 1, step 1,000: read\n.*?)```", README, re.DOTALL)
    assert shown
    said = printed_by(readme_examples()[0], tmp_path)
    assert said.splitlines()[0] == shown[1].splitlines()[0]
    reads = [{line.partition(": ")[2] for line in text.splitlines()[1:]} for text in (said, shown[1])]
    hops = ("second 1 → first 1", "query → .*second 1", "second 2 → .*second 3", "query → second 2")
    for hop in hops:
        assert all(any(re.fullmatch(hop, read) for read in each) for each in reads), (hop, said)


def test_readme_begins_with_a_picture_that_is_small() -> None:
    first = re.search(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert first and first[1] == "docs/circuit.png"
    assert (ROOT / first[1]).stat().st_size < 200_000


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
    assert all((run / "figures" / name).is_file() for name in collect.shown(run))


def test_results_are_small() -> None:
    """Without what `hopscope report` draws into a folder beside what is kept there."""
    shown = {run / "figures" / name for run in RUNS for name in load_script("collect").shown(run)}
    drawn = {
        path
        for pattern in ("figures/*.png", "figures/*.svg", "report.html", "**/.lock")
        for run in RUNS
        for path in run.glob(pattern)
    }
    kept = {path for path in RESULTS.rglob("*") if path.is_file()} - (drawn - shown)
    campaign = {path for path in kept if path.is_relative_to(RESULTS / "campaign")}  # models that take days
    assert sum(path.stat().st_size for path in kept - campaign) < 32_000_000
    assert sum(path.stat().st_size for path in campaign) < 16_000_000


@pytest.mark.extras
def test_readme_counts_the_verdicts() -> None:
    """By today's rules, of the run that tries every reading of what the presentation leaves open."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    words += ("eleven", "twelve", "thirteen", "fourteen")
    run = RunFolder.open(RESULTS / "permutation" / "readings")
    study, evidence = find_study("permutation"), Evidence.read(run)
    verdicts = [judge(claim, evidence).verdict.value for claim in study.claims(study.recorded(run))]
    members = len(json.loads((RESULTS / "permutation/readings/members.json").read_text(encoding="utf-8")))
    total, reproduced, refuted = len(verdicts), verdicts.count("reproduced"), verdicts.count("refuted")
    told = " ".join(README.split())
    assert (
        f"Of {words[total]} claims {words[reproduced]} are reproduced and {words[refuted]} refuted, in {members} models"
        in told
    )
    assert f"{words[total - reproduced - refuted].capitalize()} more have no verdict" in told
    assert f"{words[reproduced + refuted]} of {words[total]} claims are decided" in told


def test_readme_commands_exist() -> None:
    from hopscope.cli.main import COMMANDS

    shown = set(re.findall(r"^hopscope (\w+)", README, re.MULTILINE))
    assert shown == set(COMMANDS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
