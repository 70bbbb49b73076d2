"""Results of measures as rows of the evidence table, as keys of the training record, and as files to resume from."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.errors import UserError
from hopscope.measures import Measure, run_file, source_of, stored_name
from hopscope.measures.context import Context, as_array
from hopscope.runs import RunFolder, UnitFolder, read_json, write_json
from hopscope.runs.evidence import Row
from hopscope.runs.files import is_file, listed

if TYPE_CHECKING:
    from torch import Tensor

AXES = ("member", "layer", "head")

_KEYS = ("metric", "value", "layer", "head", "part", "file", "split", "step", "member")
_DEFAULTS = {item.name: item.default for item in fields(Row)}


def rows_of(measure: Measure, returned: Any, context: Context) -> list[Row]:
    """Convert the return value of a measure to rows.

    Args:
        measure: whose it is.
        returned: see `hopscope.measures`.
        context: what the measure was given.

    Raises:
        UserError: names the measure, what was expected and what was found.
    """
    if returned is None:
        return []
    rows: list[Row] = []
    if isinstance(returned, Mapping):
        for metric, values in returned.items():
            rows += _of_metric(measure, metric, values, context)
        return rows
    if (
        isinstance(returned, (str, bytes))
        or not isinstance(returned, Iterable)
        or hasattr(returned, "detach")
    ):
        raise _wrong(measure, "a mapping from metric to values, or rows", type(returned).__name__)
    for row in returned:
        rows += _of_row(measure, row, context)
    return rows


def _of_metric(measure: Measure, metric: Any, values: Any, context: Context) -> list[Row]:
    """Rows of one metric of a mapping, over members, layers and heads."""
    array = _numbers(measure, metric, values)
    row = _row(measure, context, {"metric": metric})
    if array.ndim == 0 and context.unit is None and measure.when == "run":
        return [Row(None, value=_number(array[()]), **row)]
    _check_shape(measure, row["metric"], array, context)
    return [
        Row(
            context.members[at[0]],
            value=_number(array[at]),
            **{**row, **dict(zip(AXES[1:], at[1:], strict=False))},
        )
        for at in np.ndindex(array.shape)
    ]


def _check_shape(measure: Measure, metric: str, array: np.ndarray, context: Context) -> None:
    expected: list[Any] = [len(context.members), "layers", "heads"]
    if measure.when != "run":
        config = context.ensemble.config
        expected = [len(context.members), config.layers, config.heads]
    shape = array.shape
    fits = all(isinstance(size, str) or size == found for size, found in zip(expected, shape, strict=False))
    if not 1 <= len(shape) <= len(AXES) or not fits:
        words = " or ".join(
            f"{list(AXES[:axes])} = [{', '.join(map(str, expected[:axes]))}]".replace("'", "")
            for axes in (1, 2, 3)
        )
        raise _wrong(measure, f"values of {metric} of shape {words}", f"{list(shape)}")


def _of_row(measure: Measure, row: Any, context: Context) -> list[Row]:
    """One row that a measure gave: itself, or one for each member."""
    if isinstance(row, Row):
        row = {name: value for name, value in asdict(row).items() if name in _KEYS}
    if not isinstance(row, Mapping):
        raise _wrong(measure, "rows as dicts with metric and value", type(row).__name__)
    unknown = [str(name) for name in row if name not in _KEYS]
    if unknown or "metric" not in row:
        raise _wrong(measure, f"rows with some of {', '.join(_KEYS)}, metric among them", f"{listed(row)}")
    fixed = _row(measure, context, row)
    value = row.get("value")
    if "member" in row:
        number = None if value is None else _single(measure, row["metric"], value)
        return [Row(row["member"], value=number, **fixed)]
    if value is None:
        members: Sequence[int | None] = [None] if measure.when == "run" else context.members
        return [Row(member, value=None, **fixed) for member in members]
    array = _numbers(measure, row["metric"], value)
    if array.ndim == 0 and measure.when == "run":
        return [Row(None, value=_number(array[()]), **fixed)]
    if array.shape != (len(context.members),):
        found = "one number" if array.ndim == 0 else f"shape {list(array.shape)}"
        raise _wrong(
            measure,
            f"a value of {row['metric']} for each of the {len(context.members)} members, or a member",
            found,
        )
    return [
        Row(member, value=_number(number), **fixed)
        for member, number in zip(context.members, array, strict=True)
    ]


def _row(measure: Measure, context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a row beside member and value."""
    metric = given["metric"]
    if not isinstance(metric, str) or not metric:
        raise _wrong(measure, "the name of a metric", repr(metric))
    name, _, group = metric.partition("@")
    step = given.get("step")
    known = {key: given[key] for key in ("layer", "head", "part", "file") if given.get(key) is not None}
    return {
        "measure": measure.name,
        "metric": name,
        "split": given.get("split") or "held_out",
        "step": int(context.step or 0) if step is None else int(step),
        "samples": int(context.samples or 0) if step in (None, context.step) else 0,
        **({"part": group} if group else {}),
        **{key: int(value) if key in ("layer", "head") else str(value) for key, value in known.items()},
    }


