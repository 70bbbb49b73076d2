"""What a training run is: values without torch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from hopscope.completion import COMPLETIONS, DEFAULT, Schedule
from hopscope.config import Config, in_words
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import TaskConfig as TaskConfig

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
"""Share of a running mean that one step keeps."""


_USUAL = COMPLETIONS[DEFAULT]


class TrainingConfig(Config, title="Training"):
    """Optimiser, length and record keeping of one training run.

    Attributes:
        steps: optimiser steps.
        batch_size: samples per member and step.
        optimizer: AdamW (decoupled decay), or Adam (decay is added to the gradient).
        learning_rate, betas, epsilon, weight_decay: as in torch.
        decay: whether weight decay touches matrices only, or every weight.
        warmup_steps: steps over which the rate rises linearly to its value; by default a tenth of all, 200 at most.
        schedule: of the rate afterwards: constant, or half a cosine.
        final_rate: share of the rate that a cosine ends at, after the last step.
        clip_norm: largest gradient norm of a member; `None` means no clipping.
        checkpoint_every: steps between checkpoints, besides those at the powers of two below it.
        evaluate_every: steps between evaluations, besides those at the powers of two below it.
        final_window: last steps that are evaluated more often, for a final loss that is a mean over them.
        final_every: steps between evaluations within the final window.
        precision: of the matrix products; weights, residual stream, losses and the optimiser are float32 always.
        examples: number of different training samples, which every member sees over and over, each of its own; `None`:
            fresh ones without end.
    """

    steps: int = Field(ge=1, le=10**8)
    batch_size: int = Field(256, ge=1)
    optimizer: Literal["adam", "adamw"] = "adamw"
    learning_rate: float = Field(1e-3, gt=0.0)
    betas: tuple[Beta, Beta] = (0.9, _USUAL.beta2)
    epsilon: float = Field(1e-8, gt=0.0)
    weight_decay: float = Field(0.1, ge=0.0)
    decay: Literal["matrices", "all"] = "matrices"
    warmup_steps: int = Field(default_factory=lambda given: _USUAL.warmup_steps(given["steps"]), ge=0)
    clip_norm: float | None = Field(_USUAL.clip_norm, gt=0.0)
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(100, ge=1)
    final_window: int = Field(0, ge=0)
    final_every: int = Field(1, ge=1)
    precision: Literal["float32", "bfloat16"] = "float32"
    # Left out of the JSON where they say nothing, so that jobs from before they existed keep their hash.
    schedule: Schedule = Field(_USUAL.schedule, exclude_if=lambda schedule: schedule == "constant")
    final_rate: float = Field(
        _USUAL.final_rate, ge=0.0, le=1.0, exclude_if=lambda rate: rate == _USUAL.final_rate
    )
    examples: int | None = Field(None, ge=1, lt=1 << 31, exclude_if=lambda examples: examples is None)

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        check_warmup(self.warmup_steps, self.steps, "steps")
        return self

    def checkpoint_steps(self) -> list[int]:
        """Steps after which a checkpoint is written, ascending, from 0 to the last."""
        return _schedule(self.steps, self.checkpoint_every)

    def evaluation_steps(self) -> list[int]:
        """Steps after which the members are evaluated and the training loss is recorded, ascending.

        Every checkpoint is among them, so that no average spans one: a resumed run repeats the same record.
        """
        final = range(self.steps, max(self.steps - self.final_window, 0), -self.final_every)
        return sorted({*_schedule(self.steps, self.evaluate_every), *self.checkpoint_steps(), *final})

    def final_steps(self) -> list[int]:
        """Evaluations whose mean is the final loss: those of the final window, or the last alone."""
        first = self.steps - self.final_window if self.final_window else self.steps - 1
        return [step for step in self.evaluation_steps() if step > first]


def check_warmup(warmup_steps: int, steps: int, name: str) -> None:
    """Refuse a warm-up that is longer than the training.

    Args:
        warmup_steps: of the warm-up.
        steps: of the training.
        name: of the field that says how long the training is.

    Raises:
        ValueError: it is longer.
    """
    if warmup_steps > steps:
        raise ValueError(
            f"warmup_steps: expected at most the {steps:,} steps of the training, found {warmup_steps:,}; "
            f"lower it or raise {name}"
        )


def as_recorded(training: Any) -> Any:
    """The fields of a recorded training: one that names no schedule was trained at a constant rate."""
    return {"schedule": "constant", **training} if isinstance(training, Mapping) else training


def _schedule(steps: int, every: int) -> list[int]:
    """0, the powers of two below `every`, its multiples, and the last step."""
    powers = (2**exponent for exponent in range(math.ceil(math.log2(every)) if every > 1 else 0))
    return sorted({0, steps, *range(0, steps + 1, every), *(power for power in powers if power < steps)})


class MemberPlan(Config):
    """One member of a unit.

    Attributes:
        member: its number in the whole run.
        seed: its seed.
        overrides: how it differs from the study's base configuration; `init_seed` and `data_seed` there take the
            place of `seed` for the weights and for the training samples.
    """

    member: int = Field(ge=0)
    seed: int = Field(ge=0)
    overrides: dict[str, Any] = {}

    @property
    def init_seed(self) -> int:
        """Seed of the initial weights."""
        return int(self.overrides.get("init_seed", self.seed))

    @property
    def data_seed(self) -> int:
        """Seed of the training samples."""
        return int(self.overrides.get("data_seed", self.seed))


class TrainJob(Config):
    """Members of equal shape that are trained as one tensor program."""

    label: str
    task: TaskConfig
    model: TransformerConfig
    training: TrainingConfig
    members: tuple[MemberPlan, ...] = Field(min_length=1)

    _as_recorded = field_validator("training", mode="before")(as_recorded)


class Cell(NamedTuple):
    """A configuration with its seeds, before it is cut into units.

    Attributes:
        label: of the configuration.
        seeds: of its members.
        overrides: what tells it from others.
        task, model, training: of its units.
        most: members of one unit.
    """

    label: str
    seeds: Sequence[int]
    overrides: Mapping[str, Any]
    task: Any
    model: TransformerConfig
    training: TrainingConfig
    most: int


def units_of(cells: Iterable[Cell]) -> list[TrainJob]:
    """The units of some configurations, in their order; members are numbered through."""
    units: list[TrainJob] = []
    member = 0
    for cell in cells:
        for start in range(0, len(cell.seeds), cell.most):
            members = []
            for seed in cell.seeds[start : start + cell.most]:
                members.append(MemberPlan(member=member, seed=seed, overrides=dict(cell.overrides)))
                member += 1
            units.append(
                TrainJob(
                    label=cell.label,
                    task=cell.task,
                    model=cell.model,
                    training=cell.training,
                    members=tuple(members),
                )
            )
    return units


def job_of(unit: "UnitFolder") -> TrainJob:
    """The job that a unit was trained by, from its record.

    Raises:
        UserError: the record is damaged, or holds another job than the one that the unit is named after.
    """
    from hopscope.runs.hashing import content_hash  # which brings the whole record

    plan = unit.record.get("plan")
    remedy = f"delete the folder {unit.path} and run the same command again"
    if content_hash(plan) != unit.hash:
        raise UserError(
            f"{unit.path / 'unit.json'}: expected the plan that the unit is named after, found another: {remedy}"
        )
    try:
        return TrainJob.model_validate(plan)
    except ValidationError as error:
        found = in_words(error)
        raise UserError(
            f"{unit.path / 'unit.json'}: expected a plan of this Hopscope, found {found}: {remedy}"
        ) from None


def is_trained(unit: "UnitFolder") -> bool:
    """Whether a unit has the checkpoint of its last step (or is done, where that checkpoint was left out)."""
    if unit.is_done:
        return True
    return any(step == job_of(unit).training.steps for step, _ in unit.checkpoints())
