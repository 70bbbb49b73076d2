"""The page "Your own study in 15 minutes": its commands and blocks of code, in order, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your_own_study.md"
BLOCK = re.compile(r"```(\w+)(?: file=(\S+))?\n(.*?)```", re.DOTALL)


@pytest.mark.extras
@pytest.mark.long
def test_every_block_runs(tmp_path: Path) -> None:
    """Commands run as they are; blocks of Python run one after another in one interpreter."""
    code: list[str] = []
    ran = 0
    for language, file, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "console":
            for line in text.splitlines():
                assert line.startswith("$ hopscope ")
                _run([str(Path(sys.executable).parent / "hopscope"), *line.split()[2:]], tmp_path)
                ran += 1
        elif file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        else:
            assert language == "python"
            code.append(text)
    (tmp_path / "blocks.py").write_text("\n".join(code), encoding="utf-8")
    _run([sys.executable, "blocks.py"], tmp_path)
    assert ran == 4 and len(code) == 7


def _run(command: list[str], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_reference_names_everything_that_is_public() -> None:
    import hopscope

    text = (PAGE.parent / "reference.md").read_text(encoding="utf-8")
    for name in hopscope.__all__:
        assert re.search(rf"\bhs\.{name}\b", text), f"docs/reference.md does not name hs.{name}"
