"""What does it take for stacked heads to form?  Details of start and schedule switched off, on, and all ways.

Claims N12 and N16 are judged by the rules of `docs/protocols.md` (Revision 3).
"""

import math
import statistics
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from hopscope.claims import Claim, Samples, as_large_as, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import few, has, steps_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.chains.recipe import FIXED, QUICK, QUICK_TRAINING, chains_of
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from hopscope.runs import Evidence

STEPS = 3
"""Steps of the chains."""

OFF: dict[str, dict[str, Any]] = {
    "start": {"model.init": "gpt2"},
    "warm-up": {"training.warmup_steps": 0},
    "β₂": {"training.betas": (0.9, 0.999)},
    "cosine": {"training.schedule": "constant"},
    "clipping": {"training.clip_norm": None},
}
"""Detail → what a model has where it is off.  All on is `torch-schedule`, all off is `gpt2-base`."""

ALL_ON = tuple(OFF)
SCHEDULE = ALL_ON[1:]
"""Details of which one alone decides, if N12 is right."""

ONE_HEAD: dict[str, Any] = {"model.layers": 12, "model.heads": 1, "model.head_dim": 32}
"""Twelve layers of one head, as the paper's transformers A, B and C have them."""

SHAPES: dict[str, dict[str, Any]] = {
    f"{counted(QUICK.layers, 'layer')} of {QUICK.heads} heads": {},
    "12 layers of 1 head": ONE_HEAD,
}
"""Name of each shape → how it differs from the study's model."""

GAMMAS = (0.45, 0.61, 0.78, 0.95)
"""Starts with weights of a standard deviation of fan_in^-γ: torch's own is 0.61 at width 128, GPT-2's 0.81."""

DEPTHS, HEADS = (3, 6, 12), (1, 8)


class Options(Config):
    """What is trained beside the models that have every detail.

    Attributes:
        parts: "without": one detail off; "alone": one detail on, or none; "factorial": all combinations; "starts":
            starts of four sizes with every other detail on, in models of three depths with one head or eight.
        decisive_seeds: seeds of "without", of "alone" and of the models with every detail; at least `seeds`.
    """

    parts: tuple[Literal["without", "alone", "factorial", "starts"], ...] = ("without",)
    decisive_seeds: int = Field(1, ge=1)


class Trained(NamedTuple):
    """A recipe or a start in a model: its configuration, its row and its column in a figure, and what differs."""

    label: str
    words: str
    shape: str
    overrides: dict[str, Any]


def recipe(shape: str, on: tuple[str, ...]) -> Trained:
    """Some details on, in the order of `OFF`, at a shape."""
    off = [name for name in OFF if name not in on]
    words = f"without {off[0]}" if len(off) == 1 else f"{' and '.join(on)} alone"
    if not off or not on:
        words = "all off" if off else "all on"
    changed = {field: value for name in off for field, value in OFF[name].items()}
    return Trained(f"{shape}: {words}", words, shape, SHAPES[shape] | changed)


def without(detail: str) -> tuple[str, ...]:
    return tuple(name for name in OFF if name != detail)


def starts(heads: int) -> dict[tuple[float, int], Trained]:
    """γ and number of layers → weights of that size in a model with so many heads in a layer."""
    found = {}
    for layers in DEPTHS:
        shape = f"{counted(layers, 'layer')} of {counted(heads, 'head')}"
        fields = {**(ONE_HEAD if heads == 1 else {"model.heads": heads}), "model.layers": layers}
        for gamma in GAMMAS:
            words = f"γ {gamma:g}"
            found[gamma, layers] = Trained(f"{words}, {shape}", words, shape, fields | {"model.init": gamma})
    return found


ALL_STARTS = tuple(each for heads in HEADS for each in starts(heads).values())


def recipes(parts: Iterable[str]) -> dict[tuple[str, ...], bool]:
    """Details that are on → whether the recipe is one of those that decide; in the order in which a page shows them."""
    found: dict[tuple[str, ...], bool] = {ALL_ON: True}
    if "without" in parts:
        found |= {without(name): True for name in OFF}
    if "alone" in parts:
        found |= {(name,): True for name in OFF} | {(): True}
    if "factorial" in parts:
        every = (on for count in range(len(OFF), -1, -1) for on in combinations(OFF, count))
        found = dict.fromkeys(every, False) | found
    return found


def configurations(options: Options, study: Study) -> Iterator[Configuration]:
    most = max(study.seeds, options.decisive_seeds)
    for shape in SHAPES:
        for on, decides in recipes(options.parts).items():
            each = recipe(shape, on)
            yield Configuration(label=each.label, overrides=each.overrides, seeds=most if decides else None)
    for each in ALL_STARTS if "starts" in options.parts else ():
        yield Configuration(label=each.label, overrides=each.overrides)


# N12: one detail of the schedule decides.

SEEDS_NEEDED = 8
"""Of each recipe that decides N12, and of each start that decides N16."""

