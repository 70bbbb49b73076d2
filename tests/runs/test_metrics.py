import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopscope.errors import UserError
from hopscope.runs.metrics import METRICS_SCHEMA, PLACES, drop_parts_after, read_metrics, write_part


def make_rows(steps, members=(0, 1), seed=None):
    rows = [
        {
            "member": member,
            "step": step,
            "samples": 7 * step,
            "split": split,
            "metric": metric,
            "value": value,
        }
        for step in steps
        for member in members
        for split in ("held_out", "train")
        for metric, value in (("accuracy", step / 7), ("loss", 1.5))
    ]
    if seed is not None:
        random.Random(seed).shuffle(rows)
    return {name: [row[name] for row in rows] for name in METRICS_SCHEMA.names}


def key(row):
    return row["step"], row["member"], row["split"], row["metric"]


def test_a_part_is_sorted_and_comes_back(tmp_path):
    path = write_part(tmp_path, 0, 7, make_rows([3, 5, 7], seed=11))
    assert path == tmp_path / "metrics" / "part-000000000-000000007.parquet"
    table = read_metrics(tmp_path)
    assert table.schema.equals(METRICS_SCHEMA)
    found = table.to_pylist()
    assert found == sorted(found, key=key)
    assert found == pa.table(make_rows([3, 5, 7])).select(METRICS_SCHEMA.names).to_pylist()


def test_equal_rows_make_equal_bytes(tmp_path):
    one = write_part(tmp_path / "a", 0, 5, make_rows([2, 5], seed=3))
    other = write_part(tmp_path / "b", 0, 5, make_rows([2, 5], seed=7))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("first", "last", "change"),
    [
        (3, 5, {"step": [2] * 8}),
        (3, 5, {"step": [7] * 8}),
        (5, 3, {}),
        (3, 5, {"extra": [0] * 8}),
        (3, 5, {"value": [None] * 8}),
        (3, 5, {"split": ["train"] * 7}),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, first, last, change):
    with pytest.raises(ValueError):
        write_part(tmp_path, first, last, make_rows([3]) | change)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_missing_column_is_refused(tmp_path):
    rows = make_rows([3])
    del rows["value"]
    with pytest.raises(ValueError, match="expected columns"):
        write_part(tmp_path, 3, 3, rows)


@pytest.mark.parametrize(
    ("step", "kept"), [(-1, []), (0, [0]), (4, [0]), (5, [0, 5]), (10, [0, 5]), (11, [0, 5, 11])]
)
def test_parts_after_a_step_are_dropped(tmp_path, step, kept):
    for first, last in ((0, 0), (1, 5), (6, 11)):
        write_part(tmp_path, first, last, make_rows([last]))
    leftover = tmp_path / "metrics" / ".part-000000001-000000005.parquet.tmp"
    leftover.write_bytes(b"half")
    foreign = tmp_path / "metrics" / "part-of-mine.parquet"
    foreign.write_bytes(b"mine")
    drop_parts_after(tmp_path, step)
    assert not leftover.exists()
    assert foreign.read_bytes() == b"mine"
    assert sorted(set(read_metrics(tmp_path)["step"].to_pylist())) == kept


def test_dropping_where_there_is_nothing(tmp_path):
    drop_parts_after(tmp_path / "none", -1)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_read_from_its_parts_and_then_from_the_gathered_table(tmp_path):
    write_part(tmp_path / "units" / "b", 0, 3, make_rows([0, 3], members=[0, 2]))
    write_part(tmp_path / "units" / "a", 0, 3, make_rows([0, 3], members=[1]))
    write_part(tmp_path / "units" / "a", 4, 5, make_rows([5], members=[1]))
    before = read_metrics(tmp_path)
    assert before.to_pylist() == sorted(before.to_pylist(), key=key)
    assert set(before["member"].to_pylist()) == {0, 1, 2}
    # Runs from before the evidence table have their rows gathered in the same columns.
    pq.write_table(before, tmp_path / "metrics.parquet")
    (tmp_path / "units" / "a" / "metrics" / "part-000000004-000000005.parquet").write_bytes(b"")
    assert read_metrics(tmp_path).equals(before)


def test_what_is_of_the_whole_leaves_no_trace_of_places(tmp_path):
    rows = make_rows([3])
    plain = write_part(tmp_path / "a", 0, 5, rows)
    nulls = {name: [None] * len(rows["step"]) for name in PLACES.names}
    assert write_part(tmp_path / "b", 0, 5, rows | nulls).read_bytes() == plain.read_bytes()


