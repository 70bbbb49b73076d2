"""What a training run is, and completions: one word for all that a source leaves open about it.  Loads no torch."""

import math
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from hopscope.config import Config, given_of, values_of
from hopscope.models.config import Model
from hopscope.tasks.task import expect

CompletionName = Literal["gpt2-base", "gpt2-schedule", "torch-base", "torch-schedule"]
COMPLETION_NAMES: Final[tuple[CompletionName, ...]] = get_args(CompletionName)
DEFAULT: Final[CompletionName] = "torch-schedule"
"""What the fields of `Model` and `Training` are by default."""

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
_FINAL_RATE = 0.1


def _warmup(steps: int) -> int:
    return min(200, steps // 10)


class Training(Config):
    """Optimiser, length and record keeping of one training run (public name `hs.Training`).

    Attributes:
        steps: optimiser steps.
        batch_size: samples per member and step.
        optimizer: AdamW (decoupled decay), or Adam (decay is added to the gradient).
        learning_rate: of the optimiser, after the warm-up.
        betas: decay of the running means of gradients and of their squares.
        epsilon: what is added to the root of the second mean.
        weight_decay: as in torch; see `decay`.
        decay: whether weight decay touches matrices only, or every weight.
        warmup_steps: steps over which the rate rises linearly to its value; by default a tenth of all, 200 at most.
        schedule: of the rate afterwards: constant, or half a cosine.
        final_rate: share of the rate that a cosine ends at, after the last step.
        clip_norm: largest gradient norm of a member; `None` means no clipping.
        checkpoint_every: steps between checkpoints, besides those at the powers of two below it.
        evaluate_every: steps between evaluations, besides those at the powers of two below it.
        final_window: last steps that are evaluated more often, for a final loss that is a mean over them.
        final_every: steps between evaluations within the final window.
        precision: of the factors of matrix products: float32, TF32 (on CUDA; elsewhere float32), or bfloat16 (which
            gains time where the device multiplies in it).  Weights, stream, losses, sums and the optimiser are float32
            always.
        examples: number of different training samples, which every member sees over and over, each of its own; `None`:
            fresh ones without end.
    """

    steps: int = Field(ge=1, le=10**8)
    batch_size: int = Field(256, ge=1, lt=1 << 31)
    optimizer: Literal["adam", "adamw"] = "adamw"
    learning_rate: float = Field(1e-3, gt=0.0)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    epsilon: float = Field(1e-8, gt=0.0)
    weight_decay: float = Field(0.1, ge=0.0)
    decay: Literal["matrices", "all"] = "matrices"
    warmup_steps: int = Field(default_factory=lambda given: _warmup(given["steps"]), ge=0)
    clip_norm: float | None = Field(1.0, gt=0.0)
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(100, ge=1)
    final_window: int = Field(0, ge=0)
    final_every: int = Field(1, ge=1)
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    schedule: Literal["constant", "cosine"] = "cosine"
    # Left out of the JSON where they say nothing.
    final_rate: float = Field(_FINAL_RATE, ge=0.0, le=1.0, exclude_if=lambda rate: rate == _FINAL_RATE)
    examples: int | None = Field(None, ge=1, lt=1 << 31, exclude_if=lambda examples: examples is None)

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        wanted = f"at most the {self.steps:,} steps of the training"
        found = f"{self.warmup_steps:,}; lower it or raise steps"
        expect(self.warmup_steps <= self.steps, "warmup_steps", wanted, found)
        return self

    def checkpoint_steps(self) -> list[int]:
        """Steps after which a checkpoint is written, ascending, from 0 to the last."""
        return _multiples(self.steps, self.checkpoint_every)

    def evaluation_steps(self) -> list[int]:
        """Steps after which the members are evaluated and the training loss is recorded, ascending.

        Every checkpoint is among them, so that no average spans one: a resumed run repeats the same record.
        """
        final = range(self.steps, max(self.steps - self.final_window, 0), -self.final_every)
        return sorted({*_multiples(self.steps, self.evaluate_every), *self.checkpoint_steps(), *final})

    def final_steps(self) -> list[int]:
        """Evaluations whose mean is the final loss: those of the final window, or the last alone."""
        first = self.steps - min(self.final_window or 1, self.steps)
        return [step for step in self.evaluation_steps() if step > first]


def _multiples(steps: int, every: int) -> list[int]:
    """0, the powers of two below `every`, its multiples, and the last step."""
    powers = (2**exponent for exponent in range(math.ceil(math.log2(every))))
    return sorted({0, steps, *range(0, steps + 1, every), *(power for power in powers if power < steps)})


def completion_values(name: CompletionName, training: Training) -> dict[str, dict[str, Any]]:
    """Fields of `model` and of `training`, by name, as a completion sets them for a training of this length."""
    start, course = name.split("-")
    base = course == "base"
    return {
        "model": {"init": "gpt2" if start == "gpt2" else "linear"},
        "training": {
            "warmup_steps": 0 if base else _warmup(training.steps),
            "schedule": "constant" if base else "cosine",
            "final_rate": _FINAL_RATE,
            "betas": (training.betas[0], 0.999 if base else 0.95),
            "clip_norm": None if base else 1.0,
        },
    }


def completed(name: CompletionName, model: Model, training: Training) -> tuple[Model, Training]:
    """Both with the values of a completion in the fields that they do not give themselves."""
    values = completion_values(name, training)

    def filled(section: Any, own: dict[str, Any]) -> Any:
        fields = {**values_of(section), **own, **given_of(section)}
        return type(section).model_construct(section.model_fields_set, **fields)

    return filled(model, values["model"]), filled(training, values["training"])


def departures(name: CompletionName, model: Model, training: Training) -> dict[str, Any]:
    """Field (`model.init`, `training.schedule` …) → value, of those that are not as a completion sets them."""
    own = {"model": values_of(model), "training": values_of(training)}
    return {
        f"{section}.{field}": own[section][field]
        for section, fields in completion_values(name, training).items()
        for field, value in fields.items()
        if own[section][field] != value
    }
