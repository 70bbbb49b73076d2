"""What the claims of the depth study are judged on, their controls, and what a run lacks of their protocols.

Each value function takes the evidence of one reading of what the paper leaves open.  Models that diverged have no
number: they are missing, not left out.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples
from hopscope.claims.crossings import Crossing, first_crossing, order
from hopscope.claims.verdict import counted
from hopscope.studies.chains.evidence import LEARNED, asked_for
from hopscope.studies.chains.recipe import COMPLETED
from hopscope.studies.depth.options import Asked, Cell, Options, Reading, words_of

if TYPE_CHECKING:
    from hopscope.runs import Evidence

Value = Callable[[Options, "Evidence"], Any]
Models = dict[Cell, dict[int, int]]
"""Configuration → seed → member."""

ERRORS = 1.96
"""Standard errors within which a measured loss lies 95 % of the time."""

PAPER_RUNS, PAPER_SEEDS, PAPER_DEPTHS, PAPER_CHAINS = 64, 8, 8, 4
"""Section 7: "For each formulation, I train 64 transformers with 1 to 8 layers (8 transformers for each number of
layers)"; on samples of four chains (section 7.1)."""

THEORY_STEPS = 64
"""Chains up to this length are counted through for R9a."""

GROWTH = ("layers from one step to the next", "layers from first to last")
"""Parts of R2."""


# Which models there are.


def of_plateau(loss: float, chains: int) -> float:
    """A loss that the paper names for four chains, at the same share of the plateau 1 - 1/N of another number.

    One chain has no plateau: there the loss stays as it is.
    """
    return loss if chains in (1, PAPER_CHAINS) else loss * (1 - 1 / chains) / (1 - 1 / PAPER_CHAINS)


def grid(options: Options, evidence: "Evidence") -> list[Cell]:
    """The configurations that the options ask for."""
    return [*options.cells(asked_for(evidence, "completion"))]


def models(options: Options, evidence: "Evidence") -> Models:
    """The models of the evidence, in the order of the grid."""
    members: dict[str, dict[int, int]] = {}
    for member, label in evidence.configurations.items():
        members.setdefault(label, {})[evidence.seeds[member]] = member
    return {each: members[each.label] for each in grid(options, evidence) if each.label in members}


def panel(options: Options, evidence: "Evidence", asked: Asked) -> Models:
    """The models of one panel of Figure 4 under one reading, by depth; those of the sweep over D are left out."""
    wanted = (asked, options.steps_of(asked))
    found = [
        (each, of) for each, of in models(options, evidence).items() if (each.asked, each.steps) == wanted
    ]
    return dict(sorted(found, key=lambda pair: pair[0].layers))


def deepest(options: Options, evidence: "Evidence") -> Models:
    """The deepest models of the study's own reading that are asked for the whole chain."""
    found = panel(options, of_reading(options, evidence), "IC")
    return dict([*found.items()][-1:])


def of_reading(options: Options, evidence: "Evidence", reading: Reading = ()) -> "Evidence":
    """The evidence of the models that were trained under one reading, by default the study's own."""
    labels = [each.label for each in grid(options, evidence) if each.reading == reading]
    return evidence.where(configuration=labels)


def by_reading(
    options: Options, value: Value, evidence: "Evidence"
) -> dict[str, Callable[["Evidence"], Any]]:
    """The value of a claim under each reading, the study's own first; a study that goes through none has one."""
    completion = asked_for(evidence, "completion")
    readings = options.readings(completion)
    if len(readings) == 1:
        return {"": partial(value, options)}
    # Where completions alone are tried, the readings are their names, by which a verdict combines them.
    departs = any(getattr(options, name) is not None for name in COMPLETED)
    whole = not departs and all(name == "completion" for reading in readings for name, _ in reading)
    own = completion if whole else "as configured"
    return {words_of(each) or own: partial(under, options, each, value) for each in readings}


def under(options: Options, reading: Reading, value: Value, evidence: "Evidence") -> Any:
    """The value of a claim on the models that were trained under one reading."""
    return value(options, of_reading(options, evidence, reading))


# What they lack of the paper's protocol.


def deviations(options: Options, cells: Collection[Cell], depths: bool = True) -> list[str]:
    """How models depart from what the paper states, in words; the details that it leaves open are no departure."""
    words = [*dict.fromkeys(words for each in cells for words in options.deviations(each))]
    return words + [f"{len(cells)} of {PAPER_DEPTHS} depths"] * (depths and len(cells) < PAPER_DEPTHS)


def reading_lacks(options: Options, found: Models, depths: bool = True) -> str:
    """What models of one reading lack because of it, in words; nothing under the study's own, which is said once."""
    if not any(each.reading for each in found):
        return ""
    own = deviations(options, [each._replace(reading=()) for each in found], depths=False)
    return ", ".join(words for words in deviations(options, found, depths) if words not in own)


def lacks(options: Options, asked: Asked, evidence: "Evidence") -> str:
    """What the models that are asked for the whole chain, or its last symbol alone, lack of the paper's protocol."""
    return ", ".join(deviations(options, panel(options, of_reading(options, evidence), asked)))


