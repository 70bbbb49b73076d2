"""Run the JAX contestant of the comparison by depth on given arrays, in a process of its own (see jax_worker.py).

Usage: jax_depth_worker.py IN.npz OUT.npz
"""

import sys
from functools import partial
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


def under(flat: dict[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    """What begins with a word, without it."""
    return {name.removeprefix(start): each for name, each in flat.items() if name.startswith(start)}


def parameter_count(shape: Any) -> int:
    import jax

    import jax_depth

    key = jax.random.key(0)
    return sum(each.size for each in jax.tree.leaves(jax.eval_shape(partial(jax_depth.initial, shape), key)))


def main(source: str, destination: str) -> None:
    from jax_vmap import limit_threads

    limit_threads(1)
    import jax
    import jax.numpy as jnp

    import jax_depth
    from _depth import Shape

    given = dict(np.load(source))
    seed, count = int(given["seed"]), int(given["count"])
    shape, small = (Shape(*given[name].tolist()) for name in ("shape", "small/shape"))
    parameters, few = (
        jax.tree.map(jnp.asarray, nested(under(given, each))) for each in ("weight/", "small/weight/")
    )
    out: dict[str, Any] = {}
    out["inputs"], out["targets"] = jax_depth.sample(shape, jax.random.key(seed), count)
    out["predictions"] = jax.jit(partial(jax_depth.forward, shape))(parameters, given["given"])
    out["small/predictions"] = jax.jit(partial(jax_depth.forward, small))(few, given["small/given"])

    @jax.jit
    def step(parameters: Any, moments: Any, number: Any, inputs: Any, targets: Any) -> Any:
        gradient = jax.grad(partial(jax_depth.squared_error, shape))(parameters, inputs, targets)
        return jax_depth.adamw(parameters, moments, gradient, number)

    moments = {each: jax.tree.map(jnp.zeros_like, parameters) for each in ("first", "second")}
    for number, (inputs, targets) in enumerate(
        zip(given["step_inputs"], given["step_targets"], strict=True), 1
    ):
        parameters, moments = step(parameters, moments, number, inputs, targets)
    out["stepped/matrix"] = parameters["blocks"]["2"]["mlp_in"]["weight"].T
    out["stepped/bias"] = parameters["blocks"]["2"]["qkv"]["bias"]

    out["parameters"] = [parameter_count(Shape(*numbers)) for numbers in given["shapes"].tolist()]

    loop = jax_depth.loop(Shape(), batch=64, members=2, seed=seed)
    out["samples"] = [loop.advance() for _ in range(LOSSES)]
    out["readouts"] = np.array(loop.parameters["readout"]["weight"])
    out["loss"] = loop.loss()
    loop = jax_depth.loop(small, batch=64, members=1, seed=seed)
    out["small/losses"] = [loop.loss() for _ in range(LOSSES) if loop.advance()]
    np.savez(destination, **out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
