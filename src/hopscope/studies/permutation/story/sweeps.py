"""What it takes: values, width and heads, the share of repeats, and which slots repeat."""

from collections.abc import Mapping
from dataclasses import dataclass

from hopscope.studies.blocks import Block, figure, section, table, text
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import SWEEPS
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.story.numbers import Numbers


@dataclass(frozen=True)
class _Shown:
    """How the page shows a sweep: what it asks, its figure, and the figure's caption."""

    words: str
    figure: str
    caption: str


SHOWN = {
    "values": _Shown(
        "The presentation says that four values can be memorised and five cannot. Here are the way to memorising "
        "(plain data, width 32 with two heads) and recall (with repeats) by the number of values. One layer must hold "
        "the order of all y in one vector and select from it, so recall must give way as the number of values grows.",
        "sweep_values",
        "Recall and the way to memorising by the number of values.",
    ),
    "capacity": _Shown(
        "The presentation argues from a budget of dimensions (6 for tokens, 3 for positions, 8 for the context) and "
        "goes from one head to two together with the data. Here width and heads vary alone, with repeats in all.",
        "sweep_capacity",
        "Recall by width and number of heads.",
    ),
    "ratio": _Shown(
        "How much of the data must repeat? The presentation has 30 %.",
        "sweep_ratio",
        "Recall and elimination by the share of repeats in training.",
    ),
    "slots": _Shown(
        "Training repeats an x at one slot; tests repeat it at every slot. Does a model that was rewarded for recall "
        "at one place recall at others?",
        "sweep_slots",
        "Recall by the slot that repeats and the slot it copies, for each kind of training.",
    ),
}


def sweep_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block | None:
    """Every sweep of the run."""
    blocks: list[Block] = []
    for name in config.sweeps:
        if name in SHOWN:
            shown = SHOWN[name]
            there = [evidence[each] for each in SWEEPS[name].configurations if each in evidence]
            blocks += [
                text(shown.words),
                figure(shown.figure, f"{shown.caption} Each point is a seed.", shown.caption),
                _table(there, numbers),
            ]
    blocks += _readings(config, evidence, numbers)
    return section("sweeps", "What it takes", *blocks) if blocks else None


def _table(there: list[Evidence], numbers: Numbers) -> Block:
    rows = [
        [
            found.name,
            str(len(found.seeds)),
            numbers.range(found, "elimination"),
            numbers.range(found, "recall"),
            numbers.range(found, "memorised_share", "posteriors"),
        ]
        for found in there
    ]
    return table(
        ["configuration", "seeds", "elimination", "recall", "way to memorising"],
        rows,
        "Lowest to highest seed, held-out mappings.",
    )


def _readings(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> list[Block]:
    others = [found for found in evidence.values() if found.configuration.batch_size is not None]
    if not others:
        return []
    there = [
        each
        for found in others
        for each in (evidence.get(found.configuration.of_batch(None).name), found)
        if each is not None
    ]
    return [
        text(
            "The presentation does not state its batch size. The verdicts take every reading that was run into "
            "account."
        ),
        figure(
            "readings",
            "Recall and elimination under both readings of the batch size, and with other position codes.",
            "Dot strips of recall and elimination by reading.",
        ),
        _table(_unique(there), numbers),
    ]


def _unique(there: list[Evidence]) -> list[Evidence]:
    return list({found.name: found for found in there}.values())
