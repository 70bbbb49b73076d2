"""One configuration, many seeds: how it is trained, and how its members are read."""

from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from hopscope.circuits.config import ReaderConfig
from hopscope.models.config import TransformerConfig
from hopscope.studies.recipe import RecipeConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob

FALLEN = 0.5
"""A partial loss below this counts as learned (paper, section 7.2)."""

QUICK: dict[str, Any] = {
    "completion": "torch-schedule", "steps": 3, "layers": 4, "heads": 8, "width": 128, "head_size": 16,
    "mlp_ratio": 0.0, "position": "pair", "batch_size": 64, "learning_rate": 4e-3, "training_steps": 1_000,
    "checkpoint_every": 20, "evaluate_every": 20, "evaluation_samples": 256, "analysis_samples": 2_048,
    "members_per_unit": 1, "orders": 2, "searched": 0.75,
}  # fmt: skip
"""A shape that learns chains of three steps in under a minute of one core (found by `campaigns/quick_shapes.py`)."""

TWO: dict[str, Any] = {**QUICK, "steps": 2, "training_steps": 400}
"""The same for chains of two steps."""

FOUR: dict[str, Any] = {**QUICK, "steps": 4, "layers": 6, "training_steps": 1_500, "checkpoint_every": 25}
"""The same for chains of four steps, as many as the paper's transformer D follows."""


class ChainsConfig(RecipeConfig):
    """A model that follows chains, trained with many seeds; what the paper leaves open has a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1.
        layers: of the model.
        head_size: size of a head; width / heads by default.
        steps: retrieval steps D; all symbols of the chain are asked for (IC).
        orders: random orders of elimination by which a circuit is looked for.
        random_circuits: of the same size, that stand beside it.
        searched: share of what a circuit may lose that its search may use up, so that it holds on fresh sequences too.
        read_again: how many times more members that learned the whole chain are read, by each proof.
        galleries: seeds whose attention maps are shown on the page, all heads at the end of training.
    """

    paper: ClassVar[dict[str, float | None]] = {}
    """What the paper states of its model, by field."""

    seeds: int = Field(8, ge=1)
    layers: int = Field(8, ge=1, le=64)
    heads: int = Field(1, ge=1)
    head_size: int | None = Field(None, ge=1)
    steps: int = Field(2, ge=1, le=64)
    checkpoint_every: int = Field(100, ge=1)
    evaluate_every: int = Field(25, ge=1)
    members_per_unit: int = Field(4, ge=1)
    orders: int = Field(4, ge=0)
    random_circuits: int = Field(20, ge=2)
    searched: float = Field(1.0, gt=0.0, le=1.0, exclude_if=lambda share: share == 1.0)
    # Left out of the record where it is not given, so that runs of before there was such a field keep their names.
    read_again: int = Field(1, ge=0, exclude_if=lambda times: times == 1)
    galleries: int = Field(3, ge=1)

    @model_validator(mode="after")
    def _plans(self) -> Self:
        # Whatever is wrong with a model or a task is wrong with the study: say so before anything is written.
        self.model()
        self.training()
        return self

    def task(self) -> RetrievalConfig:
        """The task that members are trained on."""
        return self.task_of(self.steps, "ic")

    def model(self) -> TransformerConfig:
        """The model that is trained on the task."""
        return self.model_of(self.task(), self.layers, self.head_size)

    def training(self) -> TrainingConfig:
        """Optimiser, steps and batch of the training."""
        return self.adamw()

    def reader(self) -> ReaderConfig:
        """The circuit reader's configuration for the members."""
        return ReaderConfig(orders=self.orders, random_circuits=self.random_circuits, searched=self.searched)

    def members(self) -> list[MemberPlan]:
        """The members, each with its run-global number."""
        return [MemberPlan(member=seed, seed=seed) for seed in range(self.seeds)]

    @property
    def names(self) -> dict[int, str]:
        """Number of each member → what pages and figures call it."""
        return {plan.member: name_of(plan.init_seed, plan.data_seed) for plan in self.members()}

    @property
    def name(self) -> str:
        """The configuration's name, as pages write it."""
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        return f"D={self.steps}, {self.layers} layers of {heads}"

    @property
    def protocol_deviations(self) -> list[str]:
        """How this departs from what the paper states, in words; none is at scale."""
        found = {**self.model_dump(), "head_size": self.model().head_size}
        changed = [
            f"{name.replace('_', ' ')} {_written(found[name])}, not {_written(said)}"
            for name, said in self.paper.items()
            if found[name] != said and name != "training_steps"
        ]
        said = self.paper.get("training_steps")
        if said is not None and self.training_steps < said:
            changed.insert(0, f"{self.training_steps:,} of {said:,} training steps")
        return changed


def name_of(init_seed: int, data_seed: int) -> str:
    """What a member is called: by its seed, or by those of its weights and its data where they differ."""
    return f"seed {init_seed}" if init_seed == data_seed else f"init {init_seed}, data {data_seed}"


def _written(value: float | None) -> str:
    return "without end" if value is None else f"{value:,g}" if value < 1e5 else f"{value:,.0f}"


def jobs(config: ChainsConfig) -> list[TrainJob]:
    """The jobs of all units of a configuration."""
    members, size = config.members(), config.members_per_unit
    return [
        TrainJob(
            label=f"{config.name}, members {start}–{start + len(part) - 1}" if len(part) > 1 else config.name,
            task=config.task(),
            model=config.model(),
            training=config.training(),
            members=tuple(part),
        )
        for start in range(0, len(members), size)
        for part in [members[start : start + size]]
    ]
