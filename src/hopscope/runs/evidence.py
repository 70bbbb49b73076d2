"""The evidence table: everything that a run measured, one number a row, for claims, figures and pages.

A number that is said of a run comes from a row of `evidence.parquet`; the row says of which model it is, after how
many steps, what measured it, and in which file its array stands.
"""

import contextlib
import difflib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.errors import NoMembers, UserError
from hopscope.runs.checkpoint import Array, canonical_json, load_checkpoint, sha256
from hopscope.runs.folder import EarlierVersion, RunFolder, listed
from hopscope.runs.unit import TRAINING, Member, Row

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

COLUMNS = {
    "member": "int32", "seed": "int64", "configuration": "string", "split": "string", "step": "int64",
    "samples": "int64", "measure": "string", "metric": "string", "layer": "int32", "head": "int32", "part": "string",
    "value": "double", "file": "string",
}  # fmt: skip
"""Columns that every table has, and their types; one follows for each field in which members differ."""

EVIDENCE = "evidence.parquet"
_OF_MEMBERS = ["member", "seed", "configuration"]
_OF_ROWS = [name for name in COLUMNS if name not in ("seed", "configuration")]
_SECTIONS = ("task", "model", "training")
_ORDER = ["step", "member", "split", "metric", "measure", "part", "layer", "head", "file", "value"]
_NOTE, _AGAIN = b"hopscope.evidence", "delete it and run the same command again"
_SEAL, _ZEROS = b'"sha256":"', "0" * 64  # of the file, in its note; it is taken with zeros in its place


