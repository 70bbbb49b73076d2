"""What happens while members learn, and in which order: reads of a step form, and its loss falls."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.claims.crossings import Crossing, precedence
from hopscope.page import figures as charts
from hopscope.studies.chains.circuits import ChainOptions, independent, of_step, times
from hopscope.studies.chains.evidence import symbol
from hopscope.studies.chains.readings import circuits
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.runs import Evidence

Rows = Iterator[dict[str, Any]]


class Event(NamedTuple):
    """Something that happens once to a member: in words, of which step of the chain, and member → when."""

    name: str
    step: int
    times: Mapping[int, Crossing]


def events(evidence: "Evidence", steps: int, members: Iterable[int]) -> list[Event]:
    """For each step of the chain, all its reads have formed, then its loss fell under one half; of some members."""
    kinds = {"reads for {} formed": times(evidence, "formed"), "loss of {} fell": times(evidence, "fell")}
    wanted = set(members)
    return [
        Event(
            words.format(symbol(step)),
            step,
            {member: time for member, time in of_step(found, step).items() if member in wanted},
        )
        for step in range(1, steps + 1)
        for words, found in kinds.items()
    ]


def read_of(evidence: "Evidence", members: Iterable[int]) -> list[int]:
    """Those of some members that were read: paths of others could not be followed."""
    read = evidence.last("was_read") if "was_read" in evidence else {}
    return [member for member in members if read.get(member) == 1.0]


def pairs(first: Event, second: Event) -> list[tuple[Crossing, Crossing]]:
    """The times of both events, of members that have both."""
    return [(time, second.times[member]) for member, time in first.times.items() if member in second.times]


@measure(when="run", needs=(circuits,))
def orders(context: Context) -> Rows:
    """In which order things happened, of independent members that were read; and whence the times of crossed ones come.

    Metrics, part `step_k`: `reads_before_next`, 1 where the reads of step k had formed before those of the next, 0
    where they came after or in the same interval between checkpoints (no row where the order is not known); `lag`,
    training steps from the last read having formed to the fall of the loss.  Of the crossed models, numbers of no
    member, part: the event: `share_of_weights`, `share_of_data`, of the variance of its time, each also with
    `_by_chance` and `_p` (share of shuffled tables that have as much).  What never came counts as the end of training.
    """
    from hopscope.claims.crossings import order
    from hopscope.claims.intervals import variance_shares
    from hopscope.runs import Evidence

    options, run = context.options, context.run
    evidence = Evidence.of(context.rows("circuit"), run.members, run.config)
    every = events(evidence, options.steps, read_of(evidence, independent(evidence)))
    hops = [*zip(every[::2], every[1::2], strict=True)]
    for (reads, loss), following in zip(hops, [*hops[1:], None], strict=True):
        part = f"step_{reads.step}"
        for member, time in reads.times.items():
            fell = loss.times.get(member)
            if time.time is not None and fell is not None and fell.time is not None:
                yield {"metric": "lag", "part": part, "member": member, "value": fell.time - time.time}
            later = following and following[0].times.get(member)
            if later and (known := order(time, later)) != "unknown":
                value = float(known == "before")
                yield {"metric": "reads_before_next", "part": part, "member": member, "value": value}
    of = {(each.init_seed, each.data_seed): each.member for each in run.members}
    cells = [[of.get((init, data)) for data in range(options.crossed)] for init in range(options.crossed)]
    crossed = [member for row in cells for member in row if member is not None]
    for event in events(evidence, options.steps, read_of(evidence, crossed)) if crossed else ():
        found = [[event.times.get(member) for member in row if member is not None] for row in cells]
        if any(time is None for row in found for time in row):
            continue  # a model diverged, was not read, or needs no read of its own for it
        end = float(options.training_steps)
        table = [[end if each is None or each.time is None else each.time for each in row] for row in found]
        for factor, numbers in (variance_shares(table) or {}).items():
            words = {"rows": "weights", "columns": "data"}[factor]
            for what, value in zip(("", "_by_chance", "_p"), numbers, strict=True):
                yield {"metric": f"share_of_{words}{what}", "part": event.name, "value": value}


# What is drawn.


def precedence_rows(options: ChainOptions, evidence: "Evidence") -> Rows:
    """In how many independent members one event came before another, of those in which the order is known."""
    every = events(evidence, options.steps, read_of(evidence, independent(evidence)))
    for first in every:
        for second in every:
            both = pairs(first, second)
            found = precedence([one for one, _ in both], [other for _, other in both])
            known = found.total() - found["unknown"]
            if first is not second and known:
                share, note = found["before"] / known, f"{found['before']}/{known}"
                yield {"this came": first.name, "before this": second.name, "value": share, "note": note}


def variance_rows(evidence: "Evidence") -> Rows:
    """Shares of the variance of each event's time, of initial weights and of data."""
    for metric, words in (("share_of_weights", "initial weights"), ("share_of_data", "data")):
        rows = evidence.rows(metric) if metric in evidence else None
        for row in () if rows is None else rows.itertuples():
            yield {"event": row.part, "factor": words, "value": float(row.value)}


def clamp_rows(options: ChainOptions, evidence: "Evidence") -> Rows:
    """Losses at the end of each run of a member that was trained again."""
    for step in range(1, options.steps + 1):
        metric = f"clamped_loss_step_{step}"
        rows = evidence.rows(metric).dropna(subset=["value"]) if metric in evidence else None
        last = (
            () if rows is None else rows.sort_values("step").groupby(["member", "part"]).tail(1).itertuples()
        )
        for row in last:
            who = {"member": int(row.member), "seed": int(row.seed)}
            yield {"run": run_words(row.part), "symbol": symbol(step), **who, "value": float(row.value)}


def run_words(part: str) -> str:
    """What a run of a member trained again is called, such as `the read for x₁ clamped`."""
    kind, _, step = part.rpartition("step_")
    return (
        part
        if not step.isdigit()
        else f"{kind}{symbol(int(step))}"
        if kind
        else f"the read for {symbol(int(step))} clamped"
    )


def event_figures(options: ChainOptions) -> dict[str, charts.Figure]:
    """Name → figure, of those that the study has beside the shared ones."""
    rows: dict[str, Callable[[Evidence], Rows]] = {
        "precedence": partial(precedence_rows, options), "clamps": partial(clamp_rows, options),
    }  # fmt: skip
    found = [
        charts.cells("share", "before this", "this came", rows=rows["precedence"], name="precedence",
                     ends=(0.0, 1.0), title="share of seeds"),
        charts.dots("clamped_loss", "run", by="symbol", rows=rows["clamps"], name="clamps",
                    levels={"learned": 0.5, "plateau": options.plateau}, title="held-out partial loss"),
        charts.dots("share", "event", by="factor", rows=variance_rows, name="variance", ends=(0.0, 1.0),
                    title="share of the variance of the time"),
    ]  # fmt: skip
    return {each.name: each for each in found}
