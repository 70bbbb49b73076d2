"""Recall by slot: of the x that came back, and, where training has its repeats elsewhere, also of the slot of the
repeat.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from hopscope.claims.intervals import mean
from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import facet, legend
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import Figure, base, swept
from hopscope.studies.rows import Drawn, Row, short

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence


def slot_rows(shown: "list[Evidence]") -> list[Row]:
    """Recall by configuration, seed and the slot that came back."""
    return [
        {"configuration": found.name, "seed": seed, "slot": f"x{slot + 1}", "recall": short(recall)}
        for found in shown
        for seed, recalls in zip(found.seeds, found.each("probes", "recall_by_slot"), strict=True)
        for slot, recall in enumerate(recalls or [])
        if recall is not None
    ]


def _draw_by_slot(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"configuration": "string", "seed": "number", "slot": "string", "recall": "number"}
    names = [found.name for found in shown]
    points = (
        alt.Chart()
        .mark_point(filled=True, size=30, fillOpacity=0.75)
        .encode(
            x=alt.X("slot:N", title="which x came back", axis=alt.Axis(labelAngle=0)),
            xOffset="seed:N",
            y=alt.Y("recall:Q", title="recall", axis=alt.Axis(format="%", tickCount=6),
                    scale=alt.Scale(domain=[-0.03, 1.03])),
            color=alt.Color("configuration:N", scale=alt.Scale(domain=names), legend=None),
            tooltip=["configuration:N", "seed:N", "slot:N", "recall:Q"],
        )
        .properties(width=265, height=150)
    )  # fmt: skip
    chart = alt.layer(points, data=data_url("recall_by_slot", types))
    return chart.facet(facet("configuration", names), columns=2), slot_rows(shown)


OUTLINED = "outlined: in the training data"


def _repeated_elsewhere(config: PermutationStudyConfig) -> list[Configuration]:
    known = swept(config, "repeats", "repeat_slots", "repeat_sources")
    return known if len(known) > 1 else []


def training_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Which slots repeat in a configuration's training, in words."""
    task = config.task(configuration)
    slots = _listed("slot", sorted(set(task.repeat_slots or (task.values,))))
    if not task.repeat_sources:
        return f"{slots} repeats any before"
    return f"{slots} repeats {_listed('slot', sorted(set(task.repeat_sources)))}"


def _listed(word: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    return f"{word}s {', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def pair_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Mean recall over seeds by training, slot of the repeat and slot that it copies; whether training has it."""
    rows: list[Row] = []
    for found in shown:
        task = config.task(found.configuration)
        trained, known = set(task.repeat_pairs()), found.known("slots", "recall")
        for slot, source in ((s, t) for s in range(1, task.values + 1) for t in range(1, s)):
            recalls = [recall[slot - 1][source - 1] for recall in known]
            there = [recall for recall in recalls if recall is not None]
            if there:
                rows.append({"training": training_words(config, found.configuration), "slot": slot, "source": source,
                             "recall": short(mean(there)), "seeds": len(there),
                             "trained": "yes" if (slot, source) in trained else "no"})  # fmt: skip
    return rows


def _draw_pairs(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"training": "string", "slot": "number", "source": "number", "recall": "number", "seeds": "number",
             "trained": "string"}  # fmt: skip
    axis = alt.Axis(labelAngle=0, ticks=False)
    apart = alt.Scale(paddingInner=0.08, paddingOuter=0.06)
    cells = alt.Chart().encode(
        x=alt.X("source:O", title="slot that it copies", axis=axis, scale=apart),
        y=alt.Y("slot:O", title="slot of the repeat", axis=axis, scale=apart),
    )
    maps = cells.mark_rect().encode(
        color=alt.Color("recall:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                        legend=alt.Legend(title="mean recall", orient="top", gradientLength=200, format="%")),
        tooltip=["training:N", "slot:O", "source:O", alt.Tooltip("recall:Q", format=".1%"), "seeds:Q", "trained:N"],
    )  # fmt: skip
    marked = (
        cells.transform_filter("datum.trained == 'yes'")
        .transform_calculate(outline=f"'{OUTLINED}'")
        .mark_rect(filled=False, strokeWidth=2.5)
        .encode(stroke=alt.Stroke("outline:N", scale=alt.Scale(domain=[OUTLINED], range=["#d55e00"]),
                                  legend=legend(symbolType="square")))
    )  # fmt: skip
    numbers = cells.mark_text(fontSize=10).encode(
        text=alt.Text("recall:Q", format=".0%"),
        color=alt.condition("datum.recall > 0.55", alt.value("#111111"), alt.value("#ffffff")),
    )
    words = [training_words(config, found.configuration) for found in shown]
    layers = alt.layer(maps, marked, numbers, data=data_url("sweep_slots", types))
    chart = layers.properties(width=170, height=150).facet(facet("training", words), columns=3)
    return chart, pair_rows(config, shown)


RECALL_BY_SLOT = Figure("recall_by_slot", base, _draw_by_slot)
SWEEP_SLOTS = Figure("sweep_slots", _repeated_elsewhere, _draw_pairs)
