"""How training stands to the presentation, and numbers of the members that one reading of it has."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.claims import Criterion, Samples
from hopscope.models.config import Model
from hopscope.studies.permutation.options import Cell, Options
from hopscope.tasks import Permutation
from hopscope.theory.posteriors import elimination_floor, training_floor
from hopscope.training.config import Training

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

Value = Callable[["Evidence"], Any]

TASK = Permutation(repeat_ratio=0.3)
MODEL = Model(layers=1, mlp_ratio=2.0, activation="relu", norm="post", positions="learned", init="encoder")
TRAINING = Training(
    steps=1, batch_size=256, optimizer="adam", betas=(0.9, 0.999), weight_decay=0.0, clip_norm=None, warmup_steps=0,
    schedule="constant",
)  # fmt: skip
"""What the presentation states, and, where it states nothing (batch size, start, split), what torch does."""

STATED = {
    "task.values": "V", "task.held_out_share": "held-out share", "training.learning_rate": "learning rate",
    "training.optimizer": "optimiser", "model.mlp_ratio": "MLP ratio", "model.activation": "activation",
    "model.norm": "norm", "model.positions": "positions", "training.weight_decay": "weight decay",
    "training.clip_norm": "clipping",
}  # fmt: skip
"""Fields whose values the presentation states, in words."""

STATED_OF_REPEATS = {
    "task.repeat_ratio": "repeat ratio", "task.repeat_slots": "repeat slots", "task.repeat_sources": "repeat sources",
}  # fmt: skip

EPOCHS, SAMPLES = {"plain": 20, "repeats": 50}, 100_000
"""Length of training, and samples of an epoch (presentation, section 12)."""

LATE = "scores as the median of the last five epochs"
"""The other moment of a score: the presentation names none, and the last checkpoint is the default."""

SPLITS, BATCHES = 10, (64, 128, 256, 512)
"""Splits that a number which hangs on them varies over; batch sizes that the presentation may have meant."""


class Trained(NamedTuple):
    """How a configuration is trained: with field → words where that departs from what the presentation states."""

    cell: Cell
    batch_size: int
    epochs: float
    departures: dict[str, str]


def trained_by(options: Options, study: Any) -> list[Trained]:
    """How every configuration of a study is trained."""
    cells, found = {cell.name: cell for cell in options.grid}, list[Trained]()
    for each in study.grid():
        cell, here = cells[each.label], study.of(each)
        lacking = departures(options, cell, here)
        found.append(Trained(cell, here.training.batch_size, options.epochs(cell), lacking))
    return found


def readings_of(study: Any, trained: list[Trained]) -> dict[str, list[Trained]]:
    """Ways to read what the presentation leaves open, with what is trained so: first the one of the study itself.

    One that names no length has the stated one for each kind of data.
    """
    own = study.training.batch_size
    batches = {each.batch_size for each in trained if each.cell.get("batch")} - {own}
    lengths = {each.epochs for each in trained if each.cell.get("epochs")}
    changed = _changed(study.of(study.grid()[0]), ("model.init", "training.betas", "task.split_seed"))
    more = "".join(f", {name.rpartition('.')[2]} {value}" for name, (value, _) in changed.items())
    as_stated = [each for each in trained if not each.cell.get("epochs")]
    found = {
        f"batch {size}{more}": [each for each in as_stated if each.batch_size == size]
        for size in (own, *sorted(batches, reverse=True))
    }
    return found | {
        f"batch {own}, {length:g} epochs{more}": [
            each for each in trained if (each.batch_size, each.epochs) == (own, length)
        ]
        for length in sorted(lengths)
    }


def named(trained: Iterable[Trained], name: str) -> list[Trained]:
    """Configurations of a name without batch size, epochs and split."""
    return [each for each in trained if each.cell.bare == name]


def departures(options: Options, cell: Cell, here: Any) -> dict[str, str]:
    """Field → how the training of a configuration, a study of its own, departs from what the presentation states."""
    epochs = options.epochs(cell) * options.samples_per_epoch / SAMPLES
    # Two lengths are stated, each for one model: for the others, both are readings of it.
    least = EPOCHS[cell.data if cell.get("epochs") is None else "plain"]
    found = {"epochs": f"{epochs:g} of {least} epochs"} if epochs < least else {}
    words = STATED | (STATED_OF_REPEATS if cell.data == "repeats" else {})
    changed = _changed(here, words).items()
    return found | {name: f"{words[name]} {value} instead of {said}" for name, (value, said) in changed}


def _changed(here: Any, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    default = {"task": TASK, "model": MODEL, "training": TRAINING}
    found = dict[str, tuple[Any, Any]]()
    for name in names:
        section, _, field = name.partition(".")
        value, said = getattr(getattr(here, section), field), getattr(default[section], field)
        found |= {name: (value, said)} if value != said else {}
    return found


def of_reading(labels: Collection[str], value: Value, evidence: "Evidence") -> Any:
    """A value of the members of some configurations alone, such as those that were trained as a reading says."""
    return value(evidence.where(configuration=labels))


def untried(lacking: Sequence[str], score: str, evidence: "Evidence") -> str:
    """Readings that the presentation leaves open and that the run lacks; the moment of a score is one of them."""
    late = [LATE] if score and not evidence.has(score, measure="late", split=None) else []
    return ", ".join([*lacking, *late])


def measured(
    trained: Sequence[Trained], evidence: "Evidence", metric: str, measure: str = "probes",
    part: str | Sequence[str] | None = None, split: str = "held_out", less: str | None = None, head: int | None = None,
    at_any_values: bool = False, of_all_splits: bool = False,
) -> Samples:  # fmt: skip
    """A metric of a configuration at the end of training, with what the training lacks of the source's protocol.

    Of several parts each member's largest; `less` is a part that is taken off.
    """
    import numpy as np

    from hopscope.claims.intervals import crossed_interval

    labels = {*evidence.configurations.values()}
    # One of each split: the study's own fields may be written out in a name, too.
    of_split = {each.cell.get("split"): each for each in trained if each.cell.name in labels}
    chosen = {each.cell.name: split for split, each in of_split.items() if of_all_splits or split is None}
    if not chosen:
        return Samples([], note="not trained in this run")
    first, found = of_split[next(iter(chosen.values()))], evidence.where(configuration={*chosen})
    values = _last(found, metric, measure, part, split, head)
    taken_off = 0.0 if less is None else _last(found, metric, measure, less, split)
    if values is None or taken_off is None:
        return Samples([], note="not measured")
    values = values - taken_off
    lacking = [
        words for field, words in first.departures.items() if not (at_any_values and field == "task.values")
    ]
    sets = [_last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    if any(each is None or bool((each.dropna() != 1).any()) for each in sets):
        lacking.append("measured on a part of the held-out sequences")
    if of_all_splits and len(chosen) < SPLITS and not (first.cell.get("batch") or first.cell.get("epochs")):
        lacking.append(f"{len(chosen)} of {SPLITS} splits of the mappings")
    known, interval = values.dropna(), None
    notes = ["on a part of the held-out sequences"] * (measure == "late" and split == "held_out")
    if len(chosen) > 1 and len(known) and np.isfinite(known).all():
        split_of = [chosen[evidence.configurations[member]] for member in known.index]
        interval = crossed_interval(known, [evidence.seeds[member] for member in known.index], split_of)
        notes.append(f"over {len(set(split_of))} splits of the mappings")
    members, missing, said = [*map(int, values.index)], ", ".join(lacking), "; ".join(notes)
    return Samples([*values], interval=interval, members=members, missing=missing, note=said)


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
    """A value with parts."""
    return lambda evidence: {part: value(evidence) for part, value in values.items()}


def suddenness(value: Value, evidence: "Evidence") -> Samples:
    """How long the rise of a skill took, as a share of the time to its half."""
    widths: Samples = value(evidence)
    never = len(widths.values) and all(math.isinf(width) for width in widths.values if not math.isnan(width))
    return Samples([], note="no seed learned recall") if never else widths


def heat_maps(
    of_heads: Sequence[Value], must: Mapping[str, Criterion], place: int, evidence: "Evidence"
) -> dict[str, Samples]:
    """Shares of attention, the first of one head and the others of another, in the order of two heads that comes
    closest to the criteria (place 0), or in the other one, member by member."""

    def margin(shares: Sequence[float]) -> float:
        pairs = zip(shares, must.values(), strict=True)
        return min(-math.inf if math.isnan(share) else share - criterion.low for share, criterion in pairs)

    first, second = ([*value(evidence).values()] for value in of_heads)
    orders = [(one[0], *other[1:]) for one, other in ((first, second), (second, first))]
    by_member = [[*zip(*(each.values.tolist() for each in order), strict=True)] for order in orders]
    ranked = [sorted(pair, key=margin, reverse=True)[place] for pair in zip(*by_member, strict=True)]
    columns = zip(*ranked, strict=True) if ranked else [()] * len(must)
    return {share: replace(first[0], values=[*column]) for share, column in zip(must, columns, strict=True)}


# Controls: what must not be there, or a claim would hold for a reason of no interest.


def first_loss(losses: Mapping[str, Value], evidence: "Evidence") -> dict[str, Samples]:
    """Training loss at the first step: an untrained model must not rest at the floor."""
    found = {}
    for name, value in losses.items():
        at_end = value(evidence)
        members = at_end.members or []
        curve = evidence.rows("loss", measure="training", split="train", part=None, member=members)
        first = curve.groupby("member", sort=False)["value"].first()
        found[name] = replace(at_end, values=[first.get(member) for member in members])
    return found


def distance(value: Value, must: Mapping[str, Criterion], evidence: "Evidence") -> Samples:
    """Of each member, how far the number that is farthest from its criterion is from it; 0 if all are met."""
    parts: dict[str, Samples] = value(evidence)
    off = []
    for row in zip(*(each.values.tolist() for each in parts.values()), strict=True):
        pairs = [(must[part], number) for part, number in zip(parts, row, strict=True)]
        each = [max(criterion.low - number, number - criterion.high, 0.0) for criterion, number in pairs]
        off.append(math.nan if any(map(math.isnan, row)) else max(each))
    return replace(next(iter(parts.values())), values=off)


def memorised_held_out(value: Value, known: int, evidence: "Evidence") -> Samples:
    """How far the loss on held-out mappings of four values has gone to that of an observer who knows the others (so
    many), which nobody can have memorised."""
    loss, uniform = value(evidence), elimination_floor(4)
    return replace(loss, values=(uniform - loss.values) / (uniform - training_floor(4, known)))
