"""The contestants' loops as learners, which are trained up to a step and then asked on held-out samples.

Training is the loops' own, unchanged.  A loop is imported when it is asked for: nobody waits for another's packages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from _common import Program, prepare_torch
from _depth import Shape
from _held_out import CHUNK, SAMPLES, SEED, held_out_repeats, recalls, worst_losses

if TYPE_CHECKING:
    # Annotations only: JAX learners are not to wait for torch.
    from torch import Tensor, nn

    from hopscope.training.config import TrainJob
    from hopscope_ensemble import EnsembleLoop


@dataclass(frozen=True)
class Training:
    """What is trained: samples of a step, the shape of a deep model, and what else a contestant may choose."""

    batch: int
    shape: Shape = field(default_factory=Shape)
    rows: str = "loss"
    attention: str = "softmax"


class Learner:
    """Members that are trained together.

    Attributes:
        members: how many.
        steps: that were taken.
        scores: asks every member on the held-out samples.
        facts: what is worth telling of how they are trained.
    """

    def __init__(
        self, loop: Program, batch: int, members: int, scores: Callable[[], list[float]], **facts: object
    ) -> None:
        self.members, self.steps, self.scores, self.facts = members, 0, scores, facts
        self._loop, self._samples = loop, batch * members

    def train_to(self, steps: int) -> None:
        """Train until `steps` are done; a loop that takes several at a time may take a few more."""
        while self.steps < steps:
            self.steps += self._loop.advance() // self._samples


# Ours.


def hopscope_ensemble(training: Training, first: int, members: int) -> Learner:
    from hopscope_ensemble import job_of

    return _ours(job_of(training.batch, members, first), _recalls_of_ours)


def hopscope_depth(training: Training, first: int, members: int) -> Learner:
    from hopscope_depth import job_of

    return _ours(job_of(training.shape, training.batch, members, first), _losses_of_ours)


def _ours(job: "TrainJob", scores: Callable[["EnsembleLoop"], Callable[[], list[float]]]) -> Learner:
    from hopscope_ensemble import EnsembleLoop, engine_of

    engine = engine_of("auto", job)
    loop = EnsembleLoop(job, engine)
    return Learner(loop, loop.batch, loop.members, scores(loop), engine=engine)


def _recalls_of_ours(loop: "EnsembleLoop") -> Callable[[], list[float]]:
    task: Any = loop.steps.task
    batch = task.evaluation("repeats", annotate=False)
    answers = batch.targets[0, :, -1].numpy()
    return lambda: recalls(_asked_of_ours(loop, batch.inputs)[:, :, -1], answers)


def _losses_of_ours(loop: "EnsembleLoop") -> Callable[[], list[float]]:
    task: Any = loop.steps.task
    batch = task.evaluation(SAMPLES, annotate=False)
    targets = batch.targets[0].numpy()
    return lambda: worst_losses(_asked_of_ours(loop, batch.inputs), targets, task.config.steps)


def _asked_of_ours(loop: "EnsembleLoop", inputs: "Tensor") -> np.ndarray:
    """Predictions of all members `[member, sample, readout, number]`."""
    import torch

    with torch.no_grad():
        return torch.cat([loop.steps.model(part) for part in inputs.split(CHUNK, 1)], 1).numpy()


# One model, in PyTorch.


def page_loop(training: Training, first: int, members: int) -> Learner:
    from page_loop import PageLoop

    return _one(PageLoop(training.batch, 0, first), members, _recalls_of_one(first))


def plain_pytorch(training: Training, first: int, members: int) -> Learner:
    from plain_pytorch import loop

    return _one(loop(training.batch, training.rows, first), members, _recalls_of_one(first))


def plain_pytorch_depth(training: Training, first: int, members: int) -> Learner:
    from plain_pytorch_depth import Sampler, loop

    twin = loop(training.shape, training.batch, first, training.rows, training.attention)
    inputs, targets = Sampler(training.shape, SEED)(SAMPLES)
    judge = partial(worst_losses, targets=targets.numpy(), steps=training.shape.steps)
    return _one(twin, members, (inputs, judge))


Question = tuple["Tensor", Callable[[np.ndarray], list[float]]]
"""Held-out inputs, and the scores of predictions of them `[member, sample, …]`."""


def _one(loop: Any, members: int, question: Question) -> Learner:
    if members != 1:
        raise ValueError(f"members: expected 1, found {members}")
    inputs, judge = question
    return Learner(loop, loop.batch, 1, lambda: judge(_asked_of_one(loop.model, inputs)))


def _recalls_of_one(seed: int) -> Question:
    import torch

    inputs, answers = held_out_repeats(seed)
    return torch.from_numpy(inputs), lambda logits: recalls(logits[:, :, -1], answers)


def _asked_of_one(model: "nn.Module", inputs: "Tensor") -> np.ndarray:
    """Predictions `[1, sample, position, number]`."""
    import torch

    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part) for part in inputs.split(CHUNK)])
    model.train()
    return found[None].numpy()


# JAX.


def jax_vmap(training: Training, first: int, members: int) -> Learner:
    from jax_vmap import forward, loop

    twin = loop(training.batch, members, first)
    inputs, answers = held_out_repeats(first)
    ask = _asking(forward, np.split(inputs.astype(np.int32), range(CHUNK, len(inputs), CHUNK)))
    return Learner(twin, training.batch, members, lambda: recalls(ask(twin.parameters)[:, :, -1], answers))


def jax_depth(training: Training, first: int, members: int) -> Learner:
    import jax

    from jax_depth import forward, loop, sample

    shape = training.shape
    twin = loop(shape, training.batch, members, first)
    inputs, targets = jax.jit(partial(sample, shape, batch=SAMPLES))(jax.random.key(SEED))
    ask, right = _asking(partial(forward, shape), [inputs]), np.asarray(targets)
    judge = partial(worst_losses, targets=right, steps=shape.steps)
    return Learner(twin, training.batch, members, lambda: judge(ask(twin.parameters)))


def _asking(forward: Callable[..., Any], parts: Sequence[Any]) -> Callable[[Any], np.ndarray]:
    """What all members predict of inputs, part by part, compiled once."""
    import jax

    ask = jax.jit(jax.vmap(forward, in_axes=(0, None)))
    return lambda parameters: np.concatenate([np.asarray(ask(parameters, part)) for part in parts], 1)


def _prepare_jax(contestant: str) -> None:
    import_module(contestant)  # which says so if JAX is not installed
    from jax_vmap import limit_threads

    limit_threads(1)


def _prepare_torch() -> None:
    prepare_torch(1)


Make = Callable[[Training, int, int], Learner]
"""A learner of some seeds: training, the first of them and how many."""

LEARNERS: dict[str, tuple[Callable[[], None], Make]] = {
    "hopscope_ensemble": (_prepare_torch, hopscope_ensemble),
    "page_loop": (_prepare_torch, page_loop),
    "plain_pytorch": (_prepare_torch, plain_pytorch),
    "jax_vmap": (partial(_prepare_jax, "jax_vmap"), jax_vmap),
    "hopscope_depth": (_prepare_torch, hopscope_depth),
    "plain_pytorch_depth": (_prepare_torch, plain_pytorch_depth),
    "jax_depth": (partial(_prepare_jax, "jax_depth"), jax_depth),
}
"""By contestant: what its process does first, with one thread, and what makes a learner."""
