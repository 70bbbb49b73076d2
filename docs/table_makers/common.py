"""Where results lie, and how tables are written."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
BENCH = RESULTS / "bench"


def read_json(path: Path) -> Any:
    """What a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def four_places(value: float) -> str:
    """A number as tables show it."""
    return f"{value:.4f}"


def estimates(value: Any, interval: Any) -> str:
    """A value, or each of several by name, with its interval; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "; ".join(f"{name} {estimates(value[name], interval[name])}" for name in value)
    shown = four_places(value)
    return f"{shown} [{four_places(interval[0])}, {four_places(interval[1])}]" if interval else shown
