"""What the page of the permutation study shows beside its numbers: worked sequences, models to try, printed numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hopscope.claims.numbers import format_number
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.runs.files import is_file, read_json
from hopscope.story.blocks import Block
from hopscope.story.functions import PageFunctions
from hopscope.story.text import DASH
from hopscope.story.values import Said
from hopscope.story.worked import worked_block
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import SWEEPS, Configuration
from hopscope.studies.permutation.published import (
    BY_STEP,
    OF_CONFIGURATION,
    PROBABILITIES,
    VALUES,
    worked_examples,
)
from hopscope.studies.permutation.shown import floors

EXAMPLE = ((3, 3), (4, 5), (2, 1), (1, 4), (3, 3))
"""The presentation's example (section 8): x₅ repeats x₁, so recall says 3 and elimination says 2."""

LATE = 0.8
"""Where the last fifth of training begins."""

MOST_HELD_OUT = 720
"""Held-out mappings that the page lists, so that its explorer can tell them from training ones."""

SIDES = {"train": "a training mapping", "held_out": "a held-out mapping"}


def names(page: PageFunctions, config: PermutationStudyConfig) -> Mapping[str, Any]:
    """Names that the template may use beside those of every page."""
    gone = set(page.gone)
    records = list(_worked_records(page, config, gone))
    return {
        "example": page.block(example()),
        "mark": _marks(page, config),
        "studied": studied(config),
        "coded": [each.name for each in with_other_codes(config)],
        "swept": swept(config),
        "read_again": [each.name for each in read_again(config)],
        "printed": lambda name, measure: printed(config, name, measure),
        "late_recall": _late_recall(page, config, gone),
        "worked": "".join(page.block(block) for record in records for block in _worked_blocks(record)),
        "explorer": page.block(_explorer(config, records)) if records else "",
    }


def example() -> Block:
    """The presentation's example as token cells; the last y is asked for."""
    cells = []
    for slot, (x, y) in enumerate(EXAMPLE, start=1):
        cells.append({"token": str(x), "role": "x", "note": f"x{slot}"})
        cells.append({"token": "?" if slot == len(EXAMPLE) else str(y), "role": "y", "note": f"y{slot}"})
    return {
        "kind": "sequence",
        "cells": cells,
        "caption": "With V = 5. The last x repeats the first. Recall answers 3, the value that stood beside it. "
        "Elimination answers 2, the only value not used yet, and is wrong.",
    }


# Which configurations a part of the page is about.


def studied(config: PermutationStudyConfig) -> str:
    """The configuration whose recall is taken apart: of the base ones with repeats the largest; empty without any."""
    known = [each for each in config.base() if each.data == "repeats" and config.is_whole(each)]
    return max(known, key=lambda each: (each.width, each.heads)).name if known else ""


def with_other_codes(config: PermutationStudyConfig) -> list[Configuration]:
    """Configurations that differ in nothing but their position codes; none where there is nothing to compare."""
    changed = [each for each in config.grid() if set(each.changes) == {"positions"}]
    same = {replace(each, positions=None) for each in changed[:1]}
    known = [each for each in config.grid() if replace(each, positions=None) in same]
    return known if len(known) > 1 else []


def swept(config: PermutationStudyConfig) -> dict[str, list[str]]:
    """Sweep → its configurations, as they are called after overrides."""
    found = {}
    for name in config.sweeps:
        alone = {"configurations": SWEEPS[name].configurations, "all_configurations": False, "sweeps": ()}
        found[name] = [each.name for each in config.model_copy(update=alone).grid()]
    return found


def read_again(config: PermutationStudyConfig) -> list[Configuration]:
    """Configurations with another batch size, each behind the same with the study's own, where the run has that."""
    trained = config.grid()
    found = []
    for each in trained:
        if each.batch_size is not None:
            found += [same for same in (each.of_batch(None), each) if same in trained]
    return list(dict.fromkeys(found))


# Numbers that are not rows of the evidence.


def _marks(page: PageFunctions, config: PermutationStudyConfig) -> dict[str, Said]:
    """Losses of ideal observers, by what the template calls them; the last two only where training has repeats."""
    called = ("uniform", "training", "unnoticed", "unbound")
    return {
        name: page.number(value, f"loss in nats of an ideal observer: {what}", decimals=4)
        for name, (what, value) in zip(called, floors(config).items(), strict=False)
    }


