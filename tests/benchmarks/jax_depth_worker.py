"""Run the JAX contestant of the comparison by depth on given arrays, in a process of its own (see jax_worker.py).

Usage: jax_depth_worker.py IN.npz OUT.npz
"""

import sys
from typing import Any

import numpy as np

LOSSES = 24


def nested(flat: dict[str, np.ndarray]) -> dict[str, Any]:
    """Arrays named by torch's modules as a tree; matrices transposed, for JAX multiplies from the right."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parts, leaf = name.split(".")
        place = tree
        for part in parts:
            place = place.setdefault(part, {})
        place[leaf] = value.T if value.ndim == 2 else value
    return tree


def main(source: str, destination: str) -> None:
    from jax_vmap import limit_threads

    limit_threads(1)
    import jax
    import jax.numpy as jnp

    import jax_depth

    given = dict(np.load(source))
    weights = {
        name.removeprefix("weight/"): each for name, each in given.items() if name.startswith("weight/")
    }
    parameters = jax.tree.map(jnp.asarray, nested(weights))
    out: dict[str, Any] = {}
    out["inputs"], out["targets"] = jax_depth.sample(jax.random.key(int(given["seed"])), int(given["count"]))
    out["predictions"] = jax.jit(jax_depth.forward)(parameters, given["given"])

    @jax.jit
    def step(parameters: Any, moments: Any, number: Any, inputs: Any, targets: Any) -> Any:
        gradient = jax.grad(jax_depth.squared_error)(parameters, inputs, targets)
        return jax_depth.adamw(parameters, moments, gradient, number)

    moments = {each: jax.tree.map(jnp.zeros_like, parameters) for each in ("first", "second")}
    for number, (inputs, targets) in enumerate(
        zip(given["step_inputs"], given["step_targets"], strict=True), 1
    ):
        parameters, moments = step(parameters, moments, number, inputs, targets)
    out["stepped/matrix"] = parameters["blocks"]["2"]["mlp_in"]["weight"].T
    out["stepped/bias"] = parameters["blocks"]["2"]["qkv"]["bias"]

    loop = jax_depth.JaxLoop(batch=64, members=2, seed=int(given["seed"]), mlp_ratio=0)
    out["samples"] = [loop.advance() for _ in range(LOSSES)]
    out["readouts"] = np.array(loop.parameters["readout"]["weight"])
    out["loss"] = loop.loss()
    np.savez(destination, **out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
