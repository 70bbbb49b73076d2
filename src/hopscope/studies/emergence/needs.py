"""Claims N21 and N22 of `docs/protocols.md` (Revision 3): whether one read needs another, and what foretells a fall."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.claims.intervals import ratio_interval
from hopscope.studies.chains import circuits as chains
from hopscope.studies.chains.circuits import ChainOptions, Place
from hopscope.studies.chains.evidence import few
from hopscope.studies.emergence.clamps import CONTROL, LEFT_ALONE

if TYPE_CHECKING:
    import numpy as np

    from hopscope.runs import Evidence

N21 = {
    "seeds delayed with the read held": at_least(0.5, "fraction"),
    "seeds delayed with another head held": at_most(0.5, "fraction"),
}
"""At least half of the seeds is the same as a median beyond the bound."""

N22 = {"R² of the alignment": at_least(0.5), "R² beyond that of the time": at_least(0.0)}
TWOFOLD, SEEDS = 2.0, 16
SOURCE = "docs/protocols.md, Revision 3"
HELD = "no member was read, or to hold the read of x₁ did not delay x₁ itself: other heads did it"
STEPS, LEAST = 2, {"layers": 4, "heads": 8, "width": 128, "training_steps": 600}
"""Steps of the chains, and the least size of the models that can decide."""


def lacks(options: ChainOptions, evidence: "Evidence") -> str:
    """What a run lacks of the protocol's size, in words."""
    words = [f"D {options.steps}, not {STEPS}"] * (options.steps != STEPS)
    for name, least in LEAST.items():
        words += few(getattr(options, name), least, name.replace("_", " "))
    return ", ".join(words)


def delayed(evidence: "Evidence") -> dict[str, Samples]:
    """Of members that were read: 1 where the loss of x₂ fell at least twice as late with rows held, else 0 (N21).

    A loss that never fell is late once twice the time has passed; before that nothing is known.  Where x₁ itself is
    not as late with its read held, other heads did the read: that says nothing of what x₂ needs.
    """
    fell = {step: chains.times(evidence, f"clamped_fell_step_{step}") for step in (1, 2)}

    def late(run: str, step: int, member: int) -> float:
        alone, held = (fell[step].get(Place(member, None, None, name)) for name in (LEFT_ALONE, run))
        if alone is None or held is None or alone.time is None:
            return math.nan
        if held.time is None and (held.censored_at or 0.0) < TWOFOLD * alone.time:
            return math.nan
        return float(held.time is None or held.time >= TWOFOLD * alone.time)

    def needing(member: int) -> float:
        return late("step_1", 2, member) if late("step_1", 1, member) == 1.0 else math.nan

    each = (needing, partial(late, f"{CONTROL}step_1", 2))
    found = (chains.of_each_read(evidence, "both", one, HELD) for one in each)
    return dict(zip(N21, found, strict=True))


def errors_left_out(values: "np.ndarray", *by: "np.ndarray") -> "np.ndarray":
    """Squared error of each value `[seed]`, foretold by a line through all others; without `by`, by their mean."""
    import numpy as np

    design, found = np.stack([np.ones(len(values)), *by], 1), []
    for own in range(len(values)):
        rest = np.arange(len(values)) != own
        weights, *_ = np.linalg.lstsq(design[rest], values[rest], rcond=None)
        found.append((values[own] - design[own] @ weights) ** 2)
    return np.array(found)


def foretold(evidence: "Evidence", apart: int = 0) -> dict[str, Samples]:
    """By seed, its share of R², whose mean over the seeds is R² itself (N22).

    What is foretold is when the loss of x₂ falls: by the largest mean attention that a read for x₂ has at the last
    checkpoint before the loss of x₁ falls, of the seed itself or of one so far `apart`; and by the time of that fall.
    """
    import numpy as np

    fell, attention = (
        chains.times(evidence, "fell"),
        chains.rows_of(evidence, "attention").sort_values("step"),
    )
    reads = [place for place, step in chains.reads_for(evidence, "both").items() if step == 2]
    members, known = chains.learned_members(evidence), list[tuple[float, ...]]()
    for member in members:
        first, second = (getattr(fell.get(Place.of_step(member, step)), "time", None) for step in (1, 2))
        own: Any = attention[attention["member"] == member]
        before = own[own["step"] <= (first or 0.0)].groupby(["layer", "head", "part"])["value"].last()
        aligned = [before[place[1:]] for place in reads if place.member == member]
        if aligned and first is not None and second is not None:
            known.append((max(aligned), first, second))
    if len(known) < 3:
        return dict.fromkeys(N22, Samples([], unit="seed", note=chains.NONE_READ))
    alignment, times, later = np.array(known).T
    if np.ptp(later) == 0.0:
        return dict.fromkeys(N22, Samples([], unit="seed", note="all losses of x₂ fell at one time"))
    by_alignment, by_time, by_mean = (
        errors_left_out(later, *by) for by in ([np.roll(alignment, apart)], [times], [])
    )
    missing, found = [math.nan] * (len(members) - len(known)), dict[str, Samples]()
    for name, errors in zip(N22, (by_mean, by_time), strict=True):
        gained = errors - by_alignment
        shares, interval = gained / by_mean.mean(), ratio_interval(gained, by_mean)
        found[name] = Samples([*shares, *missing], "seed", interval=interval)
    return found


def another(evidence: "Evidence") -> Samples:
    """Control of N22: the alignment of the next seed, which says nothing of a seed's own time."""
    return foretold(evidence, apart=1)["R² of the alignment"]


def claims(options: ChainOptions) -> list[Claim]:
    own = partial(
        Claim, trust=chains.TRUST, seeds_needed=SEEDS, at_scale=partial(lacks, options), source=SOURCE
    )
    return [
        own(
            id="N21",
            statement="Order is need: to hold the read of x₁ at uniform from the start delays x₂ at least twofold; to "
            "hold another head, matched to it, does not.",
            protocol="members that learned the chain and were read are trained again from the start on their own "
            "samples: with nothing held; with the read for x₁ held (that of a single token without which x₁ is the "
            "first to be lost, and whose removal costs most), in every head of the circuit that does it; and with the "
            "same rows of as many heads that no circuit uses: share of seeds in which the loss of x₂ falls under 0.5 "
            "at least twice as late as with nothing held, of those in which x₁ itself does with its read held; exact "
            "interval on one side of one half",
            value=delayed,
            must=N21,
            rule="share",
        ),
        own(
            id="N22",
            statement="How far heads are aligned to the next hop when the first loss falls foretells when the next one "
            "falls, better than the time of the first does.",
            protocol="of the same members: when the loss of x₂ fell under 0.5, by a line over the largest mean "
            "attention that a read for x₂ has at the last checkpoint before the loss of x₁ fell, and by one over the "
            "time of that fall; each seed is foretold from all others",
            value=foretold,
            must=N22,
            rule="mean",
            controls={"the alignment of another seed": another},
            must_not=N22["R² of the alignment"],
        ),
    ]
