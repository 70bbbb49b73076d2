"""The page of the permutation study in words; every number with the file and the key it came from."""

from typing import Any

import numpy as np

from hopscope.claims import Claim, Judgement
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence, curve
from hopscope.studies.permutation.figures import floors

SCHEMA_VERSION = 1
LATE = 0.8
"""Where the last fifth of training begins."""

EXAMPLE = ((3, 3), (4, 5), (2, 1), (1, 4), (3, 3))
"""The presentation's example (section 8): x₅ repeats x₁, so recall says 3 and elimination says 2."""


class _Numbers:
    """The numbers of the page, each with the file and the key it came from.

    Keys are readable and can be followed: `<probe>[.<step>] of member <m>` and `mean of … over members <a>–<b>` in
    the probes of those members, `last epoch of train/loss of member <m>` in the metrics.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def add(self, value: float, text: str, file: str, key: str) -> str:
        """Register a number; returns the placeholder to write in the text."""
        name = f"n{len(self.entries)}"
        self.entries[name] = {"value": value, "text": text, "file": file, "key": key}
        return "{" + name + "}"

    def mean(self, found: Evidence, probe: str, step: int | None = None, *, percent: bool = True) -> str:
        """The mean of a probe over a configuration's members; a dash where none has a value."""
        values = [entry[step] if step is not None else entry for entry in found.probes[probe]]
        known = [value for value in values if value is not None]
        if not known:
            return "–"
        value = sum(known) / len(known)
        members = f"members {found.members[0]}–{found.members[-1]}"
        key = f"mean of {_probe_key(probe, step)} over {members}"
        return self.add(value, _written(value, percent), _probe_files(found), key)

    def range(self, found: Evidence, probe: str) -> str:
        """The lowest and the highest member of a configuration; a dash where none has a value."""
        known = [
            (value, m)
            for value, m in zip(found.probes[probe], found.members, strict=True)
            if value is not None
        ]
        if not known:
            return "–"
        ends = [
            self.add(
                value,
                _written(value, True),
                _probe_files(found),
                f"{_probe_key(probe, None)} of member {member}",
            )
            for value, member in (min(known), max(known))
        ]
        return _joined(ends, min(known)[0], max(known)[0])

    def late_range(self, run: RunFolder, found: Evidence, config: PermutationStudyConfig) -> str:
        """The lowest and the highest held-out recall in the last fifth of training; a dash where none was recorded."""
        columns = curve(run, "held_out", "recall")
        late = columns["step"] > LATE * config.training(found.configuration).steps
        values = columns["value"][late & np.isin(columns["member"], found.members)]
        if not len(values):
            return "–"
        members = f"members {found.members[0]}–{found.members[-1]}"
        ends = [
            self.add(
                value,
                _written(value, True),
                "metrics.parquet",
                f"{end} of late held_out/recall over {members}",
            )
            for end, value in (("lowest", float(values.min())), ("highest", float(values.max())))
        ]
        return " to ".join(ends)

    def loss_range(self, found: Evidence) -> str:
        """The lowest and the highest training loss of a configuration; a dash where none was recorded."""
        pairs = zip(found.training_loss, found.members, strict=True)
        known = [(value, member) for value, member in pairs if value is not None]
        if not known:
            return "–"
        ends = [
            self.add(
                value,
                _written(value, False),
                "metrics.parquet",
                f"last epoch of train/loss of member {member}",
            )
            for value, member in (min(known), max(known))
        ]
        return _joined(ends, min(known)[0], max(known)[0])


def _joined(ends: list[str], low: float, high: float) -> str:
    return ends[0] if low == high else " – ".join(ends)


def _probe_key(probe: str, step: int | None) -> str:
    return probe if step is None else f"{probe}.{step}"


def _probe_files(found: Evidence) -> str:
    """The analysis file, or a pattern where the members lie in several units."""
    files = sorted({file for file, _ in found.files})
    return files[0] if len(files) == 1 else "units/*/" + files[0].split("/", 2)[2]


