"""What the page of the permutation study shows beside its numbers: worked sequences, circuits, models to take apart."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.circuits.path_history import CircuitsOnPage
from hopscope.claims.numbers import format_number
from hopscope.runs.evidence_write import EVIDENCE
from hopscope.runs.files import is_file, read_json
from hopscope.story.functions import PageFunctions
from hopscope.story.text import DASH, Block
from hopscope.story.values import Said
from hopscope.story.worked import worked_block
from hopscope.studies.explorer import Explorer
from hopscope.studies.permutation.circuits import gather
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.studies.permutation.figures import floors, taken_apart
from hopscope.studies.permutation.published import (
    BY_STEP,
    OF_CONFIGURATION,
    PROBABILITIES,
    TITLES,
    VALUES,
    worked_examples,
)
from hopscope.tasks.task import Task
from hopscope.theory.sequences import read_sequence
from hopscope.training.config import TrainJob

if TYPE_CHECKING:
    from hopscope.tasks.device import TaskOnDevice

EXAMPLE = ((3, 3), (4, 5), (2, 1), (1, 4), (3, "?"))
"""The presentation's example (section 8): x₅ repeats x₁, so recall says 3 and elimination says 2."""

LATE = 0.8
"""Where the last fifth of training begins."""

MOST_HELD_OUT = 720
"""Held-out mappings that the page lists, so that its explorer can tell them from training ones."""

PARTS = ("match", "history")
"""What recall needs, by the names of the record of formation."""

MARKS = ("uniform", "training", "unnoticed", "unbound")
"""What the template calls the losses of ideal observers."""

SIDES = {"train": "a training mapping", "held_out": "a held-out mapping"}


def names(page: PageFunctions, config: PermutationStudyConfig) -> Mapping[str, Any]:
    """Names that the template may use beside those of every page."""
    records = list(_worked_records(page, config))
    studied = next((each.name for each in taken_apart(config)), "")
    return {
        "example": page.block(example()),
        "mark": {
            # The last two only where training has repeats.
            called: page.number(value, f"loss in nats of an ideal observer: {what}", decimals=4)
            for called, (what, value) in zip(MARKS, floors(config).items(), strict=False)
        },
        "studied": studied,
        "both_formed": both_formed(page, studied),
        "coded": [each.name for each in with_other_codes(config)],
        "swept": {name: [each.name for each in config.of_sweep(name)] for name in config.sweeps},
        "read_again": [each.name for each in read_again(config)],
        "printed": partial(printed, config),
        "circuits": CircuitsOnPage(page, lambda: gather(page.run, config), None, "share of wrong answers"),
        "late_recall": cache(partial(late_recall, page, config)),
        "worked": "".join(page.block(block) for record in records for block in _worked_blocks(page, *record)),
        "explorer": _explorer(page, config),
    }


def example() -> Block:
    """The presentation's example as token cells; the last y is asked for."""
    cells = [
        {"token": str(token), "role": role, "note": f"{role}{slot}"}
        for slot, pair in enumerate(EXAMPLE, start=1)
        for role, token in zip("xy", pair, strict=True)
    ]
    return {
        "kind": "sequence",
        "cells": cells,
        "caption": "With V = 5. The last x repeats the first. Recall answers 3, the value that stood beside it. "
        "Elimination answers 2, the only value not used yet, and is wrong.",
    }


# Which configurations a part of the page is about.


def with_other_codes(config: PermutationStudyConfig) -> list[Configuration]:
    """Configurations that differ in nothing but their position codes; none where there is nothing to compare."""
    changed = [each for each in config.grid() if set(each.changes) == {"positions"}]
    same = {replace(each, positions=None) for each in changed[:1]}
    known = [each for each in config.grid() if replace(each, positions=None) in same]
    return known if len(known) > 1 else []


def read_again(config: PermutationStudyConfig) -> list[Configuration]:
    """Configurations with another batch size, each behind the same with the study's own, where the run has that."""
    trained = config.grid()
    again = [each for each in trained if each.batch_size is not None]
    pairs = [(replace(each, batch_size=None), each) for each in again]
    return list(dict.fromkeys(each for pair in pairs for each in pair if each in trained))


# Numbers that are not rows of the evidence.


def printed(config: PermutationStudyConfig, name: str, measure: str) -> list[str]:
    """What the presentation prints of a configuration step by step, and at a repeat: V + 1 texts, or none.

    `measure` is `accuracy`, `mean error` or `largest error`.  A dash stands where it prints nothing; with another
    number of values there is nothing to compare.
    """
    values = BY_STEP.get(name, {}).get(measure, ()) if config.values == VALUES else ()
    if not values:
        return []
    unit, decimals = ("fraction", None) if measure == "accuracy" else ("number", 4)
    said = [format_number(value, unit, decimals=decimals) for value in values]
    return [*said, *[DASH] * (VALUES + 1 - len(said))]


