"""A nested record over members as rows of the evidence table, one for each number.

The record's keys become the columns of a row:

* the *metric* is the last key that names a quantity; conditions (`repeats`, `uniform`, …) and the other keys make up
  the *part*: `mlp_ablation.mean.recall` is the metric `recall` of the part `mlp_ablation.mean`;
* `train` and `held_out` are the split;
* a list inside a member's value runs over heads (column `head`), or over steps or slots, which end the part:
  `accuracy_by_step` is the metric `accuracy` of the parts `step_1`, `step_2`, …

A fact that is not about single members, such as a floor, or whether a set is exhaustive, belongs to each of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hopscope.runs.evidence import Row

FACTS = frozenset(
    {
        "sequences", "exhaustive", "training_mappings", "uniform_floor", "training_floor", "floors", "recall_floor",
        "hidden", "fit", "undefined_share",
    }
)  # fmt: skip
"""Keys at the top of a record under which no list is one over members."""

NAMES = FACTS | {"spread", "formed", "order", "first", "reached", "probability"}
"""Keys at the top of a record that name the quantity, whatever keys are below."""

CONDITIONS = frozenset(
    {"repeats", "plain", "uniform", "identity", "random", "linear", "mlp", "before", "after", "earlier_row"}
)
"""Keys that say under which condition something was measured, never what."""

OF_TRAINING = frozenset({"train_loss_exhaustive", "memorised_share"})
"""Quantities of the training mappings whose names do not end with the split."""

_SPLITS = ("train", "held_out")
_PLACE = re.compile(r"(step|slot|source|value)_\d+")
_QUANTITY = re.compile(r"(?P<name>(?!train_minus).+)_(?P<split>train|held_out)")


def flatten(
    record: Mapping[str, Any], members: Sequence[int], axis: str, row: Callable[..., Row]
) -> Iterator[Row]:
    """A row for every number of a record.

    Args:
        record: nested dictionaries over lists over members, whose entries are numbers, truth values, lists,
            dictionaries, or `None`; keys in `FACTS` hold no lists over members.  A `None` in place of a list over
            members says that there is nothing to measure.
        members: run-global numbers, in the order of the lists over members.
        axis: what lists inside a member's value run over: `head`, `step` or `slot`; a key that ends with `_by_step`
            or `_by_slot` says so itself.
        row: `Row` with what all rows share; the rest is given by name.

    Raises:
        ValueError: a list over members has another length, or an entry is no number.
    """
    for path, index, head, value in _over_members(record, (), len(members), axis):
        metric, part, split = _named(path)
        layer = None if head is None else 0
        yield row(
            member=members[index], metric=metric, value=value, split=split, layer=layer, head=head, part=part
        )


_Path = tuple[str, ...]


def _over_members(
    record: Mapping[str, Any], path: _Path, members: int, axis: str
) -> Iterator[tuple[_Path, int, int | None, float | None]]:
    for key, value in record.items():
        here = (*path, key)
        if value is None:
            continue
        if here[0] in FACTS:
            known = [each for each in _leaves(value, here, axis) if each[-1] is not None]
            yield from ((*each[:1], index, *each[1:]) for index in range(members) for each in known)
        elif isinstance(value, Mapping):
            yield from _over_members(value, here, members, axis)
        else:
            if len(value) != members:
                raise ValueError(f"{'.'.join(here)}: expected {members} members, found {len(value)}")
            for index, of_member in enumerate(value):
                yield from ((each[0], index, *each[1:]) for each in _leaves(of_member, here, axis))


def _leaves(value: Any, path: _Path, axis: str) -> Iterator[tuple[_Path, int | None, float | None]]:
    """Numbers inside one member's value, with their path and head."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(entry, (*path, key), axis)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        along = _axis(path, axis)
        for place, entry in enumerate(value):
            if along == "head":
                yield path, place, None if entry is None else float(entry)
            else:
                yield from _leaves(entry, (*path, f"{along}_{place + 1}"), axis)
    elif value is None or isinstance(value, bool | int | float):
        yield path, None, None if value is None else float(value)
    else:
        raise ValueError(f"{'.'.join(path)}: expected a number, found {value!r}")


def _axis(path: _Path, axis: str) -> str:
    for known in ("step", "slot"):
        if any(key.endswith(f"_by_{known}") for key in path):
            return known
    return "slot" if axis == "head" and path[0] in FACTS else axis


def _named(path: _Path) -> tuple[str, str | None, str]:
    """Metric, part and split of a path."""
    split = "train" if OF_TRAINING & set(path) else "held_out"
    keys = []
    for key in path:
        if key in _SPLITS:
            split = key
        elif key != "by_head":
            name = re.sub(r"_by_(step|slot)$", "", key)
            if match := _QUANTITY.fullmatch(name):
                name, split = match["name"], match["split"]
            keys.append(name)
    quantities = [
        place for place, key in enumerate(keys) if key not in CONDITIONS and not _PLACE.fullmatch(key)
    ]
    metric = 0 if path[0] in NAMES else quantities[-1]
    part = ".".join(key for place, key in enumerate(keys) if place != metric)
    return keys[metric], part or None, split
