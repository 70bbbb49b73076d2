"""Both skills under each reading of what the presentation leaves open: the batch size and the position codes."""

from dataclasses import replace
from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import in_lines, level
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import SKILLS, Figure, base, largest_with_repeats
from hopscope.studies.permutation.figures.strips import Strips
from hopscope.studies.rows import SUMMARY, Drawn, Row, summary_rows

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

POSITIONS = {
    "learned": "a code for each position",
    "pair": "one code for each pair",
    "none": "no position codes",
}


def _variants(config: PermutationStudyConfig) -> list[Configuration]:
    """The largest configuration with repeats, and what differs from it in nothing but the readings."""
    largest = largest_with_repeats(base(config))[:1]
    known = [
        each
        for each in config.grid()
        if config.is_asked(each) and replace(each, batch_size=None, positions=None) in largest
    ]
    return known if len(known) > 1 else []


def reading_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Batch size and position codes in words."""
    batch = config.training(configuration).batch_size
    return f"batch {batch}, {POSITIONS[config.model(configuration).positions]}"


def reading_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Accuracies by reading and skill."""
    return [
        row
        for found in shown
        for skill in SKILLS
        for row in summary_rows(
            found.seeds,
            found.each("probes", skill),
            reading=in_lines(reading_words(config, found.configuration)),
            skill=skill,
        )
    ]


def _draw(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("reading", "skill"), "string") | SUMMARY
    strips = Strips(
        title="accuracy (held-out mappings)",
        format="%",
        domain=(0.0, 1.0),
        rows=("reading", [in_lines(reading_words(config, found.configuration)) for found in shown]),
        offsets=("skill", SKILLS),
        colours=("skill", SKILLS),
        height=40,
    )
    guess = level(1 / (config.values - 1), "guess among values shown")
    layers = alt.layer(guess, *strips.layers(440), data=data_url("readings", types))
    return layers, reading_rows(config, shown)


READINGS = Figure("readings", _variants, _draw)