# R1 and N15: without the curriculum.


def losses_without_curriculum(options: Options, evidence: "Evidence") -> Samples:
    """Final loss of every model that is asked for the last symbol alone."""
    found = panel(options, evidence, "non-IC")
    members = [member for of in found.values() for member in of.values()]
    if not members:
        return Samples([], unit="run", note="not trained in this run")
    error, lacking = errors(options, evidence, members), reading_lacks(options, found)
    return by_run(evidence, evidence.last("final_loss")[members], error=error, missing=lacking)


def losses_of_alone(options: Options, evidence: "Evidence") -> Samples:
    """The same at whatever depth, and whatever the run lacks of the paper's protocol (N15)."""
    return replace(losses_without_curriculum(options, evidence), missing="")


def loss_with_curriculum(options: Options, evidence: "Evidence") -> Samples:
    """Control: final loss of the same symbol in the deepest models that are asked for the whole chain."""
    members = [member for of in deepest(options, evidence).values() for member in of.values()]
    if not members or options.steps < options.steps_last:
        return Samples([], unit="run", note="no model is asked for the whole chain as far as that symbol")
    return by_run(evidence, evidence.last("final_loss", part=f"step_{options.steps_last}")[members])


def errors(
    options: Options, evidence: "Evidence", members: Sequence[int], part: str | None = None
) -> list[float]:
    """How far the final loss of each member may lie from the truth."""
    # The curves are measured on fewer samples than the last checkpoint: their error is larger by the root of the ratio.
    wider = ERRORS * max(1.0, options.analysis_samples / options.evaluation_samples) ** 0.5
    return list(evidence.last("checkpoint_loss_error", part=part)[members] * wider)


def by_run(evidence: "Evidence", values: Any, **more: Any) -> Samples:
    """A number for each member; runs of one seed at several depths are resampled together."""
    return Samples(values, "run", [evidence.seeds[int(member)] for member in values.index], **more)


# R2 and R11: what a layer buys.


def losses_by_depth(options: Options, evidence: "Evidence", found: Models) -> dict[int, Any]:
    """Seed → final partial losses `[step, depth]`, of the seeds that were trained at every depth."""
    import numpy as np

    steps = range(1, options.steps + 1)
    losses = [evidence.last("final_loss", part=f"step_{step}") for step in steps] if found else []
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {
        seed: np.array([[of[members[seed]] for members in found.values()] for of in losses]) for seed in seeds
    }


def needed_layers(options: Options, evidence: "Evidence", found: Models) -> dict[int, list[float]]:
    """Seed → for each step k the least number of layers that learned it, of the seeds trained at every depth.

    One more than the deepest model has where none learned it, NaN where a shallower model diverged.  A seed that
    learned no step says nothing.
    """
    level, most = of_plateau(LEARNED, options.chains), max((each.layers for each in found), default=0) + 1

    def first(losses: Any) -> float:
        for each, loss in zip(found, losses, strict=True):
            if not loss >= level:
                return math.nan if math.isnan(loss) else each.layers
        return most

    by_seed = losses_by_depth(options, evidence, found)
    every = {seed: [*map(first, losses)] for seed, losses in by_seed.items()}
    return {seed: layers for seed, layers in every.items() if any(each != most for each in layers)}


