"""What stands first on a page of several runs: their claims side by side, their curves in one chart, what differs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from hopscope.report.curves import loss_curves
from hopscope.report.record import RunRecord
from hopscope.report.verdicts import VerdictRow
from hopscope.runs import Evidence, RunFolder
from hopscope.runs.files import is_file

MOST_LINES = 40
"""Lines of a chart in which each configuration has one; where there would be more, each run has one."""

_METRIC = "loss"


@dataclass(frozen=True)
class ClaimsOfStudy:
    """The claims of one study in all its runs.

    Attributes:
        study: its name.
        places: of its runs among those of the page, counted from 0.
        rows: name and statement of each claim, and what each run says of it: `None` where it does not know the claim.
    """

    study: str
    places: list[int]
    rows: list[tuple[str, str, list[VerdictRow | None]]]


@dataclass(frozen=True)
class Compared:
    """Several runs side by side.

    Attributes:
        names: of the runs, in the order of the page, all different.
        claims: of each study.
        differences: (field, its value in each run; empty where a run has no such field).
        curves: Vega-Lite specification of the runs' loss curves; `None` where no run has any.
    """

    names: list[str]
    claims: list[ClaimsOfStudy]
    differences: list[tuple[str, list[str]]]
    curves: dict[str, Any] | None


def compared(records: Sequence[RunRecord], verdicts: Sequence[Sequence[VerdictRow]]) -> Compared:
    """Set runs side by side.

    Args:
        records: of the runs.
        verdicts: their claims, written out.

    Raises:
        UserError: the evidence of a run is damaged.
    """
    names = run_names(records)
    settings = [dict(flatten(record.config.config)) for record in records]
    return Compared(names, list(_claims(records, verdicts)), differences(settings), _curves(names, records))


def run_names(records: Sequence[RunRecord]) -> list[str]:
    """A short name for each run, such as `depth laptop 5748109b`; only what tells runs apart is in it."""
    several = len({record.config.study for record in records}) > 1
    named = [
        " ".join(
            filter(
                None,
                [record.config.study if several else "", record.config.preset or "", record.config.hash[:8]],
            )
        )
        for record in records
    ]
    return [
        f"{name} ({place})" if named.count(name) > 1 else name for place, name in enumerate(named, start=1)
    ]


def flatten(config: JsonValue, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Fields of a configuration by dotted name, with their values as text."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, config if isinstance(config, str) else json.dumps(config, ensure_ascii=False)


def differences(settings: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """Fields whose values are not the same in all runs, each with its value in every run."""
    fields = dict.fromkeys(name for each in settings for name in each)
    values = {name: [each.get(name, "") for each in settings] for name in fields}
    return [(name, found) for name, found in values.items() if len(set(found)) > 1]


def _claims(
    records: Sequence[RunRecord], verdicts: Sequence[Sequence[VerdictRow]]
) -> Iterator[ClaimsOfStudy]:
    for study in dict.fromkeys(record.config.study for record in records):
        places = [place for place, record in enumerate(records) if record.config.study == study]
        by_id = [{row.claim.id: row for row in verdicts[place]} for place in places]
        statements = {name: row.claim.statement for rows in reversed(by_id) for name, row in rows.items()}
        ids = dict.fromkeys(name for rows in by_id for name in rows)
        if ids:
            yield ClaimsOfStudy(
                study, places, [(name, statements[name], [rows.get(name) for rows in by_id]) for name in ids]
            )


def _curves(names: Sequence[str], records: Sequence[RunRecord]) -> dict[str, Any] | None:
    rows = [row for name, record in zip(names, records, strict=True) for row in _rows(name, record)]
    lines = {(row["run"], row["configuration"]) for row in rows}
    if len(lines) > MOST_LINES:
        rows = [row for row in rows if not row["configuration"]]
    else:
        several = {run for run, configuration in lines if configuration}
        rows = [row for row in rows if row["configuration"] or row["run"] not in several]
    if not rows:
        return None
    return loss_curves(rows, "run", names, "configuration", what="held-out loss, mean over seeds")


def _rows(name: str, record: RunRecord) -> Iterator[dict[str, Any]]:
    """Means over seeds: of each configuration, and, without its name, of the whole run."""
    if not is_file(record.path / "evidence.parquet"):
        return
    evidence = Evidence.read(RunFolder(record.path))
    if not evidence.has(_METRIC, measure="training"):
        return
    curve = evidence.curve(_METRIC, measure="training")
    groups: dict[str, list[int]] = {"": list(curve.columns)}
    for member, configuration in evidence.configurations.items():
        if member in curve.columns:
            groups.setdefault(configuration, []).append(member)
    for configuration, members in groups.items():
        for step, value in curve[members].mean(axis=1).dropna().items():
            yield {"run": name, "configuration": configuration, "step": int(step), _METRIC: f"{value:.6g}"}
