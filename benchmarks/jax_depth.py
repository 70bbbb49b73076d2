"""JAX: ``vmap`` over members, ``lax.scan`` over steps, AdamW written out, all compiled into one program.

Dense layers on flattened rows, dot products for attention and, in the last layer, only the positions that the loss
sees, as the twin for the permutation model found quickest.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

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

    from jax_vmap import Array, JaxLoop, Parameters, adam, limit_threads, linear, norm
except ImportError:
    stop("jax_depth: expected the package jax, which is not installed; run `pip install -e .[bench]`")

STEPS_PER_CALL = 4


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

    def dense(inputs: int, outputs: int, deviation: float = DEVIATION) -> Parameters:
        weight = deviation * jax.random.normal(next(keys), (inputs, outputs))
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def ones() -> Parameters:
        return {"weight": jnp.ones(shape.width), "bias": jnp.zeros(shape.width)}

    def block() -> Parameters:
        parts = {
            "norm_attention": ones(),
            "qkv": dense(shape.width, 3 * shape.inner),
            "attention_out": dense(shape.inner, shape.width, shape.residual_deviation),
        }
        if shape.mlp_size:
            parts["norm_mlp"] = ones()
            parts["mlp_in"] = dense(shape.width, shape.mlp_size)
            parts["mlp_out"] = dense(shape.mlp_size, shape.width, shape.residual_deviation)
        return parts

    return {
        "embed": dense(INPUT_SIZE, shape.width),
        "blocks": {str(number): block() for number in range(shape.layers)},
        "norm": ones(),
        "readout": dense(shape.width, shape.output_size),
    }


def _block(shape: Shape, parameters: Parameters, x: Array, rows: int) -> Array:
    """The stream at the last `rows` positions, of that at all positions."""
    batch, positions = x.shape[:2]
    parts = jnp.split(linear(parameters["qkv"], norm(parameters["norm_attention"], x)), 3, axis=-1)
    q, k, v = (part.reshape(batch, positions, shape.heads, shape.head_size) for part in parts)
    visible = jnp.tril(jnp.ones((positions, positions), bool))[-rows:]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, -rows:], k) * shape.head_size**-0.5
    pattern = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", pattern, v).reshape(batch, rows, shape.inner)
    x = x[:, -rows:] + linear(parameters["attention_out"], mixed)
    if "mlp_in" in parameters:
        inside = linear(parameters["mlp_in"], norm(parameters["norm_mlp"], x))
        x = x + linear(parameters["mlp_out"], jax.nn.gelu(inside, approximate=False))
    return x


def forward(shape: Shape, parameters: Parameters, inputs: Array) -> Array:
    """Predictions (batch, query, number) of inputs (batch, position, feature)."""
    x = linear(parameters["embed"], inputs)
    for number in range(shape.layers):
        rows = CHAINS if number == shape.layers - 1 else shape.positions
        x = _block(shape, parameters["blocks"][str(number)], x, rows)
    return linear(parameters["readout"], norm(parameters["norm"], x))


def squared_error(shape: Shape, parameters: Parameters, inputs: Array, targets: Array) -> Array:
    """Mean over samples, queries and the numbers of a prediction."""
    return jnp.square(forward(shape, parameters, inputs) - targets).mean()


adamw = partial(adam, rate=LEARNING_RATE, betas=BETAS, epsilon=EPSILON, decay=WEIGHT_DECAY)


def loop(shape: Shape, batch: int, members: int, seed: int) -> JaxLoop:
    """Training of one of the paper's models."""
    draw, error = partial(sample, shape, batch=batch), partial(squared_error, shape)
    sizes = {"samples": batch, "members": members, "calls": STEPS_PER_CALL}
    return JaxLoop(draw, partial(initial, shape), error, adamw, seed=seed, **sizes)


def build(options: argparse.Namespace) -> JaxLoop:
    return loop(shape_of(options), options.batch, options.members, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    options = depth_parse(depth_arguments("jax_depth", members=8), argv, single=False)
    limit_threads(options.threads)
    return measure("jax_depth", options, build, ["jax", "jaxlib"])


if __name__ == "__main__":
    sys.exit(main())
