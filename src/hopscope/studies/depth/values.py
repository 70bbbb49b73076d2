"""What the claims of the depth study are judged on, their controls, and what a run lacks of their protocols.

Each value function takes the evidence of one reading of what the paper leaves open.  Models that diverged have no
number: they are missing, not left out.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal

from hopscope.claims import COMPLETIONS, Samples
from hopscope.claims.crossings import first_crossing, order
from hopscope.claims.verdict import counted
from hopscope.studies.chains.evidence import LEARNED, asked_for, few
from hopscope.studies.depth.options import Asked, Cell, Options, Reading, words_of
from hopscope.theory.information_flow import Mask, exact_layers, theorem_bound
from hopscope.theory.information_flow import Order as PairOrder

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from hopscope.runs import Evidence

Judged = Callable[["Evidence"], Any]
Value = Callable[[Options, "Evidence"], Any]
Least = Literal["bound", "exact minimum"]

ERRORS = 1.96
"""Standard errors within which a measured loss lies 95 % of the time."""

PAPER_RUNS, PAPER_SEEDS, PAPER_DEPTHS = 64, 8, 8
"""Section 7: "For each formulation, I train 64 transformers with 1 to 8 layers (8 transformers for each number of
layers)"."""

LEAST_DEPTHS = 4
"""Of R11: one of the two gains of three depths is half of the range, or more, whatever they are."""

THEORY_STEPS = 64
"""Chains up to this length are counted through for R9a."""

GROWTH = ("layers from one step to the next", "layers from first to last")
"""Parts of R2."""

SETTLED_STEPS = 4_000
"""Training steps by which a loss has settled: four times those of the quick shape."""

MOST_STEPS, OWN_LEARNED, UNLEARNED, DEPTH = 3, 0.25, 0.7, 8
"""Of N13, the steps whose minimum is to be reached, and the loss under which one counts; of N15, the loss from which
nothing is learned; of N11, the layers."""


# Which models there are.


def models(options: Options, evidence: "Evidence", asked: Asked) -> "pd.DataFrame":
    """Models of one panel of Figure 4, `[member]`, by layers: `cell`, `seed`, `layers`, and final losses `step_k`."""
    import pandas as pd

    cells = {each.label: each for each in options.cells(asked_for(evidence, "completion"))}
    members = {n: cells[label] for n, label in evidence.configurations.items() if cells[label].asked == asked}
    found = pd.DataFrame({"cell": members}, dtype=object)
    found["seed"] = found.index.map(evidence.seeds)
    found["layers"] = [each.layers for each in members.values()]
    steps = range(1, options.steps + 1) if asked == "IC" else [options.steps_last]
    for part in (f"step_{step}" for step in steps if members):
        found[part] = evidence.last("final_loss", part=part)
    return found.sort_values("layers", kind="stable")


def of_reading(options: Options, evidence: "Evidence", reading: Reading = ()) -> "Evidence":
    """The evidence of the models that were trained under one reading, by default the study's own."""
    cells = options.cells(asked_for(evidence, "completion"))
    return evidence.where(configuration=[each.label for each in cells if each.reading == reading])


def under(reading: Reading, options: Options, value: Value, evidence: "Evidence") -> Any:
    """A value of the models that were trained under one reading."""
    return value(options, of_reading(options, evidence, reading))


def by_reading(options: Options, value: Value, evidence: "Evidence") -> dict[str, Judged]:
    """The value of a claim under each reading, the study's own first; a study that goes through none has one."""
    completion = asked_for(evidence, "completion")
    readings = options.readings(completion)
    if len(readings) == 1:
        return {"": partial(value, options)}
    # Where completions alone are tried, the readings are their names, by which a verdict combines them.
    whole = not options.departs and all(name == "completion" for reading in readings for name, _ in reading)
    own = completion if whole else "as configured"
    return {words_of(each) or own: partial(under, each, options, value) for each in readings}


# What they lack of the paper's protocol.


def lacks(options: Options, asked: Asked, evidence: "Evidence", depths: bool = True) -> str:
    """How models that are asked so depart from what the paper states; what it leaves open is no departure."""
    count = len(options.layers if asked == "IC" else options.layers_last)
    return ", ".join(options.deviations(asked) + few(count, PAPER_DEPTHS, "depths") * depths)