def growth_of_layers(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By seed: how many layers more the next step of the chain takes, at least, and the last one than the first."""
    import numpy as np

    found, note = panel(options, evidence, "IC"), "needs several depths and steps"
    needed = [*needed_layers(options, evidence, found).values()]
    if len(found) > 1 and options.steps > 1:
        note = "no seed learned any step at any depth"
    if len(found) < 2 or options.steps < 2 or not needed:
        return dict.fromkeys(GROWTH, Samples([], unit="seed", note=note))
    # The least of numbers some of which are missing is missing.
    values = ([float(np.diff(each).min()) for each in needed], [each[-1] - each[0] for each in needed])
    level, lacking = of_plateau(LEARNED, options.chains), reading_lacks(options, found)
    learned = [losses < level for losses in losses_by_depth(options, evidence, found).values()]
    nested = sum(int((each[1:] <= each[:-1]).all(axis=0).sum()) for each in learned)
    note = (
        f"in {nested} of {counted(sum(each.shape[1] for each in learned), 'model')} every step that was learned "
        f"follows one that was, and there this follows from R3; it rests on {counted(len(found), 'depth')}"
    )
    samples = (Samples(each, unit="seed", missing=lacking, note=note) for each in values)
    return dict(zip(GROWTH, samples, strict=True))


def growth_among_learned(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """Control of R2: the same of the steps that a seed learns at some depth: others count one layer too many."""
    evidence = of_reading(options, evidence)
    found, grown = panel(options, evidence, "IC"), list[float]()
    most = max((each.layers for each in found), default=0)
    for layers in needed_layers(options, evidence, found).values() if len(found) > 1 else ():
        # What is not known is not left out: NaN is not more than the deepest.
        learned = [needed for needed in layers if not needed > most]
        grown.append(learned[-1] - learned[0])
    return {GROWTH[1]: Samples(grown, unit="seed", note="" if grown else "no seed learned a step")}


def ranges_of_skill(skills: Any, level: float) -> tuple[Any, Any]:
    """Which steps are learned at some depth and not at others, and the range of each, by skills `[step, depth]`."""
    import numpy as np

    low, high = skills.min(axis=1), skills.max(axis=1)
    return high > np.maximum(low, 1.0 - level), high - low


def largest_gains(options: Options, evidence: "Evidence") -> Samples:
    """By seed: the largest gain in skill (1 − partial loss) from one depth to the next, in shares of its range.

    The mean over the steps that the seed learns at some depth; a seed that learns none has no range.
    """
    import numpy as np

    found, gains = panel(options, evidence, "IC"), list[float]()
    layers = [each.layers for each in found]
    if len(layers) < 3 or layers != list(range(layers[0], layers[-1] + 1)):
        return Samples([], unit="seed", note="needs three depths or more, one layer apart")
    for losses in losses_by_depth(options, evidence, found).values():
        learned, width = ranges_of_skill(1.0 - losses, of_plateau(LEARNED, options.chains))
        if np.isnan(losses).any():
            gains.append(math.nan)
        elif learned.any():
            largest = np.diff(1.0 - losses, axis=1).max(axis=1)
            gains.append(float((largest[learned] / width[learned]).mean()))
    note = "" if gains else "no seed learned a step at some depths and not at others"
    return Samples(gains, unit="seed", missing=reading_lacks(options, found) if gains else "", note=note)


def gain_between_seeds(options: Options, evidence: "Evidence") -> Samples:
    """Control of R11: how much the next seed's skill differs at the same depth, in shares of the range over depths.

    If seeds differ by half of the range at a typical depth, a jump from one depth to the next says nothing of depth.
    """
    import numpy as np

    evidence, found = of_reading(options, evidence), list[float]()
    by_seed = losses_by_depth(options, evidence, panel(options, evidence, "IC"))
    for one, other in pairwise([*by_seed, *list(by_seed)[:1]]):
        learned, width = ranges_of_skill(1.0 - by_seed[one], of_plateau(LEARNED, options.chains))
        if np.isnan(by_seed[one]).any() or np.isnan(by_seed[other]).any():
            found.append(math.nan)
        elif learned.any() and one != other:
            apart = abs(by_seed[other] - by_seed[one]).mean(axis=1)
            found.append(float((apart[learned] / width[learned]).mean()))
    return Samples(found, unit="seed", note="" if found else "no two seeds learned a step")


# R3: in which order.


def crossings_of(options: Options, evidence: "Evidence", found: Models) -> dict[int, list[Crossing] | None]:
    """Member → when it learned each step that it is asked for; `None` if it diverged."""
    steps = {step for each in found for step in each.asked_steps}
    curves = {step: evidence.curve(f"loss_step_{step}", measure="training") for step in steps}
    last, level = evidence.last("final_loss"), of_plateau(LEARNED, options.chains)

    def crossing(step: int, member: int) -> Crossing:
        curve = curves[step][member].dropna()
        return first_crossing(curve.index.tolist(), curve.tolist(), level, rising=False)

    return {
        member: None if math.isnan(last[member]) else [crossing(step, member) for step in each.asked_steps]
        for each, of in found.items()
        for member in of.values()
    }


def out_of_order(crossings: Sequence[Crossing]) -> int | None:
    """In how many neighbouring steps a model learned the later one first.

    Two crossings within one evaluation interval are a tie, which is no disorder; a step that was never learned comes
    after those that were.  `None` for a model that learned nothing, which says nothing about an order.
    """
    known = [each for pair in pairwise(crossings) if (each := order(*pair)) != "unknown"]
    return known.count("after") if known else None


def steps_out_of_order(options: Options, evidence: "Evidence", reverse: bool = False) -> Samples:
    """In how many neighbouring steps each model learned the later one first (or the earlier one: `reverse`)."""
    import pandas as pd

    found = panel(options, evidence, "IC") if options.steps > 1 else {}
    if not found:
        return Samples([], unit="run", note="not trained in this run")
    counts = {
        member: math.nan if crossings is None else out_of_order(crossings[::-1] if reverse else crossings)
        for member, crossings in crossings_of(options, evidence, found).items()
    }
    ordered = pd.Series({member: count for member, count in counts.items() if count is not None}, dtype=float)
    if ordered.empty:
        return Samples([], unit="run", note="no run learned a step")
    silent, learned = len(counts) - len(ordered), {*ordered.dropna().index}
    seeds = min((len(of) for of in found.values() if learned & {*of.values()}), default=PAPER_SEEDS)
    few = "" if seeds >= PAPER_SEEDS else f"{seeds} of {PAPER_SEEDS} seeds at a depth"
    note = f"{silent} more learned no step, and have no order" if silent else ""
    lacking = ", ".join(filter(None, [reading_lacks(options, found), few]))
    return by_run(evidence, ordered, note=note, missing=lacking)


def steps_in_order(options: Options, evidence: "Evidence") -> Samples:
    """Control of R3: if no earlier step came first by more than a tie, the order was never seen."""
    return steps_out_of_order(options, of_reading(options, evidence), reverse=True)
