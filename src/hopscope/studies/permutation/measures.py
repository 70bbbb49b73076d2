"""Everything that was measured of a permutation run, as rows of the evidence table.

Each analysis is a measure of its own name.  The keys of its nested record become the columns of a row:

* the *metric* is the last key that names a quantity; conditions (`repeats`, `uniform`, …) and the other keys make up
  the *part*: `mlp_ablation.mean.recall` is the metric `recall` of the part `mlp_ablation.mean`;
* `train` and `held_out` are the split;
* a list inside a member's value runs over heads (column `head`), or over steps, slots or others, which end the part:
  `accuracy_by_step` is the metric `accuracy` of the parts `step_1`, `step_2`, …

A fact that is not about single members, such as a floor, or whether a set is exhaustive, belongs to each of them.
Besides:

Measure `patterns`: `attention_pattern` has no value; it points to the file of the mean maps, part by part.
Measure `formation`: curves have a row for each checkpoint.  `formed`: when each part of recall formed; part
    `recall.half.time` is the time at which recall had gone half its way, infinite if it never did.  `order`: which of
    two parts came first, -1, 0 (within one interval) or 1.
Measure `last_epoch`: `last_epoch_loss`, the mean training loss of the last epoch.
Measure `late`: medians over the evaluations of the last five epochs, on a part of the held-out sequences:
    `elimination`, `recall`, `mass_recalled`; and `memorised_share`, from the median training loss.
Measure `transition`: how sudden recall was, see `probes.change_points.transition`; what never happened is infinite.
    Parts `elimination.…` say the same of elimination, whose chance is 1/V.

The evidence table itself leaves out what was measured of a diverged member after its training broke off.
"""

import math
import re
import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hopscope.errors import UserError
from hopscope.runs import RunFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig, analyses
from hopscope.studies.permutation.probes.change_points import transition
from hopscope.studies.permutation.probes.head_specialization import (
    MISSING,
    NEITHER,
    ONE_DOES_BOTH,
    ONE_EACH,
    SHARED,
)
from hopscope.tasks.config import PermutationConfig, training_mappings
from hopscope.theory.posteriors import elimination_floor, training_floor
from hopscope.training.config import TrainJob, job_of

FACTS = frozenset(
    {
        "sequences", "exhaustive", "training_mappings", "uniform_floor", "training_floor", "floors", "recall_floor",
        "hidden", "fit", "undefined_share", "checkpoints",
    }
)  # fmt: skip
"""Keys under which no list is one over members."""

NAMES = FACTS | {"spread", "formed", "order", "first", "reached", "probability"}
"""Keys at the top of a record that name the quantity, whatever keys are below."""

CONDITIONS = frozenset(
    {"repeats", "plain", "uniform", "identity", "random", "linear", "mlp", "before", "after", "earlier_row"}
)
"""Keys that say under which condition something was measured, never what."""

OF_TRAINING = frozenset({"train_loss_exhaustive", "memorised_share"})
"""Quantities of the training mappings whose names do not end with the split."""

LATE_EPOCHS = 5
"""Epochs at the end of training that another reading of the moment of a score takes the median of."""

_SPLITS = ("train", "held_out")
_PLACE = re.compile(r"(step|slot|source|value)_\d+")
_QUANTITY = re.compile(r"(?P<name>(?!train_minus).+)_(?P<split>train|held_out)")
_BY = re.compile(r"_by_(step|slot)$")

AXES = {
    "battery": ("head",), "roles": ("head",), "formation": ("head",), "decoding": ("slot",),
    "slots": ("slot", "source"), "worked": ("step", "value"),
}  # fmt: skip
"""Analysis → what lists inside a member's value run over, and lists in these; those of the others run over steps."""

SPREADS = (ONE_EACH, ONE_DOES_BOTH, SHARED, NEITHER, MISSING)
FORMED_FIRST = ("match", "history", "recall")
"""Parts among which the analysis names the first (see `probes.formation.RANKED`, which takes torch along)."""

ORDERS = {"before": -1.0, "tie": 0.0, "after": 1.0, "unknown": None}
"""What formed before what, as a number; nothing where neither formed."""

NEVER_IS_INFINITE = ("time", "width", "widest", "relative_width")
"""Times and widths of a rise: where they are missing, it never came, which is not the same as an unknown time."""


def measurements(run: RunFolder, config: PermutationStudyConfig) -> Iterator[Row]:
    """A row for every number that was measured of a run's members after training.

    Raises:
        UserError: a file is missing or damaged.
    """
    curves = {split: Metrics(run, split) for split in ("train", "held_out")}
    gone = diverged_members(run)
    for unit in run.units:
        job = job_of(unit)
        step, samples = _end(job)
        for name, kind in analyses(config, job).items():
            file, found = unit.file_of(name, step, kind), unit.read_analysis(name, step)
            if kind == "json":
                yield from of_analysis(job, name, found, file)
                continue
            for member in job.members:
                for part in found:  # the maps stay in their file
                    yield Row(member.member, name, "attention_pattern", None, step=step, samples=samples,
                              part=part, file=file)  # fmt: skip
        yield from of_curves(job, config, curves, gone)


