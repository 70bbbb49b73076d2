"""What the values of claims are made of: a metric of the members that one reading of the presentation has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.claims import Samples
from hopscope.claims.intervals import crossed_interval
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig, Reading
from hopscope.words import counted

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

Value = Callable[["Evidence"], "Samples | Mapping[str, Samples]"]

LATE = "scores as the median of the last five epochs"
"""The other moment of a score: the presentation names none, and the last checkpoint is the default."""

SPLITS = 10
"""Splits of the mappings that a number which hangs on them varies over, in the study's own reading."""

BATCHES = (64, 128, 256, 512)
"""Batch sizes that the presentation may have meant: it states none."""


def of_reading(reading: Reading, value: Value, evidence: "Evidence") -> Samples | Mapping[str, Samples]:
    """A value of those members alone that were trained as one reading says."""
    config = PermutationStudyConfig.model_validate(evidence.config)
    labels = {
        label
        for label in evidence.configurations.values()
        if config.is_of(Configuration.parse(label), reading)
    }
    return value(evidence.where(configuration=labels))


def untried(
    evidence: "Evidence",
    *,
    names: Sequence[str],
    lengths: Sequence[float] = (20, 50),
    scores: Sequence[str] = (),
) -> str:
    """Readings that the presentation leaves open and that the run lacks, in words; nothing where it has them all.

    Args:
        evidence: of the run.
        names: bare names of the configurations that a reading needs.
        lengths: of training, in epochs.
        scores: metrics whose moment is open too.
    """
    config = PermutationStudyConfig.model_validate(evidence.config)
    trained = [
        [each for name in names for each in config.trained(name, reading)]
        for reading in config.readings()
        if all(config.trained(name, reading) for name in names)
    ]
    batches = {each.batch_size or config.batch_size for of_reading in trained for each in of_reading}
    lacking = [f"batch {size}" for size in BATCHES if size not in batches]
    lacking += [
        f"{length:g} epochs"
        for length in lengths
        if not any({config.epochs(each) for each in of_reading} == {length} for of_reading in trained)
    ]
    if scores and not any(evidence.has(metric, measure="late", split=None) for metric in scores):
        lacking.append(LATE)
    return ", ".join(lacking)


def moments(value: Callable[[str], Value], way: str = "", end: str = "probes") -> dict[str, Value]:
    """A value, made from the name of a measure, at both moments of a score.

    Args:
        value: from the measure `late` or the one at the end of training.
        way: the reading that has both moments, if it is not the study's own.
        end: the measure at the end of training.
    """
    return {way: value(end), ", ".join(filter(None, [way, LATE])): value("late")}


def each_metric(
    metrics: Iterable[str], name: str, measure: str, evidence: "Evidence", **where: Any
) -> dict[str, Samples]:
    """Several metrics of a configuration."""
    return {metric: measured(evidence, name, metric, measure, **where) for metric in metrics}


def measured(
    evidence: "Evidence",
    name: str,
    metric: str,
    measure: str,
    *,
    part: str | Sequence[str] | None = None,
    split: str = "held_out",
    less: str | None = None,
    note: "Callable[[pd.Series[float]], str] | None" = None,
    any_values: bool = False,
    splits: bool = False,
    head: int | None = None,
) -> Samples:
    """A metric of a configuration at the end of training, with what the training lacks of the source's protocol.

    Args:
        evidence: of members of one reading.
        name: of the configuration, without batch size, epochs and split of the mappings.
        metric, measure, part, split: which number; of several parts each member's largest.
        less: the part that is taken off.
        note: words about the numbers that there are.
        any_values: whether another number of values than the source's is no departure.
        splits: whether members of every split of the mappings count, and not only those of the study's own.
        head: of the first layer, for a number of each head.
    """
    trained = {label: Configuration.parse(label) for label in evidence.configurations.values()}
    fitting = [label for label, each in trained.items() if each.bare.name == name]
    # One of each split: the study's own fields may be written out in a name, too.
    of_split = {trained[label].split_seed: label for label in fitting}
    chosen = {label: trained[label] for split, label in of_split.items() if splits or split is None}
    if not chosen:
        return Samples([], note="not trained in this run")
    found, configuration = evidence.where(configuration={*chosen}), next(iter(chosen.values()))
    values = last(found, metric, measure, part, split, head)
    taken_off = 0.0 if less is None else last(found, metric, measure, less, split)
    if values is None or taken_off is None:
        return Samples([], note="not measured")
    values = values - taken_off
    changed = replace(configuration, values=None) if any_values else configuration
    lacking = PermutationStudyConfig.model_validate(evidence.config).protocol_deviations(changed)
    sets = [last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    if any(each is None or bool((each.dropna() != 1).any()) for each in sets):
        lacking.append("measured on a part of the held-out sequences")
    if splits and len(chosen) < SPLITS and replace(configuration, split_seed=None) == configuration.bare:
        lacking.append(f"{len(chosen)} of {SPLITS} splits of the mappings")
    known = values.dropna()
    notes = [note(known)] if note and len(known) else []
    if measure == "late" and split == "held_out":
        notes.append("on a part of the held-out sequences")
    interval = None
    if len(chosen) > 1 and len(known) and np.isfinite(known).all():
        split_of = [chosen[evidence.configurations[member]].split_seed for member in known.index]
        interval = crossed_interval(known, [evidence.seeds[member] for member in known.index], split_of)
        notes.append(f"over {counted(len(set(split_of)), 'split')} of the mappings")
    return Samples(values, interval=interval, missing=", ".join(lacking), note="; ".join(notes))


def last(
    found: "Evidence",
    metric: str,
    measure: str,
    part: str | Sequence[str] | None = None,
    split: str = "held_out",
    head: int | None = None,
) -> "pd.Series[float] | None":
    """Each member's last value of a metric, of several parts the largest; nothing where no member has it."""
    import pandas as pd

    if metric not in found:
        return None
    place: dict[str, Any] = {
        "measure": measure,
        "split": split,
        "layer": None if head is None else 0,
        "head": head,
    }
    known = [
        found.last(metric, part=each, **place)
        for each in ([part] if part is None or isinstance(part, str) else part)
        if not found.rows(metric, part=each, **place).empty
    ]
    return pd.concat(known, axis=1).max(axis=1, skipna=False) if known else None
