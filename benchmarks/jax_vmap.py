"""JAX: ``vmap`` over members, ``lax.scan`` over steps, Adam written out, all compiled into one program.

Measured on two CPU cores, the quickest of: dense layers on flattened rows (1.2 times the batched product
that XLA makes of a three-dimensional one), dot products for attention (2 times a broadcast multiply and
sum), queries, FFN and readout only at the loss positions (1.35).  One-hot products instead of gathers, the
``rbg`` generator and head-major layouts brought nothing.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
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
BETAS, EPSILON = (0.9, 0.999), 1e-8

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

    def dense(inputs: int, outputs: int) -> Parameters:
        bound = inputs**-0.5
        weight = jax.random.uniform(next(keys), (inputs, outputs), minval=-bound, maxval=bound)
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def ones() -> Parameters:
        return {"weight": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}

    return {
        "tokens": jax.random.normal(next(keys), (TOKENS, WIDTH)),
        "positions": jax.random.normal(next(keys), (INPUT_LENGTH, WIDTH)),
        "qkv": dense(WIDTH, 3 * WIDTH),
        "attention_out": dense(WIDTH, WIDTH),
        "norm_attention": ones(),
        "ffn_in": dense(WIDTH, FFN_WIDTH),
        "ffn_out": dense(FFN_WIDTH, WIDTH),
        "norm_ffn": ones(),
        "readout": dense(WIDTH, TOKENS),
    }


def linear(parameters: Parameters, x: Array) -> Array:
    """A dense layer on flattened rows."""
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ parameters["weight"] + parameters["bias"]).reshape(*x.shape[:-1], -1)


def norm(parameters: Parameters, x: Array) -> Array:
    """A layer norm."""
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * parameters["weight"] + parameters["bias"]


def forward(parameters: Parameters, inputs: Array) -> Array:
    """Logits (batch, 5, token) at the loss positions, of token ids (batch, 9)."""
    batch = len(inputs)
    x = parameters["tokens"][inputs] + parameters["positions"]
    parts = jnp.split(linear(parameters["qkv"], x), 3, axis=-1)
    q, k, v = (part.reshape(batch, INPUT_LENGTH, HEADS, HEAD_DIM) for part in parts)
    visible = jnp.tril(jnp.ones((INPUT_LENGTH, INPUT_LENGTH), bool))[::2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q[:, ::2], k) * HEAD_DIM**-0.5
    pattern = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", pattern, v).reshape(batch, SYMBOLS, WIDTH)
    x = norm(parameters["norm_attention"], x[:, ::2] + linear(parameters["attention_out"], mixed))
    hidden = jax.nn.relu(linear(parameters["ffn_in"], x))
    x = norm(parameters["norm_ffn"], x + linear(parameters["ffn_out"], hidden))
    return linear(parameters["readout"], x)


def cross_entropy(parameters: Parameters, inputs: Array, targets: Array) -> Array:
    """Mean over sequences and the five y-predictions, in nats."""
    log_probabilities = jax.nn.log_softmax(forward(parameters, inputs))
    return -jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1).mean()


def adam(
    parameters: Parameters,
    moments: Parameters,
    gradient: Parameters,
    step: Array,
    *,
    rate: float = LEARNING_RATE,
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    decay: float = 0.0,
) -> Any:
    """Parameters and moments after step number ``step`` (from 1); weight decay on matrices only."""
    one, two = betas
    first = jax.tree.map(lambda m, g: one * m + (1 - one) * g, moments["first"], gradient)
    second = jax.tree.map(lambda v, g: two * v + (1 - two) * g * g, moments["second"], gradient)
    length, spread = rate / (1 - one**step), 1 / (1 - two**step)

    def moved(p: Array, m: Array, v: Array) -> Array:
        kept = (1 - rate * decay) * p if decay and p.ndim == 2 else p
        return kept - length * m / (jnp.sqrt(v * spread) + epsilon)

    return jax.tree.map(moved, parameters, first, second), {"first": first, "second": second}


class JaxLoop:
    """A few steps of all members per call."""

    def __init__(
        self,
        sample: Callable[[Array], tuple[Array, Array]],
        initial: Callable[[Array], Parameters],
        error: Callable[[Parameters, Array, Array], Array],
        update: Callable[..., Any],
        *,
        samples: int,
        members: int,
        seed: int,
        calls: int,
    ) -> None:
        """Draw the members' parameters.

        Args:
            sample: a batch of a key.
            initial: parameters of one member, of a key.
            error: loss of parameters on a batch.
            update: parameters and moments after a step, as `adam`.
            samples: of one member's step.
            members: how many are trained.
            seed: of weights and data.
            calls: steps of one call.
        """
        self.sample, self.error, self.update = sample, error, update
        self.calls, self.samples = calls, calls * members * samples
        for_weights, for_data = jax.random.split(jax.random.key(seed))
        self.parameters = jax.vmap(initial)(jax.random.split(for_weights, members))
        zeros = {each: jax.tree.map(jnp.zeros_like, self.parameters) for each in ("first", "second")}
        self.state = (self.parameters, zeros, jnp.zeros((), jnp.int32), jax.random.split(for_data, members))
        self.steps = jax.jit(self._steps, donate_argnums=0)
        self.latest: Array = jnp.nan

    def _member(self, parameters: Parameters, moments: Parameters, step: Array, key: Array) -> Any:
        inputs, targets = self.sample(jax.random.fold_in(key, step))
        loss, gradient = jax.value_and_grad(self.error)(parameters, inputs, targets)
        return *self.update(parameters, moments, gradient, step), loss

    def _steps(self, state: Any) -> Any:
        def one(state: Any, _: None) -> Any:
            parameters, moments, step, keys = state
            step = step + 1
            parameters, moments, loss = jax.vmap(self._member, in_axes=(0, 0, None, 0))(
                parameters, moments, step, keys
            )
            return (parameters, moments, step, keys), loss.mean()

        state, losses = lax.scan(one, state, None, length=self.calls)
        return state, losses[-1]

    def advance(self) -> int:
        self.state, self.latest = self.steps(self.state)
        self.parameters = self.state[0]
        self.latest.block_until_ready()
        return self.samples

    def loss(self) -> float:
        return float(self.latest)


def loop(batch: int, members: int, seed: int) -> JaxLoop:
    """Training of the page's model."""
    mappings, orders = jnp.array(train_mappings(seed)), jnp.array(all_orders())
    draw = partial(sample, mappings=mappings, orders=orders, batch=batch)
    return JaxLoop(
        draw, initial, cross_entropy, adam, samples=batch, members=members, seed=seed, calls=STEPS_PER_CALL
    )


def limit_threads(threads: int) -> None:
    """Size XLA's thread pool; only before the first JAX operation of the process."""
    os.environ["PJRT_NPROC"] = str(threads)
    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def build(options: argparse.Namespace) -> JaxLoop:
    return loop(options.batch, options.members, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(arguments("jax_vmap", members=8), argv, single=False)
    limit_threads(options.threads)
    return measure("jax_vmap", options, build, ["jax", "jaxlib"])


if __name__ == "__main__":
    sys.exit(main())