def both_formed(page: PageFunctions, name: str) -> list[int]:
    """Members of a configuration in which match and history both formed: only there is one before the other.

    The record of their order has what never formed after what did.
    """
    found = set(page.evidence.members)
    for part in PARTS:
        where: dict[str, Any] = {"measure": "formation", "configuration": name, "part": f"{part}.half.time"}
        if not page.has("formed", **where):
            return []
        times = page.evidence.last("formed", **where)
        found &= set(times.index[np.isfinite(times)])
    return sorted(found)


def late_recall(page: PageFunctions, config: PermutationStudyConfig, name: str) -> Said:
    """The lowest and the highest recall of a configuration's members in the last fifth of training."""
    if not page.has("recall", measure="training", configuration=name):
        return Said(DASH)
    curve = page.evidence.curve("recall", measure="training", configuration=name)
    late = curve[curve.index > LATE * config.training(Configuration.parse(name)).steps]
    late = late.drop(columns=page.gone, errors="ignore")
    values = late.stack().dropna()
    if values.empty:
        return Said(DASH)
    low, high = float(values.min()), float(values.max())
    key = f"metric = recall, measure = training, configuration = {name}, in the last fifth of training: "
    ends = {low: "lowest"} if low == high else {low: "lowest", high: "highest"}
    said = [page.number(end, key + which, unit="fraction", file=EVIDENCE).text for end, which in ends.items()]
    return Said(f" {DASH} ".join(said), float(values.mean()), low, high, len(late.columns))


# Worked sequences, and the models that a reader can try.


def _worked_records(
    page: PageFunctions, config: PermutationStudyConfig
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Of each configuration without changes the first record whose first member did not diverge, and its file."""
    if "probability" not in page.evidence:
        return
    for name in (each.name for each in config.grid() if not each.changes):
        rows = page.evidence.rows("probability", measure="worked", configuration=name)
        for file in rows["file"].dropna().unique():
            record = read_json(page.run.path / file) if is_file(page.run.path / file) else None
            if record is not None and record["members"][0] not in page.gone:
                yield name, str(file), record
                break


def _worked_blocks(
    page: PageFunctions, configuration: str, file: str, record: Mapping[str, Any]
) -> Iterator[Block]:
    """The sequences that the presentation works through with this configuration, if it does."""
    chosen, seed = record["sequences"], page.evidence.seeds[record["members"][0]]
    for name in OF_CONFIGURATION.get(configuration, ()):
        if name in chosen:
            side = SIDES.get(chosen[name]["split"], "no single mapping")
            yield worked_block(
                chosen[name],
                file=file,
                key=f"sequences.{name}.probabilities.0",
                title=f"Sequence: {TITLES[name]}",
                caption=f"{configuration}, seed {seed} of this run, for which this is {side}; the presentation's "
                "numbers where it prints them.",
                published=PROBABILITIES.get(name),
            )


def _explorer(page: PageFunctions, config: PermutationStudyConfig) -> Explorer:
    """The explorer with the presentation's sequences, whose answers the page knows."""

    def task_of(job: TrainJob) -> "TaskOnDevice":
        from hopscope.tasks.device import TaskOnDevice

        assert isinstance(job.task, Task)
        return TaskOnDevice(job.task)

    def examples(job: TrainJob) -> list[dict[str, Any]]:
        length = job.model.length
        return [
            {
                "name": TITLES.get(name, name),
                "size": min(len(tokens), length),
                "inputs": list(tokens)[:length],
                "targets": [
                    -1 if each.target is None else each.target
                    for each in read_sequence(tokens, values).questions
                ],
                "roles": [f"{'xy'[at % 2]} {at // 2 + 1}" for at in range(min(len(tokens), length))],
            }
            for values in [(length + 1) // 2]
            for name, tokens in worked_examples(values).items()
        ]

    more = {"kind": "permutation", "held_out": _held_out(config)}
    return Explorer(page, task_of, examples, more, shows=_asks_for_recall)


def _asks_for_recall(example: Mapping[str, Any]) -> bool:
    """Whether the last x of an example came before: without a repeat there is nothing to recall."""
    *before, last = example["inputs"][::2]
    return last in before


def _held_out(config: PermutationStudyConfig) -> list[list[int]]:
    """All held-out mappings, or none where they are too many."""
    import torch

    from hopscope.tasks.splits import MappingSplit

    split = MappingSplit(config.values, config.held_out_share, config.split_seed)
    count = split.count("held_out")
    if count > MOST_HELD_OUT:
        return []
    return split.mapping(torch.arange(count), "held_out").tolist()
