"""In which order the steps of a chain are learned."""

from hopscope.claims.crossings import Crossing, median
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.results import AllResults, Results
from hopscope.studies.depth.story.numbers import METRICS, Numbers, members
from hopscope.studies.depth.values import LEARNED, out_of_order
from hopscope.studies.numbers import DASH
from hopscope.studies.words import symbol


def order_section(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> Block | None:
    """The curves of the deepest models, and when each partial loss fell under 0.5."""
    if not config.layers:
        return None
    found = results[config.deepest()]
    return section(
        "order",
        "One step after another",
        text(_deepest_words(found, numbers) + _order_words(config, results, numbers)),
        figure(
            "partial_curves",
            f"{found.name}: held-out partial loss through training, seed by seed. Dashed: the plateau, and 0.5.",
            "Line charts of partial losses against training steps, one panel for each seed.",
        ),
        table(
            [
                "symbol",
                "median step",
                "lowest to highest",
                "seeds that learned it",
                "steps after the symbol before",
            ],
            [_row(found, step, numbers) for step in found.asked],
            f"{found.name}: training steps until the held-out partial loss fell under {LEARNED}. The median counts "
            "seeds that never did as later than all others; a dash says that more than half never did. Steps after "
            "the symbol before: mean over the seeds that learned both [95 % interval].",
        ),
        figure(
            "crossings",
            "The same for every IC model. A line reaches from the evaluation before the crossing to the one after.",
            "Dot plot of the training step at which each partial loss fell under 0.5, one row for each run.",
        ),
    )


def _deepest_words(found: Results, numbers: Numbers) -> str:
    """Whether the deepest models learned anything, and what to look for if they did."""
    crossings = [each for step in found.asked for each in found.crossings[step] if each is not None]
    count = sum(each.time is not None for each in crossings)
    if not count:
        return f"Of the deepest models no curve falls under {LEARNED}: none of them learned a step of the chain. "
    what = f"first crossing of {LEARNED} by a held-out partial loss, {members(found)}"
    shown = numbers.add(count, str(count), METRICS, f"number with a {what}")
    return (
        f"How the deepest models learn: of {len(crossings)} curves, {shown} fall under {LEARNED}. On the plateau a "
        "model knows which symbols are possible, but not which of them is right; a curve far below it is that of a "
        "model that has found out. "
    )


def _row(found: Results, step: int, numbers: Numbers) -> list[str]:
    crossings = [crossing for crossing in found.crossings[step] if crossing is not None]
    times = [crossing.time for crossing in crossings if crossing.time is not None]
    what = f"first crossing of {LEARNED} by held_out/loss_step_{step}"
    learned = numbers.add(
        len(times), str(len(times)), METRICS, f"number of seeds with a {what}, {members(found)}"
    )
    middle = _median(crossings)
    shown = DASH if middle is None else numbers.add(
        middle, f"{middle:,.0f}", METRICS, f"median of {what} over {members(found)}"
    )  # fmt: skip
    return [
        symbol(step),
        shown,
        numbers.range(found, times, what, style=",.0f"),
        f"{learned} of {len(found.seeds)}",
        _after_the_one_before(found, step, numbers),
    ]


def _after_the_one_before(found: Results, step: int, numbers: Numbers) -> str:
    place = found.asked.index(step)
    if place == 0:
        return ""
    pairs = zip(found.crossings[found.asked[place - 1]], found.crossings[step], strict=True)
    waits = [
        later.time - earlier.time
        for earlier, later in pairs
        if earlier is not None and later is not None and earlier.time is not None and later.time is not None
    ]
    what = f"first crossing of {LEARNED} by held-out loss_step_{step} minus that by loss_step_{found.asked[place - 1]}"
    return numbers.estimate(found, waits, what, style=",.0f")


def _median(crossings: list[Crossing]) -> float | None:
    return median(crossings) if crossings else None


def _order_words(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> str:
    found = [
        crossings
        for each in config.base()
        if each.asked == "IC" and each.steps > 1
        for crossings in zip(*results[each].crossings.values(), strict=True)
    ]
    counts = [
        out_of_order([crossing for crossing in crossings if crossing is not None])
        for crossings in found
        if None not in crossings
    ]
    known = [count for count in counts if count is not None]
    if not known:
        return ""
    ordered = numbers.count(
        [count == 0 for count in known], "IC runs with all crossings in order of the chain"
    )
    silent, diverged = len(counts) - len(known), len(found) - len(counts)
    others = [f"the other {silent} learned none"] if silent else []
    others += [f"{diverged} diverged"] if diverged else []
    return (
        f"Of {len(known)} IC models of all depths that learned a step at all, {ordered} learned the steps in the "
        f"{'; '.join(['order of the chain', *others])}."
    )
