"""The tests in `inspect/`, in a process of their own: Inspect and its providers warn and leave threads."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

INSPECTED = Path(__file__).with_name("inspect")
WHOLE = ("test_real_servers.py", "test_study.py", "test_tiny_lm.py")
"""Tests of whole runs and servers: the slower half, so that two cores can share the work."""
GROUPS = {
    "whole": [INSPECTED / name for name in WHOLE],
    "parts": sorted(path for path in INSPECTED.glob("test_*.py") if path.name not in WHOLE),
}
NEEDED = ("inspect_ai", "openai", "transformers", "accelerate", "fastapi")


def require(missing: list[str], environment: Mapping[str, str]) -> None:
    """Skip without the extras, or fail where the environment says that there must be both."""
    if not missing:
        return
    what = f"{', '.join(missing)} not installed: `pip install -e .[llm,hf]`"
    if environment.get("HOPSCOPE_REQUIRE_LLM") == "1":
        pytest.fail(f"{what}, and HOPSCOPE_REQUIRE_LLM=1 asks for it")
    pytest.skip(what)


@pytest.mark.extras
@pytest.mark.parametrize("group", GROUPS)
def test_what_needs_the_extras(group, tmp_path):
    run("not soak", GROUPS[group], tmp_path)


@pytest.mark.soak
def test_what_needs_the_extras_and_time(tmp_path):
    run("soak", [INSPECTED], tmp_path, limit=1500)


def run(marked, paths, tmp_path, limit=500):
    require([package for package in NEEDED if find_spec(package) is None], os.environ)
    # Not PYTHONPATH either: Inspect gives tasks the name of their package only where that package is installed.
    foreign = ("PYTEST_", "INSPECT_", "COV_", "PYTHONPATH")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
        "HOPSCOPE_INSPECTED": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
    }
    arguments = ["-q", "-m", marked, "-W", "ignore", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--basetemp", str(tmp_path / "base"), *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=limit,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_extras_are_missed_only_where_they_may_be():
    require([], {"HOPSCOPE_REQUIRE_LLM": "1"})
    with pytest.raises(pytest.skip.Exception, match=r"pip install -e .\[llm,hf\]"):
        require(["inspect_ai"], {})
    with pytest.raises(pytest.fail.Exception, match="HOPSCOPE_REQUIRE_LLM=1 asks for it"):
        require(["inspect_ai"], {"HOPSCOPE_REQUIRE_LLM": "1"})