def reading_lacks(options: Options, found: "pd.DataFrame", depths: bool = True) -> str:
    """What models of one reading lack because of it, in words; nothing under the study's own, which is said once."""
    asked, _, _, reading = found["cell"].iloc[0]
    own, words = options.deviations(asked), options.deviations(asked, reading)
    more = [each for each in words if each not in own]
    more += few(found["layers"].nunique(), PAPER_DEPTHS, "depths") * depths
    return ", ".join(more) if reading else ""


def seeds_lacking(found: "pd.DataFrame") -> list[str]:
    return few(int(found.groupby("layers").size().min()), PAPER_SEEDS, "seeds") if len(found) else []


# R1 and N15: without the curriculum.


def by_run(evidence: "Evidence", found: "pd.DataFrame", part: str | None, **more: Any) -> Samples:
    """Final loss of each model; runs of one seed at several depths are resampled together."""
    losses = evidence.last("final_loss", part=part)[found.index]
    return Samples(losses, "run", found["seed"].tolist(), **more)


def errors(options: Options, evidence: "Evidence", found: "pd.DataFrame", part: str | None) -> list[float]:
    """How far the final loss of each model may lie from the truth."""
    # The curves are measured on fewer samples than the last checkpoint: their error is larger by the root of the ratio.
    wider = ERRORS * max(1.0, options.analysis_samples / options.evaluation_samples) ** 0.5
    return list(evidence.last("checkpoint_loss_error", part=part)[found.index] * wider)


def any_below(losses: Samples, bound: float) -> bool:
    """Whether a model did what no model may: then neither more steps nor more models take it back."""
    return bool((losses.values + losses.error < bound).any())


def losses_without_curriculum(options: Options, evidence: "Evidence", whole: bool = True) -> Samples:
    """Final loss of every model that is asked for the last symbol alone.

    N15 asks it at whatever depth, and whatever a reading lacks of the paper's protocol: not `whole`.
    """
    found = models(options, evidence, "non-IC")
    if found.empty:
        return Samples([], unit="run", note="not trained in this run")
    losses = by_run(evidence, found, None, error=errors(options, evidence, found, None))
    if whole:
        return replace(losses, missing=reading_lacks(options, found))
    learned = any_below(losses, options.of_plateau(UNLEARNED))
    return losses if learned else replace(losses, missing=", ".join(seeds_lacking(found)))


def with_curriculum(options: Options, evidence: "Evidence", step: int) -> Samples:
    """Control: final partial loss of a step, of the deepest models that are asked for the whole chain."""
    found = models(options, evidence, "IC")
    if found.empty or options.steps < step:
        return Samples([], unit="run", note="no model is asked for the whole chain as far as that symbol")
    return by_run(evidence, found[found["layers"] == found["layers"].max()], f"step_{step}")


_ONE_CHAIN = "one chain, which position alone answers"


def lacks_of_alone(options: Options, evidence: "Evidence") -> str:
    if not options.layers_last or options.chains == 1:
        return _ONE_CHAIN * (options.chains == 1)
    words = [f"D {options.steps_last}, not 3"] * (options.steps_last != 3)
    if not any_below(
        losses_without_curriculum(options, evidence, whole=False), options.of_plateau(UNLEARNED)
    ):
        words += few(options.training_steps, SETTLED_STEPS, "steps to a settled loss")
    return ", ".join(words)


# R2 and R11: what a layer buys.


