"""What is learned when: the loss and its marks, both skills, how sudden recall is, and what forms first."""

from collections.abc import Mapping
from statistics import fmean

from hopscope.claims.intervals import bootstrap_mean
from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.numbers import DASH
from hopscope.studies.permutation.claims import RECALLING
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence, transitions
from hopscope.studies.permutation.figures import floors
from hopscope.studies.permutation.figures.formation import order_rows
from hopscope.studies.permutation.story.numbers import Numbers


def base_only(config: PermutationStudyConfig, evidence: Mapping[str, Evidence]) -> list[Evidence]:
    """What the page is about first, without sweeps and readings."""
    return [evidence[configuration.name] for configuration in config.base()]


def loss_section(config: PermutationStudyConfig, numbers: Numbers) -> Block:
    """The loss and the ideal observers' marks."""
    shown = [
        numbers.add(value, f"{value:.4f}", "figures/loss.csv", f"loss where kind is {name!r}")
        for name, value in floors(config).items()
    ]
    without_recall = (
        " With repeats in training there are two more marks: an observer that never notices that an x came back "
        f"pays {shown[2]}, and one that notices, but cannot tell which value stood beside it, pays {shown[3]}. A "
        "curve that rests near one of them has learned that much and no more."
        if len(shown) > 2
        else ""
    )
    return section(
        "loss",
        "The loss, and what it does not show",
        text(
            f"An ideal observer that holds all mappings equally likely pays {shown[0]} nats per answer; one that "
            f"knows which mappings are used in training pays {shown[1]}. A loss below the first means that a model "
            "has begun to memorise the training mappings, which cannot help it on held-out ones."
            + without_recall
        ),
        figure(
            "loss",
            "Training loss of every seed, with the floors of the ideal observers.",
            "Line chart of training loss against training samples, with one horizontal line for each floor.",
        ),
    )


