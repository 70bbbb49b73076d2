"""Tables of pretrained language models."""

from statistics import fmean
from typing import Any

from hopscope.claims.intervals import estimate
from table_makers.common import evidence_of, markdown, read_json

Cell = dict[str, Any]


def heads(*files: str) -> str:
    """What ablating the heads of models costs, beside as many others and, where it was measured, whole layers."""
    rows = []
    for file in files:
        found = read_json(f"heads/{file}.json")
        for row in found["ablation"]:
            cost = row["cost"]
            costs = [
                _points(cost[name], cost[f"{name}_interval"]) if cost.get(f"{name}_interval") else "–"
                for name in ("top", "random", "layers")
            ]
            named = ", ".join(f"{layer}.{head}" for layer, head in row["heads"])
            right = f"{row['accuracy']:.0%} (guess {row['guess']:.0%})"
            way = _way({**found, "depth": row.get("depth", found.get("depth"))})
            verdict = found["claims"][0]["verdict"] if found.get("claims") else "–"
            rows.append([found["model"], way, named, right, *costs, verdict])
    columns = ["model", "questions", "layer.head", "accuracy with all", "cost of these", "of random ones"]
    return markdown([*columns, "of all heads of their layers", "S2"], rows)


def _way(found: Cell) -> str:
    words = [f"{found['formulation'].replace('_', ' ')} D = {found['depth']}"]
    words += ["completion"] if found.get("complete") else ["chat"] if found.get("chat") else []
    words += [f"told {found['repeats']} times"] if found.get("repeats", 1) > 1 else []
    words += [f"{found['few_shot']} examples"] if found.get("few_shot") else []
    return ", ".join(words)


def _points(cost: float, interval: list[float]) -> str:
    return f"{cost:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"


def language_models(*runs: str) -> str:
    """What language models answered or chose, by kind of question, and which symbol came first."""
    rows = []
    for run in runs:
        for part, cell in _cells(run).items():
            said = "; ".join(f"{symbol}: {count:.0f}" for symbol, count in _said(cell))
            rows.append([*part.split(", ", 1), _share(cell), f"{cell['guess']:.2f}", said])
    return markdown(
        ["model", "questions", "accuracy [95 % interval]", "by guessing", "likeliest symbol"], rows
    )


def language_changes(*runs: str) -> str:
    """What another way to put the same questions changes: differences over questions, in points, with a bootstrap.

    Runs whose questions are put as they are come first: the others are compared with them.
    """
    before, rows = dict[str, list[float]](), []
    for run in runs:
        asked, now = read_json(f"llm/{run}/config.json")["identity"]["options"], _correct(run)
        way = [f"told {asked['repeats']} times"] if asked["repeats"] > 1 else []
        way += [f"{asked['few_shot']} solved examples"] if asked["few_shot"] else []
        way += [f"{asked['filler']} dots"] if asked["filler"] else []
        if not way:
            before |= now
        for part, cell in _cells(run).items() if way else ():
            change = [100 * (b - a) for a, b in zip(before[part], now[part], strict=True)]
            low, high = estimate(change)[1] or (0.0, 0.0)
            first = dict(_said(cell)).get("asked chain, hop 1", 0)
            model, kind = part.split(", ", 1)
            difference = f"{fmean(change):+.0f} [{low:+.0f}, {high:+.0f}]"
            rows.append([model, ", ".join(way), kind, f"{fmean(before[part]):.2f}", _share(cell), difference,
                         f"{first:.0f} of {cell['questions']:.0f}"])  # fmt: skip
    columns = ["model", "change", "questions", "as they are", "changed [95 % interval]", "difference in points",
               "likeliest symbol: the asked chain's hop 1"]  # fmt: skip
    return markdown(columns, rows)


def _cells(run: str) -> dict[str, Cell]:
    # Model and kind of question → its counts; under `said` how often each symbol was the likeliest.
    found = dict[str, Cell]()
    for row in evidence_of(f"llm/{run}").rows(measure="tally").to_dict("records"):
        part, _, symbol = row["part"].partition(": ")
        cell = found.setdefault(part, {"said": {}})
        if symbol and row["metric"] == "said":
            cell["said"][symbol] = row["value"]
        elif not symbol:
            cell[row["metric"]] = row["value"]
    return found


def _said(cell: Cell) -> list[tuple[str, float]]:
    return sorted(cell["said"].items(), key=lambda each: (-each[1], each[0]))


def _share(cell: Cell) -> str:
    low, high = cell["accuracy_low"], cell["accuracy_high"]
    answered = round(cell["questions"] * cell["answered"])
    return f"{cell['accuracy']:.2f} [{low:.2f}, {high:.2f}] of {answered}" if answered else "–"


def _correct(run: str) -> dict[str, list[float]]:
    rows = evidence_of(f"llm/{run}").rows("correct")
    return {part: of["value"].tolist() for part, of in rows.groupby("part")}
