"""Sequences for causal tests of recall, with the positions that the tests exchange and the donors they read from.

Every sequence is built from held-out mappings.  A *repeat* has its repeated x in the last slot; its copy is called the
*first* of two or three earlier pairs, and the tests ask what happens when the *second* takes its place.  The *third*
serves controls, which exchange second and third.  A *plain* sequence has no copy; there the first is just one of the
earlier pairs, so that the same interventions can be made.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hopscope import rng
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask

LIMIT = 3000
"""Most repeats, and most plain sequences, that are looked at: at V = 5 all 2,880 plain ones."""

CHUNK = 1024
"""Sequences per forward pass.  Donors are sought within a chunk, so this number is part of the protocol."""

ORDINALS = ("first", "second", "third")

LAST_ROW = {"place": 1}
"""Roles of the row that gives the answer."""

EARLIER_ROWS = {"place": 0}
"""Roles of all other rows."""

Y_KEYS = {"kind": 1}
"""Roles of the y's."""

IDLE_X_KEYS = {"idle": 1}
"""Roles of the earlier x's other than the copy."""


class Cases(NamedTuple):
    """Some sequences, those with a repeat first, for one forward pass.

    Attributes:
        batch: `member == 1`.  Further roles: `place` (1 at the last row), `idle` (1 at earlier x's other than the
            copy).  Further relations, the same from every row: `x_first`, `y_first`, `x_second`, … (see above).
        repeat: sequences with a repeat.
        right: the right answer at the last row.
        other: the answer that would be right in the sequence's `"other"` donor.
        donors: name → a donor for every sequence.  `"self"`; `"other"`: for repeats the same pairs with x₂, of the
            pair called second, repeated instead; for plain ones another plain one with another answer; `"mixed"`:
            drawn from the training data's mixture of repeats and plain sequences.
    """

    batch: Batch
    repeat: Bool[Tensor, " batch"]
    right: Int[Tensor, " batch"]
    other: Int[Tensor, " batch"]
    donors: Mapping[str, Int[Tensor, "1 batch"]]


