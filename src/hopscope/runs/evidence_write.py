"""A run's evidence table, put together from its folder and written.

The training record is a part of it, and so is the silence of members that diverged: where the others of their
configuration have a last number, they have a null.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hopscope.runs.evidence_table import (
    ROW_SCHEMA,
    TRAINING,
    Described,
    Row,
    evidence_table,
    rows_table,
    varied_fields,
)
from hopscope.runs.files import is_file
from hopscope.runs.metrics import (
    GATHERED,
    check_joined,
    parts,
    read_gathered,
    read_parts,
    write_table,
)
from hopscope.runs.silence import with_nulls
from hopscope.runs.thinning import frozen_members, steps_left_out
from hopscope.runs.units import UnitFolder

if TYPE_CHECKING:
    from hopscope.runs.store import RunFolder

EVIDENCE = "evidence.parquet"


def write_evidence(run: "RunFolder", rows: Iterable[Row]) -> None:
    """Write `metrics.parquet`, the training record, and `evidence.parquet`, that record and the rows.

    Every number of a diverged member from its divergence on becomes null.

    Args:
        run: a run whose units are trained.
        rows: what was measured beside the training record, in any order; taken one after another once
            `metrics.parquet` is there, so that whoever makes them may read it.

    Raises:
        UserError: a file is damaged or cannot be written, or the rows do not fit the run.
    """
    members, training = members_of(run), _training_rows(run)
    varied, diverged = varied_fields(members, run.config), _diverged(run, training)

    def write(name: str, further: Iterable[Row]) -> None:
        both = with_nulls(training, rows_table(further, members), members, diverged)
        write_table(run.path / name, evidence_table(pa.concat_tables(both), members, varied))

    write(GATHERED, ())
    write(EVIDENCE, rows)


def training_rows(run_path: Path) -> pa.Table:
    """The training record as it stands in a run's evidence table: rows that have a value.

    Raises:
        UserError: the table is missing or damaged.
    """
    import pyarrow.compute as pc

    table = read_gathered(run_path / EVIDENCE)
    return table.filter(pc.equal(table["measure"], TRAINING))


def members_of(run: "RunFolder") -> list[Described]:
    """What the table says of the run's members beside their numbers.

    Raises:
        UserError: a record of the run is damaged.
    """
    records = {unit.hash: _record(unit) for unit in run.units}
    found = []
    for member in run.members:
        record = records[member.unit]
        training = record.get("plan", {}).get("training", {})
        label = str(record.get("label", member.unit))
        length = training.get("steps"), training.get("batch_size")
        found.append(Described(member.member, member.seed, label, member.overrides, *length))
    return found


def _record(unit: UnitFolder) -> dict[str, Any]:
    return unit.record if unit.is_recorded else {}


def diverged_members(run: "RunFolder") -> set[int]:
    """Run-global numbers of the members that diverged and were frozen.

    Raises:
        UserError: a file of the run is damaged.
    """
    return _diverged(run, _as_rows(run.metrics()))


def _training_rows(run: "RunFolder") -> pa.Table:
    """The training record in columns of `ROW_SCHEMA`: units' own parts, or what was gathered of units without."""
    import pyarrow.compute as pc

    with_parts = [unit.path for unit in run.units if parts(unit.path)]
    gathered = run.path / GATHERED
    for unit in run.units:
        if unit.is_done and (unit.path in with_parts or not is_file(gathered)):
            check_joined(unit.path, unit.steps)
    tables = [_as_rows(read_parts(with_parts))]
    if len(with_parts) < len(run.units) and is_file(gathered):
        names = {path.name for path in with_parts}
        others = [member.member for member in run.members if member.unit not in names]
        table = read_gathered(gathered)
        ours = pc.is_in(table["member"], value_set=pa.array(others, pa.int32()))
        tables.append(_as_rows(table.filter(ours)))
    return pa.concat_tables(tables)


def _as_rows(table: pa.Table) -> pa.Table:
    """Training rows of any format in columns of `ROW_SCHEMA`."""
    import pyarrow.compute as pc

    columns = []
    for item in ROW_SCHEMA:
        known = item.name in table.schema.names
        column = table[item.name] if known else pa.nulls(table.num_rows, item.type)
        if item.name == "measure":
            column = pc.fill_null(column, TRAINING)
        if item.name == "value":
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, item.type), column)
        columns.append(column)
    return pa.table(columns, schema=ROW_SCHEMA)


def _diverged(run: "RunFolder", training: pa.Table) -> set[int]:
    numbers = {(member.unit, member.index): member.member for member in run.members}
    last = training.group_by("member").aggregate([("step", "max")]).to_pylist()
    reached = {row["member"]: row["step_max"] for row in last}
    found = set()
    for unit in run.units:
        ours = [member for (of, _), member in numbers.items() if of == unit.hash]
        steps = [step for step, _ in unit.checkpoints()] + steps_left_out(unit)
        if steps:
            found |= {numbers[unit.hash, index] for index in frozen_members(unit, max(steps))}
        elif unit.is_done:
            # No checkpoint was kept; but the record of a frozen member stops before the end of training.
            end = unit.steps or 0
            found |= {member for member in ours if reached.get(member, -1) < end}
    return found
