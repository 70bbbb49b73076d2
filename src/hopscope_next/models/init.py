"""How weights start.  Tensor number n of a member is drawn from (its seed, stream "init", step n) alone."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hopscope_next import rng
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.layers import Layer, Linear, Norm, Table

_LONGEST_WAVE = 200.0
"""Of the sines that position codes begin with, over the shortest: texts of the tasks are no longer than that."""


@torch.no_grad()
def initialise(model: nn.Module, config: TransformerConfig, seeds: Int[Tensor, " member"]) -> None:
    """Draw all weights; those of a model without a member axis from a single seed.  See `Model.init`."""
    number = 0
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            weight, bias = _spreads(config, name, module.weight.shape[-2])
            draw = rng.normal_tensor if config.init == "gpt2" or isinstance(config.init, float) else _centred
            _fill(module.weight, draw(seeds, "init", number, tuple(module.weight.shape[-2:])) * weight)
            _fill(module.bias, _centred(seeds, "init", number + 1, tuple(module.bias.shape[-1:])) * bias)
            number += 2
        elif isinstance(module, Table):
            shape = tuple(module.weight.shape[-2:])
            _fill(module.weight, rng.normal_tensor(seeds, "init", number, shape) * _table(config, shape[0]))
            number += 1
        elif isinstance(module, Norm):
            module.weight.fill_(1.0)
            module.bias.fill_(0.0)
            number += 2
    if config.init == "mimetic":
        _mimic(model, config)


def _fill(weight: Tensor, drawn: Tensor) -> None:
    weight.copy_(drawn.view(weight.shape))


def _centred(
    seeds: Int[Tensor, " member"], stream: str, step: int, shape: tuple[int, ...]
) -> Float[Tensor, "member ..."]:
    """Uniform in [-1, 1)."""
    return rng.uniform_tensor(seeds, stream, step, shape) * 2.0 - 1.0


def _table(config: TransformerConfig, count: int) -> float:
    """Standard deviation of rows that are looked up: a linear map of one-hot vectors, whose fan-in is `count`."""
    if isinstance(config.init, float):
        return float(count**-config.init)
    return 0.02 if config.init == "gpt2" else 1.0


def _spreads(config: TransformerConfig, name: str, fan_in: int) -> tuple[float, float]:
    """Of a linear map's weight (bound of a uniform, or deviation of a normal distribution), and bound of its bias."""
    own, part = 1.0 / math.sqrt(fan_in), name.rpartition(".")[2]
    if isinstance(config.init, float):
        return fan_in**-config.init, 0.0
    if config.init == "gpt2":
        return 0.02 / (math.sqrt(2 * config.layers) if part in ("output", "outer") else 1.0), 0.0
    if config.init == "linear":
        return own, own
    if part in ("query", "key", "value"):
        return _glorot(config), 0.0
    return own, 0.0 if part == "output" else own


def _glorot(config: TransformerConfig) -> float:
    """torch draws queries, keys and values as one matrix `[3·inner, width]`."""
    return math.sqrt(6.0 / (config.width + 3 * config.heads * config.head_size))


def _mimic(model: nn.Module, config: TransformerConfig) -> None:
    """Begin with products of queries and keys near a multiple of the identity, and with sines as position codes.

    A query weight gets the deviation 1 / √width: two equal normed vectors then have a score of about √head_dim.
    """
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
