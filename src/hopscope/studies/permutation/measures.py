"""Everything that was measured of a permutation run, as rows of the evidence table.

Each analysis is a measure of its own name; `flatten` says which metrics and parts its numbers become.  Besides:

Measure `patterns`: `attention_pattern` has no value; it points to the file of the mean maps, part by part.
Measure `formation`: curves have a row for each checkpoint.  `formed`: when each part of recall formed; part
    `recall.half.time` is the time at which recall had gone half its way, infinite if it never did.  `order`: which of
    two parts came first, -1, 0 (within one interval) or 1.
Measure `last_epoch`: `last_epoch_loss`, the mean training loss of the last epoch.
Measure `transition`: how sudden recall was, see `probes.onsets.transition`; what never happened is infinite.

The evidence table itself leaves out what was measured of a diverged member after its training broke off.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from hopscope.errors import UserError
from hopscope.probes.onsets import transition
from hopscope.probes.spreads import MISSING, NEITHER, ONE_DOES_BOTH, ONE_EACH, SHARED
from hopscope.runs import RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.permutation.config import PermutationStudyConfig, analyses
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.flatten import flatten
from hopscope.training.config import UnitPlan, unit_plan

AXES = {"battery": "head", "roles": "head", "formation": "head", "decoding": "slot", "slots": "slot"}
"""Analysis → what lists inside a member's value run over; those of the others run over steps."""

SPREADS = (ONE_EACH, ONE_DOES_BOTH, SHARED, NEITHER, MISSING)
FORMED_FIRST = ("match", "history", "recall")
"""Parts among which the analysis names the first (see `probes.formation.RANKED`, which takes torch along)."""

ORDERS = {"before": -1.0, "tie": 0.0, "after": 1.0, "unknown": None}
"""What formed before what, as a number; nothing where neither formed."""

NEVER_IS_INFINITE = ("time", "width", "widest", "relative_width")
"""Times and widths of a rise: where they are missing, it never came, which is not the same as an unknown time."""

OF_A_FALL = ("rate", "time", "low", "high")
"""What `transition` says of the steepest fall of the loss; nothing is known of it where no recall rose."""


def measurements(run: RunFolder, config: PermutationStudyConfig) -> Iterator[Row]:
    """A row for every number that was measured of a run's members after training.

    Raises:
        UserError: a file is missing or damaged.
    """
    curves = {split: Metrics(run, split) for split in ("train", "held_out")}
    gone = diverged_members(run)
    for unit in run.units:
        plan = unit_plan(unit)
        end = plan.training.steps
        for name, kind in analyses(config, plan).items():
            file = unit.file_of(name, end, kind)
            if kind == "json":
                yield from of_analysis(plan, name, _read(unit, name, end), file)
            else:
                yield from _of_arrays(plan, name, unit.read_analysis(name, end), file)
        yield from of_curves(plan, config, curves, gone)


def _read(unit: UnitFolder, name: str, step: int) -> dict[str, Any]:
    found = unit.read_analysis(name, step)
    known = found if isinstance(found, dict) else {}
    complete = name != "probes" or isinstance(known.get("exhaustive"), dict)
    if not isinstance(known.get("members"), list) or not complete:
        raise UserError(
            f"{unit.analysis_path(name, step)}: expected the {name} of a unit, found another record; "
            "delete it and run the same command again"
        )
    return known


def of_analysis(plan: UnitPlan, name: str, record: Mapping[str, Any], file: str) -> Iterator[Row]:
    """A row for every number of one analysis of a unit.

    Args:
        plan: of the unit; its members are in the order of the record's lists.
        name: of the analysis.
        record: what was written.
        file: where it stands, relative to the run.

    Raises:
        UserError: the record is not what the analysis writes.
    """
    content = {key: value for key, value in record.items() if key not in ("members", "step")}
    members = [member.member for member in plan.members]
    prepare = _PREPARED.get(name, _as_it_is)
    try:
        for checkpoint, part in prepare(content):
            step, samples = checkpoint or _end(plan)
            row = partial(Row, measure=name, step=step, samples=samples, file=file)
            yield from flatten(part, members, AXES.get(name, "step"), row)
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{file}: expected the {name} of {len(members)} members, found another record ({error}); delete it "
            "and run the same command again"
        ) from error


def _of_arrays(plan: UnitPlan, name: str, parts: Iterable[str], file: str) -> Iterator[Row]:
    """Rows that only say in which file the mean attention maps are."""
    step, samples = _end(plan)
    row = partial(Row, measure=name, metric="attention_pattern", value=None, step=step, samples=samples)
    for member in plan.members:
        for part in parts:
            yield row(member=member.member, part=part, file=file)


def _end(plan: UnitPlan) -> tuple[int, int]:
    """Steps and samples at the end of training."""
    return plan.training.steps, plan.training.steps * plan.training.batch_size


# What is read off the curves of training.


