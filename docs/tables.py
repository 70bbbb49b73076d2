"""Tables of the documentation, made from committed results: `python docs/tables.py` rewrites them in place.

A page marks where a table goes with `<!-- table: NAME -->` and `<!-- end -->`; a test fails if a page says anything
else than its results do.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import parquet

DOCS = Path(__file__).resolve().parent
LAPTOP = DOCS / "results" / "permutation" / "laptop"
BENCH = DOCS / "results" / "bench" / "cpu.json"

_PLACE = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _number(value: float) -> str:
    return f"{value:.4f}"


def _estimates(value: Any, interval: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_estimates(value[name], interval[name])}" for name in value)
    shown = _number(value)
    return f"{shown} [{_number(interval[0])}, {_number(interval[1])}]" if interval else shown


def verdicts() -> str:
    """Every claim that was run."""
    words = _json(LAPTOP / "story.json")["claims"]
    rows = [
        [
            claim["id"],
            claim["statement"],
            _estimates(claim["value"], claim["interval"]),
            str(claim["n"]),
            claim["verdict"],
            words[claim["id"]]["words"],
        ]
        for claim in _json(LAPTOP / "claims.json")
        if claim["verdict"] != "not run"
    ]
    return _markdown(["claim", "statement", "value [95 % interval]", "n", "verdict", "in words"], rows)


def _probes(configuration: str) -> list[dict[str, Any]]:
    """The probes of every unit of a configuration, in the order of their members."""
    units = {}
    for member in _json(LAPTOP / "members.json"):
        named = (
            f"d{member['overrides']['width']}/{member['overrides']['heads']} {member['overrides']['data']}"
        )
        if named == configuration:
            units.setdefault(member["unit"], None)
    return [_json(next((LAPTOP / "units" / unit / "analysis").glob("probes-step-*.json"))) for unit in units]


def _seeds(configuration: str, probe: str) -> list[Any]:
    return [value for unit in _probes(configuration) for value in unit[probe]]


PUBLISHED = {
    "d16/1 plain": [
        ("accuracy", [0.0956, 0.1640, 0.2456, 0.4226, 1.0]),
        ("mean error", [0.012388, 0.015530, 0.018369, 0.015447, 0.000292]),
        ("largest error", [0.034079, 0.072218, 0.101983, 0.119183, 0.001334]),
    ],
    "d32/2 repeats": [
        ("accuracy", [0.1456, 0.1640, 0.2336, 0.4150, 1.0]),
        ("mean error", [0.014704, 0.020145, 0.021205, 0.020931, 0.000081]),
        ("largest error", [0.055206, 0.090151, 0.143933, 0.168254, 0.001548]),
    ],
}
"""Presentation, sections 6 and 9 (one seed of each)."""

MEASURED = {"accuracy": "accuracy_by_step", "mean error": "mae_by_step", "largest error": "max_ae_by_step"}


def posterior() -> str:
    """The published tables beside ours: mean over seeds, and the range of the seeds."""
    rows = []
    for configuration, published in PUBLISHED.items():
        for label, numbers in published:
            by_seed = _seeds(configuration, MEASURED[label])
            steps = list(zip(*by_seed, strict=True))
            ours = [f"{_number(sum(s) / len(s))} ({_number(min(s))} to {_number(max(s))})" for s in steps]
            rows.append([configuration, label, "published", *map(_number, numbers)])
            rows.append(["", "", f"here, {len(by_seed)} seeds", *ours])
    return _markdown(["configuration", "measure", "", *[f"step {step}" for step in range(1, 6)]], rows)


def _late_recall(configuration: str) -> str:
    """Lowest and highest held-out recall of any seed in the last fifth of training."""
    width, heads = configuration.split(" ")[0].removeprefix("d").split("/")
    chosen = {
        member["member"]
        for member in _json(LAPTOP / "members.json")
        if (str(member["overrides"]["width"]), str(member["overrides"]["heads"])) == (width, heads)
    }
    rows = [
        row
        for row in parquet.read_table(LAPTOP / "metrics.parquet").to_pylist()
        if row["member"] in chosen and (row["split"], row["metric"]) == ("held_out", "recall")
    ]
    end = max(row["step"] for row in rows)
    late = [row["value"] for row in rows if row["step"] > 0.8 * end]
    return f"{_number(min(late))} to {_number(max(late))}"


def repeats() -> str:
    """Recall and elimination at the end of training, by configuration."""
    rows = []
    for configuration in PUBLISHED:
        cells = []
        for probe in ("elimination", "recall", "mass_recalled", "mass_unused"):
            values = _seeds(configuration, probe)
            cells.append(
                f"{_number(sum(values) / len(values))} ({_number(min(values))} to {_number(max(values))})"
            )
        rows.append([configuration, *cells, _late_recall(configuration)])
    columns = [
        "configuration",
        "elimination",
        "recall",
        "mass on the recalled value",
        "mass on the unused value",
        "recall in the last fifth of training",
    ]
    return _markdown(columns, rows)


def speed() -> str:
    """The committed speed comparison."""
    result = _json(BENCH)
    rows = []
    for each in result["contestants"]:
        spread, ratio = each["samples_per_second"], result["ratios"].get(each["name"])
        settings = " ".join(f"{name} {value}" for name, value in each["settings"].items())
        speeds = (
            f"{spread['median']:,.0f} ({spread['min']:,.0f} to {spread['max']:,.0f})"
            if spread
            else each["status"]
        )
        against = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""
        peak = f"{each['peak_memory_mb']:,.0f}" if each["peak_memory_mb"] else "–"
        rows.append([each["name"], settings, speeds, against, peak])
    columns = ["contestant", "tuned settings", "member-samples/s", "ours ÷ this", "peak MiB"]
    return _markdown(columns, rows)


TABLES: dict[str, Callable[[], str]] = {
    "verdicts": verdicts,
    "posterior": posterior,
    "repeats": repeats,
    "speed": speed,
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{TABLES[place['name']]()}\n{place[3]}", page)


def main() -> int:
    """Rewrite the tables of every page."""
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
