"""The opening of the page: the task, the verdicts, what was trained, and how the models answer a sequence."""

from collections.abc import Mapping
from typing import Any

from hopscope.runs import RunFolder
from hopscope.studies.blocks import Block, section, table, text
from hopscope.studies.numbers import written
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.published import OF_CONFIGURATION, PROBABILITIES, worked_examples
from hopscope.studies.permutation.story.numbers import Numbers
from hopscope.studies.permutation.worked import worked_block

EXAMPLE = ((3, 3), (4, 5), (2, 1), (1, 4), (3, 3))
"""The presentation's example (section 8): x₅ repeats x₁, so recall says 3 and elimination says 2."""

MOST_HELD_OUT = 720
"""Held-out mappings that the page lists, so that its explorer can tell them from training ones."""


def task_section(config: PermutationStudyConfig) -> Block:
    """What is asked."""
    cells = []
    for slot, (x, y) in enumerate(EXAMPLE, start=1):
        cells.append({"token": str(x), "role": "x", "note": f"x{slot}"})
        cells.append({"token": "?" if slot == 5 else str(y), "role": "y", "note": f"y{slot}"})
    return section(
        "task",
        "The task",
        text(
            f"Each sequence hides a rule: a permutation of the values from 1 to {config.values}, so that no "
            "two x have the same y. The rule is new in each sequence and is shown pair by pair, x then y. At every x "
            "the model must say which y belongs to it."
        ),
        {
            "kind": "sequence",
            "cells": cells,
            "caption": "With V = 5. The last x repeats the first. Recall answers 3, the value seen beside it. "
            "Elimination answers 2, the only value not used yet, and is wrong.",
        },
        text(
            "Two skills can answer. Elimination keeps track of the values already used and shares its belief among "
            "the others; on sequences without repeats, nothing better exists. Recall finds the earlier copy of x and "
            f"repeats the y beside it; only sequences with a repeat reward it. {written(config.held_out_share, True)} "
            "of the mappings never occur in training, and every score below is measured on those."
        ),
    )


def verdict_section(evidence: Mapping[str, Evidence], config: PermutationStudyConfig) -> Block:
    """The ledger."""
    few = (
        f" This run has {config.seeds} seeds, and a sentence about every seed needs ten: here, inconclusive means "
        "“not enough seeds to say”, not “failed”."
        if config.seeds < 10
        else ""
    )
    return section(
        "verdicts",
        "What the claims of the source come to",
        text(
            "Each row is a statement of the source, with the threshold that was fixed before the run. Nobody types "
            "a verdict in: it follows from the seeds by one rule. What the source leaves open is run in several "
            "readings where the run has them; refuted then means refuted in each of them." + few
        ),
        {"kind": "verdicts"},
    )


def configuration_section(
    config: PermutationStudyConfig, evidence: Mapping[str, Evidence], numbers: Numbers
) -> Block:
    """What was trained, and how it ended."""
    asked = [found for found in evidence.values() if config.is_asked(found.configuration)]
    rows = [
        [
            found.name,
            f"{config.epochs(found.configuration):g}",
            str(len(found.seeds)),
            numbers.range(found, "elimination"),
            numbers.range(found, "recall"),
            numbers.range(found, "mass_unused"),
            numbers.loss_range(found),
        ]
        for found in asked
    ]
    notes = [
        f"{found.name}: {', '.join(found.departures)}"
        for found in asked
        if found.departures and not found.configuration.changes
    ]
    notes += [
        f"{found.name}: training of member {', '.join(map(str, found.frozen))} broke off, its loss was no "
        f"longer finite"
        for found in evidence.values()
        if found.frozen
    ]
    return section(
        "models",
        "What was trained",
        text(
            "A configuration is named by width / heads and by its data: d32/2 repeats has width 32, two heads, and "
            f"{written(config.repeat_ratio, True)} of its training sequences hold a repeat. What else differs stands "
            "behind: batch=128, positions=none, V=4."
        ),
        table(
            [
                "configuration", "epochs", "seeds", "elimination", "recall", "mass on unused value", "training loss",
            ],
            rows,
            "Lowest to highest seed. Elimination is accuracy at the last step without a repeat, recall is "
            f"accuracy at a repeated x, both over {sequences(evidence)}. The mass on the unused value is the mean "
            "probability of the answer that elimination would give to a repeat. The loss is the mean over the "
            f"last training epoch. With V = {config.values} guessing scores {written(1 / config.values, True)}; "
            "elimination alone recalls nothing.",
        ),
        *([text("Departures from the source’s protocol: " + "; ".join(notes) + ".")] if notes else []),
    )  # fmt: skip


def sequences(evidence: Mapping[str, Evidence]) -> str:
    """Which held-out sequences were gone through, in words."""
    whole = all(found.exhaustive for found in evidence.values() if not found.configuration.changes)
    return "every held-out sequence" if whole else "a fixed random part of the held-out sequences"


# Worked sequences.


def worked_section(
    run: RunFolder, config: PermutationStudyConfig, evidence: Mapping[str, Evidence]
) -> Block | None:
    """Sequences step by step, for the first seed of each configuration that the presentation works through."""
    shown = [found for found in evidence.values() if not found.configuration.changes and found.has("worked")]
    if not shown:
        return None
    blocks = [block for found in shown for block in _worked_blocks(found)]
    return section(
        "worked",
        "Watch it answer",
        text(
            "One bar for each value: how much the model believes in it at this x. The tick is the ideal observer "
            "that holds all mappings equally likely. Where the presentation prints its own number, it stands "
            "beside ours: its model is one seed, ours is seed 0 of this run, and its held-out mappings need not "
            "be ours (the caption says which a mapping is here). A probe is a sequence whose last x came before: "
            "there elimination and recall say different things."
        ),
        *blocks,
        _explorer(run, config, shown),
    )


def _worked_blocks(found: Evidence) -> list[Block]:
    names = OF_CONFIGURATION.get(found.name)
    source = found.sources["worked"][0]
    chosen = source.record["sequences"]
    if names is None or names[0] not in chosen:
        return []
    blocks = []
    for name in names:
        entry = chosen[name]
        side = {"train": "a training mapping", "held_out": "a held-out mapping"}.get(
            entry["split"], "no single mapping"
        )
        blocks.append(
            worked_block(
                entry, source.index, file=source.file, key=f"sequences.{name}.probabilities.{source.index}", title=name,
                caption=f"{found.name}, seed {found.seeds[0]} of this run, for which this is {side}; the "
                "presentation's numbers where it prints them.",
                published=PROBABILITIES.get(name),
            )
        )  # fmt: skip
    return blocks


def _explorer(run: RunFolder, config: PermutationStudyConfig, shown: list[Evidence]) -> Block:
    from hopscope.tasks.splits import MappingSplit

    models = [found.sources["worked"][0].record["model"] for found in shown]
    presets = [
        {"name": name, "tokens": list(tokens)} for name, tokens in worked_examples(config.values).items()
    ]
    block: dict[str, Any] = {
        "kind": "explorer",
        "title": "Any sequence",
        "caption": "Seed 0 of each configuration, computed in this page from its weights.",
        "models": models,
        "sequences": presets,
    }
    split = MappingSplit(config.values, config.held_out_share, config.split_seed)
    held_out = split.count("held_out")
    if held_out <= MOST_HELD_OUT:
        import torch

        block["held_out"] = split.mapping(torch.arange(held_out), "held_out").tolist()
    return block