DECIDES, COUNTS = "steps lost without the detail that counts most", "steps lost without the next"


def steps_of(evidence: "Evidence", shape: str, on: tuple[str, ...]) -> "pd.Series[float]":
    """Steps that a recipe learned at a shape, by seed; empty where it was not trained."""
    return steps_learned(evidence, recipe(shape, on).label, STEPS)


def lost_without(evidence: "Evidence", shape: str, detail: str) -> "pd.Series[float]":
    """How many steps fewer are learned without a detail, for each seed that both recipes have."""
    whole, less = steps_of(evidence, shape, ALL_ON), steps_of(evidence, shape, without(detail))
    return (whole - less)[whole.index.intersection(less.index)]


def lost(evidence: "Evidence") -> dict[str, Samples]:
    """What is lost without the detail that counts most at both shapes, and without the one that counts next."""

    def mean_lost(shape: str, detail: str) -> float:
        mean = float(lost_without(evidence, shape, detail).mean())
        return -math.inf if math.isnan(mean) else mean

    # The one first without which the least is lost at the shape where it counts less.
    first, *others = sorted(SCHEDULE, key=lambda name: -min(mean_lost(shape, name) for shape in SHAPES))
    found = {}
    for shape in SHAPES:
        second = max(others, key=partial(mean_lost, shape))
        for words, detail in ((DECIDES, first), (COUNTS, second)):
            values = lost_without(evidence, shape, detail)
            note = f"without {detail}" if len(values) else "no model has all on and all but one on"
            found[f"{words}, {shape}"] = Samples(values, unit="seed", note=note)
    return found


def not_learned(evidence: "Evidence") -> dict[str, Samples]:
    """Control: with everything on, steps that are *not* learned; if that were many, nothing could be lost."""
    left = {shape: STEPS - steps_of(evidence, shape, ALL_ON) for shape in SHAPES}
    return {f"{DECIDES}, {shape}": Samples(values, unit="seed") for shape, values in left.items()}


def lacks(evidence: "Evidence", needed: int) -> list[str]:
    small = as_large_as({"training.steps": QUICK_TRAINING.steps, "model.width": QUICK.width})(evidence)
    return [small] * bool(small) + few(len(set(evidence.seeds.values())), needed, "seeds")


def lacks_of_details(evidence: "Evidence") -> str:
    words = lacks(evidence, SEEDS_NEEDED)
    for shape in SHAPES:
        absent = [name for name in SCHEDULE if steps_of(evidence, shape, without(name)).empty]
        words += [f"{shape}: no models without {', '.join(absent)}"] * bool(absent)
        mean = steps_of(evidence, shape, ALL_ON).mean()
        words += [f"{shape}: with all on, {mean:.2g} of {STEPS} steps are learned"] * bool(mean < STEPS - 0.5)
    return ", ".join(words)


# N16: the start that just fails.


def threshold_slope(rows: "np.ndarray") -> float:
    """Change of the γ that half of the models learn with, from one depth to e times it: by a logistic fit.

    A small ridge keeps the fit finite where a line parts what learned from what did not.  Of rows `(γ, ln depth,
    learned)`; NaN where a larger γ does not fail more often.
    """
    import numpy as np
    from scipy.optimize import minimize

    inputs = np.column_stack([np.ones(len(rows)), rows[:, :2] - rows[:, :2].mean(0)])

    def loss(weights: Any) -> float:
        logits = inputs @ weights
        ridge = 0.01 * np.sum(weights[1:] ** 2)
        return float(np.sum(np.logaddexp(0.0, logits) - rows[:, 2] * logits) + ridge)

    _, by_gamma, by_depth = minimize(loss, np.zeros(3), method="BFGS").x
    return float(-by_depth / by_gamma) if by_gamma < 0.0 else math.nan


def slope(evidence: "Evidence", heads: int, resamples: int = 200) -> Samples:
    """The slope of the threshold, with its bootstrap interval over seeds; none where resamples have no slope."""
    import numpy as np
    import pandas as pd

    every = {at: steps_learned(evidence, each.label, STEPS) for at, each in starts(heads).items()}
    tried = {at: steps for at, steps in every.items() if len(steps)}
    whole = pd.DataFrame(tried).dropna()  # a seed of which one model diverged has no slope
    places = [(gamma, math.log(layers)) for gamma, layers in tried]
    learned = (whole == STEPS).to_numpy(float)
    # [seed, γ and depth, (γ, ln depth, learned)]
    rows = np.array([[(*at, own) for at, own in zip(places, seed, strict=True)] for seed in learned])
    if len(rows) < 2 or len({*rows[..., 2].flat}) < 2:
        note = "all starts of all depths end alike" if rows.size else "no starts of several sizes"
        return Samples([], unit="seed", note=note)
    generator = np.random.Generator(np.random.Philox(key=0))
    found = threshold_slope(rows.reshape(-1, 3))
    drawn = (rows[generator.integers(len(rows), size=len(rows))].reshape(-1, 3) for _ in range(resamples))
    several = [*map(threshold_slope, drawn)]
    unknown = sum(map(math.isnan, several))
    if unknown > 0.025 * resamples:  # one number, which has no interval
        seeds = counted(len(rows), "seed")
        note = f"in {unknown} of {resamples} resamples of {seeds} a larger γ does not fail more often"
        return Samples([found], unit="seed", note=note)
    low, high = map(float, np.nanquantile(several, [0.025, 0.975]))
    missing = [math.nan] * (len(pd.DataFrame(tried)) - len(rows))
    return Samples([found] * len(rows) + missing, unit="seed", interval=(low, high))


