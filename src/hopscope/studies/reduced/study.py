"""Reduced dynamics: in how few directions do weights move while a chain is learned, and can its time be predicted?

Chains of two steps, whose weights are followed through training; and models of one step over a range of batch sizes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import MODEL, SHARE_SEEDS, TRAINING, learned_at, smaller_scale, times_learned
from hopscope.studies.reduced.measures import (
    FITTED,
    HELD_OUT,
    KEPT,
    RANKS,
    paths,
    predicted,
    predictions,
    runs_of,
)
from hopscope.studies.reduced.surrogate import (
    FREE_POWER,
    MEAN,
    POWER,
    PREDICTORS,
    SHUFFLED,
    SURROGATE,
)

WHOLE, ALONE = "whole chain", "last symbol alone"
FEW = 3
"""Directions that the claims call few."""

EVERY = 20
"""Training steps between checkpoints, and between evaluations, of the chains."""

NEAR = 0.25
"""Relative error up to which a prediction counts as right."""


class Options(Config):
    """What is trained.

    Attributes:
        fitted: batch sizes that predictors are fitted on.
        tested: batch sizes that they are tested on.
        cell_seeds: n; models at fitted sizes have seeds 0 … n - 1, all others n … 2n - 1.
        longest: most training steps of a model of the sweep.
    """

    fitted: tuple[int, ...] = (4, 16, 64, 256)
    tested: tuple[int, ...] = (8, 32, 128, 512)
    cell_seeds: int = 8
    longest: int = 2_500


def steps_of(batch: int, longest: int) -> int:
    """Training steps at a batch size: many times those that one symbol takes."""
    return min(longest, 100 + 9_600 // batch)


def sweep(options: Options) -> dict[str, int]:
    """Configuration → batch size of the sweep, in the order of sizes."""
    named = {
        f"{words}{batch}": batch
        for words, batches in ((FITTED, options.fitted), (HELD_OUT, options.tested))
        for batch in batches
    }
    return dict(sorted(named.items(), key=lambda item: item[1]))


def configurations(options: Options) -> list[hs.Configuration]:
    """Chains asked for as a whole and for the last symbol alone, then the sweep."""
    count = options.cell_seeds
    first, second = tuple(range(count)), tuple(range(count, 2 * count))
    chains = [
        hs.Configuration(label=name, overrides={"task.targets": targets}, seeds=second)
        for name, targets in ((WHOLE, "ic"), (ALONE, "last"))
    ]
    cells = []
    for name, batch in sweep(options).items():
        steps = steps_of(batch, options.longest)
        overrides = {"task.steps": 1, "model.layers": 2, "model.width": 256, "training.batch_size": batch,
                     "training.steps": steps, "training.checkpoint_every": steps,
                     "training.evaluate_every": max(2, steps // 100)}  # fmt: skip
        cells.append(
            hs.Configuration(label=name, overrides=overrides, seeds=first if FITTED in name else second)
        )
    return [*chains, *cells]


# What is claimed.


def of_chain(metric: str, part: str | None = None, name: str = WHOLE) -> Callable[[Any], Any]:
    """A function of the evidence: last value of a metric of the chain models, `[member]`; NaN where there is none."""

    def found(evidence: Any) -> Any:
        if metric in evidence:
            return evidence.last(metric, configuration=name, part=part)
        return evidence.last("loss_step_2", configuration=name) * math.nan

    return found


def beyond(name: str = WHOLE) -> Callable[[Any], Any]:
    """A function of the evidence: share of the path in its first direction, less that of a random walk, `[member]`."""
    return lambda evidence: (
        of_chain("path_share", "1", name)(evidence) - of_chain("walk_share", "1", name)(evidence)
    )


def by_seed(evidence: Any, metric: str, name: str) -> dict[int, float]:
    """Seed → last value of a metric of the chain models."""
    return {evidence.seeds[member]: value for member, value in of_chain(metric, None, name)(evidence).items()}


def more_than_idle(evidence: Any) -> hs.Samples:
    """By seed: what `beyond` gives for models asked for the whole chain, less the same for the last symbol alone."""
    learning, idle = (
        {evidence.seeds[member]: value for member, value in beyond(name)(evidence).items()}
        for name in (WHOLE, ALONE)
    )
    return hs.Samples([value - idle.get(seed, math.nan) for seed, value in learning.items()], unit="seed")


def fastest(name: str) -> Callable[[Any], hs.Samples]:
    """A function of the evidence: by seed, when the first coefficient grew the most, less when x₂ was learned."""

    def found(evidence: Any) -> hs.Samples:
        times, moved = times_learned(evidence, WHOLE, "step_2"), by_seed(evidence, "fastest", name)
        apart = [
            moved.get(seed, math.nan) - time if math.isfinite(time) else math.nan
            for seed, time in times.items()
        ]
        return hs.Samples(apart, unit="seed")

    return found


def ends_low(metric: str, kept: int = FEW) -> Callable[[Any], Any]:
    """A function of the evidence: 1 for each chain model whose changed copy knows x₂, 0 for the others, `[member]`."""

    def found(evidence: Any) -> Any:
        losses = of_chain(f"{metric}_loss_step_2", str(kept))(evidence)
        return (losses < LEARNED).astype(float).where(losses.notna())

    return found


def apart(symbol: str, kept: int = FEW) -> Callable[[Any], hs.Samples]:
    """A function of the evidence: by seed, when the reduced path learned a symbol, less when the model did."""

    def found(evidence: Any) -> hs.Samples:
        times = times_learned(evidence, WHOLE, symbol)
        reduced = of_chain("kept_learned_at", f"{kept}: {symbol}")(evidence)
        of_seed = {evidence.seeds[member]: time for member, time in reduced.items()}
        values = [
            of_seed[seed] - time if math.isfinite(time) and math.isfinite(of_seed[seed]) else math.nan
            for seed, time in times.items()
        ]
        return hs.Samples(values, unit="seed")

    return found


def held_out_runs(evidence: Any, options: Options) -> tuple[dict[int, Any], dict[str, dict[int, float]]]:
    """Held-out runs by member, and what each predictor says of them; fitted here, so that the rule is registered."""
    labels, cells = evidence.configurations, sweep(options)
    times = evidence.last("learned_at", part="step_1")
    own = {member: labels[member] for member in times.index if labels[member] in cells}
    batches = {member: float(cells[label]) for member, label in own.items()}
    ends = {member: float(steps_of(cells[label], options.longest)) for member, label in own.items()}
    runs = runs_of({member: float(times[member]) for member in own}, batches, ends)
    test = {member: run for member, run in runs.items() if own[member].startswith(HELD_OUT)}
    train = [run for member, run in runs.items() if own[member].startswith(FITTED)]
    return test, predicted(train, test)


def missing(evidence: Any, options: Options, value: Callable[[Any, dict[str, float]], float]) -> Any:
    """A value of every held-out run that learned, as a series over members; NaN for the others."""
    import pandas as pd

    test, steps = held_out_runs(evidence, options)
    cells = [name for name in sweep(options) if name.startswith(HELD_OUT)]
    members = [member for member, label in evidence.configurations.items() if label in cells]
    found = {
        member: value(test[member], {name: of[member] for name, of in steps.items()})
        for member in members
        if member in test and math.isfinite(test[member].time) and member in steps[SURROGATE]
    }
    index = pd.Index(members, dtype="int64", name="member")
    return pd.Series([found.get(member, math.nan) for member in members], index, "float64")


def near(options: Options, name: str = SURROGATE) -> Callable[[Any], Any]:
    """A function of the evidence: 1 for each held-out run whose time a predictor gives within 25 %, else 0."""
    return lambda evidence: missing(
        evidence, options, lambda run, steps: float(abs(steps[name] - run.time) <= NEAR * run.time)
    )


def nearer(options: Options, other: str) -> Callable[[Any], Any]:
    """A function of the evidence: log error of another predictor less that of the surrogate, by held-out run."""

    def value(run: Any, steps: dict[str, float]) -> float:
        off = {name: abs(math.log(steps[name] / run.time)) for name in (other, SURROGATE)}
        return off[other] - off[SURROGATE]

    return lambda evidence: missing(evidence, options, value)


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these models."""
    given: dict[str, Any] = {
        "seeds_needed": 8,
        "source": "open question: reduced dynamics",
        "at_scale": smaller_scale,
    }
    most, more = hs.at_least(0.75, unit="fraction"), hs.at_least(0.0)
    error = (
        "fitted on sizes {} (seeds 0 to {}), tested on sizes {} with other seeds; a run that never learned "
    )
    error += "enters the fit with its last step, and has no number in the test"
    last = options.cell_seeds - 1
    split = error.format(", ".join(map(str, options.fitted)), last, ", ".join(map(str, options.tested)))
    right, shorter = "within 25 %", {"nearer than the mean": MEAN, "nearer than a power law": POWER}
    window = hs.between(-2.0 * EVERY, 2.0 * EVERY, unit="steps")
    return [
        hs.Claim(
            id="D1",
            statement="Weights move in few directions: more than in a random walk, and than where nothing is learned.",
            protocol="squares of the path of weights through checkpoints, relative to the start: share in the first "
            "three directions; share in the first one, less that of a random walk with steps as long; and the same "
            "excess less that of the seed's model that is asked for x₂ alone",
            value=lambda evidence: {
                "first three": of_chain("path_share", str(FEW))(evidence),
                "more than a walk": beyond()(evidence),
                "more than where nothing is learned": more_than_idle(evidence),
            },
            must={
                "first three": hs.at_least(0.9, unit="fraction"),
                "more than a walk": more,
                "more than where nothing is learned": more,
            },
            rule={
                "first three": "mean",
                "more than a walk": "effect",
                "more than where nothing is learned": "effect",
            },
            **given,
        ),
        hs.Claim(
            id="D2",
            statement="A model of two constants predicts when a symbol is learned at other batch sizes: median error "
            "of at most 25 %, and better than the mean and than time = a / batch size.",
            protocol="at least half of the held-out runs within 25 %; log errors of the others less those of the "
            f"model; {split}",
            value=lambda evidence: {
                right: near(options)(evidence),
                **{part: nearer(options, name)(evidence) for part, name in shorter.items()},
            },
            must={right: hs.at_least(0.5, unit="fraction"), **dict.fromkeys(shorter, more)},
            rule={right: "mean", **dict.fromkeys(shorter, "effect")},
            controls={
                "fitted with batch sizes exchanged": lambda evidence: {
                    right: near(options, SHUFFLED)(evidence)
                }
            },
            must_not={right: hs.at_least(0.5, unit="fraction")},
            **given,
        ),
        hs.Claim(
            id="D2b",
            statement="The model is better than a power law that has two constants as well.",
            protocol=f"log error of the power law with a fitted exponent, less that of the model; {split}",
            value=nearer(options, FREE_POWER),
            must=more,
            rule="effect",
            **given,
        ),
        hs.Claim(
            id="D3",
            statement="The first direction moves when x₂ is learned.",
            protocol="by seed: checkpoint before which the first coefficient grew the most, less the step at which x₂ "
            "was learned, within two checkpoints; the control has that of the seed's model that is asked for x₂ alone",
            value=fastest(WHOLE),
            must=window,
            rule="mean",
            controls={"asked for x₂ alone": fastest(ALONE)},
            must_not=window,
            **given,
        ),
        hs.Claim(
            id="D4",
            statement="Three directions are enough: with them alone, models know x₂, and learn it when they did.",
            protocol="start of training plus the projection of the change on the path's first three directions: share "
            "of models with a held-out loss of x₂ under 0.5 at the end; and by seed, the first checkpoint at which "
            "this holds less the step at which the model learned, within one checkpoint",
            value=lambda evidence: {
                "knows x₂": ends_low("kept")(evidence),
                **{f"time of x{sub}": apart(f"step_{n}")(evidence) for n, sub in ((1, "₁"), (2, "₂"))},
            },
            must={
                "knows x₂": most,
                **{f"time of x{sub}": hs.between(-1.0 * EVERY, 1.0 * EVERY, unit="steps") for sub in "₁₂"},
            },
            rule="mean",
            controls={
                "the next seed's directions": lambda evidence: {"knows x₂": ends_low("borrowed")(evidence)},
                "all but these directions": lambda evidence: {"knows x₂": ends_low("without")(evidence)},
            },
            must_not={"knows x₂": most},
            **{**given, "seeds_needed": SHARE_SEEDS},
        ),
    ]


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """The course of coefficients beside that of losses, losses with few directions, and times over batch sizes."""
    symbols = {1: "x₁", 2: "x₂"}
    course = [
        Series(f"loss_step_{step}", f"loss of {name}", panel="losses, seed {seed}", where={"configuration": WHOLE})
        for step, name in symbols.items()
    ] + [
        Series("coefficient", f"direction {n}", panel="way, seed {seed}",
               where={"configuration": WHOLE, "part": str(n)}) for n in (1, 2, 3)
    ]  # fmt: skip
    shown = [
        Series("loss_step_2", "all weights", panel="seed {seed}", where={"configuration": WHOLE}),
        *(Series("kept_loss_step_2", f"first {kept}", panel="seed {seed}",
                  where={"configuration": WHOLE, "part": str(kept)})
          for kept in KEPT[:3]),
    ]  # fmt: skip
    times = [
        Series("learned_at", "fitted" if FITTED in name else "held out", x=batch,
               where={"configuration": name, "part": "step_1"}, hollow=FITTED not in name)
        for name, batch in sweep(options).items()
    ]  # fmt: skip
    guessed = [
        Series("predicted", name, x=batch, where={"configuration": cell, "part": name})
        for name in (SURROGATE, POWER, FREE_POWER)
        for cell, batch in sweep(options).items()
        if cell.startswith(HELD_OUT)
    ]
    learned = (Mark(LEARNED, "learned"),)
    return (
        hs.figures.lines("course", hs.figures.series.where_measured(course), Axis("loss, or share"),
                         marks=learned, columns=4),
        hs.figures.lines("reduced", hs.figures.series.where_measured(shown), Axis("held-out loss of x₂", (0.0, 1.3)),
                         marks=learned, columns=4),
        hs.figures.sweep("times", hs.figures.series.where_measured([*times, *guessed]),
                         Axis("training step", log=True), across=Axis("batch size", log=True)),
    )  # fmt: skip


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "whole": WHOLE, "alone": ALONE, "kept": KEPT, "ranks": RANKS, "sweep": sweep(options), "few": FEW,
        "predictors": {name: constants for name, (constants, _) in PREDICTORS.items()}, "surrogate": SURROGATE,
        "power": POWER, "mean": MEAN, "learned_below": LEARNED, "free": FREE_POWER, "shuffled": SHUFFLED,
        "held": [name for name in sweep(options) if name.startswith(HELD_OUT)],
        "infinite": math.inf,
    }  # fmt: skip


study = hs.Study(
    name="reduced",
    question="in how few directions do weights move while a chain is learned, and can its time be predicted?",
    task=hs.tasks.Retrieval(steps=2, chains=4, position="pair"),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING.model_copy(update={"checkpoint_every": EVERY, "evaluate_every": EVERY}),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[learned_at, paths, predictions],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {"options.cell_seeds": 2, "training.steps": 40, "model.width": 64, "options.longest": 40,
                  "options.fitted": (16, 64), "options.tested": (32,)},
        "laptop": {},
    },
    costs={"smoke": "under a minute on two cores", "laptop": "about 8 min on two cores: 80 models"},
    page="page.md.j2",
    page_names=page_names,
    held_out=256,
)  # fmt: skip
