"""What the claims that no source makes are judged on: N11 and N13 of `docs/protocols.md`, and what N15 lacks."""

import math
from typing import TYPE_CHECKING

from hopscope.claims import COMPLETIONS, Samples
from hopscope.studies.chains.evidence import LEARNED, asked_for
from hopscope.studies.chains.recipe import COMPLETED
from hopscope.studies.depth.options import Asked, Options, Reading
from hopscope.studies.depth.values import (
    PAPER_SEEDS,
    lacks,
    of_plateau,
    of_reading,
    panel,
)

if TYPE_CHECKING:
    from hopscope.runs import Evidence

MOST_STEPS, OWN_LEARNED, DEPTH = 3, 0.25, 8
"""Of N13, the steps whose minimum is to be reached, and the loss under which one counts; of N11, the layers."""


def final_losses(options: Options, evidence: "Evidence") -> dict[int, dict[int, dict[int, float]]]:
    """Layers → step → member → final partial loss, of the models that are asked for the whole chain."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for each, members in panel(options, evidence, "IC").items():
        for step in each.asked_steps:
            losses = evidence.last("final_loss", part=f"step_{step}")
            found.setdefault(each.layers, {})[step] = {n: float(losses[n]) for n in members.values()}
    return found


def above_minimum(options: Options, evidence: "Evidence") -> Samples:
    """By step k, up to the third: the least depth at which some seed learned it, less the exact minimum (N13)."""
    losses, found = final_losses(options, evidence), list[float]()
    for step, least in options.exact(options.steps).items() if losses else ():
        if step <= MOST_STEPS:
            learned = [n for n, of in losses.items() if any(loss < OWN_LEARNED for loss in of[step].values())]
            found.append(min(learned, default=math.inf) - least)
    return Samples(found, unit="case", note="" if found else "no models were asked for the whole chain")


def losses_below_minimum(options: Options, evidence: "Evidence") -> Samples:
    """Final partial loss of every step that a model has too few layers for, by the exact minimum (N13)."""
    least = options.exact(options.steps)
    found = [
        (evidence.seeds[member], loss)
        for layers, of in final_losses(options, evidence).items()
        for step, by_member in of.items()
        if layers < least[step]
        for member, loss in by_member.items()
    ]
    return Samples([loss for _, loss in found], unit="case", cluster=[seed for seed, _ in found])


def own_seeds(options: Options, evidence: "Evidence", asked: Asked) -> int:
    """Seeds that every depth has."""
    found = panel(options, of_reading(options, evidence), asked)
    return min(map(len, found.values()), default=0)


def lacks_of_depths(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N13, in words."""
    seeds, needed = own_seeds(options, evidence, "IC"), options.exact(min(MOST_STEPS, options.steps))
    absent = [str(n) for n in range(1, max(needed.values()) + 1) if n not in options.layers]
    words = [f"D {options.steps}, not {MOST_STEPS} or more"] * (options.steps < MOST_STEPS)
    words += [f"{seeds} of {PAPER_SEEDS} seeds"] * (seeds < PAPER_SEEDS)
    return ", ".join(words + [f"no models of {', '.join(absent)} layers"] * bool(absent))


def lacks_of_alone(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N15, in words."""
    if not options.layers_last:
        return ""
    seeds = own_seeds(options, evidence, "non-IC")
    words = [f"D {options.steps_last}, not 3"] * (options.steps_last != 3)
    return ", ".join(words + [f"{seeds} of {PAPER_SEEDS} seeds"] * (seeds < PAPER_SEEDS))


# N11: the schedule, not the start.


def steps_by_completion(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By completion: steps that each seed of the models with eight layers learned (N11)."""
    completion, level = asked_for(evidence, "completion"), of_plateau(LEARNED, options.chains)
    departs, found = any(getattr(options, name) is not None for name in COMPLETED), dict[str, Samples]()
    for name in COMPLETIONS:
        reading: Reading = () if name == completion and not departs else (("completion", name),)
        losses = final_losses(options, of_reading(options, evidence, reading)).get(DEPTH, {})
        counts: dict[int, float] = {}
        for by_member in losses.values():
            for member, loss in by_member.items():
                learned = math.nan if math.isnan(loss) else float(loss < level)
                counts[member] = counts.get(member, 0.0) + learned
        found[name] = Samples([*counts.values()], unit="seed", note="" if counts else "not run")
    return found


def lacks_of_schedules(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N11: Figure 4's models of eight layers, under all completions."""
    found = steps_by_completion(options, evidence).items()
    absent = [f"no models of {name}" for name, of in found if not len(of.values)]
    words = lacks(options, "IC", evidence) if DEPTH in options.layers else f"no models of {DEPTH} layers"
    return ", ".join(filter(None, [words, *absent]))
