"""Run the JAX contestant's functions on given arrays, in a process of its own.

JAX starts threads and complains about every later fork, so it must stay out of the process that runs the
tests.
Usage: jax_worker.py IN.npz OUT.npz
"""

import sys
from typing import Any

import numpy as np

from _common import all_orders, train_mappings


def nested(flat: dict[str, np.ndarray]) -> dict[str, Any]:
    """Arrays named ``part.leaf`` as a tree; matrices transposed, for JAX multiplies from the right."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        part, _, leaf = name.partition(".")
        if not leaf or part == "tokens":
            tree[part] = value
        else:
            tree.setdefault(part, {})[leaf] = value.T if value.ndim == 2 else value
    return tree


def main(source: str, destination: str) -> None:
    import jax_vmap

    jax_vmap.limit_threads(1)
    import jax
    import jax.numpy as jnp

    given = dict(np.load(source))
    weights = {
        name.removeprefix("weight/"): value for name, value in given.items() if name.startswith("weight/")
    }
    parameters = jax.tree.map(jnp.asarray, nested(weights))
    seed = int(given["seed"])
    out: dict[str, Any] = {}

    mappings, orders = jnp.array(train_mappings(seed)), jnp.array(all_orders())
    out["inputs"], out["y"] = jax_vmap.sample(jax.random.key(seed), mappings, orders, int(given["count"]))
    forward = jax.jit(jax_vmap.forward)
    for name in [name for name in given if name.startswith("logits/")]:
        out[name] = forward(parameters, given[name])

    @jax.jit
    def step(parameters: Any, moments: Any, number: Any, inputs: Any, targets: Any) -> Any:
        gradient = jax.grad(jax_vmap.cross_entropy)(parameters, inputs, targets)
        return jax_vmap.adam(parameters, moments, gradient, number)

    moments = {each: jax.tree.map(jnp.zeros_like, parameters) for each in ("first", "second")}
    for number, (inputs, targets) in enumerate(
        zip(given["step_inputs"], given["step_targets"], strict=True), 1
    ):
        parameters, moments = step(parameters, moments, number, inputs, targets)
    for part in ("qkv", "ffn_in", "readout"):
        out[f"stepped/{part}.weight"] = parameters[part]["weight"].T

    loop = jax_vmap.loop(batch=128, members=2, seed=seed)
    out["readouts"] = np.array(loop.parameters["readout"]["weight"])
    samples, losses = 0, []
    while samples < 300 * 128 * 2:
        samples += loop.advance()
        losses.append(loop.loss())
    out["samples"], out["losses"] = samples, losses
    np.savez(destination, **out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
