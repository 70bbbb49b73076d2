"""Damage in any file of a finished run: no number changes in silence, and the same call makes the run whole again."""

import importlib.util
import json
import random
import re
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import hopscope as hs
from hopscope.cli import main
from hopscope.errors import UserError
from hopscope.page.page import page

_spec = importlib.util.spec_from_file_location(
    "hopscope_tests_study", Path(__file__).parents[1] / "faults" / "tiny.py"
)
STUDY = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(STUDY)
OTHERS = [
    b"",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b'"a"',
    b"[" * 20_000,
    b"NaN",
    b"\xff\xfe",
    b'{"files": []}',
    b"PAR1",
]


def run(root):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is trained again is told by one
        return hs.run(STUDY.made(), out=root, threads=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("a")).path


def content(path):
    return {
        each.relative_to(path).as_posix(): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != ".lock"
    }


def readings(path):
    """Everything that is told of a run, each as a function that gives comparable words."""

    def weights():
        opened = hs.open_run(path, STUDY.made())
        members = [opened.member(0, step) for step in (0, 20, 40, 60)]
        return [each.tolist() for member in members for each in member.weights().values()]

    def numbers():
        frame = hs.open_run(path).evidence.rows()
        return frame.to_csv()

    def arrays():
        evidence = hs.open_run(path).evidence
        files = sorted({each for each in evidence.rows()["file"] if isinstance(each, str) and each})
        return [
            {name: np.asarray(each).tolist() for name, each in evidence.arrays(file).items()}
            for file in files
        ]

    return {
        "weights": weights,
        "numbers": numbers,
        "arrays": arrays,
        "claims": lambda: hs.open_run(path).claims.to_json(),
        "page": lambda: page(hs.open_run(path).folder),
    }  # fmt: skip


def damaged(whole, choose):
    """The content after one damage, and what was done to it."""
    kind = choose.choice(["flip", "flip", "cut", "zeros", "longer", "other", "digit"])
    at = choose.randrange(max(1, len(whole)))
    digits = [each.start() for each in re.finditer(rb"[0-9]", whole)]
    if kind == "flip" and whole:
        return whole[:at] + bytes([whole[at] ^ 1 << choose.randrange(8)]) + whole[at + 1 :]
    if kind == "digit" and digits:
        at = choose.choice(digits)
        return whole[:at] + str((int(whole[at : at + 1]) + 1) % 10).encode() + whole[at + 1 :]
    return {"cut": whole[:at], "zeros": whole[:at] + bytes(len(whole) - at), "longer": whole + b"7"}.get(
        kind, choose.choice(OTHERS)
    )


KINDS = [
    "config.json", "manifest.json", "claims.json", "evidence.parquet", "page.json", "report.html", "unit.json",
    "000000000.safetensors", "000000020.safetensors", "000000060.safetensors", ".optimiser.safetensors", ".csv",
    "streams", "circuit", "weight_size", ".vl.json", ".svg",
]  # fmt: skip
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]


@pytest.fixture(scope="module")
def expected(finished):
    return {name: read() for name, read in readings(finished).items()}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_number_changes_and_the_run_is_made_whole(kind, seed, finished, expected, tmp_path):
    root, choose = tmp_path / "runs", random.Random(f"{kind} {seed}")
    path = shutil.copytree(finished, root / "tiny" / finished.name)
    whole = content(finished)
    names = [name for name in whole if kind in name]
    assert names, [*whole]
    name = choose.choice(names)
    (path / name).write_bytes(damaged(whole[name], choose))
    for what, read in readings(path).items():
        try:
            found = read()
        except UserError as error:
            assert str(error).isprintable() and ("expected" in str(error) or "version" in str(error)), error
        else:
            assert found == expected[what], f"{what} changed in silence with {name}"
    for _ in range(3):  # each file that cannot be trusted is named, and may have to be deleted
        try:
            run(root)
            break
        except UserError as error:
            assert str(error).isprintable() and re.search(
                "restore it|delete it|move|run it again", str(error)
            ), error
            if name == "config.json":
                return
            (path / name).unlink(missing_ok=True)
    assert content(path).keys() == whole.keys()
    assert {what: read() for what, read in readings(path).items()} == expected


def test_the_commands_say_it_in_one_line(finished, tmp_path, capsys):
    path = shutil.copytree(finished, tmp_path / "tiny" / finished.name)
    claims = json.loads((path / "claims.json").read_bytes())
    claims[0]["verdict"] = "reproduced" if claims[0]["verdict"] != "reproduced" else "refuted"
    (path / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    for words in (
        ["claims", str(path)],
        ["claims", str(path), "--json"],
        ["report", str(path), "--to", str(tmp_path / "a.html")],
    ):
        assert main(words) == 2
        said = capsys.readouterr()
        assert (
            said.out == "" and said.err.count("\n") == 1 and "claims.json: expected the content" in said.err
        )
