"""The figures of the depth study: which ones a run has follows from its configuration alone."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.figures import Drawing, Figure, cells, chart, dots, lines, sweep
from hopscope.figures.series import Axis, Mark, Series
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import AXES, Asked, Configuration, Reading, reading_word
from hopscope.studies.depth.runs import Runs, as_configured, panel
from hopscope.studies.depth.values import LEARNED, crossings_of
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
_EXACT = "exact minimum of layers"


def figures(config: DepthStudyConfig) -> tuple[Figure, ...]:
    """The figures that a run of a configuration has something for."""
    found = [_loss_by_depth(config)]
    if config.layers:
        found += [
            _partial_by_depth(config),
            _partial_curves(config),
            chart("crossings", partial(_crossings, config)),
        ]
        if config.steps <= LARGEST_DRAWN:
            found.append(chart("information_flow", partial(_information_flow, config)))
        if "steps" in config.sweeps:
            found.append(_steps_by_depth(config))
        if "specification" in config.sweeps:
            found.append(_specification(config))
    return tuple(found)


# Both panels of the paper's Figure 4: final losses by number of layers, with the exact theory drawn in.


def _loss_by_depth(config: DepthStudyConfig) -> Figure:
    tasks = {_task(each): each for each in config.base()}
    exact = [Mark(exact_of(config, each.steps), _EXACT, "x", name) for name, each in tasks.items()]
    series = [Series("final_loss", _task(each), each.layers, where=_of(each)) for each in config.base()]
    axis = Axis("final held-out loss (MSE)", _LOSSES)
    marks = [_plateau(config), Mark(1.0, "predicting zero: 1"), *exact]
    return sweep("loss_by_depth", series, axis, across=_layers(config, exact), marks=marks)


def _partial_by_depth(config: DepthStudyConfig) -> Figure:
    exact = [
        Mark(layers, _EXACT, "x", symbol(step))
        for step, layers in exact_by_step(config, config.steps).items()
    ]
    series = [
        Series("final_loss", symbol(step), each.layers, where=_of(each, step))
        for step in range(1, config.steps + 1)
        for each in config.base()
        if each.asked == "IC"
    ]
    axis = Axis("final partial loss (MSE)", _LOSSES)
    marks = [_plateau(config), Mark(LEARNED, f"counts as learned: {LEARNED:g}"), *exact]
    return sweep("partial_by_depth", series, axis, across=_layers(config, exact), marks=marks)


def _task(each: Configuration) -> str:
    return f"{each.asked}, D = {each.steps}"


def _of(each: Configuration, step: int | None = None) -> dict[str, str]:
    part = {} if step is None else {"part": f"step_{step}"}
    return {"configuration": each.name, **part}


def _plateau(config: DepthStudyConfig) -> Mark:
    plateau = config.task(config.grid()[0]).plateau
    return Mark(plateau, f"plateau 1 − 1/N = {plateau:g}")


def _layers(config: DepthStudyConfig, exact: Sequence[Mark]) -> Axis:
    """The axis of layers, long enough for what theory says as well."""
    most = max(*config.layers, *config.layers_last, *(mark.value for mark in exact))
    return Axis("layers", (0.5, most + 0.5), "d")


# How models learn.


def _partial_curves(config: DepthStudyConfig) -> Figure:
    deepest = config.deepest()
    series = [
        Series(f"loss_step_{step}", symbol(step), panel="seed {seed}", where=_of(deepest))
        for step in deepest.asked_steps
    ]
    marks = (Mark(config.task(deepest).plateau, "plateau"), Mark(LEARNED, "learned"))
    return lines(
        "partial_curves", series, Axis("held-out partial loss", _LOSSES), marks=marks, columns=3, height=140
    )


def crossing_rows(evidence: "Evidence") -> list[dict[str, Any]]:
    """For each IC model as configured, and each step: when its partial loss fell under 0.5, or that it did not.

    What never did stands at the end of training; a model that diverged has none.
    """
    from hopscope.figures.points import crossing_columns

    runs = panel(as_configured(evidence), "IC")
    found = crossings_of(evidence, runs)
    rows = []
    for each in runs:
        for place, step in enumerate(each.configuration.asked_steps):
            for seed, member in each.seeds.items():
                crossings = found[member]
                if crossings is None:
                    continue
                columns = crossing_columns(crossings[place], SEEN, NEVER)
                rows.append({"run": _run_name(each, seed), "symbol": symbol(step), **columns})
    return rows


def _run_name(runs: Runs, seed: int) -> str:
    return f"{counted(runs.configuration.layers, 'layer')}, seed {seed}"


def _crossings(config: DepthStudyConfig, evidence: "Evidence") -> Drawing:
    import altair as alt

    from hopscope.figures.marks import broken_labels, colour, shape
    from hopscope.figures.points import points, table
    from hopscope.figures.rows import WIDTH

    names = [symbol(step) for step in config.deepest().asked_steps]
    # All of them, so that there is a chart even if every model diverged.
    runs = [_run_name(each, seed) for each in panel(as_configured(evidence), "IC") for seed in each.seeds]
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


def _information_flow(config: DepthStudyConfig, evidence: "Evidence") -> Drawing:
    from hopscope.figures.information_flow import information_flow_chart

    return information_flow_chart(config.steps, *mask_and_order(config))


# The sweeps.


def _steps_by_depth(config: DepthStudyConfig) -> Figure:
    series = [
        Series(
            "final_loss",
            x=each.layers,
            y=each.steps,
            where=_of(each, each.steps),
            outline=_below(config, each),
        )
        for each in sorted(config.by_steps(), key=lambda each: -each.steps)
    ]
    return cells("steps_by_depth", series, Axis("loss of x_D", (0.0, 0.8)), across=Axis("layers"), down="D")


def _below(config: DepthStudyConfig, each: Configuration) -> str:
    if each.layers < theorem_bound(each.steps):
        return BELOW_BOUND
    return BELOW_EXACT if each.layers < exact_of(config, each.steps) else ""


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
        for asked in _ASKED
        for deepest in deepest_under(config, reading, asked)
        for step in deepest.asked_steps
    ]
    marks = (Mark(LEARNED, "learned"), Mark(config.task(config.grid()[0]).plateau, "plateau"))
    return dots("specification", series, Axis("final partial loss", (0.0, 1.0)), marks=marks)


_ASKED: tuple[Asked, ...] = ("IC", "non-IC")


def deepest_under(config: DepthStudyConfig, reading: Reading, asked: Asked) -> list[Configuration]:
    """The deepest configuration of a panel under a reading, in a list; an empty one if there is none."""
    steps = config.steps if asked == "IC" else config.steps_last
    found = [
        each for each in config.grid() if (each.reading, each.asked, each.steps) == (reading, asked, steps)
    ]
    return sorted(found, key=lambda each: each.layers)[-1:]


def grouped_readings(config: DepthStudyConfig) -> list[Reading]:
    """The readings, those with the same mask together, and of these those with or without MLP."""
    in_order = ("causal", "mlp_ratio", "position", "beta2")
    return sorted(config.readings(), key=lambda reading: [name in reading.changes for name in in_order])


def reading_label(config: DepthStudyConfig, reading: Reading) -> str:
    """Every axis of a reading in words, also those that are the study's own."""
    own = {name: getattr(config, name) for name in AXES} | reading.changes
    return ", ".join(reading_word(name, value) for name, value in own.items())
