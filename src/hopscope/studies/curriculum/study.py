"""Which part of the curriculum is necessary (S1)?  Ways to ask for the steps of a chain, and who learns the last one.

The models are those of the first experiments: two layers for each step of the chain, at a width that learns quickly.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from pydantic import Field

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.curriculum.circuits import circuit_claims, circuits, distances
from hopscope.studies.curriculum.task import Curriculum
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import (
    MODEL,
    SHARE_SEEDS,
    SMOKE,
    STEPS,
    TRAINING,
    learned,
    learned_at,
    learned_in,
    smaller_scale,
    times_learned,
)
from hopscope.studies.waiting import waiting
from hopscope.words import symbol, symbols

WEIGHTS = (0.01, 0.03, 0.1, 0.3)
"""How much the easier steps count beside the last one, in the cells of dose and response."""

LAYERS_PER_STEP = 2

WHOLE, ALONE = "whole chain", "last symbol alone"
OWN, OWN_ALONE = "own positions, whole chain", "own positions, last symbol alone"
RANDOM, UNIFORM, ZIPF = "random subsets", "one step, uniform", "one step, Zipf"
GROWING, SWITCHED = "one symbol more at a time", "easier symbols first, then the last alone"
MIXED, MIXED_ZIPF, LONGER = "mixed lengths, uniform", "mixed lengths, Zipf", "growing length"


class Options(Config):
    """The chains that are asked for.

    Attributes:
        steps: lengths D of the chains.
        brief: whether to leave out what D = 2 alone cannot tell apart: fewer ways to ask, for a first look.
    """

    steps: tuple[int, ...] = (2, 3)
    brief: bool = False


class ReadingOptions(Options):
    """The chains that are asked for, and whether the circuits of the models are read.

    Attributes:
        steps, brief: as above.
        read: whether only the ways to ask that are known to teach x₂ are used, and the members' circuits are read.
    """

    # Left out of the JSON where it says nothing, so that runs from before it existed keep their hash.
    read: bool = Field(False, exclude_if=lambda read: not read)


def reads(options: Options) -> bool:
    """Whether the members' circuits are read."""
    return isinstance(options, ReadingOptions) and options.read


