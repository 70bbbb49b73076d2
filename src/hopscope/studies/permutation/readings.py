"""What the values of claims are made of: numbers of the members that one reading of the presentation has."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Criterion, Samples
from hopscope.tasks import Permutation
from hopscope.theory.posteriors import elimination_floor, training_floor

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence
    from hopscope.studies.permutation.options import Options, Reading

Value = Callable[["Evidence"], Any]

LATE = "scores as the median of the last five epochs"
"""The other moment of a score: the presentation names none, and the last checkpoint is the default."""

SPLITS, BATCHES = 10, (64, 128, 256, 512)
"""Splits that a number which hangs on them varies over; batch sizes that the presentation may have meant."""


def of_reading(options: "Options", reading: "Reading", value: Value, evidence: "Evidence") -> Any:
    """A value of those members alone that were trained as a reading says."""
    labels = {cell.name for cell in options.grid if options.is_of(cell, reading)}
    return value(evidence.where(configuration=labels))


def untried(
    options: "Options", evidence: "Evidence", names: Sequence[str], lengths: Sequence[float] = (20, 50), score: str = ""
) -> str:  # fmt: skip
    """Readings that the presentation leaves open and that the run lacks, in words.

    Args:
        names: configurations that a reading needs.
        lengths: of training, in epochs.
        score: a metric whose moment is open too.
    """
    of_readings = [[options.trained(name, reading) for name in names] for reading in options.readings]
    trained = [[cell for some in each for cell in some] for each in of_readings if all(each)]
    batches = {cell.get("batch_size") or options.batch_size for cells in trained for cell in cells}
    found = [{options.epochs(cell) for cell in cells} for cells in trained]
    lacking = [f"batch {size}" for size in BATCHES if size not in batches]
    lacking += [f"{length:g} epochs" for length in lengths if {length} not in found]
    lacking += [LATE] if score and not evidence.has(score, measure="late", split=None) else []
    return ", ".join(lacking)


def measured(
    options: "Options", evidence: "Evidence", name: str, metric: str, measure: str = "probes",
    part: str | Sequence[str] | None = None, split: str = "held_out", less: str | None = None, head: int | None = None,
    note: "Callable[[pd.Series[float]], str] | None" = None, any_values: bool = False, splits: bool = False,
) -> Samples:  # fmt: skip
    """A metric of a configuration at the end of training, with what the training lacks of the source's protocol.

    Args:
        name: of the configuration, without batch size, epochs and split.
        metric, measure, part, split, head: which number; of several parts each member's largest.
        less: the part that is taken off.
        note: words about the numbers that there are.
        any_values: whether another number of values than the source's is no departure.
        splits: whether members of every split of the mappings count, and not only those of the options' own.
    """
    import numpy as np

    from hopscope.claims.intervals import crossed_interval

    labels = {*evidence.configurations.values()}
    # One of each split: the options' own fields may be written out in a name, too.
    of_split = {
        cell.get("split_seed"): cell for cell in options.grid if cell.name in labels and cell.bare == name
    }
    chosen = {cell.name: cell for split_seed, cell in of_split.items() if splits or split_seed is None}
    if not chosen:
        return Samples([], note="not trained in this run")
    found, cell = evidence.where(configuration={*chosen}), next(iter(chosen.values()))
    values = _last(found, metric, measure, part, split, head)
    taken_off = 0.0 if less is None else _last(found, metric, measure, less, split)
    if values is None or taken_off is None:
        return Samples([], note="not measured")
    values = values - taken_off
    lacking = options.departures(cell.without("values") if any_values else cell)
    sets = [_last(found, "exhaustive", "probes", kind) for kind in ("plain", "repeats")]
    if any(each is None or bool((each.dropna() != 1).any()) for each in sets):
        lacking.append("measured on a part of the held-out sequences")
    if splits and len(chosen) < SPLITS and cell.without("split_seed").name == name:
        lacking.append(f"{len(chosen)} of {SPLITS} splits of the mappings")
    known, interval = values.dropna(), None
    notes = [note(known)] if note and len(known) else []
    if measure == "late" and split == "held_out":
        notes.append("on a part of the held-out sequences")
    if len(chosen) > 1 and len(known) and np.isfinite(known).all():
        split_of = [chosen[evidence.configurations[member]].get("split_seed") for member in known.index]
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
    return partial(_together, values)


def _together(values: Mapping[str, Value], evidence: "Evidence") -> dict[str, Any]:
    return {part: value(evidence) for part, value in values.items()}


def from_floor(floor: float, losses: "pd.Series[float]") -> str:
    """How far losses are from a floor, in words."""
    above = float(losses.mean()) - floor
    return f"{abs(above):.4f} nats {'below' if above < 0 else 'above'} the floor"


def suddenness(options: "Options", name: str, part: str, evidence: "Evidence") -> Samples:
    """How long the rise of a skill took, as a share of the time to its half."""
    widths = measured(options, evidence, name, "relative_width", "transition", part)
    never = len(widths.values) and all(math.isinf(width) for width in widths.values if not math.isnan(width))
    return Samples([], note="no seed learned recall") if never else widths


def heat_maps(
    options: "Options", name: str, must: Mapping[str, Criterion], place: int, evidence: "Evidence"
) -> dict[str, Samples]:
    """Shares of attention, the first of one head and the others of another, in the order of heads that comes closest to
    the criteria (place 0), or in the other one, member by member."""

    def margin(shares: Sequence[float]) -> float:
        pairs = zip(shares, must.values(), strict=True)
        return min(-math.inf if math.isnan(share) else share - criterion.low for share, criterion in pairs)

    of_heads = [
        [measured(options, evidence, name, share, "roles", "heat_map", head=head) for share in must] for head in (0, 1)
    ]  # fmt: skip
    orders = [(of_heads[first][0], *of_heads[other][1:]) for first, other in ((0, 1), (1, 0))]
    by_member = [[*zip(*(each.values.tolist() for each in order), strict=True)] for order in orders]
    ranked = [sorted(pair, key=margin, reverse=True)[place] for pair in zip(*by_member, strict=True)]
    columns = zip(*ranked, strict=True) if ranked else [()] * len(must)
    return {name: replace(orders[0][0], values=[*column]) for name, column in zip(must, columns, strict=True)}


# Controls: what must not be there, or a claim would hold for a reason of no interest.


def first_loss(options: "Options", names: Sequence[str], evidence: "Evidence") -> dict[str, Samples]:
    """Training loss at the first step: an untrained model must not rest at the floor."""
    found = {}
    for name in names:
        at_end = measured(options, evidence, name, "last_epoch_loss", "last_epoch", split="train")
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


def memorised_held_out(options: "Options", name: str, evidence: "Evidence") -> Samples:
    """How far the loss on held-out mappings of four values has gone to that of an observer who knows the others, which
    nobody can have memorised."""
    known = Permutation(values=4, held_out_share=options.held_out_share).mappings(False)
    loss = measured(options, evidence, name, "held_out_loss", "posteriors", any_values=True)
    uniform = elimination_floor(4)
    return replace(loss, values=(uniform - loss.values) / (uniform - training_floor(4, known)))