def causal_cases(task: PermutationTask, limit: int, split: str = "held_out") -> list[Cases]:
    """Sequences of a split, in chunks: at most `limit` repeats and at most `limit` plain ones.

    The set is exhaustive where it is small enough, otherwise a fixed random part of it, the same for all members.
    Repeats come in groups: a mapping and an order with each of its V - 1 sources.

    Raises:
        ValueError: the limit does not leave one group, or plain sequences with different answers.
    """
    every = task.evaluation("plain", split, annotate=False)
    sources = task.config.values - 1
    if limit < sources:
        raise ValueError(
            f"limit: expected at least {sources}, one sequence for each repeated slot, found {limit}"
        )
    groups, plain = _subset(task, every, limit // sources), _subset(task, every, limit)
    total = groups.inputs.shape[1] * sources + plain.inputs.shape[1]
    chunks = min(math.ceil(total / CHUNK), groups.inputs.shape[1], plain.inputs.shape[1])
    return [_cases(task, groups, plain, number, chunks) for number in range(chunks)]


def _subset(task: PermutationTask, batch: Batch, count: int) -> Batch:
    """At most `count` sequences of a batch, drawn from the split seed; smaller subsets are part of larger ones."""
    index = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
    words = rng.bits(task.config.split_seed, "probe", 0, index)
    return batch.take(words[:, 0].argsort(stable=True)[:count].sort().values)


def _cases(task: PermutationTask, groups: Batch, plain: Batch, number: int, chunks: int) -> Cases:
    """One chunk: each of some groups with all its sources, then some plain sequences."""
    device, sources = task.device, task.config.values - 1
    group = torch.arange(groups.inputs.shape[1], device=device)[number::chunks].repeat_interleave(sources)
    single = torch.arange(plain.inputs.shape[1], device=device)[number::chunks]
    repeats = len(group)
    slot = torch.arange(repeats, device=device) % sources
    orders, mappings = _sequences(groups, group)
    orders[..., -1] = orders[0].gather(-1, slot[:, None])[:, 0]
    plain_orders, plain_mappings = _sequences(plain, single)
    batch = task.batch(torch.cat((orders, plain_orders), 1), torch.cat((mappings, plain_mappings), 1))

    here = torch.arange(batch.inputs.shape[1], device=device)
    right = batch.targets[0, :, -1]
    ordinals = _ordinals(torch.cat((slot, single % sources)), torch.cat((group, single)), sources)
    same_pairs = here[:repeats] - slot + ordinals[1][:repeats]
    other = torch.cat((same_pairs, repeats + _with_another_answer(right[repeats:])))
    mixed = _mixed(task, number, repeats, len(single))
    donors = {"self": here[None], "other": other[None], "mixed": mixed[None]}
    repeat = here < repeats
    return Cases(_described(batch, ordinals, repeat), repeat, right, right[other], donors)


def _sequences(batch: Batch, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Orders and mappings `[1, sequence, value]` of some sequences without a repeat."""
    order, answers = batch.inputs[:, chosen, ::2], batch.targets[:, chosen]
    return order, torch.zeros_like(order).scatter(-1, order - 1, answers)


def _ordinals(first: Tensor, group: Tensor, sources: int) -> list[Tensor]:
    """Slots, counted from 0, of the first, second and (where there is one) third pair of each sequence."""
    others = sources - 1
    steps = [1 + (group + extra) % others for extra in range(min(others, 2))]
    return [first, *((first + step) % sources for step in steps)]


def _with_another_answer(answers: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """For each sequence the first with another answer, counted round from half the list away.

    Neighbours mostly share their mapping, and a donor that shows the right pair would not be another one in earnest.
    """
    here = torch.arange(len(answers), device=answers.device)
    ahead = (here[:, None] + len(answers) // 2 + here) % len(answers)
    differs = answers[ahead] != answers[:, None]
    if not bool(differs.any(-1).all()):
        raise ValueError(
            "limit: expected one that leaves plain sequences with different answers in every "
            f"{CHUNK} sequences, found only the answer {answers.unique().tolist()}; raise it"
        )
    return ahead.gather(-1, differs.int().argmax(-1, keepdim=True))[:, 0]


def _mixed(task: PermutationTask, number: int, repeats: int, plain: int) -> Int[Tensor, " batch"]:
    """Donors from the training data's mixture: a repeat with the probability that training has for one."""
    index = torch.arange(repeats + plain, device=task.device)
    words = rng.bits(task.config.split_seed, "resample", number, index)
    from_repeats = rng.uniform(words[:, 0]) < task.config.repeat_ratio
    return torch.where(
        from_repeats,
        rng.integers(words[:, 1], words[:, 2], repeats),
        repeats + rng.integers(words[:, 1], words[:, 2], plain),
    )


def _described(batch: Batch, ordinals: list[Tensor], repeat: Tensor) -> Batch:
    """The batch with the roles and relations that the tests are written in."""
    shape = batch.inputs.shape
    position = torch.arange(shape[2], device=batch.inputs.device).expand(shape)
    last = position == shape[2] - 1
    copy = (position == 2 * ordinals[0][:, None]) & repeat[:, None]
    idle = (position % 2 == 0) & ~last & ~copy
    relations = {
        f"{kind}_{ordinal}": (2 * slot + offset)[None, :, None].expand(shape)
        for ordinal, slot in zip(ORDINALS, ordinals, strict=False)
        for kind, offset in (("x", 0), ("y", 1))
    }
    return replace(
        batch,
        roles={**batch.roles, "place": last.long(), "idle": idle.long()},
        relations={**batch.relations, **relations},
    )


def mixture(cases: list[Cases], repeat_ratio: float) -> Iterator[tuple[float, Tensor]]:
    """Inputs of one kind and chunk, each with its weight in a mixture that has this share of repeats."""
    total = {kind: sum(int((part.repeat == kind).sum()) for part in cases) for kind in (True, False)}
    for part in cases:
        for kind, ratio in ((True, repeat_ratio), (False, 1.0 - repeat_ratio)):
            chosen = part.repeat == kind
            if ratio > 0.0:
                yield ratio * int(chosen.sum()) / total[kind], part.batch.inputs[:, chosen]
