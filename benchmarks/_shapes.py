"""What is trained: models of the presentation and of the paper; and how our engines train them, step by step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import Model, TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks import Permutation, Retrieval, Task
from hopscope.training import engines
from hopscope.training.config import Training
from hopscope.training.optimiser import Optimiser

from ._timing import Asked, Comparison, compared, in_turn

STEPS = 4
"""Training steps that a contestant takes in one call."""

CHECKED = 4
"""Calls after which the losses of all contestants are compared."""

ALIKE = {"float32": 1e-3, "bfloat16": 3e-2}
"""Largest difference from our losses, as a share of them, of contestants that do the same work."""


class Shape(NamedTuple):
    """A model on its task, samples of a step, and how many models are trained."""

    title: str
    task: Task
    model: Model
    batch: int
    members: int = 8

    @property
    def config(self) -> TransformerConfig:
        """Of the transformer."""
        return self.model.for_task(self.task.shape())

    def training(self, precision: Any = "float32") -> Training:
        """AdamW at a constant rate, without clipping: what every contestant does."""
        more: dict[str, Any] = {"schedule": "constant", "warmup_steps": 0, "clip_norm": None}
        return Training(steps=10**7, batch_size=self.batch, betas=(0.9, 0.999), precision=precision, **more)

    def described(self, **more: Any) -> dict[str, Any]:
        """For the record."""
        own = {
            "title": self.title,
            "task": {"name": type(self.task).__name__, **self.task.model_dump(mode="json")},
        }
        return {
            **own,
            "model": self.model.model_dump(mode="json"),
            "batch": self.batch,
            "members": self.members,
            **more,
        }


def _chain(layers: int, width: int, heads: int, **more: Any) -> Model:
    return Model(layers=layers, width=width, heads=heads, init="gpt2", **{"mlp_ratio": 0.0, **more})


SHAPES = {
    "tiny": Shape(
        "2 layers of width 16, for a try", Retrieval(steps=1, chains=3), _chain(2, 16, 2), batch=13, members=3
    ),
    "permutation": Shape(
        "permutation lookup with repeats, 1 layer of width 32",
        Permutation(repeat_ratio=0.3),
        Model(layers=1, width=32, heads=2, mlp_ratio=2.0, activation="relu", norm="post", init="encoder"),
        batch=256,
    ),
    "depth": Shape("chains of 3 steps, 6 layers of width 64", Retrieval(steps=3), _chain(6, 64, 4), batch=64),
    "depth-mlp": Shape(
        "chains of 3 steps, 6 layers of width 64 with MLPs",
        Retrieval(steps=3), _chain(6, 64, 4, mlp_ratio=4.0), batch=64,
    ),
    "transformer-a": Shape(
        "the paper's transformers A to C: 12 layers of width 128 with MLPs",
        Retrieval(steps=3), _chain(12, 128, 1, mlp_ratio=4.0), batch=128, members=1,
    ),
    "transformer-d": Shape(
        "the paper's transformer D: 24 layers of width 512, heads of 16",
        Retrieval(steps=4), _chain(24, 512, 1, head_dim=16), batch=256, members=1,
    ),
}  # fmt: skip


def shape_of(asked: Asked, usual: str) -> Shape:
    """The shape that is asked for, or the suite's own.

    Raises:
        UserError: there is no such shape.
    """
    name = asked.model or usual
    if name not in SHAPES:
        raise UserError(f"model: expected one of {', '.join(SHAPES)}, found {name!r}")
    return SHAPES[name]


class Program(Protocol):
    """A contestant: so many models, each with a seed."""

    def advance(self) -> np.ndarray:
        """Take `STEPS` training steps with every model and wait for them; the losses, `[step, member]`."""
        ...


class Ours:
    """Our training by one engine: what `hopscope.train` does between two evaluations."""

    def __init__(
        self,
        shape: Shape,
        seeds: Sequence[int],
        engine: str = "",
        precision: str = "float32",
        device: str = "cpu",
    ):
        training, numbers = shape.training(precision), torch.tensor(seeds, device=device)
        self.engine = engine or engines.choose(shape.task, shape.config, device)
        module = engines.load(self.engine, shape.task, shape.config, device)
        self.ensemble = Transformer.initial(shape.config, numbers, device)
        optimiser = Optimiser(self.ensemble.flatten(), self.ensemble.decay_mask(), training)
        products: Any = "bfloat16" if precision == "bfloat16" else "float32"
        model = self.ensemble.at_precision(products)
        self._gradient = module.gradient(model, shape.task, training, numbers, optimiser.gradient)
        self._update = module.update(optimiser) if hasattr(module, "update") else optimiser.step
        self._step = 0

    def advance(self) -> np.ndarray:
        losses = []
        for step in range(self._step, self._step + STEPS):
            losses.append(self._gradient(step)["loss"])
            self._update(step, losses[-1])
        self._step += STEPS
        return torch.stack(losses).cpu().numpy()

    def predictions(self, inputs: Tensor) -> Tensor:
        """Of every member, `[member, batch, readout, output]`."""
        with torch.no_grad():
            return self.ensemble(inputs)


def contest(
    shape: Shape,
    programs: Mapping[str, Callable[[], Program]],
    asked: Asked,
    members: Mapping[str, int] | None = None,
    seconds_of: Callable[[], object] = lambda: None,
    **more: Mapping[str, Any],
) -> Comparison:
    """Time contestants in turn, once their losses have shown that they do the same work.

    Args:
        shape: what they train.
        programs: name → what makes a contestant; the first is ours.
        asked: rounds and seconds.
        members: models that a contestant trains, if not all of the shape.
        seconds_of: makes sure that the device is done.
        more: further columns, by contestant.

    Raises:
        UserError: a contestant's losses differ from ours.
    """
    made = {name: make() for name, make in programs.items()}
    losses = {name: np.concatenate([each.advance() for _ in range(CHECKED)]) for name, each in made.items()}
    ours = next(iter(losses.values()))
    differences = {}
    for name, found in losses.items():
        own = ours[:, : found.shape[1]]
        differences[name] = float(np.abs(found[:, : own.shape[1]] / own - 1.0).max())
        bound = ALIKE["bfloat16" if "bfloat16" in name or "bfloat16" in next(iter(losses)) else "float32"]
        if not differences[name] <= bound:
            raise UserError(
                f"{name}: expected our losses of the first {len(ours)} steps to within {bound:g} of them, "
                f"found a difference of {differences[name]:.2g}; the contestants do not do the same work"
            )

    def work(program: Program) -> Callable[[], None]:
        def once() -> None:
            program.advance()
            seconds_of()

        return once

    turns = in_turn({name: work(each) for name, each in made.items()}, asked.rounds, asked.seconds)
    counts = {name: (members or {}).get(name, shape.members) for name in made}
    done = {name: float(STEPS * count) for name, count in counts.items()}
    unit = "training steps of one model, a second"
    return compared(shape.described(), turns, done, unit, **more, loss_difference=differences)