def curricula(steps: int, training_steps: int = STEPS) -> dict[str, dict[str, Any]]:
    """Name of every way to ask → fields of the task, for chains of `steps` steps."""
    every = range(1, steps + 1)
    easier = tuple(every)[:-1]
    parts = [(*part, steps) for size in range(1, len(easier)) for part in combinations(easier, size)]
    harmonic = sum(1 / step for step in every)
    uniform = {"shares": (1 / steps,) * steps, "emphasis": "one"}
    zipf = {"shares": tuple(1 / step / harmonic for step in every), "emphasis": "one"}
    # Every stage but the last has one of D + 1 parts of training; the last has two.
    begins = {step: training_steps // (steps + 1) * (step - 1) for step in every if step > 1}
    return {
        WHOLE: {"targets": "ic"},
        ALONE: {"targets": "last"},
        **{subset_name(part): {"targets": part} for part in parts},
        RANDOM: {"shares": (0.5,) * len(easier) + (1.0,), "emphasis": "subsets"},
        UNIFORM: uniform,
        ZIPF: zipf,
        MIXED: {**uniform, "padded": True},
        MIXED_ZIPF: {**zipf, "padded": True},
        **{weight_name(weight): {"shares": (weight,) * len(easier) + (1.0,)} for weight in WEIGHTS},
        GROWING: {
            "targets": (1,),
            "schedule": tuple((begin, tuple(range(1, step + 1))) for step, begin in begins.items()),
        },
        LONGER: {
            "targets": (1,),
            "schedule": tuple((begin, (step,)) for step, begin in begins.items()),
            "padded": True,
        },
        SWITCHED: {"targets": easier, "schedule": ((training_steps // 2, "last"),)},
        OWN: {"own_positions": True},
        OWN_ALONE: {"own_positions": True, "targets": "last"},
    }


def subset_name(part: Sequence[int]) -> str:
    """What a way to ask for some steps is called."""
    return " and ".join(symbols(part))


def weight_name(weight: float) -> str:
    """What a way to ask with a small weight of the easier steps is called."""
    return f"easier symbols weigh {weight:g}"


BRIEF = (WHOLE, ALONE, RANDOM, UNIFORM, weight_name(0.1), GROWING, OWN, OWN_ALONE)

TAUGHT = (WHOLE, RANDOM, UNIFORM, MIXED, weight_name(0.1), weight_name(0.3), LONGER)
"""Ways to ask that taught most seeds x₂, and whose models can be read on the same samples."""


def label(steps: int, name: str) -> str:
    """What a configuration is called."""
    return f"D={steps}, {name}"


def configurations(options: Options) -> list[hs.Configuration]:
    """Every way to ask, for chains of every length."""
    return [
        hs.Configuration(
            label=label(steps, name),
            overrides={
                "task.steps": steps,
                "model.layers": LAYERS_PER_STEP * steps,
                **{f"task.{field}": value for field, value in fields.items()},
            },
        )
        for steps in options.steps
        for name, fields in ways(options, steps).items()
    ]


def ways(options: Options, steps: int) -> dict[str, dict[str, Any]]:
    """The ways to ask that the options leave."""
    every = curricula(steps)
    if reads(options):
        return {name: every[name] for name in TAUGHT}
    return {name: fields for name, fields in every.items() if not options.brief or name in BRIEF}


# What is claimed.


def of_ways(named: Mapping[str, tuple[int, str]]) -> Any:
    """A function of the evidence: part → who learned x_D under a way to ask."""
    return learned_in({part: (label(*way), way[0]) for part, way in named.items()})


def times(evidence: Any, steps: int, name: str) -> dict[int, float]:
    """Seed → training step at which x_D was learned; infinite where it was not."""
    return times_learned(evidence, label(steps, name), f"step_{steps}")


def dose(steps: int) -> Any:
    """A function of the evidence: by seed, rank correlation of the easier symbols' weight and the time of x_D."""

    def found(evidence: Any) -> hs.Samples:
        from scipy.stats import spearmanr

        by_weight = {weight: times(evidence, steps, weight_name(weight)) for weight in WEIGHTS}
        by_weight[1.0] = times(evidence, steps, WHOLE)
        correlations = []
        for seed in by_weight[1.0]:
            own = [by_weight[weight].get(seed, math.nan) for weight in by_weight]
            known = len(set(own)) > 1 and not any(map(math.isnan, own))
            correlations.append(float(spearmanr([*by_weight], own).statistic) if known else math.nan)
        return hs.Samples(correlations, unit="seed")

    return found


MOST, FEW = hs.at_least(0.75, unit="fraction"), hs.at_most(0.25, unit="fraction")
SOURCE = "summary of the paper, next check 1"


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of chains of these lengths, or of the circuits where they are read."""
    if reads(options):
        return circuit_claims()
    return learning_claims(Options(steps=options.steps, brief=options.brief))


def learning_claims(options: Options) -> list[hs.Claim]:
    """What is claimed of who learns chains of these lengths."""
    alone = {f"{symbol(steps)} alone": (steps, ALONE) for steps in options.steps}
    whole = {f"all of D = {steps}": (steps, WHOLE) for steps in options.steps}
    given: dict[str, Any] = {
        "rule": "mean",
        "seeds_needed": 8,
        "at_scale": smaller_scale,
        "source": SOURCE,
        "kind": "general",
    }
    of_shares = {**given, "seeds_needed": SHARE_SEEDS}
    found = [
        hs.Claim(
            id="S1a",
            statement="Asked for the last symbol alone, models learn no chain; asked for the whole chain, they do.",
            protocol="share of seeds with a final held-out loss of x_D under 0.5",
            value=of_ways({**alone, **whole}),
            must={**dict.fromkeys(alone, FEW), **dict.fromkeys(whole, MOST)},
            **of_shares,
        ),
        hs.Claim(
            id="S1b",
            statement="Explicit supervision of each step, at its own position, replaces the implicit curriculum.",
            protocol="the same of models with D positions for each query, of which the k-th is asked for x_k alone; "
            "the control is asked for x_D alone, at the same positions",
            value=of_ways({f"D = {steps}": (steps, OWN) for steps in options.steps}),
            must={f"D = {steps}": MOST for steps in options.steps},
            controls={f"asked for {symbol(steps)} alone": _control(steps) for steps in options.steps},
            must_not=MOST,
            **given,
        ),
        hs.Claim(
            id="S1c",
            statement="A random subset of the easier symbols, for each sample anew, is enough.",
            protocol="the same of models whose every sample asks for each easier symbol with probability one half",
            value=of_ways({f"D = {steps}": (steps, RANDOM) for steps in options.steps}),
            must={f"D = {steps}": MOST for steps in options.steps},
            controls={f"asked for {symbol(steps)} alone": _alone(steps) for steps in options.steps},
            must_not=MOST,
            **of_shares,
        ),
    ]
    partial = {
        label(steps, name): (steps, name)
        for steps in options.steps
        for name, fields in ways(options, steps).items()
        if isinstance(fields.get("targets"), tuple) and "schedule" not in fields
    }
    if partial:
        found.append(
            hs.Claim(
                id="S1d",
                statement="A part of the curriculum is enough: some of the easier symbols are not needed.",
                protocol="the same of models that are asked for some easier symbols and x_D, for each such choice",
                value=of_ways(partial),
                must=dict.fromkeys(partial, MOST),
                need="any",
                controls={f"asked for {symbol(steps)} alone": _alone(steps) for steps in options.steps},
                must_not=MOST,
                **given,
            )
        )
    if not options.brief:
        found.append(
            hs.Claim(
                id="S1e",
                statement="The more the easier symbols count, the sooner the last one is learned.",
                protocol="by seed: rank correlation of the weight of the easier symbols (0.01 to 1) and the training "
                "step at which x_D was learned; what was never learned comes last",
                value=lambda evidence: {f"D = {steps}": dose(steps)(evidence) for steps in options.steps},
                must={f"D = {steps}": hs.at_most(0.0) for steps in options.steps},
                **{**given, "rule": "effect"},
            )
        )
    return found


def _control(steps: int) -> Any:
    return lambda evidence: learned(evidence, label(steps, OWN_ALONE), steps)


def _alone(steps: int) -> Any:
    return lambda evidence: learned(evidence, label(steps, ALONE), steps)


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Final losses of every way to ask, and how many seeds have learned by each step of training."""
    losses = [
        Series(f"loss_step_{steps}", f"D = {steps}", y=name, where={"configuration": label(steps, name)})
        for steps in options.steps
        for name in ways(options, steps)
    ]
    marks = (Mark(0.75, "plateau", axis="x"), Mark(LEARNED, "learned", axis="x"))
    return (
        hs.figures.dots("losses", losses, Axis("final held-out loss of x_D", (0.0, 1.1)), marks=marks),
        waiting(
            lambda evidence: {
                f"D = {steps}": {name: times(evidence, steps, name) for name in ways(options, steps)}
                for steps in options.steps
            },
            "x_D",
        ),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "ways": lambda steps: list(ways(options, steps)), "reads": reads(options),
        "learned_below": LEARNED, "whole": WHOLE, "alone": ALONE, "own": OWN, "own_alone": OWN_ALONE,
        "random": RANDOM, "layers_per_step": LAYERS_PER_STEP,
    }  # fmt: skip


study = hs.Study(
    name="curriculum",
    question="which easier questions must be asked for a chain to be learned, and may each have a position of its own?",
    task=Curriculum(),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING,
    options=ReadingOptions(),
    configurations=configurations,
    seeds=8,
    measures=[learned_at, circuits, distances],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**SMOKE, "options.steps": (2,), "options.brief": True},
        "laptop": {"options.steps": (2,), "options.brief": True},
        "workstation": {},
        "circuits": {"options.steps": (2,), "options.read": True},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "under 10 min on two cores by estimate",
        "workstation": "about 40 min on two cores: 272 models",
        "circuits": "about 15 min on two busy cores: 56 models, each read twice",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
