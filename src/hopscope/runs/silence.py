"""Nulls in the evidence of members that diverged.

A diverged member is frozen: its weights are those from before it broke off, and whatever is measured on them says
nothing of the trained model.  So its numbers end where it broke off, and a null stands where the others of its
configuration have their last number.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from hopscope.runs.evidence_table import PLACE, ROW_SCHEMA, Described

Ends = dict[tuple[Any, ...], tuple[int, int | None]]
"""Last step of each number (columns `PLACE`), and the samples seen by then."""


def with_nulls(
    training: pa.Table, measured: pa.Table, members: Sequence[Described], diverged: Collection[int]
) -> tuple[pa.Table, pa.Table]:
    """Training rows and other rows with the nulls of the members that diverged.

    Args:
        training, measured: columns as in `ROW_SCHEMA`.
        members: all of the run.
        diverged: run-global numbers.
    """
    if not diverged:
        return training, measured
    alive_until = dict.fromkeys(diverged, -1)
    for row in _of(training, diverged).group_by("member").aggregate([("step", "max")]).to_pylist():
        alive_until[row["member"]] = row["step_max"]
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for label in dict.fromkeys(member.configuration for member in members if member.member in diverged):
        group = [member for member in members if member.configuration == label]
        frozen = [member.member for member in group if member.member in diverged]
        ends = _training_ends(training, group, frozen)
        added += [_null(member, key, end) for member in frozen for key, end in ends.items()]
        ours = _of(measured, [member.member for member in group])
        ends = _ends(ours)
        changed += _silenced(_of(ours, frozen), frozen, ends, alive_until)
    others = _of(measured, diverged, without=True)
    return (
        pa.concat_tables([training, pa.Table.from_pylist(added, ROW_SCHEMA)]),
        pa.concat_tables([others, pa.Table.from_pylist(changed, ROW_SCHEMA)]),
    )


def _training_ends(training: pa.Table, group: Sequence[Described], frozen: Sequence[int]) -> Ends:
    """Last steps of a configuration's training record: those of healthy members, or the job's if all diverged."""
    healthy = [member.member for member in group if member.member not in frozen]
    if healthy:
        return _ends(_of(training, healthy))
    known = _ends(_of(training, frozen))
    steps, batch = group[0].steps, group[0].batch_size
    if steps is None:
        return {}
    return dict.fromkeys(known, (steps, steps * batch if batch else None))


def _ends(table: pa.Table) -> Ends:
    grouped = table.group_by(list(PLACE)).aggregate([("step", "max"), ("samples", "max")])
    return {
        tuple(row[name] for name in PLACE): (row["step_max"], row["samples_max"])
        for row in grouped.to_pylist()
    }


def _silenced(
    table: pa.Table, frozen: Sequence[int], ends: Ends, alive_until: dict[int, int]
) -> list[dict[str, Any]]:
    """Rows of frozen members: null after they broke off, and at the last step of every number that others have."""
    rows = table.to_pylist()
    at_end = set()
    for row in rows:
        key = tuple(row[name] for name in PLACE)
        is_last = row["step"] >= ends[key][0]
        if is_last:
            at_end.add((row["member"], key))
        if is_last or row["step"] > alive_until[row["member"]]:
            row["value"] = None
    for member in frozen:
        rows += [_null(member, key, end) for key, end in ends.items() if (member, key) not in at_end]
    return rows


def _null(member: int, key: tuple[Any, ...], end: tuple[int, int | None]) -> dict[str, Any]:
    row = dict.fromkeys(ROW_SCHEMA.names)
    return {**row, **dict(zip(PLACE, key, strict=True)), "member": member, "step": end[0], "samples": end[1]}


def _of(table: pa.Table, members: Collection[int], without: bool = False) -> pa.Table:
    """Rows of some members, or all other rows."""
    import pyarrow.compute as pc

    ours = pc.is_in(table["member"], value_set=pa.array(list(members), pa.int32()))
    return table.filter(pc.invert(ours) if without else ours)
