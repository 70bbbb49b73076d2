"""How weights start.  Tensor number n of a member is drawn from (its seed, stream "init", step n) alone."""

import math

import torch
from jaxtyping import Int
from torch import Tensor, nn

from hopscope import rng
from hopscope.models.config import TransformerConfig
from hopscope.models.layers import Layer, Norm, Table

_LONGEST_WAVE = 200.0
"""Of the sines that position codes begin with, over the shortest: texts of the tasks are no longer than that."""


@torch.no_grad()
def initialise(model: nn.Module, config: TransformerConfig, seeds: Int[Tensor, " member"]) -> None:
    """Draw all weights; those of a model without a member axis from a single seed.  See `Model.init`."""
    for number, (name, weight) in enumerate(model.named_parameters()):
        part, _, kind = name.rpartition(".")
        module = model.get_submodule(part)
        if isinstance(module, Norm):
            weight.fill_(1.0 if kind == "weight" else 0.0)
            continue
        bias, table = kind == "bias", isinstance(module, Table)
        fan_in = module.get_parameter("weight").shape[-2]
        shape = tuple(weight.shape[-1:] if bias else weight.shape[-2:])
        if not bias and (table or config.init == "gpt2" or isinstance(config.init, float)):
            drawn = rng.tensor(rng.normal, seeds, "init", number, shape)
        else:
            drawn = rng.tensor(rng.uniform, seeds, "init", number, shape) * 2.0 - 1.0
        spread = _spread(config, fan_in, part.rpartition(".")[2], bias, table)
        weight.copy_((drawn * spread).view(weight.shape))
    if config.init == "mimetic":
        _mimic(model, config)


def _spread(config: TransformerConfig, fan_in: int, part: str, bias: bool, table: bool) -> float:
    # Standard deviation where it is normal, bound where it is uniform.  A table is a linear map of one-hot vectors.
    if isinstance(config.init, float):
        return 0.0 if bias else float(fan_in**-config.init)
    if config.init == "gpt2":
        residual = part in ("output", "outer")
        return 0.0 if bias else 0.02 / (math.sqrt(2 * config.layers) if residual else 1.0)
    if table:
        return 1.0
    if config.init != "linear":  # "encoder", "mimetic"
        if part in ("query", "key", "value"):
            return 0.0 if bias else _glorot(config)
        if part == "output" and bias:
            return 0.0
    return 1.0 / math.sqrt(fan_in)


def _glorot(config: TransformerConfig) -> float:
    # torch draws queries, keys and values as one matrix [3·inner, width].
    return math.sqrt(6.0 / (config.width + 3 * config.heads * config.head_size))


def _mimic(model: nn.Module, config: TransformerConfig) -> None:
    # Products of queries and keys near a multiple of the identity, and sines as position codes.  A query weight gets
    # the deviation 1 / √width: two equal normed vectors then have a score of about √head_dim.
    for layer in model.modules():
        if isinstance(layer, Layer):
            query, key = layer.attention.query.weight, layer.attention.key.weight
            query.mul_(math.sqrt(3.0 / config.width) / _glorot(config))
            key.copy_(query)
    if config.position_count:
        codes = model.get_parameter("embed.position.weight")
        waves = torch.arange((config.width + 1) // 2, device=codes.device) / max(1, config.width // 2)
        angle = torch.arange(config.position_count, device=codes.device)[:, None] * _LONGEST_WAVE**-waves
        sines = torch.cat((angle.sin(), angle.cos()), -1)[:, : config.width] * math.sqrt(2.0)
        codes.copy_(sines.expand_as(codes))
