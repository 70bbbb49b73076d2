"""Every notebook runs, with its solutions, and is kept as its author wrote it: without outputs."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUN = """
import re, sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
with_solutions = []
for cell in book.cells:
    with_solutions.append(cell)
    folded = "".join(re.findall("<details>.*?</details>", cell.source, re.DOTALL))
    with_solutions += map(nbformat.v4.new_code_cell, re.findall("```python\\n(.*?)```", folded, re.DOTALL))
book.cells = with_solutions
NotebookClient(book, timeout=240, resources={"metadata": {"path": sys.argv[2]}}).execute()
shown = [output for cell in book.cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})]
print("rich displays", len(shown))
"""
NEEDED = {"6_language_model": ("inspect_ai", "transformers")}


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_there_are_six():
    assert [path.stem[0] for path in NOTEBOOKS] == list("123456")
    named = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert all(path.name in named for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_an_exercise_with_a_folded_solution_and_no_outputs(path):
    book = cells(path)
    words = "".join("".join(cell["source"]) for cell in book if cell["cell_type"] == "markdown")
    assert "## Exercise" in words and "<details><summary>Solution</summary>" in words
    assert words.count("<details>") == words.count("</details>")
    assert all(
        not cell["outputs"] and cell["execution_count"] is None
        for cell in book
        if cell["cell_type"] == "code"
    )


@pytest.mark.extras
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path_factory):
    needed = ("nbclient", "ipykernel", *NEEDED.get(path.stem, ()))
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        assert os.environ.get("HOPSCOPE_REQUIRE_DOCS") != "1", (
            f"{missing} not installed, and HOPSCOPE_REQUIRE_DOCS=1"
        )
        pytest.skip(f"{', '.join(missing)} not installed")
    folder = (
        tmp_path_factory.getbasetemp() / "notebooks"
    )  # shared: a run of one notebook is found by the next
    folder.mkdir(exist_ok=True)
    foreign = ("PYTEST_", "COV_", "PYTHONWARNINGS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(path), str(folder)],
        env={
            **environment,
            "HOPSCOPE_NOTEBOOK_PRESET": "smoke",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "rich displays 0" not in done.stdout, "what notebooks are for"
