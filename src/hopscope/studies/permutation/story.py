"""The page of the permutation study in words; every number with the file and the key it came from."""

from typing import Any

from hopscope.claims import Claim, Judgement
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.studies.permutation.figures import floors

SCHEMA_VERSION = 1
EXAMPLE = ((3, 3), (4, 5), (2, 1), (1, 4), (3, 3))
"""The presentation's example (section 8): x₅ repeats x₁, so recall says 3 and elimination says 2."""


class _Numbers:
    """The numbers of the page, each registered once under its key."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def add(self, key: str, value: float, text: str, file: str, source_key: str) -> str:
        """Register a number; returns the placeholder to write in the text."""
        self.entries[key] = {"value": value, "text": text, "file": file, "key": source_key}
        return "{" + key + "}"


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
        _configuration_section(config, evidence),
        _loss_section(config, evidence, numbers),
        _skill_section(evidence, numbers),
        _bayes_section(config, evidence),
        _attention_section(),
    ]
    story = {
        "schema_version": SCHEMA_VERSION,
        "title": "Permutation lookup: does a tiny transformer remember, or only rule out?",
        "subtitle": f"{len(evidence)} configurations, {config.seeds} seeds each, measured on held-out mappings",
        "numbers": numbers.entries,
        "claims": {
            claim.id: {"words": judgement.words, "per_seed": {k: list(v) for k, v in judgement.per_seed.items()}}
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
            f"Each sequence hides a rule: a permutation that sends every value from 1 to {config.values} to another "
            "one. The rule is new in each sequence and is shown pair by pair, x then y. At every x the model must "
            "say which y belongs to it."
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
            f"{config.held_out_share:.0%} of the mappings never occur in training, and every score below is "
            "measured on those."
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


def _configuration_section(config: PermutationStudyConfig, evidence: dict[str, Evidence]) -> dict[str, Any]:
    rows = []
    for found in evidence.values():
        rows.append(
            [
                found.name,
                f"{config.epochs(found.configuration):g} epochs, {config.training(found.configuration).steps:,} steps",
                str(len(found.seeds)),
                _range(found.probes["elimination"]),
                _range(found.probes["recall"]),
                _range(found.probes["mass_unused"]),
                _range(found.training_loss, percent=False),
            ]
        )
    departures = [f"{found.name}: {', '.join(found.departures)}" for found in evidence.values() if found.departures]
    notes = [_text("Below the source's scale: " + "; ".join(departures) + ".")] if departures else []
    return _section(
        "models",
        "What was trained",
        _text(
            "A configuration is named by width / heads and by its data: d32/2 repeats has width 32, two heads, and "
            f"{config.repeat_ratio:.0%} of its training sequences hold a repeat."
        ),
        {
            "kind": "table",
            "columns": [
                "configuration", "training", "seeds", "elimination", "recall",
                "mass on the unused value (repeats)", "training loss, last epoch",
            ],
            "rows": rows,
            "caption": "Lowest to highest seed, over every held-out sequence. Guessing scores "
            f"{1 / config.values:.0%}; elimination alone scores 0 % on repeats, because the right value is used.",
        },
        *notes,
    )  # fmt: skip


def _loss_section(
    config: PermutationStudyConfig, evidence: dict[str, Evidence], numbers: _Numbers
) -> dict[str, Any]:
    names = floors(config)
    uniform, training = (
        numbers.add(key, value, f"{value:.4f}", "figures/loss.csv", f"loss where kind is {name!r}")
        for (name, value), key in zip(names.items(), ("floor_uniform", "floor_training"), strict=True)
    )
    return _section(
        "loss",
        "The loss hides what was learned",
        _text(
            f"An ideal observer that holds all mappings equally likely pays {uniform} nats per answer; one that knows "
            f"which mappings are used in training pays {training}. A loss below the first line means that a model "
            "has begun to memorise the training mappings, which cannot help it on held-out ones."
        ),
        _figure(
            "loss",
            "Training loss of every seed, with the floors of both ideal observers.",
            "Line chart of training loss against training samples; the curves fall towards the elimination floor.",
        ),
    )


def _skill_section(evidence: dict[str, Evidence], numbers: _Numbers) -> dict[str, Any]:
    sentences = []
    for found in evidence.values():
        key = found.name.replace("/", "_").replace(" ", "_")
        file, index = found.files[0]
        mean = sum(found.probes["recall"]) / len(found.probes["recall"])
        shown = numbers.add(f"recall_{key}", mean, f"{mean:.2%}", file, f"recall, mean over {len(found.seeds)} members")
        sentences.append(f"{found.name}: {shown} of held-out repeats recalled.")
    return _section(
        "skills",
        "Elimination comes first, recall much later or never",
        _text(
            "Both skills, measured on held-out mappings as training goes on. " + " ".join(sentences)
        ),
        _figure(
            "skills",
            "Accuracy at step 5 on held-out sequences without a repeat (elimination) and with one (recall).",
            "Line charts of elimination and recall accuracy against training samples, one panel per configuration.",
        ),
        _figure(
            "recall_by_slot",
            "Recall at the end of training, by which x came back. Each point is a seed.",
            "Dot plot of recall by repeated slot and seed, one panel per configuration.",
        ),
    )


def _bayes_section(config: PermutationStudyConfig, evidence: dict[str, Evidence]) -> dict[str, Any]:
    columns = ["configuration", "measure", *[f"step {step}" for step in range(1, config.values + 1)], "repeat"]
    rows = []
    for found in evidence.values():
        for label, plain, repeats in (
            ("accuracy", "accuracy_by_step", None),
            ("mean error", "mae_by_step", "repeats_mae_by_step"),
            ("largest error", "max_ae_by_step", "repeats_max_ae_by_step"),
        ):
            by_seed = found.probes[plain]
            cells = [_mean(values, percent=repeats is None) for values in zip(*by_seed, strict=True)]
            last = found.probes["recall"] if repeats is None else [v[-1] for v in found.probes[repeats]]
            rows.append([found.name, label, *cells, _mean(last, percent=repeats is None)])
    chance = " / ".join(f"{1 / (config.values - used):.0%}" for used in range(config.values))
    return _section(
        "bayes",
        "How close to the ideal observer",
        _text(
            "Probabilities against the ideal observer that holds all mappings equally likely. The mean error is over "
            "held-out sequences and values; the largest error is the true maximum over all of them. The ideal "
            f"observer's accuracy is {chance}."
        ),
        {"kind": "table", "columns": columns, "rows": rows, "caption": "Means over seeds."},
    )


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


def _range(values: list[float | None], *, percent: bool = True) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    low, high = (_written(bound, percent) for bound in (min(known), max(known)))
    return low if low == high else f"{low} – {high}"


def _mean(values: Any, *, percent: bool) -> str:
    known = [value for value in values if value is not None]
    return _written(sum(known) / len(known), percent) if known else "–"


def _written(value: float, percent: bool) -> str:
    return f"{value:.2%}" if percent else f"{value:.4f}"
