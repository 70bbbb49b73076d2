"""The evidence table of a run's folder: training record, further rows, and the nulls of members that diverged."""

import random
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopscope.errors import UserError
from hopscope.runs import (
    Evidence,
    Row,
    RunFolder,
    diverged_members,
    note_thinned,
    save_checkpoint,
    write_evidence,
    write_part,
)
from hopscope.runs.metrics import METRICS_SCHEMA, read_parts

STEPS, BATCH = 11, 3
LAYERS = {"aaa": 2, "bbb": 5, "ccc": 7}
MEMBERS = [
    {"member": n, "unit": unit, "index": index, "seed": index, "overrides": {"layers": LAYERS[unit]}}
    for n, (unit, index) in enumerate(
        [("aaa", 0), ("aaa", 1), ("aaa", 2), ("bbb", 0), ("bbb", 1), ("ccc", 0), ("ccc", 1)]
    )
]
"""Member 1 breaks off at step 7; of unit `ccc` both do, at 7 and 11."""
FROZEN = {"aaa": [-1, 7, -1], "bbb": [-1, -1], "ccc": [7, 11]}
DIVERGED = {1, 5, 6}


def journal(unit):
    """Training rows of a unit as the trainer writes them: a frozen member has none from its freezing on."""
    rows = {name: [] for name in METRICS_SCHEMA.names}
    for member in (member for member in MEMBERS if member["unit"] == unit):
        frozen_at = FROZEN[unit][member["index"]]
        for step in (0, 5, 7, STEPS):
            if frozen_at >= 0 and step >= frozen_at:
                continue
            for split, metric in (("train", "loss"), ("held_out", "loss"), ("held_out", "recall")):
                if step or split == "held_out":
                    value = member["member"] + step / 100 + (metric == "recall")
                    row = (member["member"], step, step * BATCH, split, metric, value)
                    for name, entry in zip(rows, row, strict=True):
                        rows[name].append(entry)
    return rows


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path, "permutation", {"seeds": 3}, MEMBERS, None)
    for unit in run.units:
        job = {"training": {"steps": STEPS, "batch_size": BATCH}}
        unit.create({"label": f"{LAYERS[unit.hash]} layers", "plan": job})
        write_part(unit.path, 0, STEPS, journal(unit.hash))
        metadata = {"step": STEPS, "frozen_at": FROZEN[unit.hash]}
        save_checkpoint(unit.checkpoint_path(STEPS), {"weights/x": np.zeros(3)}, metadata)
        unit.mark_done()
    return run


def measured(members=range(7)):
    for member in members:
        for step in (0, 5, 7, STEPS):
            for head in range(2):
                yield Row(
                    member,
                    "attention",
                    "to_mate",
                    member + step / 7 + head / 100,
                    step=step,
                    layer=1,
                    head=head,
                )
        yield Row(member, "battery", "score", member / 7)
        yield Row(member, "battery", "score", member / 13, step=STEPS, part="hard")
    yield Row(None, "questions", "asked", 17.0)


def gather(run):
    """Leaves the training record as runs from before the evidence table have it."""
    pq.write_table(read_parts([unit.path for unit in run.units]), run.path / "metrics.parquet")


def without_checkpoints(run):
    for unit in run.units:
        unit.checkpoint_path(STEPS).unlink()


def written(run, rows):
    """The evidence of a run, written anew and read back."""
    write_evidence(run, rows)
    return Evidence.read(run)


def test_the_files_open_in_pandas_and_pyarrow(run):
    write_evidence(run, measured())
    frame = pd.read_parquet(run.path / "evidence.parquet")
    table = pq.read_table(run.path / "evidence.parquet")
    assert list(frame.columns) == table.schema.names and len(frame) == table.num_rows
    assert table.schema.names[-1] == "layers" and str(table.schema.field("layers").type) == "int64"
    kinds = {name: str(table.schema.field(name).type) for name in table.schema.names[:13]}
    assert kinds == {
        **dict.fromkeys(("member", "layer", "head"), "int32"),
        **dict.fromkeys(("seed", "step", "samples"), "int64"),
        **dict.fromkeys(("configuration", "split", "measure", "metric", "part", "file"), "string"),
        "value": "double",
    }
    row = frame[(frame["metric"] == "score") & (frame["member"] == 4) & (frame["part"] == "hard")].iloc[0]
    assert (row["seed"], row["configuration"], row["layers"]) == (1, "5 layers", 5)
    assert (row["step"], row["samples"], row["value"]) == (STEPS, STEPS * BATCH, 4 / 13)
    asked = frame[frame["metric"] == "asked"].iloc[0]
    assert asked[["member", "seed", "configuration", "layers"]].isna().all()


