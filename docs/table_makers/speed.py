"""Tables of `hopscope bench`."""

from typing import Any

from hopscope.claims.intervals import estimate
from table_makers.common import markdown, read_json

_SCORES = {
    "precision": "precision", "recall": "recall", "auroc": "AUROC", "faithfulness": "faithfulness", "cpr": "CPR ↑",
    "cmd": "CMD ↓",
}  # fmt: skip
_OWN = {"name", "rate", "ours_over_this", "share_of_core"}


def speed(*files: str) -> str:
    """Contestants of every comparison: rates, ratios, and whatever else was told of them."""
    found = [each for file in files for each in read_json(f"bench/{file}.json")["comparisons"]]
    more = [name for name in found[0]["contestants"][0] if name not in _OWN]
    several, rows = len(found) > 1, []
    for each in found:
        for row in each["contestants"]:
            cells = [
                _spread(row["rate"], 1),
                _spread(row["ours_over_this"], 2),
                *(_cell(row[name]) for name in more),
            ]
            rows.append([*[each["title"]] * several, row["name"], *cells])
    names = [name.replace("_", " ") for name in more]
    return markdown([*["model"] * several, "contestant", found[0]["unit"], "ours ÷ this", *names], rows)


def growth(file: str) -> str:
    """What a training step of one model costs as the work grows: a row for each way to grow."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for each in read_json(f"bench/{file}.json")["comparisons"]:
        ours, *others = each["contestants"]
        low, middle, high = (1e3 / ours["rate"][end] for end in ("high", "median", "low"))
        costs, ratios = found.setdefault(each["axis"], ([], []))
        costs.append(f"**{each['value']}:** {middle:.1f} [{low:.1f}, {high:.1f}]")
        ratios += [f"**{each['value']}:** {_spread(other['ours_over_this'], 2)}" for other in others]
    columns = ["what grows", "**to:** ms for a step of one model", "ours ÷ plain PyTorch"]
    rows = [[axis, *(" · ".join(each) for each in cells)] for axis, cells in found.items()]
    many = 3 if others else 2
    return markdown(columns[:many], [row[:many] for row in rows])


def finders(file: str = "finders") -> str:
    """Scores of every finder on every group of planted models: means over models with bootstrap intervals."""
    rows = []
    for group in read_json(f"bench/{file}.json")["comparisons"]:
        for each in group["contestants"]:
            own = [row for row in group["rows"] if row["finder"] == each["name"]]
            cells = [_mean([row[score] for row in own if row[score] is not None]) for score in _SCORES]
            rows.append([group["title"], each["name"], *cells])
    return markdown(["planted models", "finder", *_SCORES.values()], rows)


def _mean(values: list[float]) -> str:
    if not values:
        return "–"
    middle, interval = estimate(values)
    ends = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{middle:.2f}{ends}"


def _spread(value: dict[str, Any] | None, digits: int) -> str:
    if value is None:
        return ""
    median, low, high = (f"{value[end]:,.{digits}f}" for end in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"


def _cell(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else "–" if value is None else str(value)
