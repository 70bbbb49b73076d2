"""The figures of the depth study: which ones a run has follows from its configuration alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from hopscope.figures import Drawing, Figure, cells, chart, dots, lines, sweep
from hopscope.figures.series import Axis, Mark, Series
from hopscope.studies.analysis import deferred
from hopscope.studies.depth.config import AXES, Asked, Configuration, DepthStudyConfig, Reading, reading_word
from hopscope.studies.depth.values import crossings_of, learned_below, of_reading, panel
from hopscope.studies.recipe import exact_by_step, exact_of, mask_and_order
from hopscope.theory.information_flow import theorem_bound
from hopscope.words import counted, symbol

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

LARGEST_DRAWN = 8
"""Longest chain whose positions are told apart in the picture of the information flow."""

BELOW_BOUND, BELOW_EXACT = "fewer layers than log₃(2D)", "fewer layers than the exact minimum"
SEEN, NEVER = "fell under 0.5", "not within training"

_LOSSES = (0.0, 1.05)


def figures(config: DepthStudyConfig) -> tuple[Figure, ...]:
    """The figures that a run of a configuration has something for."""
    found = [_loss_by_depth(config)]
    if config.layers:
        found += [_partial_by_depth(config), _partial_curves(config)]
        found.append(chart("crossings", partial(_crossings, config)))
        if config.steps <= LARGEST_DRAWN:
            draw = deferred("hopscope.figures.information_flow:information_flow_chart")
            flow = (config.steps, *mask_and_order(config))
            found.append(chart("information_flow", lambda evidence: draw(*flow)).answers("fig-3"))
        if "steps" in config.sweeps:
            found.append(_steps_by_depth(config))
        if len(config.readings()) > 1:
            found.append(_specification(config))
    return tuple(found)


# Both panels of the paper's Figure 4: final losses by number of layers, with the exact theory drawn in.


def _loss_by_depth(config: DepthStudyConfig) -> Figure:
    exact = {_task(each): exact_of(config, each.steps) for each in config.base()}
    series = [Series("final_loss", _task(each), each.layers, where=_of(each)) for each in config.base()]
    axis, level = Axis("final held-out loss (MSE)", _LOSSES), Mark(1.0, "predicting zero: 1")
    return _by_layers(config, "loss_by_depth", series, axis, level, exact).answers("fig-4-left")


def _partial_by_depth(config: DepthStudyConfig) -> Figure:
    exact = {symbol(step): layers for step, layers in exact_by_step(config, config.steps).items()}
    series = [
        Series("final_loss", symbol(step), each.layers, where=_of(each, step))
        for step in range(1, config.steps + 1)
        for each in config.base()
        if each.asked == "IC"
    ]
    learned = learned_below(config)
    axis, level = Axis("final partial loss (MSE)", _LOSSES), Mark(learned, f"counts as learned: {learned:g}")
    return _by_layers(config, "partial_by_depth", series, axis, level, exact).answers("fig-4-right")


def _by_layers(
    config: DepthStudyConfig,
    name: str,
    series: Sequence[Series],
    axis: Axis,
    level: Mark,
    exact: Mapping[str, int],
) -> Figure:
    """Series along an axis of layers that is long enough for what theory says as well."""
    plateau = config.task(config.grid()[0]).plateau
    marks = [Mark(plateau, f"plateau 1 − 1/N = {plateau:g}"), level]
    marks += [Mark(layers, "exact minimum of layers", "x", each) for each, layers in exact.items()]
    most = max(*config.layers, *config.layers_last, *exact.values())
    return sweep(name, series, axis, across=Axis("layers", (0.5, most + 0.5), "d"), marks=marks)


def _task(each: Configuration) -> str:
    return f"{each.asked}, D = {each.steps}"


def _of(each: Configuration, step: int | None = None) -> dict[str, str]:
    part = {} if step is None else {"part": f"step_{step}"}
    return {"configuration": each.name, **part}


# How models learn.


def _partial_curves(config: DepthStudyConfig) -> Figure:
    deepest = config.deepest()
    series = [
        Series(f"loss_step_{step}", symbol(step), panel="seed {seed}", where=_of(deepest))
        for step in deepest.asked_steps
    ]
    marks = (Mark(config.task(deepest).plateau, "plateau"), Mark(learned_below(config), "learned"))
    return lines(
        "partial_curves", series, Axis("held-out partial loss", _LOSSES), marks=marks, columns=3, height=140
    )


def crossing_rows(evidence: "Evidence") -> list[dict[str, Any]]:
    """For each IC model as configured, and each step: when its partial loss fell under 0.5, or that it did not.

    What never did stands at the end of training; a model that diverged has none.
    """
    from hopscope.figures.marks import crossing_columns

    models = panel(of_reading(evidence), "IC")
    found = crossings_of(evidence, models)
    return [
        {
            "run": _run_name(each, seed),
            "symbol": symbol(step),
            **crossing_columns(crossings[place], SEEN, NEVER),
        }
        for each, of in models.items()
        for place, step in enumerate(each.asked_steps)
        for seed, member in of.items()
        if (crossings := found[member]) is not None
    ]


def _run_name(each: Configuration, seed: int) -> str:
    return f"{counted(each.layers, 'layer')}, seed {seed}"


def _crossings(config: DepthStudyConfig, evidence: "Evidence") -> Drawing:
    import altair as alt

    from hopscope.figures.marks import broken_labels, colour, points, shape, table
    from hopscope.figures.rows import WIDTH

    names = [symbol(step) for step in config.deepest().asked_steps]
    # All of them, so that there is a chart even if every model diverged.
    models = panel(of_reading(evidence), "IC").items()
    runs = [_run_name(each, seed) for each, of in models for seed in of]
    title = "training step at which the partial loss fell under 0.5"
    x = alt.X(title=title, axis=alt.Axis(format="~s"))
    y = alt.Y("run:N", title=None, scale=alt.Scale(domain=runs), axis=broken_labels())
    # Symbols of one run stand beside each other.
    beside = alt.YOffset("symbol:N", scale=alt.Scale(domain=names))
    data = table("crossings", "run symbol seen", "step low high")
    seen = shape("seen", [SEEN, NEVER])
    drawn = alt.layer(
        *points(data, x, "step", y, colour("symbol", names), ranged=True, offset=beside, shape=seen),
        data=data,
    )
    return drawn.properties(width=WIDTH - 60, height=alt.Step(6 + 4 * len(names))), crossing_rows(evidence)


# The sweeps.


def _steps_by_depth(config: DepthStudyConfig) -> Figure:
    series = []
    for each in sorted(config.by_steps(), key=lambda each: -each.steps):
        below = BELOW_EXACT if each.layers < exact_of(config, each.steps) else ""
        below = BELOW_BOUND if each.layers < theorem_bound(each.steps) else below
        where = _of(each, each.steps)
        series.append(Series("final_loss", x=each.layers, y=each.steps, where=where, outline=below))
    return cells("steps_by_depth", series, Axis("loss of x_D", (0.0, 0.8)), across=Axis("layers"), down="D")


def _specification(config: DepthStudyConfig) -> Figure:
    """Final partial losses of the deepest models under every reading; of a non-IC one, that of x_D."""
    series = [
        Series(
            "final_loss",
            f"{asked} {symbol(step)}",
            y=reading_label(config, reading),
            where=_of(deepest, step),
        )
        for reading in grouped_readings(config)
        for asked in get_args(Asked)
        for deepest in deepest_under(config, reading, asked)
        for step in deepest.asked_steps
    ]
    marks = (Mark(learned_below(config), "learned"), Mark(config.task(config.grid()[0]).plateau, "plateau"))
    return dots("specification", series, Axis("final partial loss", (0.0, 1.0)), marks=marks)


def deepest_under(config: DepthStudyConfig, reading: Reading, asked: Asked) -> list[Configuration]:
    """The deepest configuration of a panel under a reading, in a list; an empty one if there is none."""
    panel_of = (reading, asked, config.steps_of(asked))
    found = [each for each in config.grid() if (each.reading, each.asked, each.steps) == panel_of]
    return sorted(found, key=lambda each: each.layers)[-1:]


def grouped_readings(config: DepthStudyConfig) -> list[Reading]:
    """The readings, those with the same mask together, and of these those with or without MLP."""
    in_order = ("causal", "mlp_ratio", "position", "beta2")
    return sorted(config.readings(), key=lambda reading: [name in reading.changes for name in in_order])


def reading_label(config: DepthStudyConfig, reading: Reading) -> str:
    """Every axis of the specification in words, also those that are the study's own, and further changes."""
    here = config.under(reading)
    further = {name: value for name, value in reading.changes.items() if name not in AXES}
    if "specification" not in config.sweeps:
        return reading.words or "as configured"
    axes = {name: getattr(here, name) for name in AXES}
    return ", ".join(reading_word(name, value) for name, value in {**axes, **further}.items())