def of_analysis(job: TrainJob, name: str, record: Any, file: str) -> Iterator[Row]:
    """A row for every number of one analysis of a unit.

    Args:
        job: of the unit; its members are in the order of the record's lists.
        name: of the analysis.
        record: what was written.
        file: where it stands, relative to the run.

    Raises:
        UserError: the record is not what the analysis writes.
    """
    members = [member.member for member in job.members]
    try:
        if record["members"] != members:
            raise ValueError(f"members: expected {members}, found {record['members']}")
        content = _prepared(name, {key: record[key] for key in record if key not in ("members", "step")})
        for place, member in enumerate(members):
            own = of_member(content, place, len(members))
            for at, values in _by_checkpoint(own, _end(job)):
                yield from rows(member, name, values, at, file)
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{file}: expected the {name} of {len(members)} members, found another record ({error}); delete it "
            "and run the same command again"
        ) from error


def rows(
    member: int, measure: str, record: Mapping[str, Any], at: tuple[int, int], file: str | None
) -> Iterator[Row]:
    """A row for every number of a member's record, of facts for those that exist.

    Args:
        member, measure, file: of the rows.
        record: nested dictionaries and lists of numbers, truth values and `None`; a key that ends with `_by_step` or
            `_by_slot` says what its list runs over, for others `AXES` does.
        at: steps and samples.

    Raises:
        ValueError: an entry is no number.
    """
    step, samples = at
    for path, head, value in _leaves(record, (), AXES.get(measure, ("step",))):
        if value is None and path[0] in FACTS:
            continue
        metric, part, split = _named(path)
        layer = None if head is None else 0
        yield Row(member, measure, metric, value, split, step, samples, layer, head, part, file)


def _end(job: TrainJob) -> tuple[int, int]:
    """Steps and samples at the end of training."""
    return job.training.steps, job.training.steps * job.training.batch_size


# What is read off the curves of training.


