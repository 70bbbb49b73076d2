"""The maps that every part of an ensemble uses: linear, layer norm and position codes, with weights chosen by name."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig

Precision = Literal["float32", "bfloat16"]
"""To which the factors of a matrix product, and its result, are rounded."""

Weights = Mapping[str, Tensor]
"""Name → tensor with a leading member axis, as `Parameters.views` gives them."""


def linear(
    weights: Weights,
    name: str,
    x: Float[Tensor, "member batch position a"],
    precision: torch.dtype = torch.float32,
) -> Float[Tensor, "member batch position b"]:
    """Apply weight `[member, a, b]` and bias `[member, b]`: one batched matrix product for all members."""
    return affine(x, weights[f"{name}.weight"], weights[f"{name}.bias"], precision)


def linears(
    weights: Weights,
    names: Sequence[str],
    x: Float[Tensor, "member batch position a"],
    precision: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "member batch position _"], ...]:
    """Apply several linear maps to the same input: one larger product, which reads the input once."""
    weight, bias = (
        torch.cat([weights[f"{name}.{part}"] for name in names], -1) for part in ("weight", "bias")
    )
    sizes = [weights[f"{name}.bias"].shape[-1] for name in names]
    return affine(x, weight, bias, precision).split(sizes, -1)


def affine(
    x: Float[Tensor, "member batch position a"],
    weight: Float[Tensor, "member a b"],
    bias: Float[Tensor, "member b"],
    precision: torch.dtype = torch.float32,
) -> Float[Tensor, "member batch position b"]:
    """Apply a weight and a bias."""
    if precision == torch.float32:
        return torch.baddbmm(bias[:, None], x.flatten(1, 2), weight).unflatten(1, x.shape[1:3])
    return product(x, weight, precision) + bias[:, None, None]


def product(
    x: Float[Tensor, "member batch position a"],
    weight: Float[Tensor, "member a b"],
    precision: torch.dtype = torch.float32,
) -> Float[Tensor, "member batch position b"]:
    """Apply a weight without bias: both factors and the result are rounded to `precision`, sums are float32."""
    rounded = torch.bmm(x.to(precision).flatten(1, 2), weight.to(precision))
    return rounded.float().unflatten(1, x.shape[1:3])


def norm(
    weights: Weights, name: str, x: Float[Tensor, "member batch position model"]
) -> Float[Tensor, "member batch position model"]:
    """Layer norm over the last axis."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return torch.addcmul(bias[:, None, None], functional.layer_norm(x, x.shape[-1:]), weight[:, None, None])


def position_codes(config: TransformerConfig, weights: Weights) -> Float[Tensor, "member position model"]:
    """The learned code of every position; there must be such codes."""
    codes = weights["embed.position.weight"]
    if config.positions == "learned":
        return codes
    # The numbers are made on the device (0 0 1 1 2 …): a copy from the host could not be recorded as a CUDA graph.
    return codes.index_select(1, torch.arange(config.length, device=codes.device) // 2)