def skill_section(
    run: RunFolder, config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block:
    """Both skills through training."""
    sentences = [
        f"{found.name}: {numbers.mean(found, 'recall')} of held-out repeats are recalled at the end; over the last "
        f"fifth of training the curves lie at {numbers.late_range(run, found, config)}."
        for found in base_only(config, evidence)
    ]
    return section(
        "skills",
        "When each skill is learned",
        text("Both skills, measured on held-out mappings as training goes on. " + " ".join(sentences)),
        text(
            "Training has a constant learning rate and does not come to rest: a score at the last step is that of "
            "one moment, and the verdicts are about that moment, as the source's are."
        ),
        figure(
            "skills",
            "Accuracy at the last step on held-out sequences without a repeat (elimination) and with one (recall).",
            "Line charts of elimination and recall accuracy against training samples, one panel per configuration.",
        ),
        figure(
            "recall_by_slot",
            "Recall at the end of training, by which x came back. Each point is a seed.",
            "Dot plot of recall by repeated slot and seed, one panel per configuration.",
        ),
    )


def _order_figure(config: PermutationStudyConfig, found: Evidence) -> list[Block]:
    """What formed when, unless nothing did: a run may be too short."""
    if not order_rows(found, config.task(found.configuration).values):
        return []
    return [
        figure(
            "formation_order",
            "When each part had gone half its way, seed by seed; bars reach from the checkpoint before to the "
            "one after.",
            "Dot plot of samples at which match, history and recall had gone half their way, one row per seed.",
        )
    ]


def transition_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block | None:
    """How sudden recall is, and what forms before it."""
    found = evidence.get(RECALLING)
    if found is None or not found.has("formation"):
        return None
    return section(
        "transition",
        "Is recall a phase transition? What forms before it?",
        text(
            "The presentation sees a sudden drop and calls it a phase transition. Below are the samples that each "
            "seed had seen when recall had gone a tenth, a half and nine tenths of its way. The way is taken from "
            "zero, and from chance, which is what a model scores that notices a repeat but cannot tell the "
            "earlier pairs apart: noticing and recalling are two steps, and each has its own fall of the loss."
        ),
        _transition_table(config, found, numbers),
        text(
            "Two parts must be there for recall. Matching: some head sends the last x to its earlier copy (attention "
            "on the copy). History: what the feed-forward network reads depends on which y stood in which slot, not "
            "only on which y were shown (how much its input changes when two y change places). "
            + _order_words(found, numbers)
        ),
        *_order_figure(config, found),
        figure(
            "formation",
            "Attention on the copy, history (as a share of its final level) and both skills through training.",
            "Line charts of match, history, recall and elimination against training samples, one panel per seed.",
        ),
    )


LEVELS = (("from_zero", "from zero"), ("from_chance", "from chance"))


def _transition_table(config: PermutationStudyConfig, found: Evidence, numbers: Numbers) -> Block:
    known = [each for each in transitions(found, config.values) if each is not None]
    rows = []
    for levels, words in LEVELS:
        for label, path in (("10 %", "start.time"), ("50 %", "half.time"), ("90 %", "end.time"), ("10–90 %", "width"),
                            ("10–90 % as a share of the time to 50 %", "relative_width")):  # fmt: skip
            values = [_inside(each[levels], path) for each in known]
            rows.append([words, label, *_spread(values, levels, path, numbers)])
    falls = [None if each["steepest_fall"] is None else each["steepest_fall"]["time"] for each in known]
    rows.append(["", "steepest fall of the loss", *_spread(falls, "steepest_fall", "time", numbers)])
    return table(
        ["the way", "", "mean over seeds [95 % interval]", "lowest to highest", "never"],
        rows,
        f"{found.name}: training samples per seed, from the curves of held-out recall and of the training loss "
        "(metrics.parquet). Never: seeds that did not get there; they are counted, not dropped in silence.",
    )


def _inside(value: dict[str, object], path: str) -> float | None:
    found: object = value
    for part in path.split("."):
        found = found[part] if isinstance(found, dict) else None
    return None if found is None else float(found)  # type: ignore[arg-type]


def _spread(values: list[float | None], levels: str, path: str, numbers: Numbers) -> list[str]:
    known = [value for value in values if value is not None]
    never = str(len(values) - len(known))
    if not known:
        return [DASH, DASH, never]

    def add(value: float, which: str) -> str:
        text_ = f"{value:,.0f}" if path != "relative_width" else f"{value:.2f}"
        return numbers.add(value, text_, "metrics.parquet", f"{which} of {levels}.{path} of the transition")

    interval = bootstrap_mean(known)
    mean = add(fmean(known), "mean")
    if interval is not None:
        mean += f" [{add(interval[0], 'interval low')}, {add(interval[1], 'interval high')}]"
    return [mean, f"{add(min(known), 'lowest')} to {add(max(known), 'highest')}", never]


def _order_words(found: Evidence, numbers: Numbers) -> str:
    """How many seeds formed what first."""
    orders = [order for order in found.each("formation", "order") if order is not None]
    half = [order["orders"]["half"]["match"]["history"] for order in orders]
    start = [order["orders"]["start"]["match"]["history"] for order in orders]

    def counted(values: list[str], which: str, point: str) -> str:
        return numbers.count(found, values, which, "formation", f"order.[m].orders.{point}.match.history")

    seeds = len(orders)
    parts = [
        f"at {words}, match came before history in {counted(values, 'before', point)}, after it in "
        f"{counted(values, 'after', point)}, within one checkpoint of it in {counted(values, 'tie', point)}"
        for words, values, point in (
            ("half of the way", half, "half"),
            ("a tenth of the way", start, "start"),
        )
    ]
    reached = [order["reached"] for order in orders if order["reached"]["recall"] is not None]
    shares = []
    for name in ("match", "history"):
        gone = [each[name] for each in reached if each[name] is not None]
        if gone:
            shown = numbers.share(found, fmean(gone), "formation", f"order.[m].reached.{name}")
            shares.append(f"{name} had gone {shown} of its way")
    begun = f" When recall had gone a tenth of its own way, {' and '.join(shares)}." if shares else ""
    final = numbers.range(found, "order.[m].parts.match.final", "formation")
    caution = (
        f" Attention on the copy ends between these levels: {final}. Where that is low, half of its way was gone in "
        "an early rise that did not last, and “match first” says little: something else must name the copy."
    )
    return f"Of {seeds} seeds: " + "; ".join(parts) + "." + begun + caution
