"""The models beside the two ideal observers: divergence, accuracy below chance, and which way they lean."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import (
    QUIET_INK,
    colour,
    facet,
    given,
    legend,
    level,
    on,
    seeds_and_means,
)
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import Figure, main
from hopscope.studies.permutation.figures.strips import Strips
from hopscope.studies.permutation.published import BY_STEP
from hopscope.studies.rows import SUMMARY, Drawn, Row, short, summary_rows

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

MAPPINGS = {"train": "training mappings", "held_out": "held-out mappings"}
"""Sets of mappings, and what they are called."""

OBSERVERS = {"uniform": "all mappings equally likely", "training": "only training mappings"}
"""Ideal observers, and what they hold possible."""

LEAST_DIVERGENCE = 1e-7
"""Divergences below this are rounding (32 bits), and are drawn here."""


def posterior_rows(shown: "list[Evidence]") -> list[Row]:
    """KL(observer ‖ model) by configuration, observer, mappings and step."""
    rows: list[Row] = []
    for found in shown:
        for observer, observed in OBSERVERS.items():
            for mappings, called in MAPPINGS.items():
                by_member = found.each("posteriors", f"kl_{observer}_{mappings}")
                for step in range(
                    max((len(by_step) for by_step in by_member if by_step is not None), default=0)
                ):
                    values = [None if by_step is None else by_step[step] for by_step in by_member]
                    floored = [None if value is None else max(value, LEAST_DIVERGENCE) for value in values]
                    rows += summary_rows(
                        found.seeds,
                        floored,
                        panel=f"{found.name}, {called}",
                        observer=observed,
                        step=step + 1,
                    )
    return rows  # fmt: skip


def _draw_posterior(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"panel": "string", "observer": "string", "step": "number", **SUMMARY}
    panels = [f"{found.name}, {called}" for found in shown for called in MAPPINGS.values()]
    observers = list(OBSERVERS.values())
    powers = [10.0**power for power in range(-7, 3)]
    layers = seeds_and_means(
        alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)),
        alt.Y(title="divergence (nats)", scale=alt.Scale(type="log"), axis=alt.Axis(values=powers, format="~e")),
        colour("observer", observers),
        "panel:N", "observer:N", "step:O",
        offset=alt.XOffset("observer:N", sort=observers),
    )  # fmt: skip
    chart = alt.layer(*layers, data=data_url("posterior", types)).properties(width=270, height=170)
    return chart.facet(facet("panel", panels), columns=2), posterior_rows(shown)


SOURCE = "published (one seed)"


def accuracy_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Accuracy less chance by configuration, mappings and step, and the source's own numbers (`kind` "published")."""
    rows: list[Row] = []
    for found in shown:
        values = config.task(found.configuration).values
        chance = [1 / (values - used) for used in range(values)]
        for mappings, called in MAPPINGS.items():
            by_member = found.each("posteriors", f"accuracy_{mappings}_by_step")
            for step in range(values):
                above = [None if by_step is None else by_step[step] - chance[step] for by_step in by_member]
                rows += summary_rows(
                    found.seeds, above, configuration=found.name, mappings=called, step=step + 1
                )
        for step, accuracy in enumerate(_published(found.configuration, values)):
            rows.append({"configuration": found.name, "mappings": MAPPINGS["held_out"], "step": step + 1,
                         "kind": "published", "value": short(accuracy - chance[step])})  # fmt: skip
    return rows


def _published(configuration: Configuration, values: int) -> tuple[float, ...]:
    """The presentation's accuracies by step, of sequences without a repeat; empty if it has none."""
    known = BY_STEP.get(configuration.name, {}) if values == 5 else {}
    return known.get("accuracy", ())[:values]


def _draw_accuracy(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"configuration": "string", "mappings": "string", "step": "number", **SUMMARY}
    x, mappings = alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)), list(MAPPINGS.values())
    y = alt.Y(title="accuracy less chance (points)", axis=alt.Axis(format="+%"))
    offset = alt.XOffset("mappings:N", sort=mappings)
    words = ("configuration:N", "mappings:N", "step:O")
    layers = seeds_and_means(x, y, colour("mappings", mappings), *words, offset=offset)
    chance = (
        given([{"at": 0, "level": "chance"}])
        .mark_rule(color=QUIET_INK, strokeWidth=1.3)
        .encode(
            y=on(y, "at"),
            strokeDash=alt.StrokeDash("level:N", scale=alt.Scale(range=[[5, 4]]), legend=legend(symbolType="stroke")),
        )
    )  # fmt: skip
    published = (
        alt.Chart()
        .transform_filter("datum.kind == 'published'")
        .transform_calculate(source=f"'{SOURCE}'")
        .mark_point(filled=True, size=60, fillOpacity=1, color="#000000")
        .encode(
            x=x,
            xOffset=offset,
            y=on(y, "value"),
            shape=alt.Shape("source:N", scale=alt.Scale(domain=[SOURCE], range=["cross"]),
                            legend=legend(symbolFillColor="#000000")),
            tooltip=["configuration:N", "source:N", "step:O", alt.Tooltip("value:Q", format=".4~g")],
        )
    )  # fmt: skip
    rows = accuracy_rows(config, shown)
    crosses = [published] if any(row["kind"] == "published" for row in rows) else []
    chart = alt.layer(chance, *layers, *crosses, data=data_url("accuracy_by_step", types)).properties(
        width=262, height=210
    )
    order = [found.name for found in shown]
    return chart.facet(facet("configuration", order), columns=2), rows


TILT_ARMS = ("model", "control (hollow): tilts of other sequences")


def tilt_rows(shown: "list[Evidence]") -> list[Row]:
    """Correlation of the model's tilt with that of the training mappings, and its control, by configuration."""
    return [
        row
        for found in shown
        for arm, path in zip(TILT_ARMS, ("tilt_correlation", "tilt_control"), strict=True)
        for row in summary_rows(
            found.seeds, found.each("posteriors", path), configuration=found.name, arm=arm
        )
    ]


def _asked(config: PermutationStudyConfig) -> list[Configuration]:
    return [each for each in config.grid() if config.is_asked(each)]


def _draw_tilt(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"configuration": "string", "arm": "string", **SUMMARY}
    strips = Strips(
        title="correlation with the tilt of the training mappings",
        format="~g",
        domain=None,
        rows=("configuration", [found.name for found in shown]),
        offsets=("arm", TILT_ARMS),
        colours=("arm", TILT_ARMS),
        arms=TILT_ARMS,
    )
    layers = alt.layer(level(0, "no correlation"), *strips.layers(440), data=data_url("tilt", types))
    return layers, tilt_rows(shown)


POSTERIOR = Figure("posterior", main, _draw_posterior)
ACCURACY_BY_STEP = Figure("accuracy_by_step", main, _draw_accuracy)
TILT = Figure("tilt", _asked, _draw_tilt)
