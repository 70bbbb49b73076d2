"""Metrics: the training record, written in parts while a unit trains and gathered when the run is done.

A part holds nothing that depends on the clock or the machine, and equal rows give equal bytes, so that a
run that was interrupted and resumed can be compared with one that was not.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hopscope.errors import UserError
from hopscope.runs.evidence_table import SCHEMA as EVIDENCE_SCHEMA
from hopscope.runs.files import is_folder, read_bytes, remove, write_atomic

METRICS_SCHEMA = pa.schema(
    [
        pa.field("member", pa.int32(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""Columns of a part.

`member` is run-global; `samples` counts the training samples that one member has seen by `step`; `value` is
in the metric's own unit (nats, or a fraction).
"""

PLACES = pa.schema(
    [("measure", pa.string()), ("part", pa.string()), ("layer", pa.int32()), ("head", pa.int32())]
)
"""Further columns of a part, each there if one of its rows has something to say in it."""

_ORDER = [(name, "ascending") for name in ("step", "member", "split", "metric")]
_PART = re.compile(r"part-(\d{9,})-(\d{9,})\.parquet")
MOST_CELLS = 1_000_000_000
"""Cells of a table that is read; the largest run on record has a hundredth.  Few bytes can claim any number of them."""

GATHERED = "metrics.parquet"
"""The training record of a whole run."""


def write_part(unit_path: Path, first_step: int, last_step: int, rows: Mapping[str, list[Any]]) -> Path:
    """Writes the rows of one checkpoint interval, sorted by (step, member, split, metric).

    Args:
        unit_path: the unit's folder.
        first_step: first step of the interval.
        last_step: last step of the interval, which is that of the checkpoint.
        rows: equally long lists, one for every column of `METRICS_SCHEMA`, and for columns of `PLACES` if need be.

    Returns:
        The part's path.

    Raises:
        UserError: the file cannot be written.
        ValueError: columns or steps are not as told above.
    """
    further = [name for name in PLACES.names if any(value is not None for value in rows.get(name, ()))]
    if not set(METRICS_SCHEMA.names) <= set(rows) <= {*METRICS_SCHEMA.names, *PLACES.names}:
        raise ValueError(f"expected columns {METRICS_SCHEMA.names}, found {list(rows)}")
    outside = [step for step in rows["step"] if not first_step <= step <= last_step]
    if outside or not 0 <= first_step <= last_step:
        raise ValueError(f"expected steps from {first_step} to {last_step}, found {outside[:3]}")
    path = unit_path / "metrics" / f"part-{first_step:09d}-{last_step:09d}.parquet"
    schema = pa.schema([*METRICS_SCHEMA, *(PLACES.field(name) for name in further)])
    write_table(path, _sorted(pa.table({name: rows[name] for name in schema.names}, schema=schema)))
    return path


def drop_parts_after(unit_path: Path, step: int) -> None:
    """Removes parts that end after `step`, and files left by interrupted writes.

    Args:
        unit_path: the unit's folder.
        step: the step that training goes on from; -1 removes every part.

    Raises:
        UserError: a file cannot be removed.
    """
    later = [path for path in parts(unit_path) if _last_step(path) > step]
    for path in [*later, *(unit_path / "metrics").glob(".*.tmp")]:
        remove(path)


def read_metrics(path: Path) -> pa.Table:
    """The training record of a unit's folder, or of a run's, sorted by (step, member, split, metric).

    A run's gathered table is read where there is one, else the parts of all its units.  Rows that only say that a
    member diverged are left out: every row has a value.

    Returns:
        Columns as in `METRICS_SCHEMA`; a gathered table has those of the evidence table instead.

    Raises:
        UserError: the folder is missing, or a file in it is damaged.
    """
    if not is_folder(path):
        raise UserError(f"{path}: expected the folder of a run or unit, found none: check the path")
    gathered = path / GATHERED
    if gathered.exists():
        return read_gathered(gathered)
    return read_parts([path, *sorted(path.glob("units/*/"))])


def read_gathered(path: Path) -> pa.Table:
    """The rows of a run's `metrics.parquet` that have a value, in today's columns or in those before.

    Raises:
        UserError: the file is damaged.
    """
    import pyarrow.compute as pc

    remedy = f"delete {path} and run the same command again"
    table = read_table(path, remedy)
    if table.schema.names[: len(EVIDENCE_SCHEMA)] != EVIDENCE_SCHEMA.names:
        _check_columns(path, table, remedy)
    return table.filter(pc.is_valid(table["value"])) if table["value"].null_count else table


def parts(unit_path: Path) -> list[Path]:
    """The parts of a unit, by their last steps."""
    found = [path for path in (unit_path / "metrics").glob("part-*.parquet") if _PART.fullmatch(path.name)]
    return sorted(found, key=_last_step)