def slopes(evidence: "Evidence") -> dict[str, Samples]:
    return {counted(heads, "head"): slope(evidence, heads) for heads in HEADS}


def lacks_of_starts(evidence: "Evidence") -> str:
    absent = sum(not has(evidence, each.label) for each in ALL_STARTS)
    words = [f"{absent} of {len(ALL_STARTS)} starts not tried"] * bool(absent)
    return ", ".join([*lacks(evidence, SEEDS_NEEDED), *words])


_lost = {DECIDES: at_least(1.0, "steps"), COUNTS: at_most(0.5, "steps")}
_claim = partial(
    Claim,
    source="docs/protocols.md, Revision 3",
    trust="the task (every held-out sample is one that no training drew), and that all starts and schedules equal "
    "torch's",
    seeds_needed=SEEDS_NEEDED,
)

CLAIMS = (
    _claim(
        id="N12",
        statement="Of warm-up, β₂, cosine and clipping, one alone decides whether three steps are learned.",
        protocol="each left out alone, at both shapes: steps learned with all on minus without it, by seed; "
        "without exactly one, the same at both shapes, at least one step is lost, without any other less than half "
        "a step; a step is learned with a final held-out loss under 0.5",
        value=lost,
        must={f"{words}, {shape}": _lost[words] for shape in SHAPES for words in _lost},
        rule="mean",
        controls={"steps that are not learned with all on": not_learned},
        must_not={f"{DECIDES}, {shape}": _lost[DECIDES] for shape in SHAPES},
        at_scale=lacks_of_details,
    ),
    _claim(
        id="N16",
        statement="The least γ that fails (standard deviation fan_in^-γ) falls with depth.",
        protocol="whether a model learned all three steps, by γ and the logarithm of its depth: logistic fit, slope "
        "of the γ with which half of the models learn; seeds resampled; with one head a layer and with eight",
        value=slopes,
        must={counted(heads, "head"): at_most(0.0) for heads in HEADS},
        rule="effect",
        at_scale=lacks_of_starts,
    ),
)


# What is drawn: how many steps each recipe learned at each shape, and when.


def rows(trained: Iterable[Trained], evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Of each configuration that the run has: mean number of learned steps, and the median time of the last one."""
    for each in trained:
        if not has(evidence, each.label):
            continue
        steps = steps_learned(evidence, each.label, STEPS).dropna()
        mean, ends = float(steps.mean()), list[float]()
        if mean > STEPS - 1 and "learned_at" in evidence:
            times = evidence.last("learned_at", configuration=each.label, part=f"step_{STEPS}")
            ends = [time for time in times.dropna() if math.isfinite(time)]
        note = f"{mean:.2g} of {STEPS}" + (f" by {statistics.median(ends):.0f}" if ends else "")
        told = {"value": mean, "note": note} if len(steps) else {"value": None, "note": "diverged"}
        yield {"recipe": each.words, "shape": each.shape, **told}


def figures(options: Options) -> list[charts.Figure]:
    cells = {"recipes": [recipe(shape, on) for shape in SHAPES for on in recipes(options.parts)]}
    cells |= {"starts": [*ALL_STARTS]} if "starts" in options.parts else {}
    look: Any = {"title": "steps learned", "ends": (0.0, float(STEPS))}
    return [
        charts.cells("steps", "shape", "recipe", name=name, rows=partial(rows, trained), **look)
        for name, trained in cells.items()
    ]


study = Study(
    name="recipes",
    question="what does it take for stacked heads to form: which details of start and schedule, at which depth?",
    task=chains_of(STEPS),
    model=QUICK,
    training=QUICK_TRAINING,
    options=Options(),
    fixed=("completion", *FIXED, "task.steps", "task.chains", "task.targets", "model.layers", "model.heads"),
    configurations=configurations,
    seeds=3,
    measures=(learned_at,),
    claims=CLAIMS,
    figures=figures,
    presets={
        "smoke": {"seeds": 1, "training.steps": 20, "model.width": 32},
        "laptop": {},
        "workstation": {
            "seeds": 4,
            "parts": ("without", "alone", "factorial", "starts"),
            "decisive_seeds": 8,
        },
    },
    costs={
        "smoke": "under half a minute on two cores",
        "laptop": "under 20 min on two cores: 36 models",
        "workstation": "three to five hours on two cores: 448 models",
    },
    page="page.md.j2",
    held_out=256,
)
