"""Grid, presets and protocol of the depth study."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from hopscope.models.config import TransformerConfig
from hopscope.studies.depth.configurations import Asked, Configuration, Reading, every_reading
from hopscope.studies.recipe import RecipeConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import Cell, TrainingConfig, UnitPlan, units_of

SWEEPS = ("steps", "specification")

Layers = tuple[Annotated[int, Field(ge=1, le=64)], ...]


class DepthStudyConfig(RecipeConfig):
    """How many layers does retrieval take (paper, section 7)?  What the paper leaves open has a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1 of every depth.
        deepest_seeds: seeds of the deepest model with all targets, if more.
        head_size: size of a head; width / heads by default.
        layers: numbers of layers, for models that are asked for the whole chain (IC).
        layers_last: numbers of layers, for models that are asked for the last symbol alone (non-IC).
        steps: retrieval steps D of the IC models (5 in the paper).
        steps_last: retrieval steps D of the non-IC models (3 in the paper).
        sweeps: further questions: "steps" trains IC models of every depth on every D up to `most_steps`;
            "specification" goes through the readings of what the paper leaves open.
        sweep_seeds: seeds of a sweep's configurations.
        sweep_layers: numbers of layers of the specification sweep; empty means 1, the middle and the largest.
        most_steps: largest D of the sweep over D.
    """

    seeds: int = Field(3, ge=1)
    deepest_seeds: int = Field(6, ge=1)
    # Left out of the record where it is not given, so that runs of before there was such a field keep their names.
    head_size: int | None = Field(None, ge=1, exclude_if=lambda size: size is None)
    layers: Layers = (1, 2, 3, 4, 5, 6)
    layers_last: Layers = (1, 2, 3, 4, 5, 6)
    steps: int = Field(2, ge=1, le=64)
    steps_last: int = Field(2, ge=1, le=64)
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(2, ge=1)
    sweep_layers: Layers = ()
    most_steps: int = Field(5, ge=1, le=64)

    @model_validator(mode="after")
    def _plans(self) -> Self:
        for name in ("layers", "layers_last"):
            numbers = getattr(self, name)
            if list(numbers) != sorted(set(numbers)):
                raise ValueError(f"{name}: expected ascending numbers of layers, found {list(numbers)}")
        if not self.layers and not self.layers_last:
            raise ValueError(
                "layers: expected at least one number of layers in layers or layers_last, found none"
            )
        unknown = [name for name in self.sweeps if name not in SWEEPS]
        if unknown:
            raise ValueError(f"sweeps: expected some of {', '.join(SWEEPS)}, found {unknown[0]!r}")
        # Whatever is wrong with a model or a task is wrong with the study: say so before anything is written.
        for configuration in self.grid():
            self.model(configuration)
            self.training(configuration)
        return self

    # What is trained.

    def grid(self) -> list[Configuration]:
        """The configurations, each once; those of the sweeps last."""
        return list(self._seeds_of())

    def seeds_of(self, configuration: Configuration) -> int:
        """Number of seeds of a configuration of the grid."""
        return self._seeds_of()[configuration]

    def _seeds_of(self) -> dict[Configuration, int]:
        asked = [(each, self.seeds) for each in self.base()]
        if self.layers:
            asked.append((self.deepest(), max(self.seeds, self.deepest_seeds)))
        if "steps" in self.sweeps:
            asked += [(each, self.sweep_seeds) for each in self.by_steps()]
        if "specification" in self.sweeps:
            asked += [(each, self.sweep_seeds) for each in self._specifications()]
        seeds: dict[Configuration, int] = {}
        for configuration, count in asked:
            seeds[configuration] = max(count, seeds.get(configuration, 0))
        return seeds

    def base(self) -> list[Configuration]:
        """Both panels of Figure 4: all depths, with all targets and with the last alone."""
        return [
            *(Configuration("IC", self.steps, layers) for layers in self.layers),
            *(Configuration("non-IC", self.steps_last, layers) for layers in self.layers_last),
        ]

    def deepest(self) -> Configuration:
        """The deepest IC model."""
        return Configuration("IC", self.steps, self.layers[-1])

    def by_steps(self) -> list[Configuration]:
        """IC models of every depth on every D."""
        every = range(1, self.most_steps + 1)
        return [Configuration("IC", steps, layers) for steps in every for layers in self.layers]

    def readings(self) -> list[Reading]:
        """The readings that are tried, the study's own first."""
        if "specification" not in self.sweeps:
            return [Reading()]
        own = {name: getattr(self, name) for name in ("causal", "position", "beta2", "mlp_ratio")}
        return every_reading(own)

    def _specifications(self) -> list[Configuration]:
        depths = self.sweep_layers or tuple(
            sorted({1, self.layers[len(self.layers) // 2], self.layers[-1]} if self.layers else {1})
        )
        cells: list[tuple[Asked, int]] = [("IC", self.steps), ("non-IC", self.steps_last)]
        return [
            Configuration(asked, steps, layers, reading)
            for reading in self.readings()
            for asked, steps in cells
            for layers in depths
        ]

    # How it is trained.

    def of(self, configuration: Configuration) -> "DepthStudyConfig":
        """This configuration of the study under the reading of one of its grid."""
        return self.model_copy(update=configuration.reading.changes)

    def task(self, configuration: Configuration) -> RetrievalConfig:
        """The task of a configuration."""
        here = self.of(configuration)
        return here.task_of(configuration.steps, "ic" if configuration.asked == "IC" else "last")

    def model(self, configuration: Configuration) -> TransformerConfig:
        """The model of a configuration: GPT-2's blocks on vectors that carry their position (paper, section 7.1)."""
        here = self.of(configuration)
        return here.model_of(self.task(configuration), configuration.layers, here.head_size)

    def training(self, configuration: Configuration) -> TrainingConfig:
        """The training of a configuration."""
        return self.of(configuration).adamw()

    def departures(self, configuration: Configuration) -> list[str]:
        """How a configuration departs from what the paper states (section 7.1), in words; none is at scale."""
        here = self.of(configuration)
        paper_steps = 5 if configuration.asked == "IC" else 3
        stated: list[tuple[str, float, float]] = [
            ("D", paper_steps, configuration.steps),
            ("chains", 4, here.chains),
            ("symbol dimensions", 4, here.symbol_dim),
            ("width", 128, here.width),
            ("heads", 8, here.heads),
            ("MLP ratio", 4.0, here.mlp_ratio),
            ("batch", 512, here.batch_size),
            ("learning rate", 1e-3, here.learning_rate),
            ("weight decay", 0.1, here.weight_decay),
        ]
        changed = [f"{name} {found:g}, not {said:g}" for name, said, found in stated if found != said]
        if here.pool != 2**20:
            found = "fresh samples" if here.pool is None else f"a pool of {here.pool:,}"
            changed.append(f"{found}, not a pool of 2²⁰")
        if here.clip_norm is not None:
            changed.append(f"gradients clipped at {here.clip_norm:g}")
        if here.training_steps < 10_000:
            changed.insert(0, f"{here.training_steps:,} of 10,000 steps")
        return changed


def plan(config: DepthStudyConfig) -> list[UnitPlan]:
    """Units in grid order; a configuration with many seeds is cut into several."""
    return units_of(
        Cell(
            each.name,
            range(config.seeds_of(each)),
            each.overrides(),
            config.task(each),
            config.model(each),
            config.training(each),
            config.members_per_unit,
        )
        for each in config.grid()
    )


_DEEP = (1, 2, 3, 4, 6, 8, 12, 16, 24)

PRESETS = {
    "smoke": DepthStudyConfig(
        seeds=2, deepest_seeds=2, layers=(1, 3), layers_last=(1, 3), steps=2, steps_last=2, width=32, heads=2,
        training_steps=300, batch_size=32, checkpoint_every=100, evaluation_samples=256, analysis_samples=512,
    ),
    "laptop": DepthStudyConfig(),
    "workstation": DepthStudyConfig(
        seeds=8, deepest_seeds=8, layers=_DEEP, layers_last=_DEEP, steps=5, steps_last=3, heads=1, width=512,
        head_size=16, batch_size=256, clip_norm=1.0, training_steps=1_000, checkpoint_every=500, evaluate_every=25,
        members_per_unit=4,
    ),
    "paper": DepthStudyConfig(
        seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=tuple(range(1, 9)), steps=5, steps_last=3,
        pool=2**20, heads=8, width=128, mlp_ratio=4.0, training_steps=10_000, batch_size=512, beta2=0.999,
        precision="bfloat16", checkpoint_every=1_000, final_every=1, evaluation_samples=1024,
        members_per_unit=8,
    ),
}  # fmt: skip
COSTS = {
    "smoke": "under a minute on two cores",
    "laptop": "under 15 min on two cores",
    "workstation": "about 3 h on two cores by estimate; not run yet",
    "paper": "128 models; made for a GPU",
}
