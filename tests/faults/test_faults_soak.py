"""A short soak, and whether a soak would notice anything; docs/reliability.md has what the long one found."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SABOTAGE = """
import sys
sys.path[:0] = [{here!r}, {tests!r}]
import soak, warm
from hopscope.runs import seals
warmed = warm.warm

def sabotaged(root):
    warmed(root)
    seals.is_as_noted = lambda path, content: True

warm.warm = sabotaged
sys.argv = ["soak.py", "--kills", "0", "--corruptions", "60", "--seed", "5"]
sys.exit(soak.main())
"""


def soaked(*command):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)


@pytest.mark.extras
@pytest.mark.long
def test_nothing_is_lost_and_nothing_is_wrong(tmp_path):
    out = tmp_path / "faults.json"
    ended = soaked(HERE / "soak.py", "--kills", 4, "--corruptions", 9, "--seed", 2, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(out.read_text())
    assert told["done"] == told["cases"] > 25 and len(told["rows"]) > 15
    assert all(row["lost"] == row["wrong"] == 0 < row["tried"] for row in told["rows"])
    assert [path.name for path in tmp_path.iterdir()] == ["faults.json"]


@pytest.mark.soak
def test_a_soak_notices_that_nothing_is_checked():
    ended = soaked("-c", SABOTAGE.format(here=str(HERE), tests=str(HERE.parent)))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert '"verdict": "wrong"' in ended.stdout


# What a power cut leaves.


@pytest.fixture
def power(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import power

    return power


def written(path, content, flushed=("file", "folder")):
    """The operations by which a file is written as `write_atomic` writes it, without some of the flushes."""
    folder, _, name = path.rpartition("/")
    hidden = f"{folder}/.{name}.tmp"
    return [
        {"name": "create", "path": hidden},
        {"name": "write", "path": hidden, "content": content.hex()},
        *([{"name": "fsync", "path": hidden, "content": content.hex()}] if "file" in flushed else []),
        {"name": "replace", "path": path, "source": hidden},
        *([{"name": "fsync", "path": folder}] if "folder" in flushed else []),
    ]


MADE = [{"name": "mkdir", "path": "run"}, {"name": "fsync", "path": ""}]


def test_what_was_flushed_is_there_whatever_is_lost(power):
    done = [
        *MADE,
        *written("run/a", b"old"),
        *written("run/a", b"new"),
        *written("run/b", b"2357", ("folder",)),
    ]
    for way in power.WAYS:
        for seed in range(20):
            left = power.cut(done, len(done), way, seed)
            assert left["run/a"] == b"new"
            assert left["run/b"] in [
                b"2357"[:length] + bytes(pad) for length in range(5) for pad in (0, 4 - length)
            ]
    assert power.cut(done, len(done), "nothing", 0)["run/b"] == b""


def test_what_was_not_flushed_may_be_lost(power):
    done = [*MADE, *written("run/a", b"old"), *written("run/a", b"new", ("file",))]
    assert power.cut(done, len(done), "nothing", 0)["run/a"] == b"old"
    assert {power.cut(done, len(done), "any", seed)["run/a"] for seed in range(20)} == {b"old", b"new"}
    assert power.cut(done[:1] + done[2:], len(done) - 1, "nothing", 0) == {}, "the folder's own name is lost"
    removed = [*done, {"name": "unlink", "path": "run/a"}]
    assert "run/a" in power.cut(removed, len(removed), "nothing", 0)
    assert power.cut(removed, 6, "nothing", 0).keys() == {"run", "run/.a.tmp"} - {"run/.a.tmp"}


# What is damaged.


def test_temporary_files_of_one_file_are_of_one_kind(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import damage

    name = "units/0123456789ab/metrics/.part-000000001-000000002.parquet"
    assert {damage.kind(f"{name}.{numbers}tmp") for numbers in ("", "7-11.", "130000-130001.")} == {
        "units/*/metrics/.part-*-*.parquet.tmp"
    }


def test_every_kind_of_file_is_damaged(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HERE))
    import damage

    for name in (
        "config.json",
        "units/0123456789ab/checkpoints/step-000000002.safetensors",
        "figures/loss.svg",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(random.Random(name).randbytes(997))
    struck = {}
    for seed in range(60):
        for row in damage.ALTERED:
            before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            name, how = damage.struck(tmp_path, row, seed)
            struck.setdefault(how, set()).add(damage.kind(name))
            changed = [path for path in before if not path.exists() or path.read_bytes() != before[path]]
            assert [path.relative_to(tmp_path).as_posix() for path in changed] == [name]
            for path, content in before.items():
                path.write_bytes(content)
    assert struck.keys() == {"flip", "cut", "zeros", "longer", "delete"}
    kinds = {"config.json", "units/*/checkpoints/step-*.safetensors", "figures/*.svg"}
    assert all(found == kinds for found in struck.values())
