"""Causal timelines: training again from a checkpoint while some paths are kept from forming.

Attention that rises before a loss falls need not be what makes it fall.  So a member is trained again from a
checkpoint, on the very samples that it saw, while the rows of one path read uniformly, through training and
evaluation.  What no longer forms then, needed the path.  Beside it stand a run in which nothing is clamped, and its
control, in which the same rows of a head that reads nothing there are: the harm that a clamp does by itself.

Checkpoints within a training keep no optimiser state; all runs alike begin with an optimiser that has seen nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.circuits.circuit import Path
from hopscope.models.edits import lower
from hopscope.models.interventions import ReplacePattern, Roles
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.vector_task import VectorTask
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer

Clamp = Sequence[ReplacePattern]
"""What is replaced in one run; nothing in the run that is left alone."""


@dataclass(frozen=True)
class Lowered:
    """Clamps of several runs on one batch, run by run.

    Attributes:
        on: rows that are clamped.
        pattern: what they read.
    """

    on: Bool[Tensor, "run batch layer head query"]
    pattern: Float[Tensor, "run batch layer head query key"]

    @classmethod
    def of(cls, clamps: Sequence[Clamp], model: Transformer, batch: Batch) -> "Lowered":
        """Clamps on annotated samples of one member (`member == 1`)."""
        edits = lower(clamps, model.config, batch)
        return cls(edits.pattern_on[0], edits.pattern[0])


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


def clamped(model: Transformer, inputs: Tensor, clamps: Lowered) -> Float[Tensor, "run batch readout output"]:
    """Predictions of members of which each is clamped in its own way.

    Args:
        model: one member for each run.
        inputs: the same for all, `[1, batch, position, feature]`.
        clamps: on these inputs.
    """
    stream = model.embedded(inputs)
    for layer, block in enumerate(model.blocks):
        pattern = torch.where(
            clamps.on[:, :, layer, ..., None], clamps.pattern[:, :, layer], block.pattern(stream)
        )
        stream = block.under(stream, pattern)
    return model.read_out(stream[:, :, model.rows])


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
    lowered = Lowered.of(list(clamps.values()), model, held_out)
    evaluated, losses = [], []
    last = min(start + steps, training.steps)
    for step in range(start, last + 1):
        if (step - start) % every == 0 or step == last:
            check()
            with torch.no_grad():
                losses.append(task.losses(clamped(runs, held_out.inputs, lowered), held_out))
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
        self._kept: Lowered | None = None

    def __call__(self, step: int, taken: int) -> None:
        """Take a step: that of the training, and number `taken` of this optimiser."""
        batch = self.task.sample(
            self.seeds, "train", step, self.training.batch_size, annotate=self._kept is None
        )
        lowered = self._kept or Lowered.of(self.clamps, self.model, batch)
        if self._kept is None and _same_everywhere(lowered):
            self._kept = lowered
        losses = self.task.losses(clamped(self.model, batch.inputs, lowered), batch)["loss"]
        found = torch.autograd.grad(losses.sum(), self.weights)
        self.optimizer.step(taken, losses.detach(), dict(zip(self.model.weights, found, strict=True)))


def _same_everywhere(lowered: Lowered) -> bool:
    """Whether every sample has the same rows clamped to the same."""
    replaced = lowered.pattern * lowered.on[..., None]
    return bool((lowered.on == lowered.on[:, :1]).all() and (replaced == replaced[:, :1]).all())
