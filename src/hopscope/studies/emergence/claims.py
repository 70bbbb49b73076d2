"""Claims R8 and R12 of the paper (section 9), by the rules of `docs/protocols.md`."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Samples, at_most
from hopscope.claims.crossings import Crossing, order
from hopscope.studies.chains import circuits as chains
from hopscope.studies.chains.circuits import ChainOptions, Place, Proof

if TYPE_CHECKING:
    from hopscope.runs import Evidence

R8 = {
    "loss": at_most(0.06),
    "loss under the rules": at_most(0.06),
    "hops out of order": at_most(0.0),
    "reads before the induction head": at_most(0.0),
}
UNKNOWN = f"{chains.NONE_READ}, with an order that is known"


def untried(options: ChainOptions, evidence: "Evidence") -> str:
    """Readings of the paper's recipe that the run did not train by, in words."""
    return "" if options.batch_size == 32_768 else "a batch of 32,768 (docs/protocols.md)"


def reached_in_order(options: ChainOptions, evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """What the models and their circuits reach, and the order in which their heads form."""
    formed, reads = chains.times(evidence, f"{chains.PREFIX[proof]}formed"), chains.reads_for(evidence, proof)
    later = [place for place, step in reads.items() if step > 1]
    orders, early = partial(out_of_order, formed, options.steps), partial(before_induction, formed, later)
    final = chains.last_of(evidence, "final_loss", chains.independent(evidence))
    values = [
        chains.by_seed(final, "no member was trained to its end"),
        chains.by_seed(chains.unseen(evidence, proof), "no member learned the chain"),
        *(chains.of_each_read(evidence, proof, each, UNKNOWN) for each in (orders, early)),
    ]
    return dict(zip(R8, values, strict=True))


def steps_in_order(options: ChainOptions, evidence: "Evidence") -> Samples:
    """In how many neighbouring steps the reads of the *earlier* one had formed first, by more than a tie (R8).

    If it is none, all heads formed within one interval between checkpoints, and the order was never seen.
    """
    before = partial(out_of_order, chains.times(evidence, "formed"), options.steps, wanted="before")
    return chains.of_each_read(evidence, "both", before, UNKNOWN)


def out_of_order(formed: Mapping[Place, Crossing], steps: int, member: int, wanted: str = "after") -> float:
    """In how many neighbouring steps the earlier one's reads stood so to the later one's; NaN: none is known."""
    found = (formed.get(Place.of_step(member, step)) for step in range(1, steps + 1))
    # A step without reads of its own has no time.
    return _how_many(wanted, pairwise(time for time in found if time is not None))


def before_induction(formed: Mapping[Place, Crossing], later: Iterable[Place], member: int) -> float:
    """How many reads of later steps had formed before all reads for the first step had; NaN where that is unknown."""
    first = formed.get(Place.of_step(member, 1))
    own = [formed[path] for path in later if path.member == member and path in formed]
    return math.nan if first is None else _how_many("before", ((time, first) for time in own))


def _how_many(wanted: str, pairs: Iterable[tuple[Crossing, Crossing]]) -> float:
    known = [each for each in (order(*pair) for pair in pairs) if each != "unknown"]
    return float(sum(each == wanted for each in known)) if known else math.nan


def claims(options: ChainOptions) -> list[Claim]:
    not_tried = partial(untried, options)
    return [
        chains.of_paper(
            id="R8",
            statement="A model of 24 layers without MLPs reaches an error of 0.031, 0.045 by its circuit alone, and "
            "its heads form in the order of the chain, the induction head first.",
            source="paper §9",
            protocol="independent seeds: final held-out loss; of those that learned the whole chain, read or not, loss "
            "on 256 sequences that played no part in admitting the circuit, with every attention matrix "
            "replaced by its rule; of those that were read, neighbouring steps of the chain of which the later "
            "one's reads (of single tokens, without which it is the first target lost) had reached a mean "
            "attention of 0.5 first, and such reads of later steps that had before those of the first step had; "
            "ties within one interval between checkpoints count for the claim; both ways to count heads must "
            "agree",
            **chains.ways(partial(reached_in_order, options)),
            at_scale=options.lacks,
            untried=not_tried,
            must=R8,
            controls={"hops in order, by more than a tie": partial(steps_in_order, options)},
            must_not=at_most(0.0),
            rule=dict(zip(R8, ("mean", "mean", "always", "always"), strict=True)),
        ),
        chains.loss_follows_heads(options, untried=not_tried),
    ]
