"""The page of the study of emergence in words; every number with the file and the key it came from."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hopscope.claims import JudgedClaim
from hopscope.claims.crossings import Crossing, first_crossing, median
from hopscope.claims.intervals import Interval, bootstrap_mean
from hopscope.claims.precedence import Precedence
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.chains import story
from hopscope.studies.chains.evidence import FALLEN, Member, seeds_of
from hopscope.studies.chains.story import Numbers
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.events import (
    Again,
    Event,
    alike,
    before,
    both,
    censored,
    clamp_words,
    events,
    followed,
    hop_events,
    loss_events,
    shares,
    trained_again,
    waits,
)
from hopscope.studies.numbers import DASH
from hopscope.studies.words import counted, symbol

FILES = "units"
"""Where the attention on paths is: formation files of all units."""


def write_story(
    run: RunFolder,
    config: EmergenceConfig,
    members: Sequence[Member],
    ledger: Sequence[JudgedClaim],
) -> None:
    """Write `story.json`."""
    numbers = Numbers()
    crossed = len(members) - len(seeds_of(members))
    story.write_page(
        run,
        "Heads as they form",
        f"{config.name}, {config.seeds} seeds and {crossed} crossed models, followed from checkpoint to checkpoint",
        numbers,
        ledger,
        [
            story.task_section(config, numbers),
            story.verdict_section(config),
            _timeline_section(config, members, numbers),
            _order_section(config, members, numbers),
            _alignment_section(config, members, numbers),
            _clamps_section(config, members, numbers),
            _variance_section(config, members, numbers),
            story.circuit_section(config, members, numbers),
            story.reads_section(members, numbers),
            story.modes_section(seeds_of(members), numbers),
            story.controls_section(members, numbers),
            story.gallery_section(config, members),
        ],
    )


def _timeline_section(config: EmergenceConfig, members: Sequence[Member], numbers: Numbers) -> Block:
    return section(
        "timeline",
        "Losses and attention, side by side",
        text(
            "At the end of training the circuit of each model is read. Then its paths are followed backwards: at every "
            f"checkpoint ({config.checkpoint_every} steps apart), how much of the attention of a path's rows lies on "
            "what they will read in the end, over 32 sequences. A path counts as formed when that is one half; between "
            "checkpoints it is interpolated, and the checkpoints around it are its uncertainty."
        ),
        figure(
            "timeline",
            "Partial losses (lines) and mean attention on the circuit's paths (dashed), by the symbol without which "
            "the path is lost first; dotted: losses over all symbols. Horizontal lines: 0.5, and the plateau.",
            "Line charts of losses and of attention on each path against training steps, one panel for each seed.",
        ),
        figure(
            "crossings",
            "When the attention on each path rose over one half, and when each partial loss fell under it. A line "
            "reaches from the checkpoint before to the one after; what never crossed is pale, at the end of training.",
            "Dot plot of crossing times of paths and partial losses, one row for each event.",
        ),
    )


def _order_section(config: EmergenceConfig, members: Sequence[Member], numbers: Numbers) -> Block:
    seeds = seeds_of(members)
    hops = hop_events(config.steps)
    words = [f"{_in_words(seeds, first, second, numbers)}" for first, second in pairwise(hops)]
    return section(
        "order",
        "In which order",
        text(
            "A read belongs to the step of the chain that is the first to be lost if it is taken away, in whatever "
            "heads it is done. A read has formed when the first of its heads has, and those of a step when the last "
            "has. " + " ".join(words)
        ),
        table(
            [
                "event",
                "median step",
                "seeds",
                "steps after the event before",
                "came before the next event in",
            ],
            [
                _event_row(seeds, event, number, config, numbers)
                for number, event in enumerate(events(config.steps))
            ],
            "Independent seeds. The median counts events that never came as later than all others; a dash says that "
            "more than half never came. Steps after the event before: mean over the seeds in which both came [95 % "
            "interval]. Came before: seeds, of those in which the order is known [95 % interval of the share]; a tie "
            "is no “before”.",
        ),
        figure(
            "precedence",
            "In how many seeds the event of a row came before that of a column, of those in which the order is known.",
            "Matrix of the share of seeds in which one event came before another.",
        ),
    )


def _in_words(seeds: Sequence[Member], first: Event, second: Event, numbers: Numbers) -> str:
    found = before(seeds, first, second)
    if found.interval is None:
        return f"Of no seed is it known whether the {first.name} before the {second.name}."
    share = _share(found, found.interval, f"{first.name} before {second.name}", numbers)
    return f"The {first.name} before the {second.name} in {share} seeds ({counted(found.ties, 'tie')})."


def _share(found: Precedence, interval: Interval, what: str, numbers: Numbers) -> str:
    """Seeds in which one came before the other, of those whose order is known, with the interval of the share."""
    first = numbers.add(found.before, str(found.before), FILES, f"number of seeds in which {what}")
    low, high = (
        numbers.add(end, f"{end:.2f}", FILES, f"95 % interval of the share of seeds in which {what}")
        for end in interval
    )
    return f"{first} of {found.known} [{low}, {high}]"


def _event_row(
    seeds: Sequence[Member], event: Event, number: int, config: EmergenceConfig, numbers: Numbers
) -> list[str]:
    times = [found for member in followed(seeds) if (found := event.of(member)) is not None]
    every = events(config.steps)
    came = sum(time.time is not None for time in times)
    count = numbers.add(came, str(came), FILES, f"number of seeds in which {event.name}")
    every_one = numbers.add(
        len(times), str(len(times)), FILES, f"number of read seeds that say something of: {event.name}"
    )
    earlier = every[number - 1] if number else None
    wait = (
        ""
        if earlier is None
        else numbers.estimated(
            waits(seeds, earlier, event), f"steps from {earlier.name} to {event.name}", FILES, ",.0f"
        )
    )
    return [
        event.name,
        _median(times, event, numbers),
        f"{count} of {every_one}",
        wait,
        _before_next(seeds, event, every[number + 1], numbers) if number + 1 < len(every) else "",
    ]


def _median(times: Sequence[Crossing], event: Event, numbers: Numbers) -> str:
    middle = median(times) if times else None
    if middle is None:
        return DASH
    return numbers.add(middle, f"{middle:,.0f}", FILES, f"median of the step at which {event.name}")


def _before_next(seeds: Sequence[Member], event: Event, after: Event, numbers: Numbers) -> str:
    found = before(seeds, event, after)
    if found.interval is None:
        return DASH
    return _share(found, found.interval, f"{event.name} before {after.name}", numbers)


def _alignment_section(config: EmergenceConfig, members: Sequence[Member], numbers: Numbers) -> Block:
    pairs = list(zip(hop_events(config.steps), loss_events(config.steps), strict=True))
    words = []
    for hop, loss in pairs:
        lags = waits(seeds_of(members), hop, loss)
        if lags:
            lag = numbers.estimated(lags, f"steps from {hop.name} to {loss.name}", FILES, "+,.0f")
            apart = len(both(seeds_of(members), hop, loss))
            of = f"{symbol(hop.step)}: {lag} steps ({len(lags)} of {counted(apart, 'seed')})"
            words.append(f"{of}{_side(lags)}.")
    return section(
        "alignment",
        "Does a loss fall when its heads form?",
        text(
            "A loss under one half, and attention over one half, are two conventions; they need not come at one time. "
            "Steps from the last read of a step having formed to the fall of its loss, mean over independent seeds "
            "with 95 % interval: " + (" ".join(words) or "in no seed did both happen.")
        ),
        figure(
            "alignment",
            "Each point is one model and one symbol; the line says how far apart the checkpoints are. Dashed: both at "
            "the same time.",
            "Scatter plot of the step at which a loss fell against the step at which its paths had formed.",
        ),
    )


def _side(lags: Sequence[float]) -> str:
    """Which of the two came first, where the interval of the mean says so."""
    ends = bootstrap_mean(lags)
    if ends is None or ends[0] <= 0.0 <= ends[1]:
        return ""
    return ": the loss fell first" if ends[1] < 0.0 else ": the reads had formed first"


def _clamps_section(config: EmergenceConfig, members: Sequence[Member], numbers: Numbers) -> Block | None:
    found = trained_again(members, config)
    if not found:
        return None
    steps = range(1, config.steps + 1)
    rows = [
        [
            again.member.name,
            f"{again.start:,}",
            clamp_words(run["name"]),
            ", ".join(run["clamped"]) or DASH,
            *(_outcome(again, run, step, numbers) for step in steps),
        ]
        for again in found
        for run in again.runs
    ]
    return section(
        "clamps",
        "What needs what: training again with a read clamped",
        text(
            "That one thing comes before another does not make it the cause. So some models were trained again "
            "from the last checkpoint before any of the clamped heads had formed, on the very same samples, while "
            "the rows of one read, in every head of the circuit that does it, read uniformly throughout. The "
            "heads have other rows as well, which are left alone. What no longer forms, or forms later, needed "
            "that read. Beside each stands its control: the same rows clamped in as many other heads, where no "
            "minimal circuit reads anything; and a run in which nothing is clamped. (Checkpoints within a "
            "training keep no state of the optimiser; all runs begin with a fresh one.)"
        ),
        figure(
            "clamps",
            "Held-out partial losses in runs from the same checkpoint.",
            "Line charts of partial losses against training steps, one line for each clamp.",
        ),
        table(
            ["model", "from step", "clamped", "where", *map(symbol, steps)],
            rows,
            "Held-out partial losses at the end of each run, and the step at which they fell under 0.5. Where: "
            "layer.head and the rows that were clamped.",
        ),
    )  # fmt: skip


def _outcome(again: Again, run: dict[str, Any], step: int, numbers: Numbers) -> str:
    """Where a partial loss ends in a run, and when it fell."""
    values = run["losses"][f"loss_step_{step}"]
    what = f"runs: {run['name']}, loss_step_{step}"
    end = numbers.add(values[-1], f"{values[-1]:.3f}", again.file, f"{what}, the last")
    fell = first_crossing(again.steps, values, FALLEN, rising=False)
    if fell.time is None:
        return f"{end}, never"
    if fell.low == fell.high:
        return f"{end}, from the start"
    return f"{end}, at {numbers.add(fell.time, f'{fell.time:,.0f}', again.file, f'{what}, first under {FALLEN}')}"


def _variance_section(config: EmergenceConfig, members: Sequence[Member], numbers: Numbers) -> Block | None:
    if not config.crossed:
        return None
    rows = []
    for event in events(config.steps):
        split = shares(members, config, event)
        never = censored(members, config, event)
        if split is None:
            rows.append([event.name, str(never), DASH, DASH, DASH])
            continue
        what = f"the variance of the step at which {event.name}"

        def share(value: float, factor: str, what: str = what) -> str:
            return numbers.add(value, f"{value:.0%}", FILES, f"share of {factor} in {what}")

        def p(value: float, factor: str, what: str = what) -> str:
            return numbers.add(value, f"{value:.2f}", FILES, f"p of {factor} in {what}")

        chance = share(split.rows_by_chance, "chance")
        rows.append(
            [
                event.name,
                str(never),
                f"{share(split.rows, 'initial weights')} (p {p(split.rows_p, 'initial weights')}; chance {chance})",
                f"{share(split.columns, 'data')} (p {p(split.columns_p, 'data')}; chance {chance})",
                share(split.rest, "the rest"),
            ]
        )
    pairs = [
        f"{each.what}: {numbers.add(each.equal, str(each.equal), FILES, f'equal pairs sharing {each.what}')} of "
        f"{each.pairs}"
        for each in alike(members, config)
    ]
    return section(
        "variance",
        "Weights or data?",
        text(
            f"The initial weights of {config.crossed} seeds were each trained on the samples of each of them: "
            f"{config.crossed**2} models. How much of the variance of an event's time follows the weights, how much "
            "the data, and how much neither? Pairs of these models (those that were read) whose circuits do the same "
            f"reads, by what the two share: {'; '.join(pairs)}."
        ),
        figure(
            "variance",
            "Shares of the variance of each event's time.",
            "Stacked bars of the shares of initial weights, of data, and of the rest.",
        ),
        table(
            ["event", "never came", "initial weights", "data", "rest"],
            rows,
            "Shares of the sum of squares; what never came counts as the end of training; a dash where a model was "
            "not read, or all times are equal. Every row has two tests: one p under 0.05 in so many is no news. p: "
            "share of shuffled tables in which the factor has as much; chance: what it has in them on average.",
        ),
    )
