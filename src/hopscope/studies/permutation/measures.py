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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hopscope.errors import UserError
from hopscope.probes.spreads import MISSING, NEITHER, ONE_DOES_BOTH, ONE_EACH, SHARED
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Analysed, gather, transitions
from hopscope.studies.permutation.flatten import flatten

AXES = {"battery": "head", "roles": "head", "formation": "head", "decoding": "slot", "slots": "slot"}
"""Analysis → what lists inside a member's value run over; those of the others run over steps."""

SPREADS = (ONE_EACH, ONE_DOES_BOTH, SHARED, NEITHER, MISSING)
FORMED_FIRST = ("match", "history", "recall")
"""Parts among which the analysis names the first (see `probes.formation.RANKED`, which takes torch along)."""

ORDERS = {"before": -1.0, "tie": 0.0, "after": 1.0, "unknown": None}
"""What formed before what, as a number; nothing where neither formed."""


def measurements(run: RunFolder, config: PermutationStudyConfig) -> Iterator[Row]:
    """A row for every number that was measured of a run's members after training.

    Raises:
        UserError: an analysis is missing or damaged.
    """
    for found in gather(run, config).values():
        yield from of_analyses(found, config)
        yield from _of_patterns(run, found, config)
        yield from of_curves(found, config)


def of_analyses(found: Analysed, config: PermutationStudyConfig) -> Iterator[Row]:
    """A row for every number of a configuration's analyses.

    Raises:
        UserError: a record is not what its analysis writes.
    """
    step, samples = _end(found, config)
    for name, sources in found.sources.items():
        records = {source.file: source.record for source in sources}
        for file, record in records.items():
            places = {
                source.index: member
                for member, source in zip(found.members, sources, strict=True)
                if source.file == file
            }
            members = [places[index] for index in sorted(places)]
            yield from _Record(name, file, members, step, samples).rows(record)


@dataclass(frozen=True)
class _Record:
    """Where the record of an analysis comes from.

    Attributes:
        name: of the analysis.
        file: relative to the run.
        members: in the order of the record's lists.
        step, samples: when it was made.
    """

    name: str
    file: str
    members: Sequence[int]
    step: int
    samples: int

    def rows(self, record: Mapping[str, Any]) -> Iterator[Row]:
        """A row for every number."""
        content = {key: value for key, value in record.items() if key not in ("members", "step")}
        prepare = _PREPARED.get(self.name, _as_it_is)
        try:
            for checkpoint, part in prepare(content):
                then = (
                    self if checkpoint is None else replace(self, step=checkpoint[0], samples=checkpoint[1])
                )
                yield from then._numbers(part)
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise UserError(
                f"{self.file}: expected the {self.name} of {len(self.members)} members, found another record "
                f"({error}); delete it and run the same command again"
            ) from error

    def _numbers(self, record: Mapping[str, Any]) -> Iterator[Row]:
        for each in flatten(record, len(self.members), AXES.get(self.name, "step")):
            yield Row(
                member=self.members[each.index],
                measure=self.name,
                metric=each.metric,
                value=each.value,
                split=each.split,
                step=self.step,
                samples=self.samples,
                layer=None if each.head is None else 0,
                head=each.head,
                part=each.part,
                file=self.file,
            )


def _end(found: Analysed, config: PermutationStudyConfig) -> tuple[int, int]:
    """Steps and samples at the end of training."""
    training = config.training(found.configuration)
    return training.steps, training.steps * training.batch_size


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
    """Crossings with an infinite time where nothing was crossed: that is not the same as an unknown time."""
    if not isinstance(value, Mapping):
        return value
    if value.get("censored_at") is not None:
        return {**value, "time": math.inf}
    return {key: _never_is_infinite(entry) for key, entry in value.items()}


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


def _of_patterns(run: RunFolder, found: Analysed, config: PermutationStudyConfig) -> Iterator[Row]:
    """Rows that only say in which file the mean attention maps are."""
    step, samples = _end(found, config)
    records = {record.member: record for record in run.members}
    for member in found.members:
        unit = run.unit(records[member].unit)
        file = unit.file_of("patterns", step, "npz")
        for part in unit.read_analysis("patterns", step):
            yield Row(
                member, "patterns", "attention_pattern", None, "held_out", step, samples, part=part, file=file
            )


# What is read off the curves of training.

FALL = "steepest_fall"

_LEVELS = ("from_zero", "from_chance")
TRANSITION = (
    ("", "final"),
    ("", "chance"),
    *((levels, width) for levels in _LEVELS for width in ("width", "widest", "relative_width")),
    *(
        (f"{levels}.{mark}", end)
        for levels in _LEVELS
        for mark in ("start", "half", "end")
        for end in ("time", "low", "high", "censored_at")
    ),
    *((FALL, name) for name in ("rate", "time", "low", "high")),
)
"""Part and metric of everything that `probes.onsets.transition` says."""

NEVER_IS_INFINITE = ("time", "width", "widest", "relative_width")


def of_curves(found: Analysed, config: PermutationStudyConfig) -> Iterator[Row]:
    """Training loss of the last epoch, and, where there are repeats in training, how sudden recall was."""
    step, samples = _end(found, config)
    for member, loss in zip(found.members, found.training_loss, strict=True):
        yield Row(member, "last_epoch", "last_epoch_loss", loss, "train", step, samples, file=GATHERED)
    if found.configuration.data != "repeats":
        return
    values = config.task(found.configuration).values
    for member, sudden in zip(found.members, transitions(found, values), strict=True):
        for part, metric in TRANSITION:
            value = None if sudden is None else _inside(sudden, [*filter(None, part.split(".")), metric])
            if sudden is not None and value is None and part != FALL and metric in NEVER_IS_INFINITE:
                value = math.inf
            yield Row(member, "transition", metric, value, "held_out", step, samples, part=part or None,
                      file=GATHERED)  # fmt: skip


def _inside(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = None if value is None else value[key]
    return value
