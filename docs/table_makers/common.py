"""Committed runs, and how tables are written."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from hopscope import Study
from hopscope.runs import Evidence
from hopscope.study.load import BUILT_IN, load
from hopscope.study.study import Configuration

RESULTS = Path(__file__).resolve().parents[1] / "results"
EXAMPLES = RESULTS.parents[1] / "examples"


def read_json(path: str) -> Any:
    """What a JSON file under docs/results says."""
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def study_of(run: str) -> Study:
    """The study of a committed run, with the fields that the run was made with; an example as its file is today."""
    config = read_json(f"{run}/config.json")
    if config["study"] not in BUILT_IN:
        return load(str(EXAMPLES / f"{config['study'].replace('-', '_')}.py")).study
    study, own = load(config["study"]).study, config["identity"]
    grid = [Configuration(**each) for each in own["grid"]]
    fields = {"held_out": own["held_out"], "vary": {}, "presets": {}}
    fields |= {"configurations": lambda options: grid} if grid else {}
    for name in ("model", "training", "options"):
        if own[name] is not None:
            kind = type(getattr(study, name))
            # What is a field of task, model or training today stands in the grid of an older run, too.
            known = {field: value for field, value in own[name].items() if field in kind.model_fields}
            fields[name] = kind.model_validate(known)
    if study.task is not None:
        fields["task"] = type(study.task).model_validate(own["task"]["fields"])
        fields["completion"] = own["completion"]
    return Study(**{**{name: getattr(study, name) for name in Study.model_fields}, **fields})


def completion_of(run: str) -> str | None:
    """The completion that a committed run names; of runs of today's version that of their identity."""
    named = (each["completion"] for each in read_json(f"{run}/claims.json") if each.get("completion"))
    return next(named, None) or read_json(f"{run}/config.json")["identity"].get("completion")


@cache
def evidence_of(run: str) -> Evidence:
    """The evidence of a committed run; its `config` is what claims and pages may ask for."""
    evidence = Evidence.read(RESULTS / run / "evidence.parquet")
    evidence.config = read_json(f"{run}/config.json")
    return evidence


def with_floors(run: str, study: Study) -> Evidence:
    """The evidence of a committed run, whose `config` has the floors of its tasks as well."""
    evidence, labels = evidence_of(run), [(each.label, study.of(each).task) for each in study.grid()]
    floors = {label: task.floors() for label, task in labels if task}
    evidence.config = {**read_json(f"{run}/config.json"), "floors": floors}
    return evidence


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def estimates(value: Any, interval: Any) -> str:
    """A value, or each of several by name, with its interval; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "; ".join(f"{name} {estimates(value[name], interval[name])}" for name in value)
    return f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else f"{value:.4f}"