def of_curves(
    plan: UnitPlan, config: PermutationStudyConfig, curves: Mapping[str, Metrics], gone: Container[int]
) -> Iterator[Row]:
    """Training loss of the last epoch, and, where there are repeats in training, how sudden recall was.

    Args:
        plan: of a unit.
        config: of the study.
        curves: of the run, by split.
        gone: members that diverged: nothing is known of them.
    """

    def curve(split: str, metric: str, member: int) -> Curve:
        return ([], []) if member in gone else curves[split].curve(metric, member)

    members = [member.member for member in plan.members]
    per_epoch = max(1, config.samples_per_epoch // plan.training.batch_size)
    losses = {member: curve("train", "loss", member) for member in members}
    means = [last_epoch(loss, per_epoch) for loss in losses.values()]
    yield from of_analysis(plan, "last_epoch", {"train": {"last_epoch_loss": means}}, GATHERED)
    configuration = Configuration.parse(plan.label)
    if configuration.data == "repeats":
        chance, batch = 1 / (config.task(configuration).values - 1), plan.training.batch_size
        sudden = [
            _sudden(curve("held_out", "recall", member), losses[member], batch, chance) for member in members
        ]
        by_name = {name: [each[name] for each in sudden] for name in sudden[0]}
        yield from of_analysis(plan, "transition", by_name, GATHERED)


def last_epoch(curve: Curve, per_epoch: int) -> float | None:
    """The mean over the last steps of a record, or over all of them if there are fewer; `None` if there are none.

    A row of the record is a mean over the steps since the row before it, so rows are weighted by their steps.

    Args:
        curve: steps and values.
        per_epoch: number of steps.
    """
    steps, values = (np.asarray(each) for each in curve)
    if not len(steps):
        return None
    weights = np.diff(steps, prepend=0)
    late = steps > steps[-1] - per_epoch
    return float(np.average(values[late], weights=weights[late]))


def _sudden(recall: Curve, loss: Curve, batch_size: int, chance: float) -> dict[str, Any]:
    """What `transition` says of a member; the same with nothing in it where there is no curve."""
    steps, values = recall if recall[0] else ([0], [0.0])
    by_step = dict(zip(*loss, strict=True))
    losses = [by_step.get(step) for step in steps]
    found = transition([step * batch_size for step in steps], values, losses, chance=chance)
    levels = {name: found[name] for name in ("final", "chance", "from_zero", "from_chance")}
    fall = found["steepest_fall"] or dict.fromkeys(OF_A_FALL)
    sudden = {**_never_is_infinite(levels), "steepest_fall": fall}
    return sudden if recall[0] else _emptied(sudden)


def _emptied(value: Any) -> Any:
    """The same places, with nothing in them."""
    return {key: _emptied(entry) for key, entry in value.items()} if isinstance(value, Mapping) else None


# Records that are laid out in another way than `flatten` reads.

_Parts = Iterable[tuple[tuple[int, int] | None, Mapping[str, Any]]]
"""Records, each with the step and samples of its checkpoint, or with nothing for the last one."""


def _as_it_is(record: Mapping[str, Any]) -> _Parts:
    return [(None, record)]


def _slots(record: Mapping[str, Any]) -> _Parts:
    """Recall by pair of slots: only those where the source stands before the slot."""
    pairs = {
        name: {
            f"slot_{slot + 1}": {
                f"source_{source + 1}": [of_member[slot][source] for of_member in record[name]]
                for source in range(slot)
            }
            for slot in range(len(record[name][0]))
        }
        for name in ("recall", "mass_recalled")
        if name in record
    }
    return [(None, {**record, **pairs})]


def _roles(record: Mapping[str, Any]) -> _Parts:
    """The words for how roles are spread become a truth value for each of them."""
    if "spread" not in record:
        return [(None, record)]
    words = record["spread"]
    spread = {name: [None if word is None else word == name for word in words] for name in SPREADS}
    return [(None, {**record, "spread": spread})]


def _decoding(record: Mapping[str, Any]) -> _Parts:
    """The values of the slots get names; what is measured of the untrained members is the same as `answer`."""
    history = {f"slot_{slot}": of_slot for slot, of_slot in enumerate(record["history"], start=1)}
    return [(None, {**record, "history": history, "untrained": {"answer": record["untrained"]}})]


def _worked(record: Mapping[str, Any]) -> _Parts:
    """Probabilities of the worked sequences; the rest is not about members."""
    probability = {
        name: {
            f"step_{step + 1}": {
                f"value_{value + 1}": [of_member[step][value] for of_member in sequence["probabilities"]]
                for value in range(len(sequence["mapping"]))
            }
            for step in range(len(sequence["questions"]))
        }
        for name, sequence in record["sequences"].items()
    }
    return [(None, {"probability": probability})]


def _formation(record: Mapping[str, Any]) -> _Parts:
    """Curves checkpoint by checkpoint, and what formed when."""
    apart = ("checkpoints", "order", "sequences", "floors")
    curves = {name: curve for name, curve in record.items() if name not in apart and curve is not None}
    checkpoints = record["checkpoints"]
    for place, checkpoint in enumerate(zip(checkpoints["step"], checkpoints["samples"], strict=True)):
        yield checkpoint, {name: [of_member[place] for of_member in curve] for name, curve in curves.items()}
    orders = record["order"]
    facts = {name: record[name] for name in ("sequences", "floors") if name in record}
    yield (
        None,
        {
            **facts,
            "formed": [order and _never_is_infinite(order["parts"]) for order in orders],
            "order": [order and _ordered(order["orders"]) for order in orders],
            "first": [order and _firsts(order["first"]) for order in orders],
            "reached": [order and order["reached"] for order in orders],
        },
    )


def _never_is_infinite(value: Any) -> Any:
    """Crossings and widths with an infinite time where nothing was crossed."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: math.inf if entry is None and key in NEVER_IS_INFINITE else _never_is_infinite(entry)
        for key, entry in value.items()
    }


def _ordered(orders: Mapping[str, Any]) -> dict[str, Any]:
    return {
        point: {
            name: {other: ORDERS[word] for other, word in others.items()} for name, others in by_name.items()
        }
        for point, by_name in orders.items()
    }


def _firsts(first: Mapping[str, Any]) -> dict[str, Any]:
    return {point: {name: name in names for name in FORMED_FIRST} for point, names in first.items()}


_PREPARED: dict[str, Callable[[Mapping[str, Any]], _Parts]] = {
    "slots": _slots, "roles": _roles, "decoding": _decoding, "worked": _worked, "formation": _formation,
}  # fmt: skip
