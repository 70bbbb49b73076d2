"""JAX: ``vmap`` over members, ``lax.scan`` over steps, Adam written out, all compiled into one program.

Measured on two CPU cores, the quickest of: dense layers on flattened rows (1.2 times the batched product
that XLA makes of a three-dimensional one), dot products for attention (2 times a broadcast multiply and
sum), queries, FFN and readout only at the loss positions (1.35).  One-hot products instead of gathers, the
``rbg`` generator and head-major layouts brought nothing.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from _common import (
    FFN_WIDTH,
    HEADS,
    INPUT_LENGTH,
    LEARNING_RATE,
    REPEAT_RATIO,
    SYMBOLS,
    TOKENS,
    WIDTH,
    all_orders,
    arguments,
    measure,
    parse,
    stop,
    train_mappings,
)

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError:
    stop("jax_vmap: expected the package jax, which is not installed; run `pip install -e .[bench]`")

STEPS_PER_CALL = 10
HEAD_DIM = WIDTH // HEADS
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

Array = Any  # jax.Array or a tracer of one
Parameters = dict[str, Any]


def sample(key: Array, mappings: Array, orders: Array, batch: int) -> tuple[Array, Array]:
    """Inputs (batch, 9) and the five y-targets (batch, 5), token ids."""
    for_mapping, for_order, for_slot, for_repeat = jax.random.split(key, 4)
    mapping = jax.random.randint(for_mapping, (batch, 1), 0, len(mappings))
    x = orders[jax.random.randint(for_order, (batch,), 0, len(orders))]
    earlier = jnp.take_along_axis(x, jax.random.randint(for_slot, (batch, 1), 0, SYMBOLS - 1), axis=1)
    repeats = jax.random.uniform(for_repeat, (batch, 1)) < REPEAT_RATIO
    x = jnp.concatenate([x[:, :-1], jnp.where(repeats, earlier, x[:, -1:])], axis=1)
    y = mappings[mapping, x - 1]
    return jnp.stack([x, y], axis=2).reshape(batch, -1)[:, :-1], y


def initial(key: Array) -> Parameters:
    """Parameters of one member, drawn as PyTorch draws its defaults."""
    keys = iter(jax.random.split(key, 7))

    def linear(inputs: int, outputs: int) -> Parameters:
        bound = inputs**-0.5
        weight = jax.random.uniform(next(keys), (inputs, outputs), minval=-bound, maxval=bound)
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def norm() -> Parameters:
        return {"weight": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}

    return {
        "tokens": jax.random.normal(next(keys), (TOKENS, WIDTH)),
        "positions": jax.random.normal(next(keys), (INPUT_LENGTH, WIDTH)),
        "qkv": linear(WIDTH, 3 * WIDTH),
        "attention_out": linear(WIDTH, WIDTH),
        "norm_attention": norm(),
        "ffn_in": linear(WIDTH, FFN_WIDTH),
        "ffn_out": linear(FFN_WIDTH, WIDTH),
        "norm_ffn": norm(),
        "readout": linear(WIDTH, TOKENS),
    }


def _linear(parameters: Parameters, x: Array) -> Array:
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ parameters["weight"] + parameters["bias"]).reshape(*x.shape[:-1], -1)


def _norm(parameters: Parameters, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * parameters["weight"] + parameters["bias"]


def forward(parameters: Parameters, inputs: Array) -> Array:
    """Logits (batch, 5, token) at the loss positions, of token ids (batch, 9)."""
    batch = len(inputs)
    x = parameters["tokens"][inputs] + parameters["positions"]
    parts = jnp.split(_linear(parameters["qkv"], x), 3, axis=-1)
    q, k, v = (part.reshape(batch, INPUT_LENGTH, HEADS, HEAD_DIM) for part in parts)
    visible = jnp.tril(jnp.ones((INPUT_LENGTH, INPUT_LENGTH), bool))[::2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, ::2], k) * HEAD_DIM**-0.5
    pattern = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", pattern, v).reshape(batch, SYMBOLS, WIDTH)
    x = _norm(parameters["norm_attention"], x[:, ::2] + _linear(parameters["attention_out"], mixed))
    hidden = jax.nn.relu(_linear(parameters["ffn_in"], x))
    x = _norm(parameters["norm_ffn"], x + _linear(parameters["ffn_out"], hidden))
    return _linear(parameters["readout"], x)


def cross_entropy(parameters: Parameters, inputs: Array, targets: Array) -> Array:
    """Mean over sequences and the five y-predictions, in nats."""
    log_probabilities = jax.nn.log_softmax(forward(parameters, inputs))
    return -jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1).mean()


def adam(parameters: Parameters, moments: Parameters, gradient: Parameters, step: Array) -> Any:
    """Parameters and moments after step number ``step`` (from 1)."""
    first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, moments["first"], gradient)
    second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, moments["second"], gradient)
    rate, spread = LEARNING_RATE / (1 - BETA1**step), 1 / (1 - BETA2**step)
    parameters = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v * spread) + EPSILON), parameters, first, second
    )
    return parameters, {"first": first, "second": second}


class JaxLoop:
    """Ten steps of all members per call."""

    def __init__(self, batch: int, members: int, seed: int) -> None:
        self.batch, self.members = batch, members
        mappings, orders = jnp.array(train_mappings(seed)), jnp.array(all_orders())
        self.sample = partial(sample, mappings=mappings, orders=orders, batch=batch)
        for_weights, for_data = jax.random.split(jax.random.key(seed))
        self.parameters = jax.vmap(initial)(jax.random.split(for_weights, members))
        zeros = {each: jax.tree.map(jnp.zeros_like, self.parameters) for each in ("first", "second")}
        self.state = (self.parameters, zeros, jnp.zeros((), jnp.int32), jax.random.split(for_data, members))
        self.steps = jax.jit(self._steps, donate_argnums=0)
        self.latest: Array = jnp.nan

    def _member(self, parameters: Parameters, moments: Parameters, step: Array, key: Array) -> Any:
        inputs, targets = self.sample(jax.random.fold_in(key, step))
        loss, gradient = jax.value_and_grad(cross_entropy)(parameters, inputs, targets)
        return *adam(parameters, moments, gradient, step), loss

    def _steps(self, state: Any) -> Any:
        def one(state: Any, _: None) -> Any:
            parameters, moments, step, keys = state
            step = step + 1
            parameters, moments, loss = jax.vmap(self._member, in_axes=(0, 0, None, 0))(
                parameters, moments, step, keys
            )
            return (parameters, moments, step, keys), loss.mean()

        state, losses = lax.scan(one, state, None, length=STEPS_PER_CALL)
        return state, losses[-1]

    def advance(self) -> int:
        self.state, self.latest = self.steps(self.state)
        self.parameters = self.state[0]
        self.latest.block_until_ready()
        return STEPS_PER_CALL * self.members * self.batch

    def loss(self) -> float:
        return float(self.latest)


def limit_threads(threads: int) -> None:
    """Size XLA's thread pool; only before the first JAX operation of the process."""
    os.environ["PJRT_NPROC"] = str(threads)
    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def build(options: argparse.Namespace) -> JaxLoop:
    return JaxLoop(options.batch, options.members, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(arguments("jax_vmap", members=8), argv, single=False)
    limit_threads(options.threads)
    return measure("jax_vmap", options, build, ["jax", "jaxlib"])


if __name__ == "__main__":
    sys.exit(main())
