"""The parameters of an ensemble: one flat buffer `[member, size]` and a named view of it for every tensor.

The flat buffer lets the optimiser, the gradient norm and the divergence guard be a handful of operations for all
members and all tensors at once, while the model reads its weights by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope import rng
from hopscope.models.config import TransformerConfig

_ALIGNMENT = 16
"""Tensors start at multiples of 64 bytes, so that a product's rounding does not depend on what precedes it."""


@dataclass(frozen=True)
class ParameterSpec:
    """Name, shape (without the member axis) and starting distribution of one tensor.

    Attributes:
        spread: bound of a uniform, standard deviation of a normal distribution, or the constant itself.
        decays: whether weight decay is meant for it (matrices, not biases, norms and embeddings of position).
    """

    name: str
    shape: tuple[int, ...]
    distribution: Literal["uniform", "normal", "constant"]
    spread: float
    decays: bool


def parameter_specs(config: TransformerConfig) -> list[ParameterSpec]:
    """All tensors of a transformer, in the order in which they lie in the flat buffer."""
    width = config.width
    specs = _embedding_specs(config)
    for layer in range(config.layers):
        specs += _attention_specs(config, f"layers.{layer}.attention")
        if config.norm != "none":
            specs += _norm_specs(f"layers.{layer}.attention_norm", width)
        if config.mlp_size:
            specs += _linear_specs(config, f"layers.{layer}.mlp.inner", width, config.mlp_size)
            specs += _linear_specs(config, f"layers.{layer}.mlp.outer", config.mlp_size, width, residual=True)
            if config.norm != "none":
                specs += _norm_specs(f"layers.{layer}.mlp_norm", width)
    if config.norm == "pre":
        specs += _norm_specs("final_norm", width)
    return specs + _linear_specs(config, "readout", width, config.output_size)


def _embedding_specs(config: TransformerConfig) -> list[ParameterSpec]:
    specs = []
    if config.input_kind == "tokens":
        specs.append(_table_spec(config, "embed.token.weight", config.input_size))
    else:
        specs += _linear_specs(config, "embed.vector", config.input_size, config.width)
    if config.position_count:
        specs.append(_table_spec(config, "embed.position.weight", config.position_count))
    return specs


def _table_spec(config: TransformerConfig, name: str, count: int) -> ParameterSpec:
    """Rows `[count, width]` that are looked up: a linear map of one-hot vectors, whose fan-in is `count`."""
    spread = 0.02 if config.init == "gpt2" else 1.0
    if isinstance(config.init, float):
        spread = count**-config.init
    return ParameterSpec(name, (count, config.width), "normal", spread, False)


def _attention_specs(config: TransformerConfig, name: str) -> list[ParameterSpec]:
    inner = config.heads * config.head_size
    # torch draws query, key and value as one matrix [3·inner, width] (Glorot), and starts all their biases at zero.
    glorot = math.sqrt(6.0 / (config.width + 3 * inner))
    specs = []
    for part in ("query", "key", "value"):
        specs += _linear_specs(config, f"{name}.{part}", config.width, inner, bound=glorot, zero_bias=True)
    return specs + _linear_specs(config, f"{name}.output", inner, config.width, zero_bias=True, residual=True)


def _norm_specs(name: str, width: int) -> list[ParameterSpec]:
    return [
        ParameterSpec(f"{name}.weight", (width,), "constant", 1.0, False),
        ParameterSpec(f"{name}.bias", (width,), "constant", 0.0, False),
    ]


def _linear_specs(
    config: TransformerConfig,
    name: str,
    fan_in: int,
    fan_out: int,
    *,
    bound: float | None = None,
    zero_bias: bool = False,
    residual: bool = False,
) -> list[ParameterSpec]:
    """Weight `[fan_in, fan_out]` and bias of a linear map; `bound` and `zero_bias` are those of `"encoder"`."""
    init, own = config.init, 1.0 / math.sqrt(fan_in)
    distribution: Literal["uniform", "normal"] = "uniform"
    spread, bias = own, own
    if init == "gpt2" or isinstance(init, float):
        distribution, bias = "normal", 0.0
        spread = fan_in**-init if isinstance(init, float) else 0.02
        if init == "gpt2" and residual:
            spread /= math.sqrt(2 * config.layers)
    elif init != "linear":
        spread, bias = bound or own, 0.0 if zero_bias else own
    return [
        ParameterSpec(f"{name}.weight", (fan_in, fan_out), distribution, spread, True),
        ParameterSpec(f"{name}.bias", (fan_out,), "uniform" if bias else "constant", bias, False),
    ]


