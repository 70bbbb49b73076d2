"""Studies of the examples run as their presets `smoke` say, and the script as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope

ROOT = Path(__file__).resolve().parent.parent


STUDIES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if "hs.Study(" in path.read_text())


@pytest.mark.extras
@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_of_one_file(name, tmp_path):
    run = hopscope.run(str(ROOT / "examples" / name), "smoke", members_per_unit=2, out=tmp_path)
    assert (run.path / "report.html").is_file() and not run.evidence.rows("loss").empty
    assert all(claim.verdict in ("inconclusive", "not run") for claim in run.claims), (
        "two seeds of a short run decide nothing"
    )


def test_three_hops(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "three_hops.py"), "2", "7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300, env=environment
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("seed")] == [
        f"seed {seed}: no circuit: above plateau; loss nan" for seed in (0, 1)
    ]