def check_joined(unit_path: Path, end: int | None = None) -> None:
    """Check that the parts of a unit follow each other from step 0 on.

    Args:
        unit_path: the unit's folder.
        end: step that they must reach; by default any.

    Raises:
        UserError: a part is missing.
    """
    expected = 0
    for part in parts(unit_path):
        first, last = _steps(part)
        if first != expected:
            break
        expected = last + 1
    else:
        if end is None or expected > end:
            return
    raise UserError(
        f"{unit_path / 'metrics'}: expected the training record of every step, found none from step {expected} on: "
        f"{_remedy(unit_path)}"
    )


def check_parts(unit_path: Path, end: int) -> None:
    """Check that a unit's training record is whole up to a step: nothing missing, nothing damaged.

    Raises:
        UserError: it is not.
    """
    check_joined(unit_path, end)
    for part in parts(unit_path):
        read_table(part, _remedy(unit_path))


def _remedy(unit_path: Path) -> str:
    return f"delete the folder {unit_path} and run the same command again"


def _steps(part: Path) -> tuple[int, int]:
    match = _PART.fullmatch(part.name)
    assert match is not None
    return int(match[1]), int(match[2])


def _last_step(part: Path) -> int:
    return _steps(part)[1]


def read_parts(units: Iterable[Path]) -> pa.Table:
    """The parts of some units as one table; columns of `PLACES` are there if a part has them.

    Raises:
        UserError: a part is damaged, or one is missing between others or before them.
    """
    tables = [METRICS_SCHEMA.empty_table()]
    for unit in units:
        remedy = _remedy(unit)
        check_joined(unit)
        for part in parts(unit):
            tables.append(read_table(part, remedy))
            _check_columns(part, tables[-1], remedy)
    return _sorted(pa.concat_tables(tables, promote_options="default"))


def read_parts_after(unit_path: Path, step: int) -> pa.Table:
    """The rows of a unit's parts after a step, for readers that follow a training; columns as of `read_parts`.

    Args:
        unit_path: the unit's folder.
        step: the last step that is known; -1 for all rows.

    Raises:
        UserError: a part is damaged, or was removed while this read it.
    """
    import pyarrow.compute as pc

    tables = [METRICS_SCHEMA.empty_table()]
    for part in parts(unit_path):
        if _last_step(part) > step:
            tables.append(read_table(part, _remedy(unit_path)))
            _check_columns(part, tables[-1], _remedy(unit_path))
    table = pa.concat_tables(tables, promote_options="default")
    return _sorted(table.filter(pc.greater(table["step"], step)))


def read_table(path: Path, remedy: str) -> pa.Table:
    """The table in a Parquet file.

    Args:
        path: the file.
        remedy: what the user should do if it cannot be read, for the error line.

    Raises:
        UserError: the file is missing or damaged.
    """
    content = read_bytes(path, remedy)
    try:
        cells = _cells(pq.read_metadata(pa.BufferReader(content)))
        if cells > MOST_CELLS:
            raise pa.ArrowInvalid(f"one of {cells:,} cells, where {MOST_CELLS:,} are the most")
        # In this thread alone.  A thread of Arrow that still holds `content` when Python ends ends the process with
        # SIGABRT (`pq.read_table` did so in 3 of 100 short processes on a busy machine).
        whole = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        table = whole.read(use_threads=False)
        table.validate(full=True)  # texts that are no UTF-8 among it, which Arrow reads without a word
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        found = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: expected a whole metrics table, found one that is not ({found}): {remedy}"
        ) from error


def _cells(told: pq.FileMetaData) -> int:
    """Rows times columns, by whichever of the file's own counts is the largest.

    What the file says of single columns is not looked at: damaged, it ends the process within Arrow.
    """
    rows = sum(told.row_group(group).num_rows for group in range(told.num_row_groups))
    return max(told.num_rows, rows) * told.num_columns


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a table as a Parquet file; equal tables give equal bytes.

    Raises:
        UserError: the file cannot be written.
    """
    buffer = pa.BufferOutputStream()
    names = table.schema.names
    # Numbers hardly ever repeat: without a dictionary, and byte by byte, they take a seventh less.
    split = {"value": "BYTE_STREAM_SPLIT"} if "value" in names else None
    dictionary = [name for name in names if name != "value"]
    pq.write_table(table, buffer, compression="zstd", use_dictionary=dictionary, column_encoding=split)
    write_atomic(path, buffer.getvalue().to_pybytes())


def _check_columns(path: Path, table: pa.Table, remedy: str) -> None:
    known = [*METRICS_SCHEMA, *(item for item in PLACES if item.name in table.schema.names)]
    if not table.schema.equals(pa.schema(known)):
        found = ", ".join(table.schema.names)
        expected = ", ".join(METRICS_SCHEMA.names)
        raise UserError(f"{path}: expected the columns {expected}, found {found}: {remedy}")


def _sorted(table: pa.Table) -> pa.Table:
    further = [(name, "ascending") for name in PLACES.names if name in table.schema.names]
    return table.sort_by([*_ORDER, *further])