def write_story(
    run: RunFolder,
    config: PermutationStudyConfig,
    evidence: dict[str, Evidence],
    judged: list[tuple[Claim, Judgement]],
) -> None:
    """Write `story.json`."""
    numbers = _Numbers()
    sections = [
        _task_section(config),
        _verdict_section(evidence),
        _configuration_section(config, evidence, numbers),
        _loss_section(config, evidence, numbers),
        _skill_section(run, config, evidence, numbers),
        _bayes_section(config, evidence, numbers),
        _attention_section(),
    ]
    story = {
        "schema_version": SCHEMA_VERSION,
        "title": "Permutation lookup: does a tiny transformer remember, or only rule out?",
        "subtitle": f"{len(evidence)} configurations, {config.seeds} seeds each, measured on held-out mappings",
        "numbers": numbers.entries,
        "claims": {
            claim.id: {
                "words": judgement.words.replace("_", " "),
                "per_seed": {k: list(v) for k, v in judgement.per_seed.items()},
            }
            for claim, judgement in judged
        },
        "sections": sections,
    }
    run.write_json("story.json", story)


def _section(name: str, heading: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "heading": heading, "blocks": list(blocks)}


def _text(words: str) -> dict[str, Any]:
    return {"kind": "text", "text": words}


def _figure(name: str, caption: str, alt: str) -> dict[str, Any]:
    return {"kind": "figure", "name": name, "caption": caption, "alt": alt}


def _task_section(config: PermutationStudyConfig) -> dict[str, Any]:
    cells = []
    for slot, (x, y) in enumerate(EXAMPLE, start=1):
        cells.append({"token": str(x), "role": "x", "note": f"x{slot}"})
        cells.append({"token": "?" if slot == 5 else str(y), "role": "y", "note": f"y{slot}"})
    return _section(
        "task",
        "The task",
        _text(
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
        _text(
            "Two skills can answer. Elimination keeps track of the values already used and shares its belief among "
            "the others; on sequences without repeats, nothing better exists. Recall finds the earlier copy of x "
            "and repeats the y beside it; only sequences with a repeat reward it. "
            f"{_written(config.held_out_share, True)} of the mappings never occur in training, and every score "
            "below is measured on those."
        ),
    )


def _verdict_section(evidence: dict[str, Evidence]) -> dict[str, Any]:
    seeds = max(len(found.seeds) for found in evidence.values())
    few = (
        f" This run has {seeds} seeds, and a sentence about every seed needs ten: here, inconclusive means “not enough "
        "seeds to say”, not “failed”."
        if seeds < 10
        else ""
    )
    return _section(
        "verdicts",
        "What the claims of the source come to",
        _text(
            "Each row is a statement of the source, with the threshold that was fixed before the run. Nobody types "
            "a verdict in: it follows from the seeds by one rule." + few
        ),
        {"kind": "verdicts"},
    )


def _configuration_section(
    config: PermutationStudyConfig, evidence: dict[str, Evidence], numbers: _Numbers
) -> dict[str, Any]:
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
        for found in evidence.values()
    ]
    notes = [
        f"{found.name}: {', '.join(found.departures)}" for found in evidence.values() if found.departures
    ]
    notes += [
        f"{found.name}: training of member {', '.join(map(str, found.frozen))} broke off, its loss was no longer finite"
        for found in evidence.values()
        if found.frozen
    ]
    return _section(
        "models",
        "What was trained",
        _text(
            "A configuration is named by width / heads and by its data: d32/2 repeats has width 32, two heads, and "
            f"{_written(config.repeat_ratio, True)} of its training sequences hold a repeat."
        ),
        {
            "kind": "table",
            "columns": [
                "configuration", "epochs", "seeds", "elimination", "recall", "mass on unused value", "training loss",
            ],
            "rows": rows,
            "caption": "Lowest to highest seed. Elimination is accuracy at the last step without a repeat, recall is "
            f"accuracy at a repeated x, both over {_sequences(evidence)}. The mass on the unused value is the mean "
            "probability of the answer that elimination would give to a repeat. The loss is the mean over the last "
            f"training epoch. Guessing scores {_written(1 / config.values, True)}; elimination alone recalls nothing.",
        },
        *([_text("Departures from the source’s protocol: " + "; ".join(notes) + ".")] if notes else []),
    )  # fmt: skip


