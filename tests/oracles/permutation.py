"""One sample of permutation lookup in plain Python: the slow obvious reference of `PermutationTask.drawn`."""

import math
from functools import cache

import torch

from hopscope import rng
from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.splits import MappingSplit

_LARGEST_DRAW = 2**31
"""Bound of one random integer: up to V = 8 mapping and order are one number."""


def reference_sample(
    config: PermutationConfig, seed: int, stream: str, step: int, index: int, split: str = "train"
) -> dict[str, object]:
    """One sample as nested lists, by the names of a `Batch`; its mapping is of one part of the split."""
    parts = _parts(config.values, config.held_out_share, config.split_seed)
    values = config.values
    orders = math.factorial(values)
    words = rng.bits(seed, stream, step, index).tolist()
    mappings = parts.count(split)
    if mappings * orders < _LARGEST_DRAW:
        number, rank = divmod(_drawn(words[0], words[1], mappings * orders), orders)
    else:
        more = rng.bits(seed, stream, step, index, block=1).tolist()
        number, rank = _drawn(words[0], words[1], mappings), _drawn(more[0], more[1], orders)
    mapping = parts.mapping(torch.tensor(number), split).tolist()
    xs, pool = [], list(range(1, values + 1))
    for remaining in range(values - 1, -1, -1):
        position, rank = divmod(rank, math.factorial(remaining))
        xs.append(pool.pop(position))
    if (words[2] >> 8) / 2**24 < config.repeat_ratio:
        pairs = config.repeat_pairs()
        slot, source = pairs[_drawn(words[3], 0, len(pairs))]
        xs[slot - 1] = xs[source - 1]
    return _described([token for x in xs for token in (x, mapping[x - 1])])


@cache
def _parts(values: int, held_out_share: float, split_seed: int) -> MappingSplit:
    return MappingSplit(values, held_out_share, split_seed)


def _drawn(high: int, low: int, n: int) -> int:
    """`rng.integers` in plain Python."""
    return (((high << 32) | low) * n) >> 64


def _described(sequence: list[int]) -> dict[str, object]:
    """Inputs, targets, roles and relations of one sequence, position by position."""
    inputs = sequence[:-1]
    roles: dict[str, list[int]] = {"kind": [], "step": [], "repeat": []}
    relations: dict[str, list[int]] = {
        name: [] for name in ("previous", "pair_mate", "same_symbol", "recall")
    }
    for position, token in enumerate(inputs):
        is_x = position % 2 == 0
        x_position = position if is_x else position - 1
        copies = [key for key in range(0, x_position, 2) if inputs[key] == inputs[x_position]]
        mate = position + 1 if is_x else position - 1
        roles["kind"].append(position % 2)
        roles["step"].append(position // 2 + 1)
        roles["repeat"].append(int(bool(copies)))
        relations["previous"].append(position - 1)
        relations["pair_mate"].append(mate if mate < len(inputs) else NO_RELATION)
        relations["same_symbol"].append(
            copies[0] if is_x and copies and inputs[copies[0]] == token else NO_RELATION
        )
        relations["recall"].append(copies[0] + 1 if is_x and copies else NO_RELATION)
    return {
        "inputs": inputs,
        "targets": sequence[1::2],
        "roles": roles,
        "relations": relations,
    }
