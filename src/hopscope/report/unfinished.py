"""What the page shows of a run that is not finished: what is missing, and what there is: models and their losses."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hopscope.report.curves import loss_curves
from hopscope.runs import MemberRecord, RunFolder, UnitFolder
from hopscope.runs.files import is_file
from hopscope.runs.metrics import read_parts

_FIGURE = "progress"
_METRIC = "loss"


def is_unfinished(path: Path) -> bool:
    """Whether a run folder was begun and has no conclusion yet: no story, and no mark that it is done."""
    return is_file(path / "members.json") and not any(is_file(path / name) for name in ("story.json", "DONE"))


def unfinished_story(run: RunFolder) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The story of a run so far, in the shape of `story.json`, and its figures' specifications by name.

    Raises:
        UserError: a record of the run is damaged.
    """
    units, members = run.units, run.members
    done = sum(unit.is_done for unit in units)
    curve = list(_losses(units))
    blocks: list[dict[str, Any]] = [
        {"kind": "text", "text": (
            f"{done} of {len(units)} units of models are trained and measured. There are no verdicts, no answer and "
            "no analyses yet. The command that began the run goes on where it stopped and writes this page anew."
        )},
        {"kind": "table", "columns": ["unit", "models", "trained to step", "of", "state"],
         "rows": [_row(unit, members) for unit in units],
         "caption": "A unit is a group of models that are trained together."},
    ]  # fmt: skip
    specs = {}
    if len({row["step"] for row in curve}) > 1:
        specs[_FIGURE] = loss_curves(curve, "model", [])
        blocks.append({
            "kind": "figure", "name": _FIGURE, "caption": "Held-out loss so far, a line for each model.",
            "alt": "Held-out loss against training step, a line for each model that has been measured.",
        })  # fmt: skip
    else:
        blocks.append({"kind": "text", "text": "No loss has been measured during training yet."})
    story = {
        "schema_version": 1,
        "title": f"{run.study}: not finished",
        "subtitle": "This run was begun and has not come to its end. Here is what there is so far.",
        "sections": [{"id": "so-far", "heading": "So far", "blocks": blocks}],
    }
    return story, specs


def _row(unit: UnitFolder, members: list[MemberRecord]) -> list[Any]:
    steps = [step for step, _ in unit.checkpoints()]
    state = "done" if unit.is_done else "begun" if unit.is_recorded else "not begun"
    count = sum(member.unit == unit.hash for member in members)
    return [unit.hash, count, max(steps, default=0), unit.steps, state]


def _losses(units: list[UnitFolder]) -> Iterator[Mapping[str, Any]]:
    """Held-out losses of whole samples: a row for each model and step."""
    table = read_parts(unit.path for unit in units)
    rows = table.select(["member", "step", "split", "metric", "value"]).to_pylist()
    for row in rows:
        if row["metric"] == _METRIC and row["split"] == "held_out" and row["value"] is not None:
            yield {"model": f"member {row['member']}", "step": row["step"], _METRIC: f"{row['value']:.6g}"}