def test_places_are_columns_where_a_row_has_one(tmp_path):
    one = {name: values[:1] for name, values in make_rows([3]).items()}
    twice = {name: values * 3 for name, values in one.items()}
    places = {"part": ["repeat", None, "plain"], "head": [2, None, None], "layer": [None] * 3}
    write_part(tmp_path, 0, 3, twice | places)
    write_part(tmp_path, 4, 5, one | {"step": [5]})
    table = read_metrics(tmp_path)
    assert table.schema.names == [*METRICS_SCHEMA.names, "part", "head"]
    assert table["part"].to_pylist() == ["plain", "repeat", None, None]
    assert table["head"].to_pylist() == [None, 2, None, None]
    with pytest.raises(ValueError, match="expected columns"):
        write_part(tmp_path, 6, 6, one | {"step": [6], "parts": [None]})


def test_no_metrics_yet_is_an_empty_table(tmp_path):
    assert read_metrics(tmp_path).num_rows == 0
    assert read_metrics(tmp_path).schema.equals(METRICS_SCHEMA)


def test_a_part_cut_short_anywhere_is_refused(tmp_path):
    part = write_part(tmp_path / "units" / "u", 0, 3, make_rows([3]))
    whole = part.read_bytes()
    for length in (*range(0, len(whole), 41), len(whole) - 1):
        part.write_bytes(whole[:length])
        with pytest.raises(UserError, match="expected a whole metrics table") as caught:
            read_metrics(tmp_path)
        assert str(part) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert f"delete the folder {tmp_path / 'units' / 'u'}" in str(caught.value)


def test_a_table_with_other_columns_is_refused(tmp_path):
    pq.write_table(pa.table({"step": [1]}), tmp_path / "metrics.parquet")
    with pytest.raises(UserError, match=r"expected the columns member, .*, found step: delete"):
        read_metrics(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="found none"):
        read_metrics(tmp_path / "none")


def test_a_table_of_few_bytes_and_too_many_cells_is_refused(tmp_path, monkeypatch):
    part = write_part(tmp_path / "units" / "u", 0, 3, make_rows([3]))
    monkeypatch.setattr("hopscope.runs.metrics.MOST_CELLS", 47)
    with pytest.raises(UserError, match="one of 48 cells, where 47 are the most"):
        read_metrics(tmp_path)
    monkeypatch.setattr("hopscope.runs.metrics.MOST_CELLS", 48)
    assert read_metrics(tmp_path).num_rows == 8, part


def test_texts_that_are_no_utf8_are_refused(tmp_path):
    """Arrow reads them without a word, and whoever looks at them meets a `UnicodeDecodeError`."""
    damaged = pa.array([b"los\xff"]).view(pa.string())
    pq.write_table(pa.table({"metric": damaged}), tmp_path / "metrics.parquet")
    with pytest.raises(UserError, match="expected a whole metrics table, found one that is not"):
        read_metrics(tmp_path)


def test_what_a_damaged_table_says_of_its_columns_is_not_looked_at(tmp_path):
    """Arrow ends the process where it is asked for a damaged column's statistics: so it must not be asked."""
    part = write_part(tmp_path / "units" / "u", 0, 3, make_rows([3]))
    whole = part.read_bytes()
    code = (
        "import sys; from pathlib import Path; from hopscope.errors import UserError\n"
        "from hopscope.runs.metrics import read_table\n"
        "path = Path(sys.argv[1]); whole = path.read_bytes(); footer = int.from_bytes(whole[-8:-4], 'little')\n"
        "for place in range(len(whole) - 8 - footer, len(whole)):\n"
        "    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])\n"
        "    try: read_table(path, 'mend')\n"
        "    except UserError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(part)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert part.read_bytes() != whole


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of threads")
def test_reading_starts_no_thread(tmp_path):
    """A thread that holds what was read when Python ends would end the process with SIGABRT, now and then."""
    write_part(tmp_path, 0, 3, make_rows([3]))
    told = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from hopscope.runs.metrics import read_metrics
before = len(os.listdir("/proc/self/task"))
table = read_metrics(Path(sys.argv[1]))
print(table.num_rows, len(os.listdir("/proc/self/task")) - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", told, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["8", "0"], done