def of_curves(
    job: TrainJob, config: PermutationStudyConfig, curves: Mapping[str, Metrics], gone: Container[int]
) -> Iterator[Row]:
    """Training loss of the last epoch, and, where there are repeats in training, how sudden recall was.

    Nothing is known of members that are `gone`, because they diverged.
    """
    configuration, batch = Configuration.parse(job.label), job.training.batch_size
    chance = 1 / (config.task(configuration).values - 1)
    for member in (each.member for each in job.members):
        loss, recall, elimination = (
            ([], []) if member in gone else curves[split].curve(metric, member)
            for split, metric in (("train", "loss"), ("held_out", "recall"), ("held_out", "elimination"))
        )
        step, samples = _end(job)
        per_epoch = max(1, config.samples_per_epoch // batch)
        mean = last_epoch(loss, per_epoch)
        yield Row(member, "last_epoch", "last_epoch_loss", mean, "train", step, samples, file=GATHERED)
        late = {
            metric: median_late(curves["held_out"].curve(metric, member), LATE_EPOCHS * per_epoch)
            for metric in ("elimination", "recall", "mass_recalled")
        }
        share = None
        if configuration.data == "plain":
            task = config.task(configuration)
            uniform, known = elimination_floor(task.values), _training_floor(task)
            typical = median_late(loss, LATE_EPOCHS * per_epoch)
            share = None if typical is None else (uniform - typical) / (uniform - known)
        late = {name: None if member in gone else value for name, value in late.items()}
        late["memorised_share"] = share
        yield from rows(member, "late", late, (step, samples), GATHERED)
        if configuration.data == "repeats":
            found = _sudden(recall, loss, batch, chance)
            other = _sudden(elimination, loss, batch, 1 / config.task(configuration).values)
            found["elimination"] = {start: other[start] for start in ("from_zero", "from_chance")}
            sudden = rows(member, "transition", found, (step, samples), GATHERED)
            yield from sudden if recall[0] else (replace(row, value=None) for row in sudden)


def last_epoch(curve: Curve, per_epoch: int) -> float | None:
    """The mean over the last steps of a record, or over all of them if there are fewer; `None` if there are none.

    A row of the record is a mean over the steps since the row before it, so rows are weighted by their steps.
    """
    steps, values = (np.asarray(each) for each in curve)
    if not len(steps):
        return None
    weights = np.diff(steps, prepend=0)
    late = steps > steps[-1] - per_epoch
    return float(np.average(values[late], weights=weights[late]))


def median_late(curve: Curve, steps: int) -> float | None:
    """The median of a curve's values in its last steps; `None` if there are none."""
    late = [value for step, value in zip(*curve, strict=True) if step > curve[0][-1] - steps]
    return statistics.median(late) if late else None


def _training_floor(task: PermutationConfig) -> float:
    """Loss of an observer that knows the training mappings, in nats."""
    return training_floor(task.values, training_mappings(task.values, task.held_out_share))


def _sudden(skill: Curve, loss: Curve, batch_size: int, chance: float) -> dict[str, Any]:
    """What `transition` says of a member; where there is no curve, of one that never learned the skill."""
    steps, values = skill if skill[0] else ([0], [0.0])
    by_step = dict(zip(*loss, strict=True))
    losses = [by_step.get(step) for step in steps]
    return transition([step * batch_size for step in steps], values, losses, chance=chance)


# How the numbers of a record are named.


def of_member(record: Mapping[str, Any], place: int, members: int) -> dict[str, Any]:
    """The record with facts as they are, and one member's entry in place of every list over members.

    Args:
        record: nested dictionaries over lists over members; a `None` in place of such a list says that there is
            nothing to measure, and is left out.
        place: of the member in these lists.
        members: how many there are.

    Raises:
        ValueError: a list over members has another length.
    """
    found = {}
    for key, value in record.items():
        if key in FACTS:
            found[key] = value
        elif isinstance(value, Mapping):
            found[key] = of_member(value, place, members)
        elif value is not None:
            if len(value) != members:
                raise ValueError(f"{key}: expected {members} members, found {len(value)}")
            found[key] = value[place]
    return found


_Path = tuple[str, ...]


def _leaves(value: Any, path: _Path, axes: Sequence[str]) -> Iterator[tuple[_Path, int | None, float | None]]:
    """Numbers with their path and head."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(entry, (*path, key), axes)
    elif isinstance(value, list):
        by = _BY.search(path[-1])
        axis = by[1] if by else axes[0]
        for place, entry in enumerate(value):
            if axis == "head":
                yield path, place, None if entry is None else float(entry)
            else:
                yield from _leaves(entry, (*path, f"{axis}_{place + 1}"), axes[1:])
    elif value is None and path[-1] in NEVER_IS_INFINITE and "steepest_fall" not in path:
        yield path, None, math.inf
    elif value is None or isinstance(value, bool | int | float):
        yield path, None, None if value is None else float(value)
    elif path[0] == "order" and value in ORDERS:
        yield path, None, ORDERS[value]
    else:
        raise ValueError(f"{'.'.join(path)}: expected a number, found {value!r}")


def _named(path: _Path) -> tuple[str, str | None, str]:
    """Metric, part and split of a path."""
    split = "train" if OF_TRAINING & set(path) else "held_out"
    keys = []
    for key in path:
        name = _BY.sub("", key)
        match = _QUANTITY.fullmatch(name)
        if key in _SPLITS:
            split = key
        elif match:
            split = match["split"]
            keys.append(match["name"])
        elif key != "by_head":
            keys.append(name)
    quantities = [
        place for place, key in enumerate(keys) if key not in CONDITIONS and not _PLACE.fullmatch(key)
    ]
    metric = 0 if path[0] in NAMES else quantities[-1]
    part = ".".join(key for place, key in enumerate(keys) if place != metric)
    return keys[metric], part or None, split


# Records that are laid out in another way.


def _prepared(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """The record of an analysis with lists over members as its innermost ones, and truth values in place of words."""
    match name:
        case "slots":
            # Only where the source stands before the slot.
            pairs = {
                key: [[sources[:slot] for slot, sources in enumerate(own)] for own in record[key]]
                for key in ("recall", "mass_recalled")
                if key in record
            }
            return record | pairs
        case "roles" if "spread" in record:
            words = record["spread"]
            return record | {"spread": {each: [word and word == each for word in words] for each in SPREADS}}
        case "decoding":
            history = {f"slot_{slot}": of_slot for slot, of_slot in enumerate(record["history"], start=1)}
            return record | {"history": history, "untrained": {"answer": record["untrained"]}}
        case "worked":
            sequences = record["sequences"].items()
            return {"probability": {each: sequence["probabilities"] for each, sequence in sequences}}
    return record


def _by_checkpoint(
    own: dict[str, Any], end: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], Mapping[str, Any]]]:
    """A member's record by steps and samples: its curves at their checkpoints, and at the end what formed when."""
    if "checkpoints" not in own:
        yield end, own
        return
    checkpoints, order = own["checkpoints"], own["order"]
    facts = {name: own[name] for name in ("sequences", "floors") if name in own}
    curves = {name: own[name] for name in own if name not in {"checkpoints", "order", *facts}}
    for place, at in enumerate(zip(checkpoints["step"], checkpoints["samples"], strict=True)):
        yield at, {name: curve[place] for name, curve in curves.items()}
    if order is None:  # a member that diverged
        yield end, facts | dict.fromkeys(("formed", "order", "first", "reached"))
        return
    first = {point: {name: name in names for name in FORMED_FIRST} for point, names in order["first"].items()}
    formed = {"formed": order["parts"], "order": order["orders"], "first": first, "reached": order["reached"]}
    yield end, facts | formed
