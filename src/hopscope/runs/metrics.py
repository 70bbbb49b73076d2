"""Metrics: one long table, written in parts while a unit trains and gathered when the run is done.

The table holds nothing that depends on the clock or the machine, and equal rows give equal bytes, so that a
run that was interrupted and resumed can be compared with one that was not.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hopscope.errors import UserError
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
"""Columns of the table.

`member` is run-global; `samples` counts the training samples that one member has seen by `step`; `value` is
in the metric's own unit (nats, or a fraction).
"""

_ORDER = [("step", "ascending"), ("member", "ascending"), ("split", "ascending"), ("metric", "ascending")]
_PART = re.compile(r"part-(\d{9,})-(\d{9,})\.parquet")
_GATHERED = "metrics.parquet"


def write_part(unit_path: Path, first_step: int, last_step: int, rows: Mapping[str, list[Any]]) -> Path:
    """Writes the rows of one checkpoint interval, sorted by (step, member, split, metric).

    Args:
        unit_path: the unit's folder.
        first_step: first step of the interval.
        last_step: last step of the interval, which is that of the checkpoint.
        rows: equally long lists, one for every column of `METRICS_SCHEMA`.

    Returns:
        The part's path.

    Raises:
        UserError: the file cannot be written.
        ValueError: columns or steps are not as told above.
    """
    if sorted(rows) != sorted(METRICS_SCHEMA.names):
        raise ValueError(f"expected columns {METRICS_SCHEMA.names}, found {list(rows)}")
    outside = [step for step in rows["step"] if not first_step <= step <= last_step]
    if outside or not 0 <= first_step <= last_step:
        raise ValueError(f"expected steps from {first_step} to {last_step}, found {outside[:3]}")
    path = unit_path / "metrics" / f"part-{first_step:09d}-{last_step:09d}.parquet"
    columns = {name: rows[name] for name in METRICS_SCHEMA.names}
    _write_table(path, pa.table(columns, schema=METRICS_SCHEMA))
    return path


def drop_parts_after(unit_path: Path, step: int) -> None:
    """Removes parts that end after `step`, and files left by interrupted writes.

    Args:
        unit_path: the unit's folder.
        step: the step that training goes on from; -1 removes every part.

    Raises:
        UserError: a file cannot be removed.
    """
    later = [path for path in _parts(unit_path) if _last_step(path) > step]
    for path in [*later, *(unit_path / "metrics").glob(".*.tmp")]:
        remove(path)


def read_metrics(path: Path) -> pa.Table:
    """The metrics of a unit's folder, or of a run's, sorted by (step, member, split, metric).

    A run's gathered table is read where there is one, else the parts of all its units.

    Raises:
        UserError: the folder is missing, or a file in it is damaged.
    """
    if not is_folder(path):
        raise UserError(f"{path}: expected the folder of a run or unit, found none: check the path")
    gathered = path / _GATHERED
    if gathered.exists():
        return _read_table(gathered, f"delete {gathered} and run the same command again")
    return _read_parts([path, *sorted(path.glob("units/*/"))])


def compact(run_path: Path) -> None:
    """Gathers the parts of all units into `metrics.parquet`.

    Raises:
        UserError: a part is damaged, or the file cannot be written.
    """
    _write_table(run_path / _GATHERED, _read_parts(sorted(run_path.glob("units/*/"))))


def _parts(unit_path: Path) -> list[Path]:
    found = [path for path in (unit_path / "metrics").glob("part-*.parquet") if _PART.fullmatch(path.name)]
    return sorted(found, key=_last_step)


def _last_step(part: Path) -> int:
    match = _PART.fullmatch(part.name)
    assert match
    return int(match[2])


def _read_parts(units: list[Path]) -> pa.Table:
    tables = [METRICS_SCHEMA.empty_table()]
    for unit in units:
        remedy = f"delete the folder {unit} and run the same command again"
        tables += [_read_table(part, remedy) for part in _parts(unit)]
    return pa.concat_tables(tables).sort_by(_ORDER)


def _read_table(path: Path, remedy: str) -> pa.Table:
    content = read_bytes(path, remedy)
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        found = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: expected a whole metrics table, found one that is not ({found}): {remedy}"
        ) from error
    if not table.schema.equals(METRICS_SCHEMA):
        found = ", ".join(table.schema.names)
        expected = ", ".join(METRICS_SCHEMA.names)
        raise UserError(f"{path}: expected the columns {expected}, found {found}: {remedy}")
    return table


def _write_table(path: Path, table: pa.Table) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(table.sort_by(_ORDER), buffer, compression="zstd")
    write_atomic(path, buffer.getvalue().to_pybytes())
