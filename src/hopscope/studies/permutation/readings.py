"""How training stands to the presentation, and numbers of the members that one reading of it has."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.claims import Criterion, Samples
from hopscope.models.config import Model
from hopscope.studies.permutation.options import CHANGES, Cell, Options
from hopscope.tasks import Permutation
from hopscope.theory.posteriors import elimination_floor, training_floor
from hopscope.training.config import Training

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

TASK = Permutation(repeat_ratio=0.3)
MODEL = Model(layers=1, mlp_ratio=2.0, activation="relu", norm="post", positions="learned", init="encoder")
TRAINING = Training(
    steps=1, batch_size=256, optimizer="adam", betas=(0.9, 0.999), weight_decay=0.0, clip_norm=None, warmup_steps=0,
    schedule="constant",
)  # fmt: skip
"""What the presentation states, and, where it states nothing (batch size, start, split), what torch does."""

STATED = (
    "task.values", "task.held_out_share", "training.learning_rate", "training.optimizer", "model.mlp_ratio",
    "model.activation", "model.norm", "model.positions", "training.weight_decay", "training.clip_norm", "model.causal",
    "model.head_dim", "training.epsilon", "training.schedule", "training.examples",
)  # fmt: skip
STATED_OF_REPEATS = ("task.repeat_ratio", "task.repeat_slots", "task.repeat_sources")
"""Fields whose values the presentation states."""

SPLITS = 10
"""Splits of the mappings that a number which hangs on them varies over."""


class Trained(NamedTuple):
    """How a configuration is trained, and in words how that departs from what the presentation states."""

    cell: Cell
    batch_size: int
    epochs: float
    departures: list[str]


Reading = list[Trained]
"""What is trained as the presentation is read in one way."""

Value = Callable[[Reading, "Evidence"], Any]
"""What a claim says of the members of a reading."""


def readings_of(options: Options, study: Any) -> dict[str, Reading]:
    """Ways to read what the presentation leaves open, with what a study trains so: first the one of the study itself.

    One that names no length has the stated one for each kind of data.
    """
    cells = [(options.grid[each.label], study.of(each)) for each in study.grid()]
    trained = [
        Trained(cell, here.training.batch_size, options.epochs(cell), departures(options, cell, here))
        for cell, here in cells
    ]
    own, fields = study.training.batch_size, ("model.init", "training.betas", "task.split_seed")
    more = "".join(f", {words}" for words in _changed(cells[0][1], fields))
    batches = {each.batch_size for each in trained if "batch" in each.cell.changes} - {own}
    lengths = {each.epochs for each in trained if "epochs" in each.cell.changes}
    as_stated = [each for each in trained if "epochs" not in each.cell.changes]
    found = {
        f"batch {size}{more}": [each for each in as_stated if each.batch_size == size]
        for size in (own, *sorted(batches, reverse=True))
    }
    for length in sorted(lengths):
        so = [each for each in trained if (each.batch_size, each.epochs) == (own, length)]
        found[f"batch {own}, {length:g} epochs{more}"] = so
    return found


def named(reading: Reading, name: str) -> list[Trained]:
    """Those of a name without batch size, epochs and split: one, or one of each split."""
    return [each for each in reading if each.cell.bare == name]


def departures(options: Options, cell: Cell, here: Any) -> list[str]:
    """How training, by a study of its own, departs from what the presentation states, but for what the name says."""
    epochs = options.epochs(cell) * options.samples_per_epoch / 100_000
    # Section 12.  Two lengths are stated, each for one model: for the others, both are readings of it.
    least = 50 if cell.data == "repeats" and "epochs" not in cell.changes else 20
    stated = (*STATED, *(STATED_OF_REPEATS if cell.data == "repeats" else ()))
    of_name = {CHANGES[key][0] for key in cell.changes}
    changed = _changed(here, [name for name in stated if name not in of_name])
    return [f"{epochs:g} of {least} epochs", *changed] if epochs < least else changed


def _changed(here: Any, names: Iterable[str]) -> list[str]:
    default, found = {"task": TASK, "model": MODEL, "training": TRAINING}, list[str]()
    for name in names:
        section, _, field = name.partition(".")
        value, said = getattr(getattr(here, section), field), getattr(default[section], field)
        if value != said:
            found.append(f"{field.replace('_', ' ')} {value} instead of {said}")
    return found


def measured(
    name: str, metric: str, reading: Reading, evidence: "Evidence", measure: str = "probes",
    part: str | Sequence[str] | None = None, split: str = "held_out", less: str | None = None, head: int | None = None,
    of_all_splits: bool = False,
) -> Samples:  # fmt: skip
    """A metric of a configuration at the end of training, with what the training lacks of the source's protocol.

    Of several parts each member's largest; `less` is a part that is taken off.
    """
    import numpy as np

    from hopscope.claims.intervals import crossed_interval

    labels = {*evidence.configurations.values()}
    # One of each split: the study's own fields may be written out in a name, too.
    there = [each for each in named(reading, name) if each.cell.name in labels]
    of_split = {each.cell.changes.get("split"): each for each in there}
    chosen = {each.cell.name: split for split, each in of_split.items() if of_all_splits or split is None}
    if not chosen:
        return Samples([], note="not trained in this run")
    first, found = of_split[next(iter(chosen.values()))], evidence.where(configuration={*chosen})
    values = _last(found, metric, measure, part, split, head)
    taken_off = 0.0 if less is None else _last(found, metric, measure, less, split)
    if values is None or taken_off is None:
        return Samples([], note="not measured")
    values = values - taken_off
    lacking = [*first.departures]
    sets = [_last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    if any(each is None or bool((each.dropna() != 1).any()) for each in sets):
        lacking.append("measured on a part of the held-out sequences")
    if of_all_splits and len(chosen) < SPLITS and not {"batch", "epochs"} & {*first.cell.changes}:
        lacking.append(f"{len(chosen)} of {SPLITS} splits of the mappings")
    known, interval = values.dropna(), None
    sampled = measure in ("late", "transition") and split == "held_out"
    notes = ["on a part of the held-out sequences"] * sampled
    if len(chosen) > 1 and len(known) and np.isfinite(known).all():
        split_of = [chosen[evidence.configurations[member]] for member in known.index]
        interval = crossed_interval(known, [evidence.seeds[member] for member in known.index], split_of)
        notes.append(f"over {len(set(split_of))} splits of the mappings")
    return Samples(values, interval=interval, missing=", ".join(lacking), note="; ".join(notes))


def _last(
    found: "Evidence", metric: str, measure: str, part: str | Sequence[str] | None, split: str = "held_out",
    head: int | None = None,
) -> "pd.Series[float] | None":  # fmt: skip
    # Each member's last value, of several parts the largest; nothing where no member has it.
    import pandas as pd

    place: Any = {"measure": measure, "split": split, "layer": None if head is None else 0, "head": head}
    parts = [part] if part is None or isinstance(part, str) else part
    known = [each for each in parts if metric in found and not found.rows(metric, part=each, **place).empty]
    series = [found.last(metric, part=each, **place) for each in known]
    return pd.concat(series, axis=1).max(axis=1, skipna=False) if series else None


def together(values: Mapping[str, Value]) -> Value:
    return lambda reading, evidence: {part: value(reading, evidence) for part, value in values.items()}


def suddenness(value: Value, reading: Reading, evidence: "Evidence") -> Samples:
    """How long the rise of a skill took, as a share of the time to its half."""
    widths: Samples = value(reading, evidence)
    never = len(widths.values) and all(math.isinf(width) for width in widths.values if not math.isnan(width))
    return Samples([], note="no seed learned recall") if never else widths


def _margin(parts: Mapping[str, Samples], must: Mapping[str, Criterion]) -> Any:
    # Of each member, how far within its criterion the number is that is so least; below 0 outside.
    import numpy as np

    pairs = [(each.values - must[part].low, must[part].high - each.values) for part, each in parts.items()]
    return np.min([np.minimum(*pair) for pair in pairs], 0)


def of_two_heads(
    name: str, numbers: Mapping[str, tuple[str, int]], must: Mapping[str, Criterion], reading: Reading,
    evidence: "Evidence", part: str | None = None, closest: bool = True,
) -> dict[str, Samples]:  # fmt: skip
    """Metrics of one of the two heads of a configuration each: part of the claim → metric, and which of the two.

    The heads are taken, member by member, in the order that comes closest to the criteria, or in the other one.
    """
    import numpy as np

    of = partial(measured, name, reading=reading, evidence=evidence, measure="roles", part=part)
    one = {each: of(metric, head=head) for each, (metric, head) in numbers.items()}
    other = {each: of(metric, head=1 - head) for each, (metric, head) in numbers.items()}
    turned = (_margin(other, must) > _margin(one, must)) == closest
    values = {each: np.where(turned, other[each].values, one[each].values) for each in one}
    return {each: replace(one[each], values=values[each]) for each in one}


# Controls: what must not be there, or a claim would hold for a reason of no interest.


def first_loss(losses: Mapping[str, Value], reading: Reading, evidence: "Evidence") -> dict[str, Samples]:
    """Training loss at the first step: an untrained model must not rest at the floor."""
    first = evidence.curve("loss", split="train", measure="training").bfill().iloc[0]
    at_end: dict[str, Samples] = {name: value(reading, evidence) for name, value in losses.items()}
    return {name: replace(each, values=first.reindex(each.members or [])) for name, each in at_end.items()}


def distance(value: Value, must: Mapping[str, Criterion], reading: Reading, evidence: "Evidence") -> Samples:
    """Of each member, how far the number that is farthest from its criterion is from it; 0 if all are met."""
    import numpy as np

    parts: dict[str, Samples] = value(reading, evidence)
    return replace(next(iter(parts.values())), values=np.maximum(0.0, -_margin(parts, must)))


def memorised_held_out(value: Value, known: int, reading: Reading, evidence: "Evidence") -> Samples:
    """How far the loss on held-out mappings of four values has gone to that of an observer who knows the others (so
    many), which nobody can have memorised."""
    loss, uniform = value(reading, evidence), elimination_floor(4)
    return replace(loss, values=(uniform - loss.values) / (uniform - training_floor(4, known)))
