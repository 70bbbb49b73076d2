"""Claims N10, N14 and N17 of `docs/protocols.md` (Revision 3), which no source makes."""

import math
import re
from functools import partial
from typing import TYPE_CHECKING

from hopscope.circuits.places import of_places, times
from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.studies.circuit_study.claims import (
    NONE_READ,
    TRUST,
    by_seed,
    independent,
    learned_members,
    of_read,
    random_circuits,
)
from hopscope.studies.circuits.config import CircuitsConfig

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SOURCE = "docs/protocols.md, Revision 3"

STEPS = 3
"""Of the chains that N10 and N14 speak of."""

DOUBLING_CIRCUITS = 32
"""Read circuits that N14 takes."""

SEEDS = 16
"""That N17 takes."""

_PAIR = re.compile(r"(?:first|second) (\d+)")

N10 = {"torch-schedule": at_most(0.01), "gpt2-schedule": at_least(0.5)}
"""Completion → final loss in every seed."""


def of_completion(evidence: "Evidence") -> dict[str, Samples]:
    """The final loss of every model, in the part of the completion that the run was trained by."""
    config = CircuitsConfig.model_validate(dict(evidence.config))
    losses = by_seed(evidence.last("final_loss").reindex(independent(evidence)))
    own = "" if config.departures else config.completion
    return {
        name: losses if name == own else Samples([], unit="seed", note=f"{name} was not run") for name in N10
    }


def lacks_of_models(evidence: "Evidence") -> str:
    """What a run lacks for N10: it takes the paper's models, and two completions."""
    config = CircuitsConfig.model_validate(dict(evidence.config))
    others = [name for name in N10 if name != config.completion or config.departures]
    return ", ".join([*config.protocol_deviations, *(f"no models of {name}" for name in others)])


def ahead(read: str) -> bool:
    """Whether a path lets a row of one pair read a row of a later pair: `second 2 → second 3`."""
    query, _, target = read.partition(" → ")
    row, targets = _PAIR.fullmatch(query), _PAIR.findall(target)
    return row is not None and any(int(pair) > int(row[1]) for pair in targets)


N14 = {"share that doubles": at_least(0.75, "fraction"), "more than a quarter": at_least(0.25, "fraction")}
"""Reproduced at three quarters or more, refuted at one quarter or less; nothing is decided in between."""


def doubles(evidence: "Evidence") -> dict[int, bool]:
    """Member whose circuit was read → whether a pair looks ahead in it and a step is lost without that."""
    read = of_read(evidence, "was_read", "both")
    found = dict.fromkeys((int(member) for member, value in read.items() if value == 1.0), False)
    for place in of_places(evidence, "circuit", ["needed_for"]):
        if place.member in found and ahead(place.part):
            found[place.member] = True
    return found


def doubling(evidence: "Evidence") -> dict[str, Samples]:
    """1 for each read circuit that doubles, else 0, of members that learned the chain (N14)."""
    found = doubles(evidence)
    values = {member: float(found.get(member, math.nan)) for member in learned_members(evidence)}
    return dict.fromkeys(N14, by_seed(values, NONE_READ))


def lacks_of_circuits(evidence: "Evidence") -> str:
    """What a run lacks for N14, in words."""
    config = CircuitsConfig.model_validate(dict(evidence.config))
    read = int((of_read(evidence, "was_read", "both") == 1.0).sum())
    words = [f"D {config.steps}, not {STEPS}"] * (config.steps != STEPS)
    return ", ".join(words + [f"{read} of {DOUBLING_CIRCUITS} read circuits"] * (read < DOUBLING_CIRCUITS))


def first_and_rest(evidence: "Evidence") -> Samples:
    """By seed: ranks of the step at which the first loss fell, and of the time from there to the last (N17).

    A seed whose last loss never fell ranks behind all others; one whose first never fell has neither.
    """
    fell, steps = times(evidence, "fell"), int(evidence.config["steps"])
    pairs: dict[int, tuple[float, float]] = {}
    for member in independent(evidence):
        own = {
            place.part: time for place, time in fell.items() if place.member == member and place.layer is None
        }
        first, last = own.get("step_1"), own.get(f"step_{steps}")
        if first is None or first.time is None:
            continue
        pairs[member] = (
            first.time,
            math.inf if last is None or last.time is None else last.time - first.time,
        )
    ranked = [_ranks([pair[column] for pair in pairs.values()]) for column in (0, 1)]
    return Samples([*zip(*ranked, strict=True)], unit="seed", note="" if pairs else "no first loss fell")


def _ranks(values: list[float]) -> list[float]:
    """Ranks from 1; equal values share theirs."""
    return [
        sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2
        for value in values
    ]


def lacks_of_seeds(evidence: "Evidence") -> str:
    """What a run lacks for N17, in words."""
    config, seeds = CircuitsConfig.model_validate(dict(evidence.config)), len(independent(evidence))
    words = ["a chain of one step, whose first loss is its last"] * (config.steps < 2)
    return ", ".join(words + [f"{seeds} of {SEEDS} seeds"] * (seeds < SEEDS))


_claim = partial(Claim, source=SOURCE, trust=TRUST)

OWN = (
    _claim(
        id="N10",
        statement="With torch-schedule, models of 12 layers with one head learn three steps in every seed; with "
        "gpt2-schedule in none.",
        protocol="final held-out loss (mean over the last 100 steps) of every member: at most 0.01 under "
        "torch-schedule, at least 0.5 under gpt2-schedule",
        value=of_completion,
        must=N10,
        seeds_needed=8,
        source_n=8,
        at_scale=lacks_of_models,
    ),
    _claim(
        id="N14",
        statement="Models of three steps take fewer layers than hops by doubling: pairs look ahead.",
        protocol="of read circuits of members that learned three steps: share in which a row of one pair reads a row "
        "of a later pair, and a step of the chain is lost without that read (half way to guessing, or beyond); exact "
        "interval at 75 % or above, or at 25 % or below",
        value=doubling,
        must=N14,
        need="agreement",
        rule="mean",
        controls={"loss of random circuits of the same size, which must stay high": random_circuits},
        must_not=at_most(0.25),
        seeds_needed=DOUBLING_CIRCUITS,
        at_scale=lacks_of_circuits,
    ),
    _claim(
        id="N17",
        statement="A seed that is early with its first step is quick with the rest.",
        protocol="rank correlation, over seeds of one completion and shape, of the training step at which the first "
        "loss fell under 0.5 and the time from there until the last did; a seed whose last never fell is last",
        value=first_and_rest,
        must=at_least(0.0),
        rule="effect",
        seeds_needed=SEEDS,
        at_scale=lacks_of_seeds,
    ),
)
