"""How the evidence table is made: rows of measures and of training, with what is known of each member beside them.

The table depends on its rows alone: their order, the clock and the machine leave no trace, so that the tables of two
runs can be compared byte by byte.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hopscope.errors import UserError
from hopscope.runs.members import MemberRecord
from hopscope.strict_json import canonical_json

if TYPE_CHECKING:
    import pandas as pd

TRAINING = "training"
"""The measure of the rows that are recorded while a unit trains."""

SCHEMA = pa.schema(
    [
        ("member", pa.int32()),
        ("seed", pa.int64()),
        ("configuration", pa.string()),
        ("split", pa.string()),
        ("step", pa.int64()),
        ("samples", pa.int64()),
        ("measure", pa.string()),
        ("metric", pa.string()),
        ("layer", pa.int32()),
        ("head", pa.int32()),
        ("part", pa.string()),
        ("value", pa.float64()),
        ("file", pa.string()),
    ]
)
"""Columns that every evidence table has; one follows for each field in which members differ."""

ROW_SCHEMA = pa.schema([item for item in SCHEMA if item.name not in ("seed", "configuration")])
"""Columns of the rows alone, before what is known of their members is added."""

PLACE = ("measure", "metric", "split", "layer", "head", "part")
"""Columns that, with member and step, name one number."""

_ORDER = ("step", "member", "split", "metric", "measure", "part", "layer", "head", "file", "value")


@dataclass(frozen=True, slots=True)
class Row:
    """One number that was measured.

    Attributes:
        member: run-global number of the model; `None` for what is true of the whole run.
        measure: what measured it.
        metric: what was measured.
        value: the number; `None` or NaN where there is none.
        split: `"train"` or `"held_out"`.
        step: optimiser steps after which it was measured.
        samples: training samples that the member had seen by then; 0 lets the table work it out.
        layer, head, part: where in the model, and of which subgroup; `None` where that means nothing.
        file: array that the number was taken from, relative to the run's folder.
    """

    member: int | None
    measure: str
    metric: str
    value: float | None
    split: str = "held_out"
    step: int = 0
    samples: int = 0
    layer: int | None = None
    head: int | None = None
    part: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Described:
    """What the table says of a member beside its numbers.

    Attributes:
        member, seed: its run-global number and its seed.
        configuration: label of its unit.
        overrides: fields in which it differs from the run's base.
        steps, batch_size: length and batch of its training, where they are on record.
    """

    member: int
    seed: int
    configuration: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    batch_size: int | None = None


def described(
    members: Iterable[MemberRecord | Mapping[str, Any] | Described], labels: Mapping[str, str] | None = None
) -> list[Described]:
    """Members in any form, described; `labels` gives the configuration of each unit (by default the unit's name)."""
    return [_described(member, labels or {}) for member in members]


def _described(member: MemberRecord | Mapping[str, Any] | Described, labels: Mapping[str, str]) -> Described:
    if isinstance(member, Described):
        return member
    record = member.model_dump() if isinstance(member, MemberRecord) else member
    unit = str(record.get("unit", ""))
    label = str(record.get("configuration", labels.get(unit, unit)))
    number = int(record["member"])
    return Described(number, int(record.get("seed", number)), label, dict(record.get("overrides", {})))


def split_name(split: str) -> str:
    """A split as it is stored: `"held-out"` is `"held_out"`."""
    return split.replace("-", "_")


# What members differ in.


@dataclass(frozen=True)
class Field:
    """One field in which members differ.

    Attributes:
        name: as in the members' overrides.
        values: one for each member, in the table's form; `None` where it is not set.
        type: of the column.
        is_json: whether values are JSON texts, because they are lists or of several kinds.
    """

    name: str
    values: tuple[Any, ...]
    type: pa.DataType
    is_json: bool = False


def varied_fields(members: Sequence[Described], config: Mapping[str, Any]) -> list[Field]:
    """Fields whose values differ between members, and those that the run varies, in name order.

    A member that does not set a dotted field (`model.layers`) has the value of the run's configuration there.
    """
    names = sorted({name for member in members for name in member.overrides})
    found = []
    for name in names:
        base = field_of(config, name)
        values = [member.overrides.get(name, base) for member in members]
        if name in config.get("vary", {}) or len({canonical_json(value) for value in values}) > 1:
            found.append(_field(name, values))
    return found


def field_of(config: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted field (`model.layers`) in a run's configuration; `None` where it has none.

    The fields of a task stand under its name: `task.back` is at `config["task"]["fields"]["back"]`.
    """
    if "." not in name:
        return None
    value: Any = config
    for part in name.split("."):
        if isinstance(value, Mapping) and part not in value and isinstance(value.get("fields"), Mapping):
            value = value["fields"]
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _field(name: str, values: list[Any]) -> Field:
    kinds = {type(value) for value in values if value is not None}
    for kind, column in ((bool, pa.bool_()), (int, pa.int64()), (str, pa.string())):
        if kinds == {kind}:
            return Field(name, tuple(values), column)
    if kinds <= {int, float}:
        return Field(name, tuple(None if value is None else float(value) for value in values), pa.float64())
    texts = tuple(None if value is None else canonical_json(value) for value in values)
    return Field(name, texts, pa.string(), is_json=True)


# Rows.


def rows_table(rows: Iterable[Row], members: Sequence[Described]) -> pa.Table:
    """Rows as columns of `ROW_SCHEMA`.

    Raises:
        UserError: a row is of a member that the run does not have, or has a split that does not exist.
    """
    known = {member.member: member for member in members}
    columns: dict[str, list[Any]] = {item.name: [] for item in fields(Row)}
    for row in rows:
        member = None if row.member is None else known.get(row.member)
        if row.member is not None and member is None:
            raise UserError(
                f"{row.measure}, {row.metric}: expected rows of the run's {len(known)} members, found one of member "
                f"{row.member}: number members as members.json does"
            )
        for item in columns:
            columns[item].append(_cell(row, item, member))
    return pa.table({item.name: _column(item, columns[item.name]) for item in ROW_SCHEMA})


def _column(item: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, item.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        found = str(error).partition("\n")[0]
        raise UserError(
            f"rows: expected values of {item.type} as {item.name}, found others ({found})"
        ) from None


def _cell(row: Row, column: str, member: Described | None) -> Any:
    value = getattr(row, column)
    if column == "value":
        return None if value is None or math.isnan(value) else float(value)
    if column == "samples" and not value and row.step and member is not None and member.batch_size:
        return row.step * member.batch_size
    if column == "split":
        if split_name(value) not in ("train", "held_out"):
            raise UserError(
                f"{row.measure}, {row.metric}: expected the split train or held_out, found {value}"
            )
        return split_name(value)
    return value


def evidence_table(core: pa.Table, members: Sequence[Described], varied: Sequence[Field]) -> pa.Table:
    """The whole table of some rows: with seed, configuration and varied fields of their members, sorted.

    Raises:
        UserError: two rows of one member name the same number.
    """
    place = _places(core["member"], members)
    beside = {
        "seed": pa.array([member.seed for member in members], pa.int64()),
        "configuration": pa.array([member.configuration for member in members], pa.string()),
        **{item.name: pa.array(item.values, item.type) for item in varied},
    }
    columns = {name: values.take(place) for name, values in beside.items()}
    schema = SCHEMA
    for item in varied:
        schema = schema.append(pa.field(item.name, item.type))
    whole = pa.table(
        [columns[name] if name in columns else core[name] for name in schema.names], schema=schema
    )
    ordered = _sorted(whole)
    _check_once(ordered)
    return ordered


def _places(numbers: pa.ChunkedArray, members: Sequence[Described]) -> pa.Array:
    """Place of each row's member in the list of members, null for rows of the whole run."""
    import pyarrow.compute as pc

    known = pa.array([member.member for member in members], pa.int32())
    return pc.index_in(numbers, value_set=known).combine_chunks()


def _sorted(table: pa.Table) -> pa.Table:
    keys = [_ranks(table[name]) for name in _ORDER]
    return table.take(pa.array(np.lexsort(keys[::-1])))


def _ranks(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers in the order of a column's values, nulls first."""
    if pa.types.is_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
        rank = {value: place for place, value in enumerate(sorted(values))}
        lookup = np.array([rank[value] for value in values] or [0])
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(codes < 0, -1, lookup[codes])
    lowest = -math.inf if pa.types.is_floating(column.type) else -1
    return np.asarray(column.combine_chunks().fill_null(lowest).to_numpy(zero_copy_only=False))


def _check_once(table: pa.Table) -> None:
    """Refuse a sorted table in which one number of a member stands twice."""
    import pyarrow.compute as pc

    same = np.ones(max(table.num_rows - 1, 0), dtype=bool)
    for name in ("member", "step", *PLACE):
        ranks = _ranks(table[name])
        same &= ranks[1:] == ranks[:-1]
    same &= pc.is_valid(table["member"]).to_numpy()[1:]
    if same.any():
        row = table.slice(int(np.argmax(same)), 1).to_pylist()[0]
        where = ", ".join(f"{name} {row[name]}" for name in PLACE if row[name] is not None)
        raise UserError(
            f"evidence: expected one row for each number, found two for member {row['member']} at step "
            f"{row['step']} ({where}): give them different metrics or parts"
        )


def data_frame(table: pa.Table) -> "pd.DataFrame":
    """A pandas frame; whole numbers stay whole where some are missing."""
    import pandas as pd

    whole = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return table.to_pandas(types_mapper=whole.get)
