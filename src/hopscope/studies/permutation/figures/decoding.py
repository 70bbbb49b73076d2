"""What can be decoded from the last row, before and after the feed-forward network."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, facet, in_lines, legend
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.figures.common import Figure, taken_apart
from hopscope.studies.permutation.figures.strips import Strips
from hopscope.studies.rows import SUMMARY, Drawn, Row, summary_rows

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

PROBES = {"linear": "linear probe", "mlp": "MLP probe"}
FLOOR = "floor (guess)"
ARMS = ("trained", "untrained (hollow)")


def targets(found: "Evidence") -> dict[str, tuple[str, str | None, str]]:
    """What is decoded: label → path of the trained model, of the untrained one, and of the floor."""
    answer = "answer of a repeat"
    shown: dict[str, tuple[str, str | None, str]] = {
        f"{answer}, before the FFN": ("answer.repeats.before", "untrained.repeats.before", "floors.used"),
        f"{answer}, after the FFN": ("answer.repeats.after", "untrained.repeats.after", "floors.used"),
        f"{answer}, one row too early (control)": (
            "answer.repeats.earlier_row", "untrained.repeats.earlier_row", "floors.earlier_row.repeats"),
        f"{answer}, labels shuffled (control)": ("shuffled", None, "floors.uniform"),
        "pointer: which slot is repeated": ("pointer", None, "floors.majority.pointer"),
    }  # fmt: skip
    history = found.shared("decoding", "history") or []
    return shown | {
        f"history: y of slot {slot + 1}": (f"history.{slot}", None, f"floors.majority.history.{slot}")
        for slot in range(len(history))
    }


def decoding_rows(shown: "list[Evidence]") -> list[Row]:
    """Accuracies of probes on held-out mappings by configuration, target, probe and arm; floors as `kind` "floor"."""
    rows: list[Row] = []
    for found in shown:
        for label, (trained, untrained, floor) in targets(found).items():
            columns = {"configuration": found.name, "target": in_lines(label)}
            for arm, path in zip(ARMS, (trained, untrained), strict=True):
                for probe, called in PROBES.items():
                    if path is not None and found.has("decoding", f"{path}.{probe}.held_out"):
                        values = found.each("decoding", f"{path}.{probe}.held_out")
                        rows += summary_rows(found.seeds, values, **columns, probe=called, arm=arm)
            level = found.shared("decoding", floor)
            if level is not None:
                rows.append({**columns, "kind": "floor", "value": round(level, 5)})
    return rows


def _draw(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("configuration", "target", "probe", "arm"), "string") | SUMMARY
    rows = decoding_rows(shown)
    strips = Strips(
        title="accuracy of the probe (held-out mappings)",
        format="%",
        domain=(0.0, 1.0),
        rows=("target", list(dict.fromkeys(row["target"] for row in rows))),
        offsets=("probe", list(PROBES.values())),
        colours=("probe", list(PROBES.values())),
        arms=ARMS,
    )
    # Another mark than the seeds' and means', so that it has a legend of its own.
    dash = alt.StrokeDash(
        "floor:N",
        scale=alt.Scale(domain=[FLOOR], range=[[3, 2]]),
        legend=legend(symbolType="stroke", symbolStrokeWidth=2),
    )
    floors = (
        alt.Chart()
        .transform_filter("datum.kind == 'floor'")
        .transform_calculate(floor=f"'{FLOOR}'")
        .mark_rule(color=QUIET_INK, strokeWidth=1.6)
        .encode(
            x="value:Q",
            y=alt.Y("target:N", bandPosition=0),
            y2=alt.Y2("target:N", bandPosition=1),
            strokeDash=dash,
            tooltip=["target:N", "floor:N", alt.Tooltip("value:Q", format=".4~g")],
        )
    )
    layers = alt.layer(floors, *strips.layers(400), data=data_url("decoding", types))
    return layers.facet(facet("configuration", [found.name for found in shown]), columns=1), rows


DECODING = Figure("decoding", taken_apart, _draw)
