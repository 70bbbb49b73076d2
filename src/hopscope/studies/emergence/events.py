"""What happens while members learn, and in which order: reads of a step form, and its loss falls."""

from collections import Counter
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import Crossing, order
from hopscope.page import figures as charts
from hopscope.studies.chains.circuits import ChainOptions, Place, drawn, independent, last_of, times
from hopscope.studies.chains.evidence import LEARNED, of_plateau, symbol
from hopscope.studies.chains.measures import Rows
from hopscope.studies.chains.readings import circuits
from hopscope.studies.emergence.clamps import CONTROL, LEFT_ALONE
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.runs import Evidence

Event = tuple[str, int]
"""Of `EVENTS`, and the step of the chain."""

EVENTS = {"formed": "reads for {} formed", "fell": "loss of {} fell"}
"""Event of a step of the chain → in words."""


def events(evidence: "Evidence", steps: int, members: list[int]) -> dict[Event, dict[int, Crossing]]:
    """Event → member → when it happened, of those members that were read; in the order of the chain."""
    chosen = [each for each, was in last_of(evidence, "was_read", members).items() if was == 1.0]
    seen = {event: times(evidence, event) for event in EVENTS}
    return {
        (event, step): {each: of[place] for each in chosen if (place := Place.of_step(each, step)) in of}
        for step in range(1, steps + 1)
        for event, of in seen.items()
    }


def words_of(event: Event) -> str:
    return EVENTS[event[0]].format(symbol(event[1]))


@measure(when="run", needs=(circuits,))
def orders(context: Context) -> Rows:
    """In which order things happened, of independent members that were read; and whence the times of crossed ones come.

    Metrics, part `step_k`: `reads_before_next`, 1 where the reads of step k had formed before those of the next, 0
    where they came after or in the same interval between checkpoints (no row where the order is not known); `lag`,
    training steps from the last read having formed to the fall of the loss.  Of the crossed models, numbers of no
    member, part: the event: `share_of_weights`, `share_of_data`, of the variance of its time, each also with
    `_by_chance` and `_p` (share of shuffled tables that have as much).  What never came counts as the end of training.
    """
    from hopscope.claims.intervals import variance_shares
    from hopscope.runs import Evidence

    options, run = context.options, context.run
    evidence = Evidence.of(context.rows("circuit"), run.members, run.config)
    every = events(evidence, options.steps, independent(evidence))
    for step in range(1, options.steps + 1):
        fell, following = every["fell", step], every.get(("formed", step + 1), {})
        for member, time in every["formed", step].items():
            at: dict[str, Any] = {"part": f"step_{step}", "member": member}
            lost = fell[member].time if member in fell else None
            if time.time is not None and lost is not None:
                yield {"metric": "lag", "value": lost - time.time, **at}
            if member in following and (known := order(time, following[member])) != "unknown":
                yield {"metric": "reads_before_next", "value": known == "before", **at}
    of = {(each.init_seed, each.data_seed): each.member for each in run.members}
    seeds, end = range(options.crossed), float(options.training_steps)
    cells = [[of[init, data] for data in seeds] for init in seeds]
    crossed = events(evidence, options.steps, [member for row in cells for member in row])
    for event, own in crossed.items() if cells else ():
        found = [[own.get(member) for member in row] for row in cells]
        if any(time is None for row in found for time in row):
            continue  # a model diverged, was not read, or needs no read of its own for it
        table = [[end if each is None or each.time is None else each.time for each in row] for row in found]
        for factor, numbers in (variance_shares(table) or {}).items():
            words = {"rows": "weights", "columns": "data"}[factor]
            for what, value in zip(("", "_by_chance", "_p"), numbers, strict=True):
                yield {"metric": f"share_of_{words}{what}", "part": words_of(event), "value": value}


# What is drawn.


def crossing_rows(evidence: "Evidence") -> Rows:
    """When reads of independent members formed, and when their losses fell, between which checkpoints."""
    own = independent(evidence)
    for event, words in (("formed", "a read formed"), ("fell", "a loss fell")):
        for place, time in times(evidence, event).items():
            if place.member in own and (event == "fell" or place.layer is not None):
                who = {"member": place.member, "seed": evidence.seeds[place.member], "part": place.part}
                yield {**who, "of": words, "value": time.time, "low": time.low, "high": time.high}


def precedence_rows(options: ChainOptions, evidence: "Evidence") -> Rows:
    """In how many independent members one event came before another, of those in which the order is known."""
    every = events(evidence, options.steps, independent(evidence))
    for (first, one), (second, other) in product(every.items(), repeat=2):
        names = {"this came": words_of(first), "before this": words_of(second)}
        found = Counter(order(one[member], other[member]) for member in one.keys() & other.keys())
        known = found.total() - found["unknown"]
        if first == second:
            yield {**names, "note": "–"}
        elif known:
            yield {**names, "value": found["before"] / known, "note": f"{found['before']}/{known}"}


def event_figures(options: ChainOptions, clamped: bool) -> list[charts.Figure]:
    steps = {f"step_{step}": symbol(step) for step in range(1, options.steps + 1)}
    losses = {f"clamped_loss_{part}": of for part, of in steps.items()}
    words = {LEFT_ALONE: LEFT_ALONE, **losses}
    for part, of in steps.items():
        words |= {part: f"the read for {of} clamped", f"{CONTROL}{part}": f"{CONTROL}{of}"}
    levels = {"learned": of_plateau(LEARNED, options.chains), "plateau": options.plateau}
    found = [
        charts.dots("crossing", "part", by="of", rows=crossing_rows, name="crossings",
                    title="training step at which it crossed one half"),
        charts.cells("share", "before this", "this came", rows=partial(precedence_rows, options), name="precedence",
                     ends=(0.0, 1.0), title="share of seeds"),
        charts.dots("clamped_loss", "part", by="metric", rows=drawn(*losses), names=words, name="clamps",
                    levels=levels, title="held-out partial loss"),
    ]  # fmt: skip
    return found if clamped else found[:-1]