class Parameters:
    """The weights of all members.

    Attributes:
        specs: what tensors there are.
        flat: `[member, size]`, every weight of a member in a row (with gaps of zeros for alignment).
        decay_mask: `[size]`, 1 where weight decay is meant for matrices only.
    """

    def __init__(self, specs: list[ParameterSpec], members: int, device: torch.device | str = "cpu"):
        self.specs = specs
        self._slices: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        offset = 0
        for spec in specs:
            size = math.prod(spec.shape)
            self._slices[spec.name] = (offset, offset + size, spec.shape)
            offset += math.ceil(size / _ALIGNMENT) * _ALIGNMENT
        self.flat: Float[Tensor, "member size"] = torch.zeros(members, offset, device=device)
        self.decay_mask = torch.zeros(offset, device=device)
        for spec in specs:
            if spec.decays:
                start, stop, _ = self._slices[spec.name]
                self.decay_mask[start:stop] = 1.0

    @classmethod
    def initial(
        cls, config: TransformerConfig, seeds: Int[Tensor, " member"], device: torch.device | str = "cpu"
    ) -> "Parameters":
        """Fresh weights: tensor number n of a member is drawn from (its seed, stream "init", step n) alone."""
        parameters = cls(parameter_specs(config), len(seeds), device)
        for number, (spec, view) in enumerate(
            zip(parameters.specs, parameters.views().values(), strict=True)
        ):
            view.copy_(_drawn(spec, number, seeds.to(device)))
        if config.init == "mimetic":
            _mimic(config, parameters.views())
        return parameters

    def views(self, flat: Tensor | None = None) -> dict[str, Tensor]:
        """Name → view `[member, *shape]` of `flat` (by default of the weights)."""
        buffer = self.flat if flat is None else flat
        return {
            name: buffer[:, start:stop].view(buffer.shape[0], *shape)
            for name, (start, stop, shape) in self._slices.items()
        }

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights by name; names and shapes must be those of `specs`.

        Raises:
            ValueError: a name is missing or unknown, or a shape differs.
        """
        views = self.views()
        if set(views) != set(weights):
            raise ValueError(f"expected weights {sorted(views)}, found {sorted(weights)}")
        for name, view in views.items():
            if view.shape != weights[name].shape:
                raise ValueError(
                    f"{name}: expected shape {tuple(view.shape)}, found {tuple(weights[name].shape)}"
                )
            view.copy_(weights[name])


_LONGEST_WAVE = 200.0
"""Of the sines that position codes begin with, over the shortest: texts of the tasks are no longer than that."""


def _mimic(config: TransformerConfig, weights: Mapping[str, Tensor]) -> None:
    """Begin with products of queries and keys near a multiple of the identity, and with sines as position codes.

    A query weight gets the deviation 1 / √width: two equal normed vectors then have a score of about √head_dim.
    """
    for layer in range(config.layers):
        query, key = (weights[f"layers.{layer}.attention.{part}.weight"] for part in ("query", "key"))
        bound = math.sqrt(6.0 / (config.width + 3 * config.heads * config.head_size))
        query.mul_(math.sqrt(3.0 / config.width) / bound)
        key.copy_(query)
    if config.position_count:
        codes = weights["embed.position.weight"]
        waves = torch.arange((config.width + 1) // 2, device=codes.device) / max(1, config.width // 2)
        angle = torch.arange(config.position_count, device=codes.device)[:, None] * _LONGEST_WAVE**-waves
        sines = torch.cat((angle.sin(), angle.cos()), -1)[:, : config.width] * math.sqrt(2.0)
        codes.copy_(sines.expand_as(codes))


def _drawn(spec: ParameterSpec, number: int, seeds: Int[Tensor, " member"]) -> Tensor:
    if spec.distribution == "constant":
        return torch.full((len(seeds), *spec.shape), spec.spread, device=seeds.device)
    if spec.distribution == "normal":
        return rng.normal_tensor(seeds, "init", number, spec.shape) * spec.spread
    return (rng.uniform_tensor(seeds, "init", number, spec.shape) * 2.0 - 1.0) * spec.spread
