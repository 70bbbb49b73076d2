"""Tables of `hopscope bench`."""

import json
import math
from statistics import fmean, median
from typing import Any

from table_makers.common import BENCH, markdown, read_json


def speed(file: str = "cpu", measure: str = "samples") -> str:
    """A committed speed comparison, in members' samples or steps per second."""
    result = read_json(BENCH / f"{file}.json")
    rows = []
    for each in result["contestants"]:
        spread, ratio = each[f"{measure}_per_second"], result["ratios"].get(each["name"])
        reported = each["reported"] or {}
        engine = {"engine": reported["engine"]} if "engine" in reported else {}
        settings = " ".join(f"{name} {value}" for name, value in {**each["settings"], **engine}.items())
        digits = 1 if measure == "steps" else 0
        median, least, most = (
            f"{spread[name]:,.{digits}f}" if spread else "" for name in ("median", "min", "max")
        )
        speeds = f"{median} ({least} to {most})" if spread else each["status"]
        against = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""
        peak = f"{each['peak_memory_mb']:,.0f}" if each["peak_memory_mb"] else "–"
        rows.append([each["name"], settings, speeds, against, *_rate(each), peak])
    rates = ["GFLOP/s", "of the machine's peak"] if any(map(_rate, result["contestants"])) else []
    columns = ["contestant", "tuned settings", f"member-{measure}/s", "ours ÷ this", *rates, "peak MiB"]
    return markdown(columns, rows)


def _rate(contestant: dict[str, Any]) -> list[str]:
    """Arithmetic per second and its share of the machine's, where they were measured."""
    rate, share = contestant.get("gflops_per_second"), contestant.get("share_of_peak")
    if not rate or not share:
        return []
    return [
        f"{rate['median']:.0f} ({rate['min']:.0f} to {rate['max']:.0f})",
        f"{share['median']:.0%} ({share['min']:.0%} to {share['max']:.0%})",
    ]


_AXES = {"members": "members", "values": "V", "steps": "D", "layers": "layers", "width": "width"}


def growth(file: str = "growth") -> str:
    """What training costs as the work grows: a table for each axis."""
    result = read_json(BENCH / f"{file}.json")
    tables = []
    for axis, heading in _AXES.items():
        rows = [row for row in result["rows"] if row["axis"] == axis]
        if rows:
            others = [f"{_AXES.get(n, n)} {v}" for n, v in rows[0]["settings"].items() if n != axis]
            columns = [heading, "engine", "member-samples/s", "µs per member-sample", "peak MiB"]
            caption = f"By {heading}, with {', '.join(others)}, batch {result['batch']}, one thread:"
            tables.append(f"{caption}\n\n{markdown(columns, [_cost(row) for row in rows])}")
    return "\n".join(tables)


def _cost(row: dict[str, Any]) -> list[str]:
    speed, micros, peak = row["samples_per_second"], row["microseconds_per_sample"], row["peak_memory_mb"]
    if speed is None:
        return [str(row["value"]), "–", row["status"], "–", "–"]
    return [
        str(row["value"]),
        row["engine"],
        f"{speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f})",
        f"{micros['median']:.2f} ({micros['min']:.2f} to {micros['max']:.2f})",
        f"{peak:,.0f}",
    ]


def reading(file: str = "reading") -> str:
    """What it costs to read the circuit of a deep model."""
    result = read_json(BENCH / f"{file}.json")

    def seconds(spread: dict[str, Any]) -> str:
        return f"{spread['median']:.1f} ({spread['min']:.1f} to {spread['max']:.1f})"

    searches = [("search, lower layers kept", "kept"), ("search, every pass from the bottom", "afresh")]
    passes, layers = result["search_passes"], result["search_layers"]
    rows = [
        ["whole reading", seconds(result["seconds"]), seconds(result["cpu_seconds"]), "", ""],
        *(
            [
                words,
                seconds(result["search_seconds"][way]),
                seconds(result["search_cpu_seconds"][way]),
                f"{passes[way]:,}",
                f"{layers[way]:,}",
            ]
            for words, way in searches
        ),
    ]
    gain = result["search_afresh_over_kept"]
    ratio = f"{gain['median']:.2f} ({gain['min']:.2f} to {gain['max']:.2f})"
    table = markdown(["what", "seconds", "of a core", "passes", "layers run"], rows)
    return f"{table}\nFrom the bottom ÷ kept, within a round: {ratio}.\n"


def solved(file: str) -> str:
    """What a user waits for: seconds until half of the seeds, and all of them, have learned."""
    found = read_json(BENCH / f"{file}.json")
    rows = []
    for each in found["contestants"]:
        (once,) = each["rounds"]
        seeds, learned = once["seeds"], [row for row in once["seeds"] if row["learned"]]
        half = sorted(row["seconds"] if row["learned"] else math.inf for row in seeds)[(len(seeds) - 1) // 2]
        steps = [row["steps"] for row in learned]
        taken = f"{fmean(steps):,.0f} ({min(steps):,} to {max(steps):,})" if learned else "–"
        whole = f"{'over ' * once['censored']}{once['wall_seconds']:,.0f}"
        settings = " ".join(f"{name} {value}" for name, value in each["settings"].items())
        rows.append([each["name"], settings, f"{half:,.0f}", whole, f"{len(learned)} of {len(seeds)}", taken])
    columns = [
        "contestant", "settings", "seconds until half have learned", "seconds until all have", "learned",
        "steps of those: mean (range)",
    ]  # fmt: skip
    return markdown(columns, rows)


def lent(*files: str, batch: int = 128) -> str:
    """What a GPU trained together, from logs of `campaigns/lent.py`, by the number of members."""
    rows = []
    for file in files:
        lines = (BENCH / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{")]
        progress = [each for each in said if each["kind"] == "progress"]
        for members in dict.fromkeys(len(each["losses"]) for each in progress):
            own = [each for each in progress if len(each["losses"]) == members]
            # The first steps are compiled and recorded.
            rates = sorted(each["samples_per_second"] / batch for each in own if each["step"] >= 16)
            speeds = f"{median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
            rows.append([str(members), speeds, f"{median(rates) / members:,.0f}", f"{own[-1]['step']:,}"])
    rows.sort(key=lambda row: int(row[0]))
    return markdown(["models together", "member-steps/s", "steps/s", "log up to step"], rows)


def steps_beside(file: str = "second-house-steps") -> str:
    """Steps of the engines of two packages, and of a precision that only one has on a CPU."""
    rows = []
    for line in (BENCH / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        cells = [each["model"], f"{each['engines']['old']} / {each['engines']['float32']}"]
        cells.append(f"{each['milliseconds']['old']:.3g}")
        for precision in ("float32", "bfloat16"):
            low, middle, high = (1 / end for end in each["ratio"][precision][::-1])
            same = each["engines"][precision] == each["engines"]["float32"]
            ratio = (
                f"{each['milliseconds'][precision]:.3g}: {middle:.2f} times as fast [{low:.2f}, {high:.2f}]"
            )
            cells.append(ratio if same else "– (another engine)")
        rows.append(cells)
    return markdown(["model", "engine, old / new", "old, ms", "new, ms", "new in bfloat16, ms"], rows)
