"""The opening of the page: the task and the verdicts."""

from hopscope.studies.blocks import Block, chain_example, section, text
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.story.numbers import Numbers
from hopscope.studies.words import symbol


def task_section(config: DepthStudyConfig, numbers: Numbers) -> Block:
    """What is asked."""
    task = config.task(config.grid()[0])
    plateau = numbers.add(task.plateau, f"{task.plateau:g}", "config.json", "1 - 1/config.chains")
    zero = numbers.add(task.zero_floor, f"{task.zero_floor:g}", "config.json", "variance of a symbol")
    guess = numbers.add(task.guess, f"{task.guess:g}", "config.json", "1/config.chains")
    return section(
        "task",
        "The task",
        text(
            f"A sample holds {config.chains} chains of symbols, {symbol(0)} → {symbol(1)} → … . Each step of a chain "
            "is shown once, as a pair of two symbols; the pairs of all chains are mixed, the last step comes first. "
            "At the end stand the first symbols, and for each the model must say what its chain leads to. To answer, "
            "it has to find the pair that begins with the query, take what stands beside it, find the pair that "
            "begins with that, and so on: each step is one more retrieval."
        ),
        chain_example(),
        text(
            f"Symbols are vectors of {config.symbol_dim} random numbers, new in every sample: nothing can be learned "
            "by heart, and every score below is measured on samples that no training has drawn. The error is the "
            f"mean square of what is missed. Predicting zero costs {zero}. A model that has found out which symbols a "
            f"step could lead to, but not which of them, predicts their mean and pays 1 − 1/N = {plateau}: this is "
            "the plateau on which models wait. The nearest of the candidates to a prediction is the right one in a "
            f"share of {guess} of the cases by guessing."
        ),
        text(
            "Two ways to ask. With the implicit curriculum (IC) a query is asked for every symbol of its chain, so "
            "that easy steps are rewarded before hard ones. Without it (non-IC) only the last symbol counts."
        ),
    )


def verdict_section(config: DepthStudyConfig) -> Block:
    """The ledger."""
    small = any(config.departures(each) for each in config.base())
    scale = (
        " This run is smaller than the paper's (fewer steps, smaller models, fewer seeds), so it can neither "
        "reproduce nor refute what the paper says of its own; inconclusive then means “too small to say”, and the "
        "words tell what the runs showed."
        if small
        else ""
    )
    return section(
        "verdicts",
        "What the claims of the paper come to",
        text(
            "Each row is a statement of the paper, with the threshold that was fixed before the run. Nobody types a "
            "verdict in: it follows from the runs by one rule. Details that the paper leaves open are readings; "
            "refuted means refuted in each that was tried." + scale
        ),
        {"kind": "verdicts"},
    )
