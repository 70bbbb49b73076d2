"""Compiled steps beside plain ones, in a process of its own: what torch traces must not be wrapped by shape checks.

`python compiled_checks.py BACKEND` prints one JSON object.  The backend `aot_eager` does everything but to write and
compile kernels.
"""

import json
import sys

import torch
from torch._inductor import config as inductor

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Permutation, Retrieval
from hopscope.training.config import Training
from hopscope.training.engines import autograd, compiled
from hopscope.training.optimiser import Optimiser

SEEDS = torch.tensor([5, 7, 11])
CASES = {
    "retrieval": (
        Retrieval(chains=3, steps=2, symbol_dim=2, shares=(0.5, 0.75), emphasis="subsets"),
        Model(layers=3, heads=2, width=10, mlp_ratio=1.7),
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.3, "warmup_steps": 3},
    ),
    "permutation, rounded": (
        Permutation(values=3, repeat_ratio=0.5),
        Model(heads=2, width=10, norm="post", init="encoder"),
        {"precision": "bfloat16", "examples": 29},
    ),
}


def made(name, backend=None):
    """Model, optimiser, gradient and update: plain without a backend."""
    task, model, fields = CASES[name]
    training = Training(steps=19, batch_size=13, **fields)
    ensemble = Transformer.initial(model.for_task(task.shape()), SEEDS)
    optimiser = Optimiser(ensemble.flatten(), ensemble.decay_mask(), training)
    arguments = ensemble.at_precision(training.precision), task, training, SEEDS, optimiser.gradient
    if backend is None:
        return ensemble, optimiser, autograd.gradient(*arguments), optimiser.step
    return ensemble, optimiser, compiled.gradient(*arguments, backend), compiled.update(optimiser, backend)


def apart(found, expected):
    """Largest difference, in units of the largest number."""
    return float((found - expected).abs().max() / expected.abs().max())


def compared(name, backend):
    ours, plain, found = made(name, backend), made(name), {"losses": 0.0, "gradient": 0.0, "weights": 0.0}
    for step in range(6):
        losses, expected = ours[2](step), plain[2](step)
        assert list(losses) == list(expected) and not any(loss.requires_grad for loss in losses.values())
        found["losses"] = max(found["losses"], *(apart(losses[each], expected[each]) for each in expected))
        found["gradient"] = max(found["gradient"], apart(ours[1].gradient, plain[1].gradient))
        if step == 3:  # a member diverges
            losses = {**losses, "loss": losses["loss"].masked_fill(SEEDS == 7, torch.nan)}
        ours[3](step, losses["loss"])
        plain[1].gradient.copy_(plain[1].gradient)
        plain[3](step, losses["loss"])
        plain[0].load(ours[0].weights())
        found["moments"] = max(
            apart(ours[1].first_moment, plain[1].first_moment),
            apart(ours[1].second_moment, plain[1].second_moment),
        )
    return {**found, "alive": ours[1].alive.tolist()}


def failing(graph, examples):
    raise OSError("no space left on device\nand more")


def refused(backend):
    try:
        made("retrieval", backend)[2](0)
    except UserError as error:
        return str(error)
    return "nothing"


def programs():
    """How many programs a gradient of three layers is made of."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    made("retrieval", counter)[2](0)
    return counter.frame_count


if __name__ == "__main__":
    torch.set_num_threads(1)
    backend = sys.argv[1]
    found = {name: compared(name, backend) for name in CASES}
    inductor.cpp.cxx = (None, "no-such-compiler")
    faults = [refused(failing), refused("inductor")]
    print(json.dumps({**found, "refused": faults, "programs": programs()}))