def losses_by_depth(found: "pd.DataFrame") -> "np.ndarray":
    """Final partial losses `[seed, depth, step]`, of the seeds that were trained at every depth."""
    import numpy as np

    depths = found["layers"].nunique()
    whole = found[found.groupby("seed")["layers"].transform("size") == depths].sort_values(["seed", "layers"])
    losses = whole.filter(like="step_").to_numpy(np.float64)
    return losses.reshape(len(losses) // max(1, depths), depths, losses.shape[1])


def needed_layers(options: Options, found: "pd.DataFrame", by_chance: bool = False) -> "np.ndarray":
    """The least number of layers that learned each step, `[seed, step]`, of the seeds trained at every depth.

    One more than the deepest model has where none learned it, NaN where a shallower model diverged.  A seed that
    learned no step says nothing.  `by_chance`: its mean over all orders in which a seed's losses could stand.
    """
    import numpy as np

    losses, layers = losses_by_depth(found), found["layers"].unique().tolist()
    ended = ~(losses >= options.of_plateau(LEARNED))  # learned, or not known
    first = ended.argmax(1)
    unknown = np.isnan(np.take_along_axis(losses, first[:, None], 1)[:, 0])
    most, n = layers[-1] + 1, len(layers)
    needed = np.where(ended.any(1), np.where(unknown, np.nan, np.array(layers)[first]), most)
    says = (needed != most).any(1)
    if by_chance:
        # The first of c depths of n is the k-th in comb(n - k, c - 1) of comb(n, c) orders.
        ways = [[math.comb(n - 1 - at, c - 1) for at in range(n)] for c in range(1, n + 1)]
        mean = np.array([most, *(np.dot(layers, each) / sum(each) for each in ways)])
        needed = np.where(np.isnan(losses).any(1), np.nan, mean[ended.sum(1)])
    return needed[says]


def growth_of_layers(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By seed: how many layers more the next step of the chain takes, at least, and the last one than the first."""
    import numpy as np

    found = models(options, evidence, "IC")
    depths = found["layers"].nunique()
    if depths < 2 or options.steps < 2:
        return dict.fromkeys(GROWTH, Samples([], unit="seed", note="needs several depths and steps"))
    needed = needed_layers(options, found)
    if not len(needed):
        return dict.fromkeys(GROWTH, Samples([], unit="seed", excluded="no seed learned a step at any depth"))
    learned = losses_by_depth(found) < options.of_plateau(LEARNED)
    nested = int((learned[..., 1:] <= learned[..., :-1]).all(-1).sum())
    note = (
        f"in {nested} of {counted(learned[..., 0].size, 'model')} every step that was learned follows one that was, "
        f"and there this follows from R3; it rests on {counted(depths, 'depth')}"
    )
    # The least of numbers some of which are missing is missing.
    values = (np.diff(needed).min(1), needed[:, -1] - needed[:, 0])
    more: Any = {"unit": "seed", "missing": reading_lacks(options, found), "note": note}
    return {part: Samples(each, **more) for part, each in zip(GROWTH, values, strict=True)}


def growth_by_depth(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """Control of R2: how much more it grows than if a seed's losses stood at its depths in any order.

    A step that is learned more seldom is first learned at a larger depth, by chance alone.
    """
    found = models(options, evidence, "IC")
    if found.empty:
        return {GROWTH[1]: Samples([], unit="seed", note="not trained in this run")}
    needed, chance = (needed_layers(options, found, by_chance) for by_chance in (False, True))
    grown = (needed[:, -1] - needed[:, 0]) - (chance[:, -1] - chance[:, 0])
    return {GROWTH[1]: Samples(grown, unit="seed", note="" if len(grown) else "no seed learned a step")}


def in_ranges(options: Options, losses: "np.ndarray", numbers: "np.ndarray", known: bool) -> list[float]:
    """The mean of numbers `[step]` as shares of each step's range of skill (1 − partial loss) over depths.

    Over the steps that are learned at some depth and not at others, by losses `[depth, step]`; nothing if there are
    none, and NaN where a number is not `known`.
    """
    import numpy as np

    low, high = 1.0 - losses.max(0), 1.0 - losses.min(0)
    learned = high > np.maximum(low, 1.0 - options.of_plateau(LEARNED))
    if not known:
        return [math.nan]
    return [float((numbers[learned] / (high - low)[learned]).mean())] if learned.any() else []


def largest_gains(options: Options, evidence: "Evidence", moved: bool = False) -> Samples:
    """By seed: its gain in skill at the depth at which the others gain the most, as a share of its range over depths.

    The largest gain of a seed alone would be as large if its depths stood in any other order.  `moved`, the control of
    R11: the depths of each seed are moved on by one more than those of the seed before.
    """
    import numpy as np

    found, gains = models(options, evidence, "IC"), list[float]()
    layers = found["layers"].unique().tolist()
    if len(layers) < LEAST_DEPTHS or layers != list(range(layers[0], layers[-1] + 1)):
        return Samples([], unit="seed", note=f"needs {LEAST_DEPTHS} depths or more, one layer apart")
    losses = losses_by_depth(found)
    losses = np.array([np.roll(own, seed, 0) for seed, own in enumerate(losses)]) if moved else losses
    rises, known = -np.diff(losses, axis=1), ~np.isnan(losses).any((1, 2))
    for seed, own in enumerate(losses):
        others = rises[known & (np.arange(len(losses)) != seed)]
        at = others.mean(0).argmax(0) if len(others) else 0
        gain = rises[seed, at, np.arange(options.steps)]
        gains += in_ranges(options, own, gain, bool(known[seed]) and len(others) > 0)
    note = "" if gains else "no seed learned a step at some depths and not at others"
    learned = (found.filter(like="step_") < options.of_plateau(LEARNED)).any(axis=None)
    missing, excluded = reading_lacks(options, found) if gains else "", "" if learned else note
    return Samples(gains, unit="seed", missing=missing, note=note, excluded=excluded)


# R3: in which order.


def steps_out_of_order(options: Options, evidence: "Evidence", reverse: bool = False) -> Samples:
    """In how many neighbouring steps each model learned the later one first.

    Two crossings within one evaluation interval are a tie, which is no disorder; a step that was never learned comes
    after those that were.  A model that learned nothing says nothing about an order.  `reverse`, the control of R3: the
    earlier one first; if that is none, the order was never seen.
    """
    import pandas as pd

    found = models(options, evidence, "IC")
    if found.empty or options.steps < 2:
        return Samples([], unit="run", note="not trained in this run")
    steps, level = range(1, options.steps + 1), options.of_plateau(LEARNED)
    curves = [evidence.curve(f"loss_step_{step}", measure="training") for step in steps]
    final, counts = evidence.last("final_loss"), dict[int, float]()
    for member in found.index:
        if math.isnan(final[member]):
            counts[member] = math.nan
            continue
        own = [curve[member].dropna() for curve in curves[:: -1 if reverse else 1]]
        times = [first_crossing(each.index.tolist(), each.tolist(), level, rising=False) for each in own]
        known = [each for pair in pairwise(times) if (each := order(*pair)) != "unknown"]
        if known:
            counts[member] = known.count("after")
    ordered = pd.Series(counts, dtype=float)
    if ordered.empty:
        return Samples([], unit="run", excluded="no run learned a step")
    learned = found["layers"].isin(found["layers"][ordered.dropna().index])
    seeds = found[learned].groupby("layers").size().min() if learned.any() else PAPER_SEEDS
    silent = len(found) - len(ordered)
    note = f"{silent} more learned no step, and have no order" if silent else ""
    lacking = few(seeds, PAPER_SEEDS, "seeds at a depth")
    missing = ", ".join(filter(None, [reading_lacks(options, found), *lacking]))
    return Samples(ordered, "run", found["seed"][ordered.index].tolist(), note=note, missing=missing)


# R9 and N13: what theory says.


def exact_cases() -> Iterator[tuple[int, int]]:
    """D and the exact minimum of layers, for every D, mask and order of pairs."""
    masks: tuple[Mask, ...] = ("causal", "none")
    orders: tuple[PairOrder, ...] = ("deepest-first", "shallowest-first")
    for steps, mask, pairs in product(range(1, THEORY_STEPS + 1), masks, orders):
        yield steps, exact_layers(steps, mask, pairs)


def layers_above_bound(evidence: "Evidence") -> Samples:
    """By how many layers the exact minimum lies above the theorem's bound, for every D, mask and order of pairs."""
    gaps = [layers - theorem_bound(steps) for steps, layers in exact_cases()]
    note = f"the exact minimum lies {min(gaps):.2f} to {max(gaps):.2f} layers above the bound"
    return Samples(gaps, unit="case", note=note)


def layers_above_a_wrong_bound(evidence: "Evidence") -> Samples:
    """Control of R9a: if log₂(2D) were never undercut, the cases could not tell a bound from another number."""
    return Samples([min(layers - math.log2(2 * steps) for steps, layers in exact_cases())], unit="case")


def losses_below(least: Least, options: Options, evidence: "Evidence", every_step: bool = False) -> Samples:
    """Final partial loss of x_D (R9b, R9c), or of every step (N13b), of models with too few layers for it.

    These are fewer than the bound for the step, or than its exact minimum.
    """

    def limit(each: Cell, step: int) -> float:
        exact = options.under(each.reading).exact(each.steps)[step]
        return theorem_bound(step) if least == "bound" else exact

    found, values, seeds, error = models(options, evidence, "IC"), list[float](), list[int](), list[float]()
    for step in range(1 if every_step else options.steps, options.steps + 1):
        own = found.loc[[at for at, each in found["cell"].items() if each.layers < limit(each, step)]]
        if len(own):
            values += own[f"step_{step}"].tolist()
            seeds += own["seed"].tolist()
            error += errors(options, evidence, own, f"step_{step}")
    note = "" if values else f"no run has fewer layers than the {least}"
    below = Samples(values, "pair" if every_step else "run", seeds, error=error, note=note)
    words = [reading_lacks(options, found, depths=False)] if values and not every_step else []
    if not any_below(below, OWN_LEARNED if every_step else options.of_plateau(LEARNED)):
        words += seeds_lacking(found)
    return replace(below, missing=", ".join(filter(None, words)))


def above_minimum(options: Options, evidence: "Evidence") -> Samples:
    """By step k ≤ 3: least depth that learned it, less the exact minimum (N13); missing if that depth was not tried."""
    found, above = models(options, evidence, "IC"), list[float]()
    here = options.under(found["cell"].iloc[0].reading) if len(found) else options
    for step, least in here.exact(options.steps).items():
        if step <= MOST_STEPS and len(found):
            learned = found["layers"][found[f"step_{step}"] < OWN_LEARNED]
            tried = found[f"step_{step}"][found["layers"] == least].notna().any()
            above.append(min(learned, default=math.inf) - least if tried else math.nan)
    note, words = "" if above else "no models were asked for the whole chain", seeds_lacking(found)
    if any(each > 0 for each in above):
        words += few(options.training_steps, SETTLED_STEPS, "steps to a settled loss")
    return Samples(above, unit="case", missing=", ".join(words), note=note)


def lacks_of_depths(options: Options, evidence: "Evidence", none: bool = False) -> str:
    """What a run lacks for N13, in words; to find `none` below the minimum, also a settled loss."""
    if options.chains == 1:
        return _ONE_CHAIN
    if none and any_below(losses_below("exact minimum", options, evidence, every_step=True), OWN_LEARNED):
        return ""
    needed = max(options.exact(min(MOST_STEPS, options.steps)).values())
    absent = [str(n) for n in range(1, needed + 1) if n not in options.layers]
    words = [f"D {options.steps}, not {MOST_STEPS} or more"] * (options.steps < MOST_STEPS)
    words += few(options.training_steps, SETTLED_STEPS, "steps to a settled loss") if none else []
    return ", ".join(words + [f"no models of {', '.join(absent)} layers"] * bool(absent))


# N11: the schedule, not the start.


def steps_by_completion(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By completion: steps that each seed of the models with eight layers learned (N11)."""
    own, found = asked_for(evidence, "completion"), dict[str, Samples]()
    for name in COMPLETIONS:
        reading: Reading = () if name == own and not options.departs else (("completion", name),)
        deep = models(options, of_reading(options, evidence, reading), "IC").query(f"layers == {DEPTH}")
        losses = deep.filter(like="step_")
        counts = (losses < options.of_plateau(LEARNED)).sum(axis=1).astype(float)
        values = counts.where(losses.notna().all(axis=1))
        found[name] = Samples(values, unit="seed", note="" if len(deep) else "not run")
    return found


def lacks_of_schedules(options: Options, evidence: "Evidence") -> str:
    """What a run lacks for N11: Figure 4's models of eight layers, under all completions."""
    found = steps_by_completion(options, evidence).items()
    absent: Iterable[str] = (f"no models of {name}" for name, of in found if not len(of.values))
    deep = DEPTH in options.layers
    words = lacks(options, "IC", evidence, depths=False) if deep else f"no models of {DEPTH} layers"
    return ", ".join(filter(None, [words, *absent]))