def test_metrics_are_the_training_rows_alone_in_the_same_columns(run):
    write_evidence(run, measured())
    metrics, evidence = (pq.read_table(run.path / name) for name in ("metrics.parquet", "evidence.parquet"))
    assert metrics.schema.equals(evidence.schema)
    training = evidence.filter(pa.compute.equal(evidence["measure"], "training"))
    assert metrics.equals(training) and metrics.num_rows < evidence.num_rows


def test_the_table_that_is_written_is_the_one_that_is_read(run):
    write_evidence(run, measured())
    evidence = Evidence.read(run)
    assert evidence.to_arrow().equals(pq.read_table(run.path / "evidence.parquet"))
    assert evidence.members == list(range(7)) and evidence.seeds[5] == 0
    assert evidence.config == {"seeds": 3} and evidence.columns == ["layers"]
    assert evidence.where(layers=5).last("recall").round(9).to_dict() == {3: 4.11, 4: 5.11}


def test_equal_rows_make_equal_bytes(run):
    rows = list(measured())
    write_evidence(run, rows)
    names = ("evidence.parquet", "metrics.parquet")
    before = [(run.path / name).read_bytes() for name in names]
    random.Random(5).shuffle(rows)
    write_evidence(run, iter(rows))
    assert [(run.path / name).read_bytes() for name in names] == before
    gather(run)
    write_evidence(run, rows)
    assert [(run.path / name).read_bytes() for name in names] == before


# Members that diverged.


def test_a_diverged_member_has_a_null_where_the_others_end(run):
    write_evidence(run, [])
    evidence = Evidence.read(run)
    for metric, split in (("loss", "held_out"), ("loss", "train"), ("recall", "held_out")):
        assert (
            set(evidence.last(metric, split=split).index[evidence.last(metric, split=split).isna()])
            == DIVERGED
        )
        found = evidence.rows(metric, split=split, member=1).set_index("step")["value"]
        assert found.index.tolist() == ([0, 5, STEPS] if split == "held_out" else [5, STEPS])
        assert found.isna().tolist() == [False] * (len(found) - 1) + [True]
    null = evidence.rows("loss", member=6, step=STEPS).iloc[0]
    assert (null["samples"], null["measure"], null["configuration"]) == (
        STEPS * BATCH,
        "training",
        "7 layers",
    )
    assert evidence.curve("loss")[6].tolist()[:3] == [6, 6.05, 6.07]


def test_what_is_measured_of_a_diverged_member_counts_until_it_broke_off(run):
    write_evidence(run, measured())
    evidence = Evidence.read(run)
    attention = evidence.curve("to_mate", layer=1, head=1)
    assert attention.isna().sum().to_dict() == {0: 0, 1: 2, 2: 0, 3: 0, 4: 0, 5: 2, 6: 1}
    np.testing.assert_allclose(attention[1][:2], [1.01, 1 + 5 / 7 + 0.01])
    # Whoever leaves the step out means the end.
    assert evidence.last("score").isna().to_dict() == {n: n in DIVERGED for n in range(7)}
    assert evidence.last("score", part="hard").isna().sum() == len(DIVERGED)
    assert len(evidence.rows(measure="attention", split=None)) == 7 * 4 * 2


def test_a_study_may_leave_a_diverged_member_out(run):
    write_evidence(run, measured())
    before = Evidence.read(run).to_arrow()
    healthy = [n for n in range(7) if n not in DIVERGED]
    write_evidence(run, measured(healthy))
    evidence = Evidence.read(run)
    assert evidence.rows("score", member=1)["value"].isna().tolist() == [True, True]
    assert evidence.rows("to_mate", member=1)["step"].tolist() == [STEPS, STEPS]
    # Of a configuration that diverged whole, nobody says what was to be measured.
    assert evidence.rows("score", member=[5, 6]).empty
    assert set(evidence.last("score").index[evidence.last("score").isna()]) == DIVERGED
    assert before.num_rows > evidence.to_arrow().num_rows


