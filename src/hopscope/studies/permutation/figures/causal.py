"""The causal tests of recall, and what is lost without the feed-forward network."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import facet, in_lines, level
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.figures.common import SKILLS, Figure, taken_apart
from hopscope.studies.permutation.figures.strips import Strips
from hopscope.studies.rows import SUMMARY, Drawn, Row, summary_rows

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

UNCHANGED = "nothing changed"

TESTS = {
    "position_code_swap": "position codes of x_j and x_k exchanged (values)",
    "y_swap": "y_j and y_k exchanged (values)",
    "attention_swap": "attention to x_j and x_k exchanged",
    "head_interchange": "all heads' output from the same pairs with x_k repeated",
    "mlp_interchange": "FFN output from the same pairs with x_k repeated",
}
"""Tests of the battery whose answer is y_j, y_k or neither, and what they change at the last row."""

BECOMES, STAYS = "becomes y_k", "stays y_j"
BATTERY_ARMS = ("test", "control (hollow): other pairs exchanged")


def battery_rows(shown: "list[Evidence]") -> list[Row]:
    """Shares of answers by configuration, test, answer and arm; what was not measured has no rows."""
    rows: list[Row] = []
    for found in shown:
        paths = [(UNCHANGED, STAYS, BATTERY_ARMS[0], "clean.recall")]
        for test, label in TESTS.items():
            paths += [
                (label, BECOMES, BATTERY_ARMS[0], f"{test}.to_other"),
                (label, STAYS, BATTERY_ARMS[0], f"{test}.stays"),
                (label, STAYS, BATTERY_ARMS[1], f"{test}.control_stays"),
            ]
        for label, answer, arm, path in paths:
            if found.has("battery", path):
                rows += summary_rows(found.seeds, found.each("battery", path), configuration=found.name,
                                     test=in_lines(label), answer=answer, arm=arm,
                                     place=f"{answer}, {arm}")  # fmt: skip
    return rows


def _draw_battery(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("configuration", "test", "answer", "arm", "place"), "string") | SUMMARY
    rows = battery_rows(shown)
    there = {row["test"] for row in rows}
    labels = [in_lines(label) for label in (UNCHANGED, *TESTS.values())]
    test, control = BATTERY_ARMS
    strips = Strips(
        title="share of answers to held-out repeats",
        format="%",
        domain=(0.0, 1.0),
        rows=("test", [label for label in labels if label in there]),
        offsets=("place", [f"{BECOMES}, {test}", f"{STAYS}, {test}", f"{STAYS}, {control}"]),
        colours=("answer", [BECOMES, STAYS]),
        arms=BATTERY_ARMS,
        height=44,
    )
    layers = alt.layer(*strips.layers(400), data=data_url("battery", types))
    return layers.facet(facet("configuration", [found.name for found in shown]), columns=1), rows


ABLATIONS = {
    UNCHANGED: ("clean", ""),
    "FFN output: its mean": ("mlp_ablation.mean", ""),
    "FFN output: another sequence's": ("mlp_ablation.resample", ""),
    "FFN output: zero": ("mlp_ablation.zero", ""),
    "attention to all y made equal": ("equal_y_weights", ""),
    "control: attention to other x made equal": ("equal_y_weights", "control_"),
}
"""What is taken away at the last row, and where the accuracies stand: a group, and a prefix of the names in it."""


def ablation_rows(shown: "list[Evidence]") -> list[Row]:
    """Accuracies by configuration, what was taken away and skill."""
    rows: list[Row] = []
    for found in shown:
        for label, (group, prefix) in ABLATIONS.items():
            for skill in SKILLS:
                path = f"{group}.{prefix}{skill}"
                if found.has("battery", path):
                    columns = {"configuration": found.name, "ablation": in_lines(label), "skill": skill}
                    rows += summary_rows(found.seeds, found.each("battery", path), **columns)
    return rows


def _draw_ablation(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("configuration", "ablation", "skill"), "string") | SUMMARY
    rows = ablation_rows(shown)
    there = {row["ablation"] for row in rows}
    strips = Strips(
        title="accuracy (held-out mappings)",
        format="%",
        domain=(0.0, 1.0),
        rows=("ablation", [in_lines(label) for label in ABLATIONS if in_lines(label) in there]),
        offsets=("skill", SKILLS),
        colours=("skill", SKILLS),
    )
    guess = level(shown[0].shared("battery", "floors.used"), "guess among values shown")
    layers = alt.layer(guess, *strips.layers(400), data=data_url("ablation", types))
    return layers.facet(facet("configuration", [found.name for found in shown]), columns=1), rows


BATTERY = Figure("battery", taken_apart, _draw_battery)
ABLATION = Figure("ablation", taken_apart, _draw_ablation)
