"""JAX: `vmap` over members, `scan` over steps, AdamW written out, all compiled into one program.

What was tried and is quickest stands here: dense layers on flattened rows, dot products for attention, and in the last
layer only the rows that are read out.  Weights begin as ours do and samples are the same.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.training.config import Training
from hopscope.training.engines.autograd import batches

from ._shapes import STEPS, Shape

Array = Any  # jax.Array, or a tracer of one
Weights = dict[str, Array]


def installed() -> bool:
    """Whether JAX is there."""
    return find_spec("jax") is not None


def _forward(config: TransformerConfig, weights: Weights, inputs: Array) -> Array:
    # Predictions [batch, readout, output] of one member.
    import jax
    import jax.numpy as jnp

    def linear(name: str, x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1]) @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return rows.reshape(*x.shape[:-1], -1)

    def norm(name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(x: Array) -> Array:
        return x.reshape(*x.shape[:2], config.heads, -1)

    tokens, before = config.input_kind == "tokens", config.norm == "pre"
    x = weights["embed.token.weight"][inputs] if tokens else linear("embed.vector", inputs)
    x = x + weights["embed.position.weight"] if config.position_count else x
    seen = jnp.tril(jnp.ones((config.length, config.length), bool)) | (not config.causal)
    for number in range(config.layers):
        own = f"layers.{number}"
        last = number == config.layers - 1
        rows = np.array(config.readout_positions) if last else np.arange(config.length)
        read = norm(f"{own}.attention_norm", x) if before else x
        parts = ("query", "key", "value")
        q, k, v = (
            heads(linear(f"{own}.attention.{part}", read[:, rows] if part == "query" else read))
            for part in parts
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * config.head_size**-0.5
        pattern = jax.nn.softmax(jnp.where(seen[rows], scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", pattern, v)
        x = x[:, rows] + linear(f"{own}.attention.output", mixed.reshape(*mixed.shape[:2], -1))
        x = x if before else norm(f"{own}.attention_norm", x)
        if config.mlp_size:
            hidden = linear(f"{own}.mlp.inner", norm(f"{own}.mlp_norm", x) if before else x)
            hidden = (
                jax.nn.relu(hidden) if config.activation == "relu" else jax.nn.gelu(hidden, approximate=False)
            )
            x = x + linear(f"{own}.mlp.outer", hidden)
            x = x if before else norm(f"{own}.mlp_norm", x)
    return linear("readout", norm("final_norm", x) if before else x)


def _loss(config: TransformerConfig, weights: Weights, inputs: Array, targets: Array) -> Array:
    import jax
    import jax.numpy as jnp

    found = _forward(config, weights, inputs)
    if jnp.issubdtype(targets.dtype, jnp.floating):
        return jnp.square(found - targets).mean()
    return -jnp.take_along_axis(jax.nn.log_softmax(found), targets[..., None], axis=-1).mean()


def _program(config: TransformerConfig, training: Training, decays: dict[str, float]) -> Callable[..., Any]:
    # Some steps of all members: weights and moments before and after, and losses [step, member].
    import jax
    import jax.numpy as jnp

    one, two = training.betas
    of_members = jax.vmap(jax.value_and_grad(partial(_loss, config)))

    def step(state: Any, batch: Any) -> Any:
        weights, first, second, number = state
        losses, gradient = of_members(weights, *batch)
        number = number + 1
        first = jax.tree.map(lambda m, g: one * m + (1 - one) * g, first, gradient)
        second = jax.tree.map(lambda v, g: two * v + (1 - two) * g * g, second, gradient)

        def moved(name: str) -> Array:
            kept = (1 - training.learning_rate * decays[name]) * weights[name]
            size = jnp.sqrt(second[name] / (1 - two**number)) + training.epsilon
            return kept - training.learning_rate / (1 - one**number) * first[name] / size

        return ({name: moved(name) for name in weights}, first, second, number), losses

    return jax.jit(lambda state, given: jax.lax.scan(step, state, given))


class Jax:
    """All members in one program, on one thread."""

    def __init__(self, shape: Shape, seeds: Sequence[int]):
        _begin()
        import jax.numpy as jnp

        training, numbers = shape.training(), torch.tensor(seeds)
        ours = Transformer.initial(shape.config, numbers)
        weights = {name: jnp.array(weight.numpy()) for name, weight in ours.weights().items()}
        masks = ours.views(ours.decay_mask()[None])
        decays = {name: training.weight_decay * float(mask.max()) for name, mask in masks.items()}
        nothing = {name: jnp.zeros_like(weight) for name, weight in weights.items()}
        self._state, self._step = (weights, nothing, nothing, jnp.zeros(())), 0
        self._run, self._batch_of = (
            _program(shape.config, training, decays),
            batches(shape.task, training, numbers),
        )

    def advance(self) -> np.ndarray:
        drawn = [self._batch_of(step) for step in range(self._step, self._step + STEPS)]
        self._step += STEPS
        given = tuple(
            np.stack([getattr(batch, kind).numpy() for batch in drawn]) for kind in ("inputs", "targets")
        )
        given = tuple(each.astype(np.int32) if each.dtype == np.int64 else each for each in given)
        self._state, losses = self._run(self._state, given)
        return np.asarray(losses)


def _begin() -> None:
    # XLA makes as many threads as it sees cores when it begins, and lets no one change that.
    import jax

    if not hasattr(os, "sched_setaffinity"):
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    jax.devices()
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