def printed(config: PermutationStudyConfig, name: str, measure: str) -> list[str]:
    """What the presentation prints of a configuration step by step, and at a repeat; a dash where it prints nothing.

    Args:
        config: of the study; with another number of values there is nothing to compare.
        name: of the configuration.
        measure: `accuracy`, `mean error` or `largest error`.

    Returns:
        V + 1 texts, or none.
    """
    values = BY_STEP.get(name, {}).get(measure, ()) if config.values == VALUES else ()
    if not values:
        return []
    unit, decimals = ("fraction", None) if measure == "accuracy" else ("number", 4)
    said = [format_number(value, unit, decimals=decimals) for value in values]
    return [*said, *[DASH] * (VALUES + 1 - len(said))]


def _late_recall(
    page: PageFunctions, config: PermutationStudyConfig, gone: set[int]
) -> Callable[[str], Said]:
    @cache
    def late_recall(name: str) -> Said:
        """The lowest and the highest recall of a configuration's members in the last fifth of training."""
        if not page.has("recall", measure="training", configuration=name):
            return Said(DASH)
        curve = page.evidence.curve("recall", measure="training", configuration=name)
        late = curve.index > LATE * config.training(Configuration.parse(name)).steps
        kept = [member for member in curve.columns if member not in gone]
        values = curve.loc[late, kept].stack().dropna()
        if values.empty:
            return Said(DASH)
        low, high = float(values.min()), float(values.max())
        key = "metric = recall, measure = training, configuration = {}, in the last fifth of training: {}"
        ends = {low: "lowest"} if low == high else {low: "lowest", high: "highest"}
        said = [
            page.number(end, key.format(name, which), unit="fraction", file=EVIDENCE)
            for end, which in ends.items()
        ]
        return Said(f" {DASH} ".join(map(str, said)), float(values.mean()), low, high, len(kept))

    return late_recall


# Worked sequences, and the models that a reader can try.


@dataclass(frozen=True)
class _Worked:
    """The record of worked sequences of a configuration.

    Attributes:
        name: of the configuration.
        seed: of the member that is shown; the record's first, whose weights it holds.
        file: relative to the run.
        record: its sequences and weights.
    """

    name: str
    seed: int
    file: str
    record: Mapping[str, Any]


def _worked_records(page: PageFunctions, config: PermutationStudyConfig, gone: set[int]) -> Iterator[_Worked]:
    """Of each configuration without changes the first record whose first member did not diverge."""
    if "probability" not in page.evidence:
        return
    for configuration in config.grid():
        if configuration.changes:
            continue
        rows = page.evidence.rows("probability", measure="worked", configuration=configuration.name)
        for file in rows["file"].dropna().unique():
            record = read_json(page.run.path / file) if is_file(page.run.path / file) else None
            if record is not None and (first := record["members"][0]) not in gone:
                yield _Worked(configuration.name, page.evidence.seeds[first], str(file), record)
                break


def _worked_blocks(worked: _Worked) -> Iterator[Block]:
    """The sequences that the presentation works through with this configuration, if it does."""
    chosen = worked.record["sequences"]
    for name in OF_CONFIGURATION.get(worked.name, ()):
        if name in chosen:
            side = SIDES.get(chosen[name]["split"], "no single mapping")
            yield worked_block(
                chosen[name],
                file=worked.file,
                key=f"sequences.{name}.probabilities.0",
                title=name,
                caption=f"{worked.name}, seed {worked.seed} of this run, for which this is {side}; the presentation's "
                "numbers where it prints them.",
                published=PROBABILITIES.get(name),
            )


def _explorer(config: PermutationStudyConfig, records: list[_Worked]) -> Block:
    """Models that the page itself computes with."""
    sequences = worked_examples(config.values).items()
    return {
        "kind": "explorer",
        "title": "Any sequence",
        "caption": "One model of each configuration, computed in this page from its weights.",
        "models": [worked.record["model"] for worked in records],
        "sequences": [{"name": name, "tokens": list(tokens)} for name, tokens in sequences],
        "held_out": _held_out(config),
    }


def _held_out(config: PermutationStudyConfig) -> list[list[int]]:
    """All held-out mappings, or none where they are too many."""
    import torch

    from hopscope.tasks.splits import MappingSplit

    split = MappingSplit(config.values, config.held_out_share, config.split_seed)
    count = split.count("held_out")
    if count > MOST_HELD_OUT:
        return []
    return split.mapping(torch.arange(count), "held_out").tolist()
