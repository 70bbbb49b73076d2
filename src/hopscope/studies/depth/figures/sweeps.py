"""D against layers, and the specification curve: what every reading of the open details comes to."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.claims.intervals import mean
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration, Reading, reading_word
from hopscope.studies.depth.figures.common import Figure
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, broken_labels, colour, given, in_lines
from hopscope.studies.rows import SUMMARY, WIDTH, Drawn, Row, short, summary_rows
from hopscope.studies.theory import exact_of
from hopscope.studies.words import symbol, symbols
from hopscope.theory.information_flow import theorem_bound

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults

ENOUGH, BELOW_EXACT, BELOW_BOUND = "enough layers", "below the exact minimum", "below log₃(2D)"


def steps_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """Final partial loss of x_D by D and depth, the mean and the lowest over seeds."""
    rows: list[Row] = []
    for each in config.by_steps():
        losses = [loss for loss in results[each].partial[each.steps] if loss is not None]
        if losses:
            rows.append(
                {
                    "steps": each.steps,
                    "layers": each.layers,
                    "loss": short(mean(losses)),
                    "lowest": short(min(losses)),
                    "seeds": len(losses),
                    "theory": _theory(config, each),
                }
            )
    return rows


def _theory(config: DepthStudyConfig, each: Configuration) -> str:
    if each.layers < theorem_bound(each.steps):
        return BELOW_BOUND
    return BELOW_EXACT if each.layers < exact_of(config, each.steps) else ENOUGH


def _draw_steps(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    types = dict.fromkeys(("steps", "layers", "loss", "lowest", "seeds"), "number") | {"theory": "string"}
    x, y = (
        alt.X("layers:O", title="layers", axis=alt.Axis(labelAngle=0)),
        alt.Y("steps:O", title="D", sort="descending"),
    )
    tip = ["steps:Q", "layers:Q", "loss:Q", "lowest:Q", "seeds:Q", "theory:N"]
    cells = alt.Chart().mark_rect().encode(
        x=x, y=y, tooltip=tip,
        color=alt.Color("loss:Q", title="loss of x_D", scale=alt.Scale(scheme="viridis", domain=[0, 0.8], clamp=True)),
    )  # fmt: skip
    text = alt.Chart().mark_text(fontSize=12).encode(
        x=x, y=y, text=alt.Text("loss:Q", format=".2f"),
        color=alt.condition("datum.loss > 0.45", alt.value("#111111"), alt.value("#ffffff")),
    )  # fmt: skip
    marks = alt.Chart().transform_filter(f"datum.theory != '{ENOUGH}'").mark_point(
        filled=False, size=1400, shape="square", strokeWidth=2.5, color="#d62728"
    ).encode(x=x, y=y, strokeDash=alt.StrokeDash(
        "theory:N", scale=alt.Scale(domain=[BELOW_BOUND, BELOW_EXACT], range=[[1, 0], [3, 3]]),
        legend=alt.Legend(title=None, orient="top", labelLimit=0),
    ))  # fmt: skip
    chart = alt.layer(cells, text, marks, data=data_url("steps_by_depth", types))
    return chart.properties(width=alt.Step(70), height=alt.Step(48)), steps_rows(config, results)


def specification_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """Final partial losses of the deepest models of the sweep under every reading; the non-IC one is that of x_D."""
    deepest = max(each.layers for each in config.grid())
    rows: list[Row] = []
    for reading in grouped_readings(config):
        of = {each: found for each, found in results.items() if each.reading == reading}
        for asked in ("IC", "non-IC"):
            steps = config.steps if asked == "IC" else config.steps_last
            depths = [each.layers for each in of if each.asked == asked and each.steps == steps]
            if not depths:
                continue
            found = of[
                Configuration(asked, steps, max(depth for depth in depths if depth <= deepest), reading)
            ]
            for step in found.asked:
                what = f"IC {symbol(step)}" if asked == "IC" else f"non-IC {symbol(step)}"
                rows += summary_rows(
                    found.seeds, found.partial[step], reading=reading_label(config, reading), what=what
                )
    return rows


def grouped_readings(config: DepthStudyConfig) -> list[Reading]:
    """The readings, those with the same mask together, and of these those with or without MLP."""
    axes = ("causal", "mlp_ratio", "position", "beta2")
    return sorted(config.readings(), key=lambda reading: [name in reading.changes for name in axes])


def reading_label(config: DepthStudyConfig, reading: Reading) -> str:
    """Every axis of a reading in words, also those that are the study's own."""
    axes = ("causal", "position", "beta2", "mlp_ratio")
    own = {name: getattr(config, name) for name in axes} | reading.changes
    return ", ".join(reading_word(name, value) for name, value in own.items())


def _draw_specification(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    rows = specification_rows(config, results)
    names = [f"IC {name}" for name in symbols(range(1, config.steps + 1))] + [
        f"non-IC {symbol(config.steps_last)}"
    ]
    labels = [in_lines(reading_label(config, reading), 44) for reading in grouped_readings(config)]
    for row in rows:
        row["reading"] = in_lines(row["reading"], 44)
    x = alt.X("value:Q", title="final partial loss", scale=alt.Scale(domain=[0.0, 1.0], nice=False))
    y = alt.Y("reading:N", title=None, sort=labels, axis=broken_labels())
    by, apart = colour("what", names), alt.YOffset("what:N", sort=names)
    plateau = config.task(config.grid()[0]).plateau
    levels = (
        given([{"at": 0.5}, {"at": plateau}]).mark_rule(strokeDash=[4, 4], color=QUIET_INK).encode(x="at:Q")
    )
    seeds = (
        alt.Chart().transform_filter("datum.kind == 'seed'").mark_point(filled=True, size=22, fillOpacity=0.5)
    )
    means = alt.Chart().transform_filter("datum.kind == 'mean'").mark_tick(thickness=2.5, height=8)
    tip = ["reading:N", "what:N", "seed:Q", alt.Tooltip("value:Q", format=".3f")]
    chart = alt.layer(
        levels,
        seeds.encode(x=x, y=y, yOffset=apart, color=by, tooltip=tip),
        means.encode(x=x, y=y, yOffset=apart, color=by, tooltip=tip),
        data=data_url("specification", {**SUMMARY, "reading": "string", "what": "string"}),
    )
    return chart.properties(width=WIDTH - 160, height=alt.Step(13 * len(names), **{"for": "position"})), rows


STEPS_BY_DEPTH = Figure(
    "steps_by_depth", lambda config: "steps" in config.sweeps and bool(config.layers), _draw_steps
)
SPECIFICATION = Figure(
    "specification",
    lambda config: "specification" in config.sweeps and bool(config.layers),
    _draw_specification,
)
