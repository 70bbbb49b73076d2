"""The maps that every part of an ensemble uses: linear, layer norm and position codes, with weights chosen by name."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig

Weights = Mapping[str, Tensor]
"""Name → tensor with a leading member axis, as `Parameters.views` gives them."""


def linear(
    weights: Weights, name: str, x: Float[Tensor, "member batch position a"]
) -> Float[Tensor, "member batch position b"]:
    """Apply weight `[member, a, b]` and bias `[member, b]`: one batched matrix product for all members."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return torch.baddbmm(bias[:, None], x.flatten(1, 2), weight).unflatten(1, x.shape[1:3])


def product(
    x: Float[Tensor, "member batch position a"], weight: Float[Tensor, "member a b"]
) -> Float[Tensor, "member batch position b"]:
    """Apply a weight without bias."""
    return torch.bmm(x.flatten(1, 2), weight).unflatten(1, x.shape[1:3])


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
    return codes.index_select(1, torch.tensor(config.position_codes, device=codes.device))
