"""The suite of models whose circuit is known, built once for all tests that ask about it."""

from functools import cache

import torch

from hopscope.models.resolving import selected
from hopscope.tasks.batch import NO_RELATION
from hopscope.zoo.planted import Planted, planted_models


@cache
def suite() -> tuple[Planted, ...]:
    """Every planted model, in its order."""
    return tuple(planted_models())


def target_keys(read, batch):
    """Position that each row of a read reads, `[member, batch, position]`; `NO_RELATION` for other rows."""
    rows, targets = selected(batch, read.rows), selected(batch, read.target)
    chain = batch.roles["chain"]
    wanted = (chain[..., :, None] == chain[..., None, :]) & targets[..., None, :]
    return torch.where(rows, wanted.int().argmax(-1), NO_RELATION)
