"""What the page of the depth study says beside single numbers: orders of learning, theory, and the sweeps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import median
from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.story.text import chain_example
from hopscope.studies.depth import values
from hopscope.studies.depth.config import Configuration, DepthStudyConfig
from hopscope.studies.depth.figures import (
    BELOW_BOUND,
    BELOW_EXACT,
    deepest_under,
    grouped_readings,
    reading_label,
)
from hopscope.studies.recipe import exact_by_step, exact_of
from hopscope.theory.information_flow import bound_layers, theorem_bound

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence
    from hopscope.story.functions import PageFunctions

Facts = dict[str, Any]

JUDGED: dict[str, tuple[Callable[["Evidence"], Any], Callable[[Sequence[float]], float]]] = {
    "R1": (values.losses_without_curriculum, min),
    "R2": (lambda evidence: values.growth_of_layers(evidence)[values.GROWTH[1]], mean),
    "R3": (values.steps_out_of_order, lambda counts: sum(count > 0 for count in counts)),
    "R9b": (values.losses_below_bound, min),
    "R9c": (values.losses_below_exact, min),
    "R11": (values.largest_gains, mean),
}
"""Claims that are judged under each reading: their value, and what the table of readings shows of its numbers."""


def names(page: "PageFunctions", config: DepthStudyConfig) -> Mapping[str, Any]:
    """Names that the template may use beside those of every page; what needs the evidence is a function."""
    task, evidence = config.task(config.grid()[0]), page.evidence
    return {
        "chain_example": lambda: page.block(chain_example()),
        "levels": {"plateau": task.plateau, "zero": task.zero_floor, "guess": task.guess},
        "threshold": values.learned_below(config),
        "protocol_deviations": protocol_deviations(config),
        "least_layers": least_layers(config),
        "deepest_times": partial(deepest_times, evidence, config),
        "orders": partial(orders, evidence),
        "below_theory": partial(below_theory, evidence, config),
        "by_reading": partial(by_reading, evidence, config),
        "by_mask": partial(by_mask, evidence, config),
    }


def protocol_deviations(config: DepthStudyConfig) -> list[str]:
    """How the run differs from the paper's, in words that name one way to ask where the other does not differ so."""
    base, found = config.base(), dict[str, dict[str, None]]()
    for each in base:
        for words in config.protocol_deviations(each):
            found.setdefault(words, {})[each.asked] = None
    every = {each.asked for each in base}
    return [words if {*asked} == every else f"{', '.join(asked)} {words}" for words, asked in found.items()]


def least_layers(config: DepthStudyConfig) -> list[Facts]:
    """For each symbol of the longest base chain: log₃(2k), the layers that theorem 1 asks for, the exact minimum."""
    steps = config.steps if config.layers else config.steps_last
    return [
        {"step": step, "bound": theorem_bound(step), "layers": bound_layers(step), "exact": exact}
        for step, exact in exact_by_step(config, steps).items()
    ]


# The order of learning.


def deepest_times(evidence: "Evidence", config: DepthStudyConfig) -> list[Facts]:
    """For each step: when the deepest IC models learned it, without models that diverged.

    Returns:
        By step: `step`, `models`, the `times` of those that learned it, their `median` over all `models` (`None` if
        more than half never did), and `wait`: mean and interval of the training steps since the step before, over the
        models that learned both (`None` without any).
    """
    deepest = config.deepest()
    models = {each: of for each, of in values.all_models(evidence).items() if each == deepest}
    found = [
        crossings for crossings in values.crossings_of(evidence, models).values() if crossings is not None
    ]
    facts = []
    for place, step in enumerate(deepest.asked_steps):
        crossings = [each[place] for each in found]
        pairs = [(each[place - 1].time, each[place].time) for each in found] if place else []
        waits = [late - early for early, late in pairs if early is not None and late is not None]
        facts.append(
            {
                "step": step,
                "models": len(found),
                "times": [crossing.time for crossing in crossings if crossing.time is not None],
                "median": median(crossings) if crossings else None,
                "wait": {"mean": mean(waits), "interval": bootstrap_mean(waits)} if waits else None,
            }
        )
    return facts


def orders(evidence: "Evidence") -> Facts:
    """Of all IC models as configured: how many learned a step, learned all in order, learned none, or diverged."""
    found = values.crossings_of(evidence, values.panel(values.of_reading(evidence), "IC")).values()
    counts = [values.out_of_order(crossings) for crossings in found if crossings is not None]
    return {
        "learned": sum(count is not None for count in counts),
        "in_order": counts.count(0),
        "silent": counts.count(None),
        "diverged": len(found) - len(counts),
    }


# The sweeps.


def below_theory(evidence: "Evidence", config: DepthStudyConfig) -> list[Facts]:
    """How many IC models have fewer layers than a limit of theory, and how many of these learned x_D all the same.

    Models are those of the sweep over D, if there is one, else those of the study's own D.  `against` says whether such
    a model speaks against the theory's first assumption.
    """
    chosen = config.by_steps() if "steps" in config.sweeps else config.base()
    models = {each: of for each, of in values.all_models(evidence).items() if each in chosen}
    limits: dict[str, Callable[[Configuration], float]] = {
        BELOW_BOUND: lambda each: theorem_bound(each.steps),
        BELOW_EXACT: lambda each: exact_of(config, each.steps),
    }
    facts = []
    for words, limit in limits.items():
        losses = values.losses_of_last(evidence, values.below(models, limit)).dropna()
        counts = {"models": len(losses), "learned": int((losses < values.learned_below(config)).sum())}
        facts.append({"words": words, **counts, "against": words == BELOW_EXACT})
    return [each for each in facts if each["models"]]


def by_reading(evidence: "Evidence", config: DepthStudyConfig) -> list[Facts]:
    """For each reading: its `label`, and by claim the `value` that decides with the number `n` of what it is over."""
    facts = []
    for reading in grouped_readings(config):
        here, found = values.of_reading(evidence, reading), Facts(label=reading_label(config, reading))
        for claim, (value, shown) in JUDGED.items():
            measured = [number for number in value(here).values if number is not None]
            found[claim] = {"value": shown(measured), "n": len(measured)} if measured else None
        facts.append(found)
    return facts


def by_mask(evidence: "Evidence", config: DepthStudyConfig) -> list[Facts]:
    """With a causal mask and without: how many of the deepest IC models learned at least `one` symbol, and `two`."""
    import pandas as pd

    facts = []
    for causal, words in ((True, "with a causal mask"), (False, "without a mask")):
        readings = [reading for reading in config.readings() if config.under(reading).causal == causal]
        deepest = [each.name for reading in readings for each in deepest_under(config, reading, "IC")]
        losses = [
            evidence.last("final_loss", part=f"step_{step}", configuration=deepest)
            for step in range(1, config.steps + 1)
        ]
        learned = (pd.concat(losses, axis=1).dropna() < values.learned_below(config)).sum(axis=1)
        counts = {"one": int((learned >= 1).sum()), "two": int((learned >= 2).sum())}
        facts.append({"words": words, "models": len(learned), **counts})
    return [each for each in facts if each["models"]]
