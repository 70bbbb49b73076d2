"""What is refused: a damaged or a missing file of a collection, in one line."""

import json
import shutil
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.collection.index import read_index
from hopscope.collection.opening import task_of_row
from hopscope.errors import UserError
from hopscope.tasks.config import TaskReference

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "results" / "zoo" / "members"
ROWS = read_index(FOLDER)
NAME = min(ROWS, key=lambda row: row.parameters).name


@pytest.fixture
def copy(tmp_path):
    """A collection of one member of the committed one, whose index still lists all."""
    to = tmp_path / "members"
    to.mkdir()
    shutil.copy(FOLDER / "members.jsonl", to)
    shutil.copytree(FOLDER / NAME, to / NAME)
    assert hs.load(to / NAME).config.layers == 1
    return to


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "reading.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_file_is_refused(copy, file, harm):
    path = copy / NAME / file
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if harm == "flip" else content[:-1])
    with pytest.raises(UserError) as refused:
        hs.load(copy / NAME)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}: expected ") and "build it anew with hopscope zoo build-members" in line


def test_a_member_that_is_not_there(copy):
    with pytest.raises(
        UserError, match=r"expected a member that hopscope zoo members .* lists .*found 'nobody'"
    ):
        hs.load(copy / "nobody")
    other = next(row.name for row in ROWS if row.name != NAME)
    with pytest.raises(UserError, match="expected a file, found none"):
        hs.load(copy / other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: "{", "expected JSON"),
        (lambda row: json.dumps({**row, "heads": "many"}), "heads: expected"),
        (lambda row: json.dumps({**row, "name": "../up"}), "expected a name of letters"),
        (lambda row: json.dumps({key: row[key] for key in row if key != "task"}), "task: expected a value"),
    ],
)
def test_a_damaged_index_is_refused(copy, change, words):
    lines = (copy / "members.jsonl").read_text("utf-8").splitlines()
    lines[1] = change(json.loads(lines[1]))
    (copy / "members.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=rf"members.jsonl, line 2: .*{words}"):
        read_index(copy)


def test_a_task_that_changed_since_is_refused():
    row = next(row for row in ROWS if isinstance(row.task, TaskReference))
    other = row.model_copy(update={"task_source": "0" * 64})
    with pytest.raises(UserError, match=r"expected the task that it was trained on \(source 000000000000\)"):
        task_of_row(other)
    assert task_of_row(row).shape == row.task.shape
