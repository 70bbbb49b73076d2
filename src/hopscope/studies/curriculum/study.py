"""Which part of the curriculum is necessary (S1)?  Ways to ask for the steps of a chain, and who learns the last one.

A model has two layers for each step of the chain, at a width that learns quickly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import model_validator

from hopscope.claims import Claim, Samples, at_most
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, SHARE_SEEDS, final_rows, symbol, times_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.curriculum import wide
from hopscope.studies.curriculum.circuits import CLAIM, circuits, distances
from hopscope.study.study import Configuration
from hopscope.tasks import Retrieval, Shape
from hopscope.tasks.task import expect

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.runs import Evidence
    from hopscope.tasks import Batch, Draws


class Curriculum(Retrieval):
    """The retrieval problem, in which every step may be asked for at a position of its own.

    Attributes:
        own_positions: whether D positions stand for every query, all with its symbol, of which the k-th is asked for
            x_k alone.
        padded: whether a training sample shows no pairs beyond the last step that it asks for: there, symbols are 0.
    """

    standard_loss: ClassVar[bool] = True

    own_positions: bool = False
    padded: bool = False

    @model_validator(mode="after")
    def _is_of_pairs(self) -> Self:
        plain = not self.nodes and (self.position == "pair" or not self.own_positions)
        expect(
            plain, "own_positions", "chains whose pairs share a position code", f"position {self.position!r}"
        )
        return self

    def shape(self) -> Shape:
        shape = super().shape()
        if not self.own_positions:
            return shape
        first = shape.readout[0]
        last = first + len(shape.readout) * len(self.asked)
        sizes = {"positions": last, "readout": tuple(range(first, last)), "output_size": self.symbol_dim}
        return shape.model_copy(update=sizes)

    def sample(self, draws: "Draws") -> "Batch":
        batch = super().sample(draws)
        if self.padded and draws.use == "train" and batch.weights is not None:
            batch = self._shortened(batch, batch.weights)
        return self._written_out(batch) if self.own_positions else batch

    def _shortened(self, batch: "Batch", weights: "Tensor") -> "Batch":
        import torch

        steps = torch.tensor([*self.asked.values()], device=weights.device)
        last = torch.where(weights[:, :, 0, :: self.symbol_dim] > 0, steps, 0).amax(-1)
        beyond = batch.roles["step"] > last[..., None]
        symbols = torch.arange(2 * self.symbol_dim, device=weights.device) < self.symbol_dim
        return replace(batch, inputs=batch.inputs.masked_fill(beyond[..., None] & symbols, 0.0))

    def _written_out(self, batch: "Batch") -> "Batch":
        import torch

        from hopscope.tasks import Batch
        from hopscope.tasks.vectors import position_codes

        asked, pairs = len(self.asked), batch.inputs.shape[2] - self.chains
        shown, queries = batch.inputs[..., : self.symbol_dim].tensor_split((pairs,), 2)
        symbols = torch.cat((shown, queries.repeat_interleave(asked, 2)), 2)
        # Both tokens of a pair share a code; every position of a query has one.
        own = pairs // 2 + self.chains * asked
        numbers = [*(place // 2 for place in range(pairs)), *range(pairs // 2, own)]
        base = self.frequency_base if self.frequencies == "geometric" else None
        codes = position_codes(own, self.symbol_dim, base)[numbers].to(symbols.device)
        weights = batch.weights
        if weights is not None:
            by_step = weights.reshape(*weights.shape[:2], asked, self.symbol_dim)
            weights = by_step.repeat(1, 1, self.chains, 1)
        inputs = torch.cat((symbols, codes.expand(*symbols.shape[:2], -1, -1)), -1)
        targets = batch.targets.reshape(*batch.targets.shape[:2], -1, self.symbol_dim)
        return Batch(inputs, targets, weights=weights)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        return super().parts(*self._by_query(predictions, batch))

    def scores(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        return super().scores(*self._by_query(predictions, batch))

    def _by_query(self, predictions: "Tensor", batch: "Batch") -> "tuple[Tensor, Batch]":
        if not self.own_positions:
            return predictions, batch
        asked = len(self.asked)
        every = (predictions, batch.targets, batch.weights)
        joined: list[Any] = [
            each if each is None else each.unflatten(2, (-1, asked)).flatten(3) for each in every
        ]
        return joined[0], replace(batch, targets=joined[1], weights=joined[2])

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor] | None":  # type: ignore[override]
        """As of `Retrieval`; positions of their own have no roles by which symbols could be exchanged."""
        return None if self.own_positions else super().counterfactuals(batch)


LAYERS_PER_STEP = 2

WHOLE, ALONE = "whole chain", "last symbol alone"
OWN, OWN_ALONE = "own positions, whole chain", "own positions, last symbol alone"
RANDOM, UNIFORM, ZIPF = "random subsets", "one step, uniform", "one step, Zipf"
GROWING, SWITCHED = "one symbol more at a time", "easier symbols first, then the last alone"
MIXED, MIXED_ZIPF, LONGER = "mixed lengths, uniform", "mixed lengths, Zipf", "growing length"
WEIGHED = {weight: f"easier symbols weigh {weight:g}" for weight in (0.01, 0.03, 0.1, 0.3)}
"""How much the easier steps count beside the last one → the way to ask."""

BRIEF = (WHOLE, ALONE, RANDOM, UNIFORM, WEIGHED[0.1], GROWING, OWN, OWN_ALONE)

TAUGHT = (WHOLE, RANDOM, UNIFORM, MIXED, WEIGHED[0.1], WEIGHED[0.3], LONGER)
"""Ways to ask that taught most seeds x₂, and whose models can be read on the same samples."""


class Options(Config):
    """The chains that are asked for, and whether the circuits of the models are read.

    Attributes:
        steps: lengths D of the chains.
        brief: whether to use fewer ways to ask, for a first look.
        read: whether only the ways to ask that are known to teach x₂ are used, and the members' circuits are read.
    """

    steps: tuple[int, ...] = (2, 3)
    brief: bool = False
    read: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.read:
            expect(self.steps == (2,), "steps", "(2,) where circuits are read", self.steps)
        return self


def curricula(steps: int, training_steps: int = wide.TRAINING.steps) -> dict[str, dict[str, Any]]:
    """Name of every way to ask → fields of the task, for chains of `steps` steps."""
    every = range(1, steps + 1)
    easier = tuple(every)[:-1]
    parts = [(*part, steps) for size in range(1, len(easier)) for part in combinations(easier, size)]
    harmonic = sum(1 / step for step in every)
    uniform = {"shares": (1 / steps,) * steps, "emphasis": "one"}
    zipf = {"shares": tuple(1 / step / harmonic for step in every), "emphasis": "one"}
    # Every stage but the last has one of D + 1 parts of training; the last has two.
    begins = {step: training_steps // (steps + 1) * (step - 1) for step in every if step > 1}
    more = tuple((begin, tuple(range(1, step + 1))) for step, begin in begins.items())
    longer = tuple((begin, (step,)) for step, begin in begins.items())
    return {
        WHOLE: {"targets": "ic"},
        ALONE: {"targets": "last"},
        **{" and ".join(map(symbol, part)): {"targets": part} for part in parts},
        RANDOM: {"shares": (0.5,) * len(easier) + (1.0,), "emphasis": "subsets"},
        UNIFORM: uniform,
        ZIPF: zipf,
        MIXED: {**uniform, "padded": True},
        MIXED_ZIPF: {**zipf, "padded": True},
        **{name: {"shares": (weight,) * len(easier) + (1.0,)} for weight, name in WEIGHED.items()},
        GROWING: {"targets": (1,), "schedule": more},
        LONGER: {"targets": (1,), "schedule": longer, "padded": True},
        SWITCHED: {"targets": easier, "schedule": ((training_steps // 2, "last"),)},
        OWN: {"own_positions": True},
        OWN_ALONE: {"own_positions": True, "shares": (0.0,) * len(easier) + (1.0,)},
    }


def ways(
    options: Options, steps: int, training_steps: int = wide.TRAINING.steps
) -> dict[str, dict[str, Any]]:
    every = curricula(steps, training_steps)
    names = TAUGHT if options.read else BRIEF if options.brief else every
    return {name: fields for name, fields in every.items() if name in names}


def label(steps: int, name: str) -> str:
    return f"D={steps}, {name}"


def configurations(options: Options, study: Any) -> Iterator[Configuration]:
    for steps in options.steps:
        size = {"task.steps": steps, "model.layers": LAYERS_PER_STEP * steps}
        for name, fields in ways(options, steps, study.training.steps).items():
            asked = {f"task.{field}": value for field, value in fields.items()}
            yield Configuration(label=label(steps, name), overrides={**size, **asked})


# What is claimed.


def dose(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By seed: rank correlation of the easier symbols' weight and the time of x_D."""
    import pandas as pd
    from scipy.stats import spearmanr

    def correlation(times: "pd.Series[float]") -> float:
        known = times.notna().all() and times.nunique() > 1
        return float(spearmanr(times.index, times).statistic) if known else float("nan")

    found = {}
    for steps in options.steps:
        names = {**WEIGHED, 1.0: WHOLE}.items()
        times = {w: times_learned(evidence, label(steps, name), f"step_{steps}") for w, name in names}
        found[f"D = {steps}"] = Samples(pd.DataFrame(times).apply(correlation, axis=1), unit="seed")
    return found


