"""The sweeps: D against layers, and the readings of what the paper leaves open."""

from collections.abc import Callable

from hopscope.claims import Judgement
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration, Reading
from hopscope.studies.depth.evidence import LEARNED, Evidence, Evidences
from hopscope.studies.depth.figures.sweeps import grouped_readings, reading_label
from hopscope.studies.depth.judges import last_step_by_depth
from hopscope.studies.depth.ledger import ENTRIES, by_reading, reading_name
from hopscope.studies.depth.story.numbers import METRICS, Numbers
from hopscope.studies.theory import exact_of
from hopscope.theory.information_flow import theorem_bound


def steps_section(config: DepthStudyConfig, evidence: Evidences, numbers: Numbers) -> Block | None:
    """Which chains a number of layers can follow."""
    if "steps" not in config.sweeps or not config.layers:
        return None
    swept = {each: evidence[each] for each in config.by_steps()}
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


def _below_words(config: DepthStudyConfig, swept: dict[Configuration, Evidence], numbers: Numbers) -> str:
    runs = last_step_by_depth(swept)
    words = []
    limits: dict[str, Callable[[Configuration], float]] = {
        "fewer than log₃(2D)": lambda each: theorem_bound(each.steps),
        "fewer than the exact minimum": lambda each: exact_of(config.of(each), each.steps),
    }
    for name, limit in limits.items():
        below = [loss for found, loss in runs if found.configuration.layers < limit(found.configuration)]
        if below:
            learned = numbers.count(
                [loss < LEARNED for loss in below],
                f"IC runs with {name} layers whose loss of x_D is under {LEARNED}",
            )
            words.append(f"Of {len(below)} models with {name} layers, {learned} learned it.")
    return " ".join(words)


def specification_section(config: DepthStudyConfig, evidence: Evidences, numbers: Numbers) -> Block | None:
    """Every verdict under every reading."""
    if "specification" not in config.sweeps or not config.layers:
        return None
    judged = {entry.id: by_reading(entry, evidence, config) for entry in ENTRIES if entry.by_reading}
    rows = [
        [reading_label(config, reading), *(_short(of[reading_name(reading)], claim, numbers, reading_name(reading))
                                           for claim, of in judged.items())]
        for reading in grouped_readings(config)
    ]  # fmt: skip
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
            ["reading", *judged],
            rows,
            "What each claim measures, and whether the runs of one reading agree with it (they are too few and too "
            "small for a verdict). R1: lowest non-IC loss; R2: mean layers between the first and the last symbol; "
            "R3: runs out of order; R9b: lowest loss of x_D below the bound; R11: largest gain of one layer as a "
            "share of the range.",
        ),
        text(_mask_words(config, evidence, numbers)),
    )


def _short(judgement: Judgement, claim: str, numbers: Numbers, reading: str) -> str:
    """The number that decides, or a dash."""
    if judgement.n == 0:
        return "–"
    seeds = next(reversed(judgement.per_seed.values())) if judgement.per_seed else ()
    if claim in ("R1", "R9b"):
        value, text_ = min(seeds), f"{min(seeds):.3f}"
    elif claim == "R3":
        value = float(sum(count > 0 for count in seeds))
        text_ = f"{value:.0f}"
    else:
        value = sum(seeds) / len(seeds)
        text_ = f"{value:.2f}"
    key = f"{claim} under {reading}"
    return f"{numbers.add(value, text_, METRICS, key)} (n = {judgement.n})"


def _mask_words(config: DepthStudyConfig, evidence: Evidences, numbers: Numbers) -> str:
    """Which mask the paper's second panel is compatible with: where more than the first symbol is learned."""
    words = []
    for causal, name in ((True, "with a causal mask"), (False, "without a mask")):
        readings = [each for each in config.readings() if _is_causal(config, each) == causal]
        deepest = [
            max(
                (found for each, found in evidence.items()
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
