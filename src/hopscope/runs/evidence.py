"""The evidence table: everything that a run measured, one number a row, for claims, figures and pages.

A number that is said of a run comes from a row of `evidence.parquet`; the row says of which model it is, after how
many steps, what measured it, and in which file its array stands.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hopscope import display
from hopscope.errors import UserError
from hopscope.runs.arrays import read_arrays
from hopscope.runs.conditions import filtered, wanted_values
from hopscope.runs.evidence_table import (
    SCHEMA,
    Described,
    Field,
    data_frame,
    described,
    evidence_table,
    rows_table,
    split_name,
    varied_fields,
)
from hopscope.runs.evidence_table import Row as Row
from hopscope.runs.evidence_write import EVIDENCE, members_of
from hopscope.runs.evidence_write import diverged_members as diverged_members
from hopscope.runs.evidence_write import write_evidence as write_evidence
from hopscope.runs.files import is_file, listed
from hopscope.runs.members import MemberRecord
from hopscope.runs.metrics import read_table
from hopscope.runs.units import SLIM

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.store import RunFolder

_AGAIN = "delete it and run the same command again"
_OF_MEMBERS = ("member", "seed", "configuration")


class Evidence:
    """All rows of a run, or those of some of its members.

    Attributes:
        config: the run's configuration, as in `config.json`.
    """

    def __init__(
        self,
        table: pa.Table,
        members: Sequence[Described],
        config: Mapping[str, Any],
        varied: Sequence[Field],
        kept: Sequence[int] | None = None,
        folder: Path | None = None,
    ):
        self.config = config
        self._folder = folder
        self._table, self._described, self._varied = table, tuple(members), tuple(varied)
        self._kept = [member.member for member in members] if kept is None else list(kept)
        self._tables: dict[str, pa.Table] = {}

    @classmethod
    def read(cls, run: "RunFolder") -> "Evidence":
        """The table in a run's folder.

        Raises:
            UserError: the run has none yet, or the file is damaged or of another Hopscope.
        """
        path = run.path / EVIDENCE
        remedy = f"`hopscope report {run.path}` makes it anew"
        if not is_file(path):
            raise UserError(f"{path}: expected the run's evidence table, found none: {remedy}")
        members = members_of(run)
        varied = varied_fields(members, run.config)
        table = read_table(path, remedy)
        names = [*SCHEMA.names, *(item.name for item in varied)]
        if table.schema.names != names:
            found = listed(table.schema.names, 40)
            raise UserError(f"{path}: expected the columns {listed(names, 40)}, found {found}: {remedy}")
        return cls(table, members, run.config, varied, folder=run.path)

    @classmethod
    def of(
        cls,
        members: Iterable[MemberRecord | Mapping[str, Any] | Described],
        rows: Iterable[Row],
        config: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> "Evidence":
        """The table of made-up members and rows, for tests.

        Args:
            members: records, or mappings with `member` and maybe `seed`, `configuration` and `overrides`.
            rows: of those members, training rows (measure `"training"`) among them.
            config: the run's configuration.
            folder: where the files that rows point to stand.

        Raises:
            UserError: the rows do not fit the members.
        """
        known, config = described(members), config or {}
        varied = varied_fields(known, config)
        table = evidence_table(rows_table(rows, known), known, varied)
        return cls(table, known, config, varied, folder=folder)

    # What there is.

    @property
    def members(self) -> list[int]:
        """Run-global numbers of the members."""
        return list(self._kept)

    @property
    def seeds(self) -> dict[int, int]:
        """Each member's seed, by the member's number."""
        return {member.member: member.seed for member in self._present}

    @property
    def configurations(self) -> dict[int, str]:
        """Each member's configuration (its unit's label), by the member's number."""
        return {member.member: member.configuration for member in self._present}

    @property
    def columns(self) -> list[str]:
        """Fields in which the run's members differ; each is a column."""
        return [item.name for item in self._varied]

    @property
    def metrics(self) -> list[str]:
        """Names of everything that was measured in the run, whatever its members."""
        return sorted(self._places_of_metric)

    def __contains__(self, metric: object) -> bool:
        """Whether a metric was measured in the run."""
        return metric in self._places_of_metric

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.to_arrow().num_rows)

    def to_arrow(self) -> pa.Table:
        """The rows of these members and those of the whole run, as a pyarrow table."""
        if len(self._kept) == len(self._described):
            return self._table
        return self._table.filter(self._of_kept(self._table))

    def to_pandas(self) -> "pd.DataFrame":
        """The rows of these members and those of the whole run, as a pandas frame."""
        return data_frame(self.to_arrow())

    # Questions.

    def where(self, **where: Any) -> "Evidence":
        """The table of those members whose fields have the given values.

        Args:
            where: a value, or several in a list, tuple or set, for `member`, `seed`, `configuration` or a varied
                field, as in `**{"model.layers": 1}`.  Rows of the whole run stay.

        Raises:
            UserError: there is no such column, or it does not belong to members.
        """
        for name in where:
            if name not in (*_OF_MEMBERS, *self.columns):
                raise self._unknown_column(name, [*_OF_MEMBERS, *self.columns])
        kept = self._matching(where)
        return Evidence(self._table, self._described, self.config, self._varied, kept, self._folder)

    def rows(
        self,
        metric: str | None = None,
        *,
        measure: str | None = None,
        split: str | None = "held_out",
        **where: Any,
    ) -> "pd.DataFrame":
        """Rows as a tidy pandas frame with all columns.

        Args:
            metric: what was measured; everything by default.
            measure: what measured it; any by default.
            split: `"held_out"`, `"train"`, or `None` for both.
            where: values of other columns: one, or several in a list, tuple or set; `None` means null.

        Raises:
            UserError: there is no such metric or column.
        """
        return data_frame(self._chosen(metric, measure, split, where))

    def has(
        self, metric: str, *, measure: str | None = None, split: str | None = "held_out", **where: Any
    ) -> bool:
        """Whether some row has a number; arguments as in `rows`, and a metric that the run lacks is no error.

        Raises:
            UserError: there is no such column.
        """
        import pyarrow.compute as pc

        if metric not in self:
            return False
        columns = ["member", "split", "measure", "value", *where]
        values = self._chosen(metric, measure, split, where, columns)["value"]
        return bool(pc.any(pc.invert(pc.is_null(values, nan_is_null=True))).as_py())

    def last(
        self,
        metric: str,
        *,
        measure: str | None = None,
        split: str = "held_out",
        part: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        **where: Any,
    ) -> "pd.Series[float]":
        """Each member's value after its last step with that metric.

        Args:
            metric: what was measured.
            measure: what measured it; needed where several did.
            split: `"held_out"` or `"train"`.
            part, layer, head: of what part of the model or the samples; `None` means of the whole.
            where: values of other columns: one, or several in a list, tuple or set.

        Returns:
            A float series over all members that match `where`, NaN where a member has no value.

        Raises:
            UserError: there is no such metric or column, or several measures give it.
        """
        import pandas as pd

        place = {"part": part, "layer": layer, "head": head}
        table = self._numbers(metric, measure, split, place, where)
        members, steps = _ints(table["member"]), _ints(table["step"])
        values = _floats(table["value"])
        order = np.lexsort((steps, members))
        members, steps, values = members[order], steps[order], values[order]
        final = np.append(members[1:] != members[:-1], True)[: len(members)]
        twice = (members[1:] == members[:-1]) & (steps[1:] == steps[:-1]) & final[1:]
        if twice.any():
            raise self._ambiguous(metric, table)
        found = dict(zip(members[final].tolist(), values[final].tolist(), strict=True))
        kept = self._matching(self._member_part(where))
        index = pd.Index(kept, dtype="int64", name="member")
        return pd.Series([found.get(member, np.nan) for member in kept], index, "float64", metric)

    def curve(
        self,
        metric: str,
        *,
        measure: str | None = None,
        split: str = "held_out",
        part: str | None = None,
        layer: int | None = None,
        head: int | None = None,
        **where: Any,
    ) -> "pd.DataFrame":
        """Values of a metric by step (rows) and member (columns); arguments as in `last`.

        Raises:
            UserError: there is no such metric or column, or several measures give it.
        """
        import pandas as pd

        place = {"part": part, "layer": layer, "head": head}
        table = self._numbers(metric, measure, split, place, where)
        if len(table["measure"].unique()) > 1:
            raise self._ambiguous(metric, table)
        kept = self._matching(self._member_part(where))
        steps, rows = np.unique(_ints(table["step"]), return_inverse=True)
        column = {member: place for place, member in enumerate(kept)}
        values = np.full((len(steps), len(kept)), np.nan)
        values[rows, [column[member] for member in _ints(table["member"]).tolist()]] = _floats(table["value"])
        index = pd.Index(steps, dtype="int64", name="step")
        return pd.DataFrame(values, index, pd.Index(kept, dtype="int64", name="member"))

    def arrays(self, file: str) -> dict[str, np.ndarray]:
        """The arrays of a file that rows point to, such as attention maps.

        Args:
            file: as in the column `file`: an `.npz` archive, its path relative to the run's folder.

        Returns:
            Each array of the archive by its name.

        Raises:
            UserError: the evidence was made without a run's folder, or the file is missing, damaged or outside of it.
        """
        if self._folder is None:
            raise UserError(
                f"{file}: expected evidence of a run's folder, found evidence without one; read it with "
                "Evidence.read(run)"
            )
        if not (self._folder / file).resolve().is_relative_to(self._folder.resolve()):
            raise UserError(f"{file}: expected a file of the run, found one outside {self._folder}")
        slim = is_file(self._folder / SLIM)
        remedy = "make the run again: this folder has no arrays" if slim else _AGAIN
        return read_arrays(self._folder / file, remedy)

    # How rows are found.

    @cached_property
    def _places_of_metric(self) -> dict[str, np.ndarray]:
        """Places of each metric's rows in the table."""
        encoded = self._table["metric"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        names = encoded.dictionary.to_pylist()
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
        return {name: order[bounds[n] : bounds[n + 1]] for n, name in enumerate(names)}

    @cached_property
    def _present(self) -> list[Described]:
        kept = set(self._kept)
        return [member for member in self._described if member.member in kept]

    def _of_metric(self, metric: str) -> pa.Table:
        """All rows of a metric; kept, because a page asks for the same metrics hundreds of times."""
        if metric not in self._tables:
            self._check_metric(metric)
            self._tables[metric] = self._table.take(pa.array(self._places_of_metric[metric]))
        return self._tables[metric]

    def _of_kept(self, table: pa.Table) -> Any:
        import pyarrow.compute as pc

        kept = pc.is_in(table["member"], value_set=pa.array(self._kept, pa.int32()))
        return pc.or_(kept, pc.is_null(table["member"]))

    def _member_part(self, where: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in where.items() if name in (*_OF_MEMBERS, *self.columns)}

    def _matching(self, where: Mapping[str, Any]) -> list[int]:
        """Members of ours whose own columns have the given values."""
        found = set(self._kept)
        for name, value in where.items():
            of_member, kind, is_json = self._own(name)
            wanted = wanted_values(name, kind, value, is_json)
            found &= {member for member, own in of_member.items() if own in wanted}
        return [member for member in self._kept if member in found]

    def _own(self, name: str) -> tuple[dict[int, Any], pa.DataType, bool]:
        """Every member's value in one of the members' own columns, its type, and whether it is a JSON text."""
        for item in self._varied:
            if item.name == name:
                numbers = [member.member for member in self._described]
                return dict(zip(numbers, item.values, strict=True)), item.type, item.is_json
        own = {member.member: getattr(member, name) for member in self._described}
        return own, SCHEMA.field(name).type, False

    def _numbers(
        self,
        metric: str,
        measure: str | None,
        split: str,
        place: Mapping[str, Any],
        where: Mapping[str, Any],
    ) -> pa.Table:
        """Rows of members with one metric at one place of the model."""
        import pyarrow.compute as pc

        columns = ["member", "step", "split", "measure", "value", *place, *where]
        table = self._chosen(metric, measure, split, {**place, **where}, columns)
        if not table.num_rows:
            self._explain_nothing(metric, measure, split, place)
        if table.num_rows and table["member"].null_count == table.num_rows:
            raise UserError(
                f"{metric}: expected a metric of members, found one of the whole run; use .rows({metric!r})"
            )
        return table.filter(pc.is_valid(table["member"]))

    def _chosen(
        self,
        metric: str | None,
        measure: str | None,
        split: str | None,
        where: Mapping[str, Any],
        columns: Iterable[str] | None = None,
    ) -> pa.Table:
        """Rows that match, of these members and of the whole run; all columns or some."""
        for name in where:
            if name not in self._table.schema.names:
                raise self._unknown_column(name, self._table.schema.names)
        table = self._table if metric is None else self._of_metric(metric)
        table = table if columns is None else table.select(list(dict.fromkeys(columns)))
        if len(self._kept) < len(self._described):
            table = table.filter(self._of_kept(table))
        if measure is not None:
            table = filtered(table, "measure", measure)
        if split is not None:
            table = filtered(table, "split", split_name(split))
        for name, value in where.items():
            is_json = any(item.name == name and item.is_json for item in self._varied)
            table = filtered(table, name, value, is_json)
        return table

    # What to say where a question has no answer.

    def _check_metric(self, metric: str) -> None:
        if metric in self._places_of_metric:
            return
        near = difflib.get_close_matches(metric, self.metrics, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        known = listed(self.metrics, 30) or "none"
        raise UserError(f"metric: expected one that the run has, found {metric!r}; {hint}it has {known}")

    def _unknown_column(self, name: str, known: Sequence[str]) -> UserError:
        return UserError(
            f"column: expected one of {listed(known, 40)}, found {name!r}; members of this run differ in "
            f"{listed(self.columns, 20) or 'nothing'}"
        )

    def _ambiguous(self, metric: str, table: pa.Table) -> UserError:
        for column in ("measure", "split"):
            found = sorted(table[column].unique().to_pylist())
            if len(found) > 1:
                return UserError(
                    f"{metric}: expected rows of one {column}, found {listed(found)}; name one, as in "
                    f"{column}={found[0]!r}"
                )
        return UserError(f"{metric}: expected one value for each member, found several at its last step")

    def _explain_nothing(
        self, metric: str, measure: str | None, split: str, place: Mapping[str, Any]
    ) -> None:
        """Refuse a question that no member of the run could have answered, and say what to ask instead."""
        table = self._of_metric(metric)
        asked = {"measure": measure, "split": split_name(split)}
        for name, value in asked.items():
            if value is None:
                continue
            found = sorted(table[name].unique().to_pylist())
            if value not in found:
                raise UserError(
                    f"{metric}: expected a {name} that has it ({listed(found)}), found {value!r}; give another, as "
                    f"in {name}={found[0]!r}"
                )
            table = filtered(table, name, value)
        for name, value in place.items():
            if value is None and table.num_rows and not table[name].null_count:
                found = sorted(table[name].unique().to_pylist())
                raise UserError(
                    f"{metric}: expected {name} to be given, as in {name}={found[0]!r}: it is measured for {name} "
                    f"{listed(found)}"
                )

    # For people.

    def __repr__(self) -> str:
        configurations = len(set(self.configurations.values()))
        return (
            f"Evidence: {len(self):,} rows of {len(self._kept)} members in {configurations} configurations; "
            f"metrics {listed(self.metrics, 20) or 'none'}; members differ in {listed(self.columns, 20) or 'nothing'}"
        )

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        names = ("metric", "measure", "split")
        grouped = table.group_by(list(names)).aggregate(
            [("step", "max"), ("value", "count"), ("part", "count_distinct")]
        )
        rows = sorted(grouped.to_pylist(), key=lambda row: [str(row[name]) for name in names])
        columns = (*names, "step_max", "value_count", "part_count_distinct")
        heads = (*names, "last step", "values", "parts")
        return display.paragraph(repr(self)) + display.table(
            heads, ([row[c] for c in columns] for row in rows)
        )


def _ints(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.to_numpy(), dtype=np.float64)
