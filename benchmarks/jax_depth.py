"""JAX: ``vmap`` over members, ``lax.scan`` over steps, AdamW written out, all compiled into one program.

Dense layers on flattened rows, dot products for attention and, in the last layer, only the positions that the loss
sees, as the twin for the permutation model found quickest.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from _common import measure, stop
from _depth import (
    BETAS,
    CHAINS,
    DEVIATION,
    EPSILON,
    INPUT_SIZE,
    LEARNING_RATE,
    SYMBOL_DIM,
    WEIGHT_DECAY,
    Shape,
    depth_arguments,
    depth_parse,
    position_codes,
    shape_of,
)

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError:
    stop("jax_depth: expected the package jax, which is not installed; run `pip install -e .[bench]`")

STEPS_PER_CALL = 4

Array = Any  # jax.Array or a tracer of one
Parameters = dict[str, Any]


def sample(shape: Shape, key: Array, batch: int) -> tuple[Array, Array]:
    """Inputs (batch, position, feature) and targets (batch, query, number)."""
    for_symbols, for_orders = jax.random.split(key)
    symbols = jax.random.normal(for_symbols, (batch, shape.steps + 1, CHAINS, SYMBOL_DIM))
    # Row k orders the pairs of step k, row 0 the queries.
    orders = jax.random.uniform(for_orders, (batch, shape.steps + 1, CHAINS)).argsort(-1)[..., None]
    blocks = []
    for step in range(shape.steps, 0, -1):
        pair = [jnp.take_along_axis(symbols[:, level], orders[:, step], 1) for level in (step - 1, step)]
        blocks.append(jnp.stack(pair, 2).reshape(batch, 2 * CHAINS, SYMBOL_DIM))
    queries, *targets = (
        jnp.take_along_axis(symbols[:, level], orders[:, 0], 1) for level in range(shape.steps + 1)
    )
    held = jnp.concatenate([*blocks, queries], 1)
    codes = jnp.broadcast_to(jnp.array(position_codes(shape)), held.shape)
    return jnp.concatenate([held, codes], -1), jnp.concatenate(targets, -1)


def initial(shape: Shape, key: Array) -> Parameters:
    """Parameters of one member, drawn as GPT-2's."""
    keys = iter(jax.random.split(key, 2 + 4 * shape.layers))

    def linear(inputs: int, outputs: int, deviation: float = DEVIATION) -> Parameters:
        weight = deviation * jax.random.normal(next(keys), (inputs, outputs))
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def norm() -> Parameters:
        return {"weight": jnp.ones(shape.width), "bias": jnp.zeros(shape.width)}

    def block() -> Parameters:
        parts = {
            "norm_attention": norm(),
            "qkv": linear(shape.width, 3 * shape.inner),
            "attention_out": linear(shape.inner, shape.width, shape.residual_deviation),
        }
        if shape.mlp_size:
            parts["norm_mlp"] = norm()
            parts["mlp_in"] = linear(shape.width, shape.mlp_size)
            parts["mlp_out"] = linear(shape.mlp_size, shape.width, shape.residual_deviation)
        return parts

    return {
        "embed": linear(INPUT_SIZE, shape.width),
        "blocks": {str(number): block() for number in range(shape.layers)},
        "norm": norm(),
        "readout": linear(shape.width, shape.output_size),
    }


def _linear(parameters: Parameters, x: Array) -> Array:
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ parameters["weight"] + parameters["bias"]).reshape(*x.shape[:-1], -1)


def _norm(parameters: Parameters, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * parameters["weight"] + parameters["bias"]


def _block(shape: Shape, parameters: Parameters, x: Array, rows: int) -> Array:
    """The stream at the last `rows` positions, of that at all positions."""
    batch, positions = x.shape[:2]
    parts = jnp.split(_linear(parameters["qkv"], _norm(parameters["norm_attention"], x)), 3, axis=-1)
    q, k, v = (part.reshape(batch, positions, shape.heads, shape.head_size) for part in parts)
    visible = jnp.tril(jnp.ones((positions, positions), bool))[-rows:]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, -rows:], k) * shape.head_size**-0.5
    pattern = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", pattern, v).reshape(batch, rows, shape.inner)
    x = x[:, -rows:] + _linear(parameters["attention_out"], mixed)
    if "mlp_in" in parameters:
        inside = _linear(parameters["mlp_in"], _norm(parameters["norm_mlp"], x))
        x = x + _linear(parameters["mlp_out"], jax.nn.gelu(inside, approximate=False))
    return x


def forward(shape: Shape, parameters: Parameters, inputs: Array) -> Array:
    """Predictions (batch, query, number) of inputs (batch, position, feature)."""
    x = _linear(parameters["embed"], inputs)
    for number in range(shape.layers):
        rows = CHAINS if number == shape.layers - 1 else shape.positions
        x = _block(shape, parameters["blocks"][str(number)], x, rows)
    return _linear(parameters["readout"], _norm(parameters["norm"], x))


def squared_error(shape: Shape, parameters: Parameters, inputs: Array, targets: Array) -> Array:
    """Mean over samples, queries and the numbers of a prediction."""
    return jnp.square(forward(shape, parameters, inputs) - targets).mean()


def adamw(parameters: Parameters, moments: Parameters, gradient: Parameters, step: Array) -> Any:
    """Parameters and moments after step number ``step`` (from 1); weight decay on matrices only."""
    one, two = BETAS
    first = jax.tree.map(lambda m, g: one * m + (1 - one) * g, moments["first"], gradient)
    second = jax.tree.map(lambda v, g: two * v + (1 - two) * g * g, moments["second"], gradient)
    rate, spread = LEARNING_RATE / (1 - one**step), 1 / (1 - two**step)

    def moved(p: Array, m: Array, v: Array) -> Array:
        kept = 1 - LEARNING_RATE * WEIGHT_DECAY if p.ndim == 2 else 1.0
        return kept * p - rate * m / (jnp.sqrt(v * spread) + EPSILON)

    return jax.tree.map(moved, parameters, first, second), {"first": first, "second": second}


class JaxLoop:
    """A few steps of all members per call."""

    def __init__(self, shape: Shape, batch: int, members: int, seed: int) -> None:
        self.shape, self.batch, self.members = shape, batch, members
        for_weights, for_data = jax.random.split(jax.random.key(seed))
        self.parameters = jax.vmap(partial(initial, shape))(jax.random.split(for_weights, members))
        zeros = {each: jax.tree.map(jnp.zeros_like, self.parameters) for each in ("first", "second")}
        self.state = (self.parameters, zeros, jnp.zeros((), jnp.int32), jax.random.split(for_data, members))
        self.steps = jax.jit(self._steps, donate_argnums=0)
        self.latest: Array = jnp.nan

    def _member(self, parameters: Parameters, moments: Parameters, step: Array, key: Array) -> Any:
        inputs, targets = sample(self.shape, jax.random.fold_in(key, step), self.batch)
        loss, gradient = jax.value_and_grad(partial(squared_error, self.shape))(parameters, inputs, targets)
        return *adamw(parameters, moments, gradient, step), loss

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


def build(options: argparse.Namespace) -> JaxLoop:
    return JaxLoop(shape_of(options), options.batch, options.members, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    from jax_vmap import limit_threads

    options = depth_parse(depth_arguments("jax_depth", members=8), argv, single=False)
    limit_threads(options.threads)
    return measure("jax_depth", options, build, ["jax", "jaxlib"])


if __name__ == "__main__":
    sys.exit(main())