class Evidence:
    """All rows of a run, or those of some members and the whole run; `config` is that of `config.json`."""

    def __init__(self, table: "_Table", members: list[dict[str, Any]], config: Row, folder: Path | None):
        self._table, self._members, self.config, self._folder = table, members, config, folder

    @classmethod
    def read(cls, run: RunFolder | Path | str) -> "Evidence":
        """The table of a run, or of a Parquet file; `UserError`: there is none, or it is damaged."""
        path = run.path if isinstance(run, RunFolder) else Path(run)
        folder, name = (path.parent, path.name) if path.suffix == ".parquet" else (path, EVIDENCE)
        own, config = RunFolder(folder), dict[str, Any]()
        table, members = _from_parquet(folder / name, own.read(name))
        if (folder / "config.json").exists():
            with contextlib.suppress(EarlierVersion):  # whose table is the same
                config = own.config
        return cls(_Table(table, len(members)), members, config, folder)

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        members: Iterable[Any],
        config: Row | None = None,
        folder: Path | None = None,
    ) -> "Evidence":
        """The table of some rows; their order leaves no trace in it.

        `UserError`: they do not fit the columns or the members, or name one number of a member twice.

        Args:
            rows: `metric`, `value` and maybe more columns.  Without `split` a row is held-out, without `measure` of the
                training, without `step` of step 0; without `member` a list is of all members, a number of the run.
            members: each a `Member`, or a mapping of its fields.
            config, folder: of the run: where a field that a member does not set, and files that rows name, are found.
        """
        config = config or {}
        own = _described([each if isinstance(each, Member) else Member(**each) for each in members], config)
        return cls(_Table(_whole(rows, own), len(own)), own, config, folder)

    def write(self, path: Path) -> None:
        """Write the table as a Parquet file, equal rows as equal bytes; `UserError`: it cannot be written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer, note = pa.BufferOutputStream(), {"members": self._members, "sha256": _ZEROS}
        table = self.to_arrow().replace_schema_metadata({_NOTE: canonical_json(note).encode()})
        # Numbers hardly ever repeat: without a dictionary, and byte by byte, the file is a fifth smaller.
        texts = [name for name in table.schema.names if name != "value"]
        options: Any = {"use_dictionary": texts, "use_byte_stream_split": ["value"], "compression": "zstd"}
        pq.write_table(table, buffer, **options)
        before, seal, after = buffer.getvalue().to_pybytes().rpartition(_SEAL + _ZEROS.encode())
        digest = sha256(before + seal + after).encode()
        RunFolder(path.parent).write(path.name, before + _SEAL + digest + after)

    @property
    def members(self) -> list[int]:
        """Numbers of the members, in the order of the run."""
        return [member["member"] for member in self._members]

    @property
    def seeds(self) -> dict[int, int]:
        """Each member's seed, by the member's number."""
        return {member["member"]: member["seed"] for member in self._members}

    @property
    def configurations(self) -> dict[int, str]:
        """Label of each member's configuration, by the member's number."""
        return {member["member"]: member["configuration"] for member in self._members}

    @property
    def columns(self) -> list[str]:
        """Fields that configurations of the run set, and those that follow and differ; each is a column."""
        return self._table.arrow.schema.names[len(COLUMNS) :]

    @property
    def metrics(self) -> list[str]:
        """Names of everything that was measured in the run, whatever its members."""
        return sorted(self._table.of_metric)

    def __contains__(self, metric: object) -> bool:
        """Whether a metric was measured in the run."""
        return metric in self._table.of_metric

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._find(None, {})[0])

    def to_arrow(self) -> "pa.Table":
        """The rows of these members and those of the whole run, as a pyarrow table."""
        return self._table.arrow.take(self._find(None, {})[0])

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return self.rows(split=None)

    def where(self, **where: Any) -> "Evidence":
        """The table of those members (there may be none) whose fields have these values; rows of the whole run stay.

        A condition is a value, or several in a list, set or the like, for `member`, `seed`, `configuration` or one of
        `columns`, as in `**{"model.layers": 1}`.  `UserError`: there is no such column.
        """
        self._check(where, [*_OF_MEMBERS, *self.columns])
        return Evidence(self._table, self._matching(where, False), self.config, self._folder)

    def rows(self, metric: str | None = None, split: str | None = "held_out", **where: Any) -> "pd.DataFrame":
        """Rows (there may be none) as a tidy pandas frame with all columns; without a metric, those of all.

        `split` is `"held_out"`, `"train"`, or `None` for both.  Conditions are as in `where`, on any column; `None` is
        null; of `measure`, any.  `UserError`: there is no such metric or column.
        """
        import pandas as pd
        import pyarrow as pa

        # Whole numbers stay whole where some are missing.
        whole = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        rows, _ = self._find(metric, {"split": split, **where})
        return self._table.arrow.take(rows).to_pandas(types_mapper=whole.get)

    def has(self, metric: str, **where: Any) -> bool:
        """Whether some row has a number; arguments as in `rows`, but a metric that the run lacks is no error."""
        return metric in self and bool(self.rows(metric, **where)["value"].notna().any())

    def last(self, metric: str, split: str = "held_out", **where: Any) -> "pd.Series[float]":
        """Each member's value after its last step with that metric: a float series, NaN where a member has none.

        `split` is `"held_out"` or `"train"`.  `part`, `layer`, `head`: of what part of the samples or the model;
        without them, of the whole.  `measure`: what measured it, needed where several did.  Other conditions: as in
        `rows`.  `UserError`: the run has no such metric, column, value or member, or several measures give it at the
        last step.
        """
        frame, members = self._numbers(metric, {"split": split, **where})
        final = frame.drop_duplicates("member", keep="last")
        if frame.duplicated(["member", "step"])[final.index].any():
            raise _ambiguous(metric, frame)
        return final.set_index("member")["value"].reindex(members).rename(metric)

    def curve(self, metric: str, split: str = "held_out", **where: Any) -> "pd.DataFrame":
        """Values of a metric by step (rows) and member (columns); arguments and errors as in `last`."""
        frame, members = self._numbers(metric, {"split": split, **where})
        if frame["measure"].nunique() > 1 or frame.duplicated(["member", "step"]).any():
            raise _ambiguous(metric, frame)
        return frame.pivot(index="step", columns="member", values="value").reindex(columns=members)

    def arrays(self, file: str) -> dict[str, Array]:
        """The arrays, by name, of a file that rows point to (column `file`); `UserError`: it cannot be read."""
        if self._folder is None:
            raise _wrong(file, "evidence of a run's folder", "none", "use Evidence.read(run)")
        if not (self._folder / file).resolve().is_relative_to(self._folder.resolve()):
            raise _wrong(file, "a file of the run", f"one outside {self._folder}", "name another")
        return load_checkpoint(self._folder / file)[0]

    def _numbers(self, metric: str, where: Row) -> tuple["pd.DataFrame", list[int]]:
        rows, members = self._find(metric, {"layer": None, "head": None, "part": None, **where}, strict=True)
        if (self._table.members[rows] < 0).all() and len(rows):
            raise _wrong(metric, "a metric of members", "one of the whole run", f"use .rows({metric!r})")
        columns = self._table.arrow.select(["member", "step", "measure", "value"])
        frame = columns.take(rows).to_pandas().dropna(subset="member")
        return frame.sort_values(["member", "step"], ignore_index=True), members

    def _find(self, metric: str | None, where: Row, strict: bool = False) -> tuple[Array, list[int]]:
        # Rows that match, and members; strict: a condition that nothing meets is an error.
        table = self._table
        if metric is not None and metric not in self:
            known = f"{_hint(metric, self.metrics)}it has {listed(self.metrics, 30) or 'none'}"
            raise _wrong("metric", "one that the run has", repr(metric), known)
        self._check(where, table.arrow.schema.names)
        mine = {name: where[name] for name in where if name in (*_OF_MEMBERS, *self.columns)}
        members = [member["member"] for member in self._matching(mine, strict)]
        rows = np.arange(len(table.arrow)) if metric is None else table.of_metric[metric]
        for name, value in where.items():
            if name in mine or (value is None and name in ("measure", "split")):
                continue
            values, numbers = table.numbered(name)
            wanted = _wanted(name, value)
            chosen = np.isin(numbers[rows], [number for number, each in enumerate(values) if each in wanted])
            if strict and not chosen.any():
                raise _no_value(metric, name, value, [values[number] for number in np.unique(numbers[rows])])
            rows = rows[chosen]
        if mine or len(members) < table.count:
            rows = rows[np.isin(table.members[rows], members if mine else [-1, *members])]
        return rows, members

    def _matching(self, where: Row, strict: bool) -> list[dict[str, Any]]:
        found = self._members
        for name, value in where.items():
            wanted, left = _wanted(name, value), found
            found = [member for member in left if member[name] in wanted]
            if strict and left and not found:
                raise NoMembers(str(_no_value("members", name, value, {member[name] for member in left})))
        if strict and not found:
            raise NoMembers("members: expected some, found none that are left; ask for fewer things at once")
        return found

    def _check(self, where: Iterable[str], known: Sequence[str]) -> None:
        for name in where:
            if name not in known:
                differ = f"members of this run differ in {listed(self.columns, 20) or 'nothing'}"
                raise _wrong("column", f"one of {listed(known, 40)}", repr(name), _hint(name, known) + differ)

    def __repr__(self) -> str:
        many = f"{len(self):,} rows of {len(self._members)} members in {len({*self.configurations.values()})}"
        metrics, differ = listed(self.metrics, 20) or "none", listed(self.columns, 20) or "nothing"
        return f"Evidence: {many} configurations; metrics {metrics}; members differ in {differ}"

    def _repr_html_(self) -> str:
        grouped = self.to_pandas().groupby(["metric", "measure", "split"])
        frame = grouped.agg({"step": "max", "value": "count", "part": "nunique"}).reset_index()
        return f"<p>{html.escape(repr(self))}</p>{frame.to_html(index=False)}"


class _Table:
    # Different values of a column are numbered once, because a page asks hundreds of times.
    def __init__(self, arrow: "pa.Table", count: int):
        self.arrow, self.count = arrow, count
        self._numbered: dict[str, tuple[list[Any], Array]] = {}

    @cached_property
    def members(self) -> Array:
        return np.asarray(self.arrow["member"].fill_null(-1))

    @cached_property
    def of_metric(self) -> dict[str, Array]:
        values, numbers = self.numbered("metric")
        return {metric: np.flatnonzero(numbers == number) for number, metric in enumerate(values)}

    def numbered(self, name: str) -> tuple[list[Any], Array]:
        # Values of a column, null among them, and which of them each row has.
        if name not in self._numbered:
            column = self.arrow[name].combine_chunks().dictionary_encode("encode")
            self._numbered[name] = column.dictionary.to_pylist(), np.asarray(column.indices)
        return self._numbered[name]


def _described(members: Sequence[Member], config: Row) -> list[dict[str, Any]]:
    """Members with the fields in which they differ: those that configurations set, and what follows from these."""
    known, here = _fields(config.get("identity", config)), {member.unit for member in members}
    jobs = [job for job in config.get("units", []) if job["name"] in here]
    units = {job["name"]: _fields({name: job[name] for name in _SECTIONS if name in job}) for job in jobs}
    names = {name for each in units.values() for name in each}
    names = {name for name in names if len({canonical_json(each.get(name)) for each in units.values()}) > 1}
    names |= {name for member in members for name in member.overrides}
    usual = {name: known.get(name, known.get(name.removeprefix("options."))) for name in sorted(names)}
    every = [usual | units.get(member.unit, {}) | member.overrides for member in members]
    found = [{name: getattr(member, name) for name in _OF_MEMBERS} for member in members]
    for name in usual:
        values = [own[name] for own in every]
        kinds = {type(value) for value in values if value is not None}
        plain = kinds in ({bool}, {int}, {str}) or kinds <= {int, float}
        for each, value in zip(found, values, strict=True):
            each[name] = value if plain or value is None else canonical_json(value)
    return found


def _fields(known: Row) -> dict[str, Any]:
    """Fields of a study or a job, by the names that overrides have for them."""
    found = dict[str, Any]()
    for name, value in known.items():
        # A task's own stand under its name.
        inner = value.get("fields", value) if isinstance(value, Mapping) else {}
        prefix = "" if name == "options" else f"{name}."
        found |= {prefix + each: inner[each] for each in inner} or {name: value}
    return found


def _whole(rows: Iterable[Row], members: list[dict[str, Any]]) -> "pa.Table":
    import pandas as pd
    import pyarrow as pa

    numbers, whole = [member["member"] for member in members], []
    usual = {**dict.fromkeys(_OF_ROWS), "split": "held_out", "measure": TRAINING, "step": 0}
    for row in rows:
        for name in row.keys() - usual.keys():
            remedy = f"{_hint(name, _OF_ROWS)}leave it out"
            raise _wrong("row", f"the keys {listed(_OF_ROWS, 20)}", repr(name), remedy)
        if absent := {"metric", "value"} - row.keys():
            raise _wrong("row", "a metric and its value", f"no {min(absent)}", "give it")
        value, member = row["value"], row.get("member")
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, list | tuple):
            member = numbers if member is None else member
            if not isinstance(member, list) or len(member) != len(value):
                found = f"{len(value)} for {member}"
                raise _wrong(row["metric"], "a value for each member", found, "add some")
        whole.append({**usual, **row, "member": member, "value": value})
    frame = pd.DataFrame(whole, columns=_OF_ROWS, dtype=object)
    frame = frame.explode(["member", "value"], ignore_index=True)
    frame["split"] = frame["split"].astype("str").str.replace("-", "_")
    for name in (name for name in _OF_ROWS if COLUMNS[name].startswith("int")):
        for odd in (each for each in frame[name] if isinstance(each, float) and each % 1.0 > 0.0):
            raise _wrong(f"row, {name}", "a whole number", odd, "mend it")
    for name, allowed in (("split", ["train", "held_out"]), ("member", [None, *numbers])):
        for row in frame[~frame[name].isin(allowed)].head(1).to_dict("records"):
            what = f"{row['measure']}, {row['metric']}"
            raise _wrong(what, f"as {name} one of {listed(allowed)}", row[name], "name one of the run's")
    number = ["member", "step", "metric", "measure", "split", "layer", "head", "part"]
    single = frame[frame["member"].notna()]
    for row in single[single.duplicated(number)].head(1).to_dict("records"):
        where = ", ".join(f"{name} {row[name]}" for name in number if row[name] is not None)
        raise _wrong("evidence", "one row for each number", f"two of {where}", "give them other metrics")
    names = list(members[0]) if members else _OF_MEMBERS
    beside = pd.DataFrame(members, columns=names, dtype=object).set_index("member")
    try:
        kinds = {name: pa.array(beside[name]).type for name in names if name not in COLUMNS}
        fields = [(name, "double" if pa.types.is_null(kind) else kind) for name, kind in kinds.items()]
        schema = pa.schema([*COLUMNS.items(), *fields])
        table = pa.Table.from_pandas(frame.join(beside, on="member"), schema, preserve_index=False)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise _wrong("rows", "values as their columns hold them", f"others: {error}", "mend them") from None
    return table.replace_schema_metadata(None).sort_by([(name, "ascending") for name in _ORDER])


def _from_parquet(path: Path, content: bytes) -> tuple["pa.Table", list[dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    before, seal, after = content.rpartition(_SEAL)
    digest, rest = after[:64], after[64:]
    if (seal or _NOTE in content) and sha256(before + seal + _ZEROS.encode() + rest).encode() != digest:
        raise _wrong(str(path), "a whole evidence table", "one that was altered", _AGAIN)
    try:
        # In this thread alone: one of Arrow's that still holds `content` when Python ends would abort the process.
        table = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)
        note = (table.schema.metadata or {}).get(_NOTE)
        members = note and json.loads(note)["members"]
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _wrong(str(path), "a whole evidence table", f"another file: {error}", _AGAIN) from error
    names, kinds = table.schema.names, [str(kind) for kind in table.schema.types]
    if [*zip(names, kinds, strict=True)][: len(COLUMNS)] != [*COLUMNS.items()]:
        raise _wrong(str(path), f"the columns {', '.join(COLUMNS)}", listed(names, 40), _AGAIN)
    if members is None:
        numbers, first = np.unique(table["member"].fill_null(-1).to_numpy(), return_index=True)
        members = table.select([*_OF_MEMBERS, *names[len(COLUMNS) :]]).take(first[numbers >= 0]).to_pylist()
    return table.replace_schema_metadata(None), members


def _wanted(name: str, value: Any) -> list[Any]:
    # Values that a condition admits; lists, and values of several kinds, stand in their column as JSON.
    value = value.tolist() if hasattr(value, "tolist") else value
    several = list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else [value]
    several = [each.item() if isinstance(each, np.generic) else each for each in several]
    if name == "split":
        sides = [str(each).replace("-", "_") for each in several]
        if strange := {*sides} - {"train", "held_out"}:
            raise _wrong(name, "held-out or train", repr(min(strange)), "take one")
        return sides
    if name in COLUMNS:
        text = COLUMNS[name] == "string"
        return [str(each) if text and each is not None else each for each in several]
    whole = [value] if isinstance(value, list | tuple) else []
    return [*several, *(canonical_json(each) for each in [*several, *whole] if each is not None)]


def _wrong(what: str, expected: str, found: object, remedy: str) -> UserError:
    return UserError(f"{what}: expected {expected}, found {found}; {remedy}")


def _hint(name: object, known: Iterable[Any]) -> str:
    near = difflib.get_close_matches(str(name), [*map(str, known)], 3)
    return f"did you mean {' or '.join(near)}? " if near else ""


def _no_value(what: str | None, name: str, value: Any, there: Iterable[Any]) -> UserError:
    found = sorted(there, key=lambda each: (each is None, each))
    if value is None:
        return _wrong(f"{what}", f"one {name} of {listed(found)}", "none", f"name it: {name}={found[0]!r}")
    expected, remedy = f"a {name} that is there ({listed(found)})", f"{_hint(value, found)}give another"
    return _wrong(f"{what}", expected, repr(value), remedy)


def _ambiguous(metric: str, frame: "pd.DataFrame") -> UserError:
    if len(found := sorted(set(frame["measure"]))) > 1:
        return _wrong(metric, "rows of one measure", listed(found), f"name one, as in measure={found[0]!r}")
    return _wrong(metric, "one value for each member", "several at its last step", "ask for rows")