def claims(options: Options) -> Iterator[Claim]:
    if options.read:
        yield CLAIM
        return

    def cells(name: str, words: str = "D = {}") -> dict[str, tuple[str, int]]:
        return {words.format(steps, symbol(steps)): (label(steps, name), steps) for steps in options.steps}

    partly = {
        label(steps, name): (label(steps, name), steps)
        for steps in options.steps
        for name, fields in ways(options, steps).items()
        if isinstance(fields.get("targets"), tuple) and "schedule" not in fields
    }
    claim = partial(wide.open_claim, source="summary of the paper, next check 1")
    learns = partial(claim, rule="share")
    asked_alone = cells(ALONE, "asked for {1} alone")
    yield learns(
        id="S1a",
        statement="Asked for the last symbol alone, models learn no chain; asked for the whole chain, they do.",
        protocol="share of seeds with a final held-out loss of x_D under 0.5",
        **wide.shares((cells(ALONE, "{1} alone"), wide.FEW), (cells(WHOLE, "all of D = {}"), wide.MOST)),
        seeds_needed=SHARE_SEEDS,
    )
    yield learns(
        id="S1b",
        statement="Explicit supervision of each step, at its own position, replaces the implicit curriculum.",
        protocol="the same of models with D positions for each query, of which the k-th is asked for x_k alone; "
        "the control is asked for x_D alone, at the same positions",
        **wide.shares((cells(OWN), wide.MOST), controls=cells(OWN_ALONE, "asked for {1} alone")),
    )
    yield learns(
        id="S1c",
        statement="A random subset of the easier symbols, for each sample anew, is enough.",
        protocol="the same of models whose every sample asks for each easier symbol with probability one half",
        **wide.shares((cells(RANDOM), wide.MOST), controls=asked_alone),
        seeds_needed=SHARE_SEEDS,
    )
    if partly:
        yield learns(
            id="S1d",
            statement="A part of the curriculum is enough: some of the easier symbols are not needed.",
            protocol="the same of models that are asked for some easier symbols and x_D, for each such choice",
            **wide.shares((partly, wide.MOST), controls=asked_alone),
            need="any",
        )
    if not options.brief:
        yield claim(
            id="S1e",
            statement="The more the easier symbols count, the sooner the last one is learned.",
            protocol="by seed: rank correlation of the weight of the easier symbols (0.01 to 1) and the training "
            "step at which x_D was learned; what was never learned comes last",
            value=partial(dose, options),
            must=dict.fromkeys(cells(WHOLE), at_most(0.0)),
            rule="effect",
        )


def figures(options: Options) -> list[charts.Figure]:
    def final(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        for steps in options.steps:
            for name in ways(options, steps):
                told = {"way": name, "chains": f"D = {steps}"}
                yield from final_rows(evidence, f"loss_step_{steps}", label(steps, name), **told)

    return [
        charts.dots("loss", "way", by="chains", rows=final, name="losses",
                    title="final held-out loss of x_D", levels={"plateau": 0.75, "learned": LEARNED}, ends=(0.0, 1.1)),
    ]  # fmt: skip


study = wide.open_study(
    name="curriculum",
    question="which easier questions must be asked for a chain to be learned, and may each have a position of its own?",
    task=Curriculum(steps=2, position="pair"),
    options=Options(),
    fixed=(*wide.FIXED, "task.own_positions", "task.padded"),
    configurations=configurations,
    measures=(learned_at, circuits, distances),
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**wide.SMOKE, "steps": (2,), "brief": True},
        "laptop": {"steps": (2,), "brief": True},
        "workstation": {},
        "circuits": {"steps": (2,), "read": True},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "under 10 min on two cores by estimate",
        "workstation": "about 40 min on two cores: 272 models",
        "circuits": "about 15 min on two busy cores: 56 models, each read twice",
    },
)
