"""What claims are judged on that compare with theory (R9, N13) or that no source makes (N11, N15)."""

import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from hopscope.claims import COMPLETIONS, Samples
from hopscope.claims.verdict import counted
from hopscope.studies.chains.evidence import LEARNED, asked_for
from hopscope.studies.chains.recipe import COMPLETED
from hopscope.studies.depth import values
from hopscope.studies.depth.options import Asked, Cell, Options, Reading
from hopscope.studies.depth.values import Models, of_reading
from hopscope.theory.information_flow import Mask, exact_layers, theorem_bound
from hopscope.theory.information_flow import Order as PairOrder

if TYPE_CHECKING:
    from hopscope.runs import Evidence

MOST_STEPS, OWN_LEARNED, DEPTH = 3, 0.25, 8
"""Of N13, the steps whose minimum is to be reached, and the loss under which one counts; of N11, the layers."""


def final_losses(options: Options, evidence: "Evidence") -> dict[int, dict[int, dict[int, float]]]:
    """Layers → step → member → final partial loss, of the models that are asked for the whole chain."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for each, members in values.panel(options, evidence, "IC").items():
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
    found = values.panel(options, of_reading(options, evidence), asked)
    return min(map(len, found.values()), default=0)


def lacks_of_depths(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N13, in words."""
    seeds, needed = own_seeds(options, evidence, "IC"), options.exact(min(MOST_STEPS, options.steps))
    absent = [str(n) for n in range(1, max(needed.values()) + 1) if n not in options.layers]
    words = [f"D {options.steps}, not {MOST_STEPS} or more"] * (options.steps < MOST_STEPS)
    words += [f"{seeds} of {values.PAPER_SEEDS} seeds"] * (seeds < values.PAPER_SEEDS)
    return ", ".join(words + [f"no models of {', '.join(absent)} layers"] * bool(absent))


def lacks_of_alone(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N15, in words."""
    if not options.layers_last:
        return ""
    seeds = own_seeds(options, evidence, "non-IC")
    words = [f"D {options.steps_last}, not 3"] * (options.steps_last != 3)
    return ", ".join(words + [f"{seeds} of {values.PAPER_SEEDS} seeds"] * (seeds < values.PAPER_SEEDS))


# R9: what theory says.


def exact_cases() -> Iterator[tuple[int, int]]:
    """D and the exact minimum of layers, for every D, mask and order of pairs."""
    masks: tuple[Mask, ...] = ("causal", "none")
    orders: tuple[PairOrder, ...] = ("deepest-first", "shallowest-first")
    for steps, mask, pairs in product(range(1, values.THEORY_STEPS + 1), masks, orders):
        yield steps, exact_layers(steps, mask, pairs)


def layers_above_bound(evidence: "Evidence") -> Samples:
    """By how many layers the exact minimum lies above the theorem's bound, for every D, mask and order of pairs."""
    gaps = [layers - theorem_bound(steps) for steps, layers in exact_cases()]
    note = f"the exact minimum lies {min(gaps):.2f} to {max(gaps):.2f} layers above the bound"
    return Samples(gaps, unit="case", note=note)


def layers_above_a_wrong_bound(evidence: "Evidence") -> Samples:
    """Control of R9a: if log₂(2D) were never undercut, the cases could not tell a bound from another number."""
    return Samples([min(layers - math.log2(2 * steps) for steps, layers in exact_cases())], unit="case")


def below(options: Options, evidence: "Evidence", least: str) -> Models:
    """The models that are asked for the whole chain and have fewer layers than the `bound`, or the `exact minimum`."""

    def limit(each: Cell) -> float:
        exact = options.under(each.reading).exact(each.steps)[each.steps]
        return theorem_bound(each.steps) if least == "bound" else exact

    found = values.models(options, evidence).items()
    return {each: of for each, of in found if each.asked == "IC" and each.layers < limit(each)}


def losses_of_last(evidence: "Evidence", found: Models) -> Any:
    """Final partial loss of x_D of every model, D as in its own configuration."""
    import pandas as pd

    of = {each: evidence.last("final_loss", part=f"step_{each.steps}")[[*members.values()]]
          for each, members in found.items()}  # fmt: skip
    return pd.concat([*of.values()]) if of else pd.Series(dtype=float)


def losses_below(least: str, options: Options, evidence: "Evidence") -> Samples:
    """Final partial loss of x_D of every model with fewer layers than the bound, or the exact minimum (R9b, R9c)."""
    found = below(options, evidence, least)
    if not found:
        return Samples([], unit="run", note=f"no run has fewer layers than the {least}")
    bound, exact = below(options, evidence, "bound"), below(options, evidence, "exact minimum")
    allowed = {each: of for each, of in exact.items() if each not in bound}
    losses = losses_of_last(evidence, allowed).dropna()
    n, note = sum(map(len, allowed.values())), ""
    if least == "exact minimum":
        note = f"the bound log₃(2D) allows {counted(n, 'run') if n else 'none of them'}"
    elif len(losses):
        learned = int((losses < values.of_plateau(LEARNED, options.chains)).sum())
        against = ", which speaks against Assumption 1" if learned else ""
        note = (
            f"of {len(losses)} further runs below the exact minimum of the information-flow model, {learned} learned "
            f"x_D{against}"
        )
    error = [each for cell, of in found.items()
             for each in values.errors(options, evidence, [*of.values()], f"step_{cell.steps}")]  # fmt: skip
    lacking = values.reading_lacks(options, found, depths=False)
    return values.by_run(evidence, losses_of_last(evidence, found), error=error, note=note, missing=lacking)


def loss_with_enough_layers(options: Options, evidence: "Evidence") -> Samples:
    """Control: final partial loss of x_D of the deepest models that are asked for the study's own chain."""
    if found := values.deepest(options, evidence):
        return values.by_run(evidence, losses_of_last(evidence, found))
    return Samples([], unit="run", note="no model is asked for the whole chain")


def lacks_below(options: Options, least: str, evidence: "Evidence") -> str:
    """What the models with fewer layers than a least number lack of the paper's protocol, in words."""
    found = below(options, of_reading(options, evidence), least)
    return ", ".join(values.deviations(options, found, depths=False))


# N11: the schedule, not the start.


def steps_by_completion(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By completion: steps that each seed of the models with eight layers learned (N11)."""
    completion, level = asked_for(evidence, "completion"), values.of_plateau(LEARNED, options.chains)
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
    words = (
        values.lacks(options, "IC", evidence) if DEPTH in options.layers else f"no models of {DEPTH} layers"
    )
    return ", ".join(filter(None, [words, *absent]))