def _loss_section(
    config: PermutationStudyConfig, evidence: dict[str, Evidence], numbers: _Numbers
) -> dict[str, Any]:
    shown = [
        numbers.add(value, f"{value:.4f}", "figures/loss.csv", f"loss where kind is {name!r}")
        for name, value in floors(config).items()
    ]
    without_recall = (
        f" With repeats in training there are two more marks: an observer that never notices that an x came back pays "
        f"{shown[2]}, and one that notices, but cannot tell which value stood beside it, pays {shown[3]}. A curve that "
        "rests near one of them has learned that much and no more."
        if len(shown) > 2
        else ""
    )
    return _section(
        "loss",
        "The loss, and what it does not show",
        _text(
            f"An ideal observer that holds all mappings equally likely pays {shown[0]} nats per answer; one that knows "
            f"which mappings are used in training pays {shown[1]}. A loss below the first means that a model has "
            "begun to memorise the training mappings, which cannot help it on held-out ones." + without_recall
        ),
        _figure(
            "loss",
            "Training loss of every seed, with the floors of the ideal observers.",
            "Line chart of training loss against training samples, with one horizontal line for each floor.",
        ),
    )


def _skill_section(
    run: RunFolder, config: PermutationStudyConfig, evidence: dict[str, Evidence], numbers: _Numbers
) -> dict[str, Any]:
    sentences = [
        f"{found.name}: {numbers.mean(found, 'recall')} of held-out repeats are recalled at the end; over the last "
        f"fifth of training the curves lie at {numbers.late_range(run, found, config)}."
        for found in evidence.values()
    ]
    return _section(
        "skills",
        "When each skill is learned",
        _text("Both skills, measured on held-out mappings as training goes on. " + " ".join(sentences)),
        _text(
            "Training has a constant learning rate and does not come to rest: a score at the last step is that of one "
            "moment, and the verdicts are about that moment, as the source's are."
        ),
        _figure(
            "skills",
            "Accuracy at the last step on held-out sequences without a repeat (elimination) and with one (recall).",
            "Line charts of elimination and recall accuracy against training samples, one panel per configuration.",
        ),
        _figure(
            "recall_by_slot",
            "Recall at the end of training, by which x came back. Each point is a seed.",
            "Dot plot of recall by repeated slot and seed, one panel per configuration.",
        ),
    )


def _bayes_section(
    config: PermutationStudyConfig, evidence: dict[str, Evidence], numbers: _Numbers
) -> dict[str, Any]:
    steps = range(config.values)
    columns = ["configuration", "measure", *[f"step {step + 1}" for step in steps], "repeat"]
    rows = []
    for found in evidence.values():
        rows.append(
            [
                found.name,
                "accuracy",
                *[numbers.mean(found, "accuracy_by_step", step) for step in steps],
                numbers.mean(found, "recall"),
            ]
        )
        for label, probe in (("mean error", "mae"), ("largest error", "max_ae")):
            on_plain = [numbers.mean(found, f"{probe}_by_step", step, percent=False) for step in steps]
            on_repeats = numbers.mean(found, f"repeat_{probe}", percent=False)
            rows.append([found.name, label, *on_plain, on_repeats])
    chance = " / ".join(f"{100 / (config.values - used):.0f} %" for used in steps)
    return _section(
        "bayes",
        "How close to the ideal observer",
        _text(
            "Probabilities against the ideal observer that holds all mappings equally likely. The mean error is over "
            f"values and {_sequences(evidence)}; the largest error is the maximum over the same. The ideal "
            f"observer is right in {chance} of the steps, and always at a repeat."
        ),
        {
            "kind": "table",
            "columns": columns,
            "rows": rows,
            "caption": "Means over seeds; held-out mappings.",
        },
    )


def _sequences(evidence: dict[str, Evidence]) -> str:
    whole = all(found.exhaustive for found in evidence.values())
    return "every held-out sequence" if whole else "a fixed random part of the held-out sequences"


def _attention_section() -> dict[str, Any]:
    return _section(
        "attention",
        "Where the heads look",
        _text(
            "Mean attention at the end of training over held-out sequences. Each row is a position that reads, each "
            "column a position that is read, and a row adds up to one. Choose sequences in which a chosen x comes "
            "back to see whether a head follows it to its earlier copy. A map shows where a head looks, not what "
            "its reading is used for."
        ),
        _figure(
            "attention",
            "Mean attention patterns by configuration and head (columns) and seed (rows).",
            "Heat maps of mean attention patterns.",
        ),
    )


def _written(value: float, percent: bool) -> str:
    if not percent:
        return f"{value:.4f}"
    shown = f"{100 * value:.2f}".rstrip("0").rstrip(".")
    if shown in ("0", "100") and value not in (0.0, 1.0):
        shown = (
            "< 0.01" if value < 0.5 else "> 99.99"
        )  # rounding must not turn a near miss into a perfect score
    return f"{shown}\u00a0%"
