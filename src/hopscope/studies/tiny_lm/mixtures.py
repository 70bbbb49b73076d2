"""The page's section on mixtures that only some runs have: that of a text, and the control's."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from hopscope.llm.corpus_file import StepCounts
from hopscope.studies.blocks import Block, section, table, text
from hopscope.studies.numbers import DASH, PageNumbers, written
from hopscope.studies.tiny_lm.config import CORPUS, DEEPEST, TinyLmConfig
from hopscope.studies.tiny_lm.corpus import shares
from hopscope.studies.tiny_lm.evidence import Member


def mixtures(config: TinyLmConfig, members: Sequence[Member], numbers: PageNumbers) -> list[Block]:
    """The section, if there is something to tell."""
    blocks: list[Block] = []
    if config.corpus is not None:
        blocks += _corpus(config, config.corpus, members, numbers)
    if config.control:
        blocks.append(text(_control(config)))
    if not blocks:
        return []
    return [
        section("mixtures", "How often each depth is trained", *blocks, _compared(config, members, numbers))
    ]


def _corpus(
    config: TinyLmConfig, corpus: StepCounts, members: Sequence[Member], numbers: PageNumbers
) -> list[Block]:
    """What the text's histogram was, and what is drawn from it."""
    tokens = numbers.add(corpus.tokens, f"{corpus.tokens:,}", "config.json", "config.corpus.tokens")
    words = (
        f"The mixture {CORPUS} is that of a text, {corpus.text}: of its {tokens} content words, so many need one "
        "retrieval step, two, and so on, by the estimate of hopscope corpus. Cut to the depths that are trained, their "
        "shares are how often each depth is drawn."
    )
    absent = [str(depth) for depth in config.depths if not corpus.needing(depth)]
    if absent:
        words += f" No word needs {' or '.join(absent)} steps: under this mixture, no text has that depth."
    unit = next((_unit(each) for each in members if each.mixture == CORPUS), None)
    rows = []
    for place, (depth, share) in enumerate(zip(config.depths, shares(corpus, config.depths), strict=True)):
        count = corpus.needing(depth)
        counted = f"{count:,}"
        if depth <= len(corpus.counts):
            counted = numbers.add(count, counted, "config.json", f"config.corpus.counts.{depth - 1}")
        shown = DASH
        if unit is not None:
            shown = numbers.add(share, written(share, True), unit, f"plan.task.mixture.{place}")
        rows.append([str(depth), counted, shown])
    caption = f"Words of {corpus.text} by steps, and the share of training texts of as many rounds."
    return [text(words), table(["D", "words that need D steps", "training texts"], rows, caption)]


def _unit(member: Member) -> str:
    """The record of the member's unit, in which the weights of its depths stand."""
    return str(PurePosixPath(member.file).parents[1] / "unit.json")


def _control(config: TinyLmConfig) -> str:
    """What the control is good for."""
    words = (
        f"The control, {DEEPEST}, is trained on texts of depth {config.depths[-1]} alone: what it does not learn, and "
        "the mixtures do, they have from shallower texts. No verdict rests on it."
    )
    if config.lines == "earlier" or config.asked == "any" or config.repeated:
        words += (
            " As all training texts here are easier than the paper's, its texts, too, have questions of fewer steps "
            "in them."
        )
    return words


def _compared(config: TinyLmConfig, members: Sequence[Member], numbers: PageNumbers) -> Block:
    """Scores at the largest depth, a row for each mixture and a column for each seed."""
    deepest = config.depths[-1]
    rows = []
    for name in config.drawn:
        cells = {each.seed: _score(each, deepest, numbers) for each in members if each.mixture == name}
        rows.append([name, *(cells.get(seed, DASH) for seed in range(config.seeds))])
    columns = ["mixture", *(f"seed {seed}" for seed in range(config.seeds))]
    return table(columns, rows, f"Held-out questions of depth {deepest} answered rightly at once.")


def _score(member: Member, depth: int, numbers: PageNumbers) -> str:
    score = member.score(depth)
    if score is None:
        return DASH
    key = f"{member.key}.tallies.{list(member.tallies).index(depth)}.first_accuracy.value"
    return numbers.add(score, written(score, True), member.file, key)
