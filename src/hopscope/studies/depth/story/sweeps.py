"""The sweeps: D against layers, and the readings of what the paper leaves open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.claims.intervals import mean
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.depth.claims import reading_name
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration, Reading
from hopscope.studies.depth.figures.sweeps import grouped_readings, reading_label
from hopscope.studies.depth.results import AllResults, known
from hopscope.studies.depth.runs import of_reading
from hopscope.studies.depth.story.numbers import METRICS, Numbers
from hopscope.studies.depth.values import (
    GROWTH,
    LEARNED,
    ValueOfClaim,
    growth_of_layers,
    largest_gains,
    losses_below_bound,
    losses_without_curriculum,
    steps_out_of_order,
)
from hopscope.studies.numbers import DASH
from hopscope.studies.theory import exact_of
from hopscope.theory.information_flow import theorem_bound

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def steps_section(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> Block | None:
    """Which chains a number of layers can follow."""
    if "steps" not in config.sweeps or not config.layers:
        return None
    swept = {each: results[each] for each in config.by_steps()}
    return section(
        "steps",
        "How deep for how long a chain",
        text(
            "IC models of every depth on chains of every length: the final partial loss of the last symbol. "
            + _below_words(config, swept, numbers)
        ),
        figure(
            "steps_by_depth",
            "Final partial loss of the last symbol, mean over seeds, by layers and D. Framed: fewer layers than "
            "theory asks for, by theorem 1 (solid) and by the exact minimum (dashed).",
            "Heat map of the last symbol's loss by number of layers and number of steps.",
        ),
    )


def _below_words(config: DepthStudyConfig, swept: AllResults, numbers: Numbers) -> str:
    runs = [(each, loss) for each, found in swept.items() for loss in known(found.partial[each.steps])]
    words = []
    limits: dict[str, Callable[[Configuration], float]] = {
        "fewer than log₃(2D)": lambda each: theorem_bound(each.steps),
        "fewer than the exact minimum": lambda each: exact_of(config.of(each), each.steps),
    }
    for name, limit in limits.items():
        below = [loss for each, loss in runs if each.layers < limit(each)]
        if below:
            learned = numbers.count(
                [loss < LEARNED for loss in below],
                f"IC runs with {name} layers whose loss of x_D is under {LEARNED}",
            )
            words.append(f"Of {len(below)} models with {name} layers, {learned} learned it.")
    return " ".join(words)


def specification_section(
    config: DepthStudyConfig, evidence: "Evidence", results: AllResults, numbers: Numbers
) -> Block | None:
    """Every verdict under every reading."""
    if "specification" not in config.sweeps or not config.layers:
        return None
    rows = [
        [
            reading_label(config, reading),
            *(each.cell(of_reading(evidence, reading), numbers, reading_name(reading)) for each in COLUMNS),
        ]
        for reading in grouped_readings(config)
    ]
    return section(
        "specification",
        "What hangs on details that the paper leaves open",
        text(
            "The paper does not say whether its models had a causal mask, whether both tokens of a pair share a "
            "position code, or which betas the optimiser had; and small models may do without MLPs. Each combination "
            "is a reading, trained with the same seeds. A result that holds in one reading only is a result about "
            "that reading."
        ),
        figure(
            "specification",
            "Final partial losses of the deepest models of the sweep, under every reading. Points are "
            "seeds, ticks means; dashed: learned (0.5), and the plateau.",
            "Dot plot of final partial losses, one row for each reading.",
        ),
        table(
            ["reading", *(each.claim for each in COLUMNS)],
            rows,
            "What each claim measures, and whether the runs of one reading agree with it (they are too few and too "
            "small for a verdict). R1: lowest non-IC loss; R2: mean layers between the first and the last symbol; "
            "R3: runs out of order; R9b: lowest loss of x_D below the bound; R11: largest gain of one layer as a "
            "share of the range.",
        ),
        text(_mask_words(config, results, numbers)),
    )


def _runs_out_of_order(counts: Sequence[float]) -> float:
    return sum(count > 0 for count in counts)


@dataclass(frozen=True)
class Column:
    """What the table of readings shows of one claim.

    Attributes:
        claim: its id.
        value: what it is judged on.
        shown: from the measured numbers to the one that decides.
        style: of that number.
        part: which part of the value it is of, if there are several.
    """

    claim: str
    value: ValueOfClaim
    shown: Callable[[Sequence[float]], float]
    style: str
    part: str | None = None

    def cell(self, evidence: "Evidence", numbers: Numbers, reading: str) -> str:
        """The number that decides under one reading, with how many it is of; a dash where nothing was measured."""
        found = self.value(evidence)
        samples = found if self.part is None else found[self.part]
        measured = known(samples.values)
        if not measured:
            return DASH
        value = self.shown(measured)
        shown = numbers.add(value, format(value, self.style), METRICS, f"{self.claim} under {reading}")
        return f"{shown} (n = {len(measured)})"


COLUMNS = (
    Column("R1", losses_without_curriculum, min, ".3f"),
    Column("R2", growth_of_layers, mean, ".2f", part=GROWTH[1]),
    Column("R3", steps_out_of_order, _runs_out_of_order, ".0f"),
    Column("R9b", losses_below_bound, min, ".3f"),
    Column("R11", largest_gains, mean, ".2f"),
)
"""Columns of the table of readings: the claims that are judged under each."""


def _mask_words(config: DepthStudyConfig, results: AllResults, numbers: Numbers) -> str:
    """Which mask the paper's second panel is compatible with: where more than the first symbol is learned."""
    words = []
    for causal, name in ((True, "with a causal mask"), (False, "without a mask")):
        readings = [each for each in config.readings() if _is_causal(config, each) == causal]
        deepest = [
            max(
                (found for each, found in results.items()
                 if each.asked == "IC" and each.steps == config.steps and each.reading == reading),
                key=lambda found: found.configuration.layers,
            )
            for reading in readings
        ]  # fmt: skip
        learned = [
            sum(loss is not None and loss < LEARNED for loss in losses)
            for found in deepest
            for losses in zip(*(found.partial[step] for step in found.asked), strict=True)
        ]
        if learned:
            first = numbers.count(
                [count >= 1 for count in learned], f"deepest IC models {name} that learned a symbol"
            )
            more = numbers.count(
                [count >= 2 for count in learned], f"deepest IC models {name} that learned two symbols"
            )
            words.append(
                f"Of {len(learned)} of the deepest IC models {name}, {first} learned at least one symbol and {more} "
                "at least two."
            )
    return (
        "Which mask is the paper's second panel compatible with? There, losses of later symbols fall one after "
        "another with depth. " + " ".join(words)
    )


def _is_causal(config: DepthStudyConfig, reading: Reading) -> bool:
    return config.causal if reading.causal is None else reading.causal
