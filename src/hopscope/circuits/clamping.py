"""Causal timelines: training again from a checkpoint while some paths are kept from forming.

Attention that rises before a loss falls need not be what makes it fall.  So a member is trained again from a
checkpoint, on the very samples that it saw, while the rows of one path read uniformly, through training and
evaluation.  What no longer forms then, needed the path.  Beside it stand a run in which nothing is clamped, and its
control, in which the same rows of a head that reads nothing there are: the harm that a clamp does by itself.

Checkpoints within a training keep no optimiser state; all runs alike begin with an optimiser that has seen nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.circuit import Path
from hopscope.models.edits import Edits
from hopscope.models.interventions import ReplacePattern, Roles
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.vector_task import VectorTask
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer

Clamp = Sequence[ReplacePattern]
"""What is replaced in one run; nothing in the run that is left alone."""


def clamp_of(path: Path) -> ReplacePattern:
    """Rows of a path read uniformly."""
    return _uniform(path.layer, path.head, path.roles)


def _uniform(layer: int, head: int, rows: Roles) -> ReplacePattern:
    return ReplacePattern(layer=layer, heads=(head,), rows=rows, by="uniform")


def controls_of(
    paths: Sequence[Path], used: Collection[tuple[int, int, Roles]], layers: int, heads: int
) -> tuple[ReplacePattern, ...] | None:
    """For each path the same rows of a head that reads nothing there: the one in the nearest layer, each once.

    Args:
        paths: what is matched.
        used: layer, head and row roles of whatever reads something in any circuit.
        layers: of the model.
        heads: of each layer.

    Returns:
        None if there are not enough such heads.
    """
    taken, found = [*used], []
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    for path in paths:
        free = [place for place in every if (*place, path.roles) not in taken]
        if not free:
            return None
        layer, head = min(free, key=lambda place: (abs(place[0] - path.layer), place))
        taken.append((layer, head, path.roles))
        found.append(_uniform(layer, head, path.roles))
    return tuple(found)


def clamped(
    model: Transformer, inputs: Tensor, clamps: Sequence[Edits]
) -> Float[Tensor, "run batch readout output"]:
    """Predictions of members of which each is clamped in its own way.

    Args:
        model: one member for each run.
        inputs: the same for all, `[1, batch, position, feature]`.
        clamps: of each run, on these inputs.
    """
    sites = {name for clamp in clamps for name in clamp.sites}

    def visit(name: str, tensor: Tensor) -> Tensor:
        if name not in sites:
            return tensor
        return torch.cat([clamp(name, run) for clamp, run in zip(clamps, tensor.split(1), strict=True)])

    return model(inputs, visit)


@dataclass(frozen=True)
class Rerun:
    """What became of the partial losses in runs from one checkpoint.

    Attributes:
        steps: of the evaluations, from that of the checkpoint on.
        losses: run → name of a loss → its values.
    """

    steps: tuple[int, ...]
    losses: dict[str, dict[str, tuple[float, ...]]]


def rerun(
    model: Transformer,
    task: VectorTask,
    training: TrainingConfig,
    data_seed: int,
    start: int,
    clamps: Mapping[str, Clamp],
    *,
    steps: int,
    every: int,
    samples: int,
    check: Callable[[], None] = lambda: None,
) -> Rerun:
    """Train one member again from a checkpoint, once under each clamp, side by side.

    Args:
        model: the member at the checkpoint, `member == 1`.
        task, training, data_seed: as it was trained.
        start: step of the checkpoint.
        clamps: of each run, by its name.
        steps: how many are taken at most; the training's own last step is the last in any case.
        every: steps between evaluations.
        samples: held-out samples of every evaluation.
        check: called at every evaluation; what it raises ends the runs.
    """
    runs = model.select([0] * len(clamps))
    optimizer = Optimizer(runs.parameters, training)
    step_of = _Step(runs, task, training, data_seed, list(clamps.values()), optimizer)
    held_out = task.evaluation(samples)
    on_held_out = _on(clamps.values(), model, held_out)
    evaluated, losses = [], []
    last = min(start + steps, training.steps)
    for step in range(start, last + 1):
        if (step - start) % every == 0 or step == last:
            check()
            with torch.no_grad():
                losses.append(task.losses(clamped(runs, held_out.inputs, on_held_out), held_out))
            evaluated.append(step)
        if step < last:
            step_of(step, step - start)
    return Rerun(
        tuple(evaluated),
        {
            run: {name: tuple(float(each[name][number]) for each in losses) for name in losses[0]}
            for number, run in enumerate(clamps)
        },
    )


class _Step:
    """One training step of all runs; rows are looked up once where roles have fixed places."""

    def __init__(
        self,
        model: Transformer,
        task: VectorTask,
        training: TrainingConfig,
        data_seed: int,
        clamps: Sequence[Clamp],
        optimizer: Optimizer,
    ):
        self.model = model.at(training.precision)
        self.task, self.training, self.clamps = task, training, clamps
        self.optimizer, self.seeds = optimizer, torch.tensor([data_seed], device=task.device)
        self.weights = [weight.requires_grad_() for weight in self.model.weights.values()]
        self._kept: list[Edits] | None = None

    def __call__(self, step: int, taken: int) -> None:
        """Take a step: that of the training, and number `taken` of this optimiser."""
        batch = self.task.sample(
            self.seeds, "train", step, self.training.batch_size, annotate=self._kept is None
        )
        clamps = self._kept or _on(self.clamps, self.model, batch)
        if self._kept is None and all(map(_same_everywhere, clamps)):
            self._kept = clamps
        losses = self.task.losses(clamped(self.model, batch.inputs, clamps), batch)["loss"]
        found = torch.autograd.grad(losses.sum(), self.weights)
        self.optimizer.step(taken, losses.detach(), dict(zip(self.model.weights, found, strict=True)))


def _on(clamps: Iterable[Clamp], model: Transformer, batch: Batch) -> list[Edits]:
    """Clamps on annotated samples of one member (`member == 1`)."""
    return [Edits(model, clamp, batch) for clamp in clamps]


def _same_everywhere(clamp: Edits) -> bool:
    """Whether every sample has the same rows clamped to the same."""
    return all(
        torch.equal(part, part[:, :1].expand_as(part))
        for on, pattern in clamp.replaced.values()
        for part in (on, pattern * on[..., None])
    )
