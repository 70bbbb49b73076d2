"""The scripts of the examples run as they are."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_three_hops(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "three_hops.py"), "2", "7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300, env=environment
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("seed")] == [
        f"seed {seed}: no circuit: above plateau; loss nan" for seed in (0, 1)
    ]
