"""Python of the README and of "Your own study" runs as it stands, made small."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope

from .pages import DOCS, ROOT, blocks_of

EXAMPLES = [text for kind, text, _ in blocks_of(ROOT / "README.md") if kind == "python"]


@pytest.mark.long
@pytest.mark.extras
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_readme(number, tmp_path, monkeypatch):
    """A study trains a few steps; what another example runs has the preset smoke."""
    text, real = EXAMPLES[number], hopscope.run
    own = re.match(r'"""(\w+\.py)\b', text)
    file = tmp_path / (own[1] if own else "example.py")
    file.write_text(text, encoding="utf-8")
    if "hs.Study(" in text:
        run = real(str(file), fields={"training.steps": 20}, seeds=2, out=tmp_path / "runs")
        assert {each.verdict for each in run.claims} <= {"inconclusive", "refuted"}
        return

    def small(study, preset="smoke", **more):
        return real(study, "smoke", out=tmp_path / "runs")

    monkeypatch.setattr(hopscope, "run", small, raising=False)
    exec(compile(text, str(file), "exec"), {})


@pytest.mark.extras
@pytest.mark.long
def test_every_block_of_your_own_study(tmp_path):
    """Commands run as they are; blocks of Python run one after another in one interpreter."""
    code, ran = list[str](), 0
    for kind, text, _ in blocks_of(DOCS / "your_own_study.md"):
        named = re.search(r"file=(\S+)", kind)
        if kind.startswith("console"):
            for line in text.splitlines():
                if line.startswith("$ hopscope "):
                    _run([str(Path(sys.executable).parent / "hopscope"), *line.split()[2:]], tmp_path)
                    ran += 1
        elif named:
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
        elif kind == "python":
            code.append(text)
    (tmp_path / "blocks.py").write_text("\n".join(code), encoding="utf-8")
    _run([sys.executable, "blocks.py"], tmp_path)
    assert ran and code


def _run(command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