def test_who_diverged_is_known_from_checkpoints_notes_and_the_record(run):
    assert diverged_members(run) == DIVERGED
    table = written(run, measured()).to_arrow()
    for unit in run.units:
        frozen = [index for index, step in enumerate(FROZEN[unit.hash]) if step >= 0]
        note_thinned(unit.path, [], [STEPS], frozen)
    without_checkpoints(run)
    assert diverged_members(run) == DIVERGED
    for unit in run.units:
        (unit.path / "thinned.json").unlink()
    assert diverged_members(run) == DIVERGED
    assert written(run, measured()).to_arrow().equals(table)
    (run.units[0].path / "DONE").unlink()
    assert diverged_members(run) == {5, 6}, "a unit that is not done has not stopped early"


# Runs of before.


def test_an_old_run_is_rebuilt_from_its_gathered_metrics(run, unseal):
    unseal(run.path)
    table = written(run, measured()).to_arrow()
    gather(run)
    without_checkpoints(run)
    old = run.metrics()
    assert old.schema.equals(METRICS_SCHEMA)
    for unit in run.units:
        (unit.path / "metrics" / "part-000000000-000000011.parquet").unlink()
    assert written(run, measured()).to_arrow().equals(table)
    write_evidence(run, measured())
    assert Evidence.read(run).to_arrow().equals(table)
    again = run.metrics()
    assert again.schema.names[:13] == table.schema.names[:13] and not again["value"].null_count
    both = [part.select(METRICS_SCHEMA.names).to_pylist() for part in (old, again)]
    assert both[0] == both[1]


def test_a_unit_that_was_trained_anew_is_read_from_its_parts(run):
    table = written(run, []).to_arrow()
    write_evidence(run, [])
    for unit in run.units[1:]:
        (unit.path / "metrics" / "part-000000000-000000011.parquet").unlink()
    assert written(run, []).to_arrow().equals(table)


def test_a_run_without_the_table_says_how_to_make_it(run):
    with pytest.raises(
        UserError, match=r"evidence.parquet: expected .*, found none: `hopscope report .*` makes it anew"
    ):
        Evidence.read(run)


def test_a_damaged_table_is_one_clear_line(run, unseal):
    unseal(run.path)
    write_evidence(run, [])
    path = run.path / "evidence.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(UserError, match="hopscope report") as caught:
        Evidence.read(run)
    assert "\n" not in str(caught.value)
    pq.write_table(pa.table({"member": [1]}), path)
    with pytest.raises(UserError, match=r"expected the columns member, seed, .*, layers, found member"):
        Evidence.read(run)


def test_parts_and_further_places_of_the_journal(tmp_path):
    member = {"member": 0, "unit": "aaa", "index": 0, "seed": 0, "overrides": {}}
    run = RunFolder.create(tmp_path, "copying", {}, [member], None)
    rows = dict(
        zip(
            METRICS_SCHEMA.names,
            ([0] * 3, [5] * 3, [7] * 3, ["held_out"] * 3, ["accuracy"] * 3, [0.5] * 3),
            strict=True,
        )
    )
    places = {"part": [None, "repeat", None], "layer": [None, None, 2], "measure": [None, None, "own"]}
    write_part(run.units[0].path, 0, 5, {**rows, **places, "head": [None] * 3})
    write_part(
        run.units[0].path, 6, 6, {name: [6 if name == "step" else values[0]] for name, values in rows.items()}
    )
    assert run.metrics().schema.names == [*METRICS_SCHEMA.names, "measure", "part", "layer"]
    evidence = written(run, [])
    assert len(evidence.rows("accuracy", measure="training")) == 3
    assert evidence.rows("accuracy", part="repeat")["value"].tolist() == [0.5]
    assert evidence.last("accuracy", measure="own", layer=2).to_dict() == {0: 0.5}


def test_importing_the_record_loads_neither_pandas_nor_torch():
    code = "import hopscope.runs, sys; assert not {'pandas', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
