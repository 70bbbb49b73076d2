"""The collection under docs/results: every member opens, is whole, and does what the index and the card say."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.json
import pyarrow.parquet
import pytest
import torch

import hopscope as hs
from hopscope.circuits.any_task import AnyTask
from hopscope.circuits.built_in_tasks import task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.comparison import fault_in
from hopscope.collection.card import card
from hopscope.collection.index import by_configuration, read_index
from hopscope.collection.opening import task_of_row
from hopscope.finders.catalogue import ensemble_of
from hopscope.finders.circuit_file import CircuitFile
from hopscope.tasks.config import TaskReference

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "results" / "zoo" / "members"
ROWS = read_index(FOLDER)
FIRST = [row for row, _ in by_configuration(ROWS)]


def test_there_are_enough_of_several_kinds() -> None:
    assert len(ROWS) >= 40
    assert len({row.study for row in ROWS}) >= 4
    assert any(not row.learned for row in ROWS)
    assert any(row.learned_all for row in ROWS)
    assert sum(row.was_read for row in ROWS) >= 20


def test_every_file_has_its_sum_and_there_is_no_other() -> None:
    told = dict(line.split("  ")[::-1] for line in (FOLDER / "SHA256SUMS").read_text("utf-8").splitlines())
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert set(told) == there - {"SHA256SUMS"}
    for name, digest in told.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name
    for row in ROWS:
        assert {name: told[f"{row.name}/{name}"] for name in row.files} == row.files
        assert set(row.files) == {"config.json", "model.safetensors", "reading.json"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_member_has_the_loss_of_the_index(row) -> None:
    member = hs.load(FOLDER / row.name)
    assert {weights.dtype for weights in member.parameters()} == {torch.float32}
    assert sum(weights.numel() for weights in member.parameters()) == row.parameters
    batch = member.batch(row.samples)
    with torch.no_grad():
        predictions = member(batch.inputs)[:, list(member.config.readout_positions)]
    whole = member.task.evaluation(row.samples)
    losses = member.task.losses(predictions[None], whole)
    assert torch.equal(whole.inputs[0], batch.inputs)
    assert float(losses["loss"]) == pytest.approx(row.held_out_float16["loss"], rel=1e-4, abs=1e-6)
    # Rounding changes little: what was learned stays learned.
    assert row.change <= 0.02 * max(row.held_out["loss"], 0.05)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_the_reading_says(row) -> None:
    reading = json.loads((FOLDER / row.name / "reading.json").read_bytes())
    circuit = Circuit.model_validate(reading["circuit"])
    assert (reading["verdict"], tuple(reading["learned"])) == (row.verdict, row.learned)
    assert (reading["checkpoint"], reading["member"]) == (row.step, row.member)
    assert (len(circuit.heads), len(circuit.paths)) == (row.heads, row.paths)
    assert (row.verdict == "read") == (row.holds_in_float16 is not None)
    assert set(row.learned) <= set(row.asked) == set(row.learned_at)


@pytest.mark.parametrize("row", [row for row in FIRST if row.was_read], ids=lambda row: row.name)
def test_a_circuit_holds_in_the_weights_that_are_there(row) -> None:
    """Of the first member of each configuration; the command that makes the collection looks at all."""
    reading = json.loads((FOLDER / row.name / "reading.json").read_bytes())
    model = ensemble_of(hs.load(FOLDER / row.name))
    read = task_of_row(row) if isinstance(row.task, TaskReference) else task_of(row.task)
    circuit = Circuit.model_validate(reading["circuit"])
    assert (fault_in(model, read, circuit) is None) == row.holds_in_float16
    # Without its first path that something needs, it would not.
    needed = max(reading["paths"], key=lambda path: path["loss_if_removed"]["rules"])
    fewer = [path for path in circuit.paths if (path.layer, path.head, path.query)
             != (needed["layer"], needed["head"], needed["query_role"])]  # fmt: skip
    assert fault_in(model, read, circuit.model_copy(update={"paths": tuple(fewer)})) is not None


def test_members_of_a_study_know_its_task() -> None:
    row = next(row for row in ROWS if isinstance(row.task, TaskReference))
    member = hs.load(FOLDER / row.name)
    assert type(member.task.task).__name__ == row.task.reference
    assert isinstance(AnyTask(member.task).samples, int)
    assert member.batch(5, "train").inputs.shape[0] == 5


# For those who do not have Hopscope.


def test_the_tables_open_with_common_tools() -> None:
    rows = pyarrow.json.read_json(FOLDER / "members.jsonl")
    assert rows.num_rows == len(ROWS)
    names = {row.name: row for row in ROWS}
    timelines = pyarrow.parquet.read_table(FOLDER / "timelines.parquet").to_pandas()
    assert set(timelines["name"]) <= {name for name, row in names.items() if row.paths}
    assert set(timelines["name"]) >= {
        name for name, row in names.items() if row.was_read and row.study != "permutation"
    }
    assert timelines["attention"].between(0.0, 1.0 + 1e-6).all()
    for name, each in timelines.groupby("name"):
        assert each["step"].max() == names[name].step and each["step"].min() == 0
    learned = pyarrow.parquet.read_table(FOLDER / "learned.parquet").to_pandas()
    assert len(learned) == sum(len(row.asked) for row in ROWS)
    for each in learned.itertuples():
        assert each.learned == (each.part in names[each.name].learned)
        assert (None if np.isnan(each.step) else int(each.step)) == names[each.name].learned_at[each.part]


def test_the_circuits_are_in_the_format_of_the_benchmark() -> None:
    file = CircuitFile.model_validate(json.loads((FOLDER / "circuits.json").read_bytes()))
    found = {circuit.model: circuit for circuit in file.circuits}
    assert list(found) == [row.name for row in ROWS if row.was_read]
    for row in ROWS:
        if row.was_read:
            assert len({(each.layer, each.head) for each in found[row.name].heads}) == row.heads


def test_the_card_is_that_of_the_index() -> None:
    said = (FOLDER / "README.md").read_text("utf-8")
    front = said.split("---\n")[1]
    assert "license: mit" in front and "data_files: members.jsonl" in front
    # What was asked for stands in the command; everything else follows from the rows.
    chosen = [
        None if not numbers else {n for a, b in re.findall(r"(\d+)(?:-(\d+))?", numbers[1:])
                                  for n in range(int(a), int(b or a) + 1)}
        for numbers in re.findall(r"runs/[\w-]+/[0-9a-f]+(:[\d,-]+)?", said)
    ]  # fmt: skip
    assert card(ROWS, chosen, 64) == said


def test_the_forward_pass_of_the_card_needs_no_hopscope(monkeypatch, capsys) -> None:
    code = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text("utf-8"), re.DOTALL)[1]
    assert "hopscope" not in code
    monkeypatch.chdir(FOLDER)
    space = {}
    exec(compile(code.partition("\nsamples =")[0], "card", "exec"), space)
    for row in FIRST:
        member = hs.load(FOLDER / row.name)
        batch = member.batch(7)
        with torch.no_grad():
            expected = member(batch.inputs)
        assert torch.allclose(space["forward"](row.name, batch.inputs), expected, atol=1e-4, rtol=1e-4), (
            row.name
        )
    exec(compile(code, "card", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(ROWS)
    assert all(np.isfinite(float(line.split()[1])) for line in printed)
