"""Grid and presets of the study of emergence (paper, section 9)."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from hopscope.studies.circuit_study.config import FOUR, QUICK, TWO, ChainsConfig
from hopscope.training.config import MemberPlan, TrainJob
from hopscope.words import symbol


class EmergenceConfig(ChainsConfig):
    """In which order do heads form, and what needs what (paper, section 9)?  What it leaves open has a default.

    Attributes:
        crossed: of so many seeds, the initial weights of each are also trained on the samples of each other one, so
            that what depends on the weights can be told from what depends on the data.
        clamped: members, from the first, that are trained again with paths clamped (those of them that were read).
        clamp_steps: optimiser steps of these runs.
    """

    paper: ClassVar[dict[str, float | None]] = {
        "steps": 4, "chains": 4, "symbol_dim": 4, "layers": 24, "heads": 1, "width": 512, "head_size": 16,
        "mlp_ratio": 0.0, "training_steps": 6_400, "pool": 2**18, "learning_rate": 1e-3, "weight_decay": 0.1,
    }  # fmt: skip
    """The batch is not among them: the paper's epochs and its batch size disagree, and both readings are presets."""

    # None by default, as in runs of before these members were read again, which keep their names.
    read_again: int = Field(0, ge=0, exclude_if=lambda times: times == 0)
    crossed: int = Field(3, ge=0)
    clamped: int = Field(2, ge=0)
    clamp_steps: int = Field(800, ge=1)

    @model_validator(mode="after")
    def _crosses_its_seeds(self) -> Self:
        if self.crossed == 1 or self.crossed > self.seeds:
            raise ValueError(
                f"crossed: expected 0, or 2 to {self.seeds} (the number of seeds), found {self.crossed}"
            )
        return self

    def members(self) -> list[MemberPlan]:
        """Seeds as they are, then the crossed ones."""
        plans = super().members()
        for init in range(self.crossed):
            for data in range(self.crossed):
                if init != data:
                    overrides = {"init_seed": init, "data_seed": data}
                    plans.append(MemberPlan(member=len(plans), seed=init, overrides=overrides))
        return plans


CONTROL = "control for "
"""Begins the name of a run in which rows of unused heads are clamped; the target whose read they match follows."""


LEFT_ALONE = "nothing clamped"
"""Name of the run in which no row is."""


def clamped_runs(config: EmergenceConfig) -> dict[str, str]:
    """Name of each run that a member's training again may have → what the page calls it."""
    runs = {LEFT_ALONE: LEFT_ALONE}
    for step in range(1, config.steps + 1):
        runs[f"step_{step}"] = f"the read for {symbol(step)} clamped"
        runs[f"{CONTROL}step_{step}"] = f"{CONTROL}{symbol(step)}"
    return runs


def clamps_name(member: int) -> str:
    """Name of the analysis that holds a member's re-runs."""
    return f"clamps-{member}"


def candidates(config: EmergenceConfig, job: TrainJob) -> list[tuple[int, MemberPlan]]:
    """Members of a unit that are trained again if they were read, with their places in it: the first `clamped`."""
    return [(index, member) for index, member in enumerate(job.members) if member.member < config.clamped]


_D = EmergenceConfig(
    completion="torch-schedule",
    seeds=8, layers=24, heads=1, width=512, head_size=16, mlp_ratio=0.0, steps=4, pool=2**18, training_steps=6_400,
    batch_size=256, checkpoint_every=80, evaluate_every=8, final_every=8,
    evaluation_samples=1024, members_per_unit=4, crossed=4, clamped=2, clamp_steps=2_400,
)  # fmt: skip

PRESETS = {
    "smoke": EmergenceConfig(
        completion="torch-schedule",
        seeds=2, layers=4, heads=2, width=32, steps=1, training_steps=500, batch_size=32, learning_rate=4e-3,
        checkpoint_every=50, evaluate_every=25, evaluation_samples=256, analysis_samples=512,
        orders=1, random_circuits=5, galleries=1, members_per_unit=2, crossed=2, clamped=1,
    ),
    "laptop": EmergenceConfig(**QUICK, seeds=4, crossed=0, clamped=0),
    "workstation": EmergenceConfig(**FOUR, seeds=8, crossed=0, clamped=0),
    "two-steps": EmergenceConfig(**TWO, seeds=10, crossed=3, clamped=2, clamp_steps=400, read_again=1),
    "paper": _D,
    "paper-batch-32768": _D.model_copy(update={"batch_size": 32_768, "crossed": 0, "members_per_unit": 1}),
}  # fmt: skip
COSTS = {
    "smoke": "under a minute on two cores",
    "laptop": "five to eight min on two quiet cores",
    "workstation": "about 1 h on two quiet cores",
    "two-steps": "about 10 min on two cores",
    "paper": "20 models of 24 layers; made for a GPU",
    "paper-batch-32768": "8 models of 24 layers at 128 times the batch; made for a GPU",
}