def _numbers(measure: Measure, metric: Any, values: Any) -> np.ndarray:
    try:
        array = np.asarray(as_array(values))
        if array.dtype.kind not in "biuf":
            array = np.asarray(
                [float("nan") if each is None else each for each in array.tolist()], dtype=np.float64
            )
    except (TypeError, ValueError, RuntimeError):
        raise _wrong(measure, f"numbers as values of {metric}", type(values).__name__) from None
    return array.astype(np.float64)


def _single(measure: Measure, metric: str, value: Any) -> float | None:
    array = _numbers(measure, metric, value)
    if array.size != 1:
        raise _wrong(measure, f"one number as {metric} of a member", f"shape {list(array.shape)}")
    return _number(array.reshape(-1)[0])


def _number(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _wrong(measure: Measure, expected: str, found: str) -> UserError:
    return UserError(f"measure {measure.name}: expected {expected}, found {found}")


def recorded(rows: Iterable[Row], members: Sequence[int]) -> "dict[tuple[Any, ...], Tensor]":
    """Rows of a measure of training (`when="training"`) as the trainer records them: key → values `[member]`.

    Args:
        rows: of `rows_of`.
        members: in the order of the member axis.

    Raises:
        UserError: a row points to an array, which the training record has no place for.
    """
    import torch

    place = {member: index for index, member in enumerate(members)}
    found: dict[tuple[Any, ...], Tensor] = {}
    for row in rows:
        if row.file is not None or row.member is None:
            raise UserError(
                f"measure {row.measure}: expected numbers of members during training, found "
                f"{'a file' if row.file else 'a row without a member'}; measure it at the checkpoints"
            )
        key = (row.split, row.metric, row.measure, row.part, row.layer, row.head)
        values = found.setdefault(key, torch.full((len(members),), torch.nan, dtype=torch.float64))
        values[place[row.member]] = math.nan if row.value is None else row.value
    return found


# Files.


def keep(
    where: UnitFolder | RunFolder, measure: Measure, rows: Iterable[Row], step: int | None = None
) -> None:
    """Keep what was measured, so that a command that is repeated goes on behind it.

    Args:
        where: the unit, or the run for a measure of the whole run.
        measure: whose rows they are.
        rows: of `rows_of`.
        step: of the checkpoint, for a unit.

    Raises:
        UserError: the file cannot be written.
    """
    write_json(
        _path(where, measure, step), {"source": source_of(measure), "rows": [_plain(row) for row in rows]}
    )


def measured(where: UnitFolder | RunFolder, measure: Measure, step: int | None = None) -> list[Row] | None:
    """Read the rows that `keep` wrote; `None` if there are none, or if the measure has changed since.

    Raises:
        UserError: the file is damaged.
    """
    path = _path(where, measure, step)
    if not is_file(path):
        return None
    remedy = "delete it and run the same command again"
    record = read_json(path, remedy)
    if not isinstance(record, dict) or not isinstance(record.get("rows"), list):
        raise UserError(f"{path}: expected the rows of a measure, found something else: {remedy}")
    if record.get("source") != source_of(measure):
        return None
    return [_restored(row) for row in record["rows"]]


def _path(where: UnitFolder | RunFolder, measure: Measure, step: int | None) -> Any:
    if isinstance(where, UnitFolder):
        assert step is not None, "a unit's rows are those of a checkpoint"
        return where.analysis_path(stored_name(measure), step)
    return where.path / run_file(measure)


def _plain(row: Row) -> dict[str, Any]:
    """A row as JSON: what is as usual is left out, and infinities are words."""
    found = {name: value for name, value in asdict(row).items() if value != _DEFAULTS[name]}
    if row.value is not None and math.isinf(row.value):
        found["value"] = "inf" if row.value > 0 else "-inf"
    return found


def _restored(row: Mapping[str, Any]) -> Row:
    value = row.get("value")
    return Row(**{**row, "value": None if value is None else float(value)})
