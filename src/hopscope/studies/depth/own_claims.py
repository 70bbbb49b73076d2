"""Claims N11, N13 and N15 of `docs/protocols.md` (Revision 3), which no source makes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Criterion, Samples, at_least, at_most
from hopscope.completion import COMPLETION_NAMES
from hopscope.studies.depth import controls, values
from hopscope.studies.depth.config import AS_CONFIGURED, Reading
from hopscope.studies.recipe import exact_by_step

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SOURCE = "docs/protocols.md, Revision 3"

LEARNED = 0.25
"""Partial loss under which N13 counts a step as learned."""

MOST_STEPS = 3
"""Steps of which N13 asks that the minimum is reached."""

SEEDS = 8
"""Of each depth."""

DEPTH = 8
"""Layers of the models that N11 speaks of."""

ByReading = Callable[[values.ValueOfClaim, Any], Mapping[str, values.ValueOfClaim]]

N11: dict[str, Criterion] = {
    name: at_least(4.0, "steps") if name.endswith("schedule") else at_most(3.99, "steps")
    for name in COMPLETION_NAMES
}


def final_losses(evidence: "Evidence") -> "Mapping[int, Mapping[int, Mapping[int, float]]]":
    """Layers → step → member → final partial loss, of the models that are asked for the whole chain."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for each, members in values.panel(evidence, "IC").items():
        for step in each.asked_steps:
            losses = evidence.last("final_loss", part=f"step_{step}")
            found.setdefault(each.layers, {})[step] = {n: float(losses[n]) for n in members.values()}
    return found


def exact(evidence: "Evidence") -> "Mapping[int, int]":
    """Exact minimum of layers for each step of the chain, of the run's mask and order."""
    config = values.study_config(evidence)
    return exact_by_step(config, config.steps)


def above_minimum(evidence: "Evidence") -> Samples:
    """By step k, up to the third: the least depth at which some seed learned it, less the exact minimum (N13)."""
    losses = final_losses(evidence)
    found = []
    for step, least in exact(evidence).items():
        if step <= MOST_STEPS and losses:
            depths = [n for n, of in losses.items() if any(loss < LEARNED for loss in of[step].values())]
            found.append(min(depths, default=math.inf) - least)
    return Samples(found, unit="case", note="" if found else "no models were asked for the whole chain")


def losses_below_minimum(evidence: "Evidence") -> Samples:
    """Final partial loss of every step that a model has too few layers for, by the exact minimum (N13)."""
    losses, least = final_losses(evidence), exact(evidence)
    found = [
        (member, loss)
        for layers, of in losses.items()
        for step, by_member in of.items()
        if layers < least[step]
        for member, loss in by_member.items()
    ]
    seeds = [evidence.seeds[member] for member, _ in found]
    return Samples([loss for _, loss in found], unit="case", cluster=seeds)


def lacks_of_depths(evidence: "Evidence") -> str:
    """What a run lacks for N13, in words."""
    config, least = values.study_config(evidence), exact(evidence)
    needed = least[min(MOST_STEPS, config.steps)]
    absent = [str(layers) for layers in range(1, needed + 1) if layers not in config.layers]
    words = [f"D {config.steps}, not {MOST_STEPS} or more"] * (config.steps < MOST_STEPS)
    words += [f"{config.seeds} of {SEEDS} seeds"] * (config.seeds < SEEDS)
    return ", ".join(words + [f"no models of {', '.join(absent)} layers"] * bool(absent))


def losses_of_last(evidence: "Evidence") -> Samples:
    """Final loss of every model that is asked for the last symbol alone, at whatever depth (N15)."""
    return replace(values.losses_without_curriculum(evidence), missing="")


def lacks_of_last(evidence: "Evidence") -> str:
    """What a run lacks for N15, in words."""
    config = values.study_config(evidence)
    if not config.layers_last:
        return ""
    words = [f"D {config.steps_last}, not 3"] * (config.steps_last != 3)
    return ", ".join(words + [f"{config.seeds} of {SEEDS} seeds"] * (config.seeds < SEEDS))


def steps_by_completion(evidence: "Evidence") -> dict[str, Samples]:
    """By completion: steps that each seed of the models with eight layers learned (N11)."""
    config = values.study_config(evidence)
    own = "" if config.departures else config.completion
    below = values.learned_below(config)
    found: dict[str, Samples] = {}
    for name in COMPLETION_NAMES:
        reading = AS_CONFIGURED if name == own else Reading(completion=name)
        losses = final_losses(values.of_reading(evidence, reading)).get(DEPTH, {})
        counts: dict[int, float] = {}
        for by_member in losses.values():
            for member, loss in by_member.items():
                learned = math.nan if math.isnan(loss) else float(loss < below)
                counts[member] = counts.get(member, 0.0) + learned
        found[name] = Samples([*counts.values()], unit="seed", note="" if counts else "not run")
    return found


def lacks_of_schedules(evidence: "Evidence") -> str:
    """What a run lacks for N11: Figure 4's models of eight layers, under all completions."""
    config = values.study_config(evidence)
    absent = [name for name, of in steps_by_completion(evidence).items() if not of.values]
    words = [values.lacks("IC", evidence)] if DEPTH in config.layers else [f"no models of {DEPTH} layers"]
    return ", ".join(filter(None, [*words, *(f"no models of {name}" for name in absent)]))


def claims(
    by_reading: "Callable[[values.ValueOfClaim, Any], Mapping[str, values.ValueOfClaim]]", trust: str
) -> tuple[Claim, ...]:
    """The claims that no source makes.

    Args:
        by_reading: gives the value of a claim under each reading of the run.
        trust: what a reader must trust.
    """
    claim = partial(Claim, source=SOURCE, trust=trust)
    return (
        claim(
            id="N11",
            statement="Eight layers of eight heads need the schedule, not the start: under either start they learn at "
            "least 4 of 5 steps with it, and do not without it.",
            protocol="steps with a final held-out loss under 0.5, mean over seeds, by completion",
            value=steps_by_completion,
            must=N11,
            rule="mean",
            seeds_needed=SEEDS,
            at_scale=lacks_of_schedules,
        ),
        claim(
            id="N13a",
            statement="Trained models reach the exact minimum of layers.",
            protocol="for each step up to the third: least depth at which some seed has a final partial loss under "
            "0.25, minus the exact minimum of the same mask and order",
            readings=partial(by_reading, above_minimum),
            must=at_most(0.0, "layers"),
            kind="existence",
            seeds_needed=MOST_STEPS,
            source_n=MOST_STEPS,
            at_scale=lacks_of_depths,
        ),
        claim(
            id="N13b",
            statement="No trained model learns a step with fewer layers than the exact minimum.",
            protocol="final partial loss of every step, in every model that has fewer layers than its exact minimum: "
            "at least 0.25",
            readings=partial(by_reading, losses_below_minimum),
            must=at_least(LEARNED),
            kind="general",
            controls={"the deepest models": controls.loss_with_enough_layers},
            must_not=at_least(LEARNED),
            at_scale=lacks_of_depths,
        ),
        claim(
            id="N15",
            statement="The last symbol alone is learned under no start and no schedule.",
            protocol="final held-out loss of every model that is asked for x_D alone, D 3, under every completion",
            readings=partial(by_reading, losses_of_last),
            must=at_least(0.7),
            kind="general",
            controls={"the same symbol with the curriculum, deepest models": controls.loss_with_curriculum},
            must_not=at_least(0.7),
            seeds_needed=SEEDS,
            at_scale=lacks_of_last,
        ),
    )
