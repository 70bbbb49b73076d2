"""Grid, presets and protocol of the depth study."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hopscope.models.config import TransformerConfig
from hopscope.studies.base import StudyConfig
from hopscope.studies.depth.configurations import Asked, Configuration, Reading, every_reading
from hopscope.tasks.config import RetrievalConfig, TimeOrder
from hopscope.training.config import Beta, MemberPlan, TrainingConfig, UnitPlan

SWEEPS = ("steps", "specification")

Layers = tuple[Annotated[int, Field(ge=1, le=64)], ...]


class DepthStudyConfig(StudyConfig):
    """How many layers does retrieval take (paper, section 7)?  What the paper leaves open has a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1 of every depth.
        deepest_seeds: seeds of the deepest model with all targets, if more.
        layers: numbers of layers, for models that are asked for the whole chain (IC).
        layers_last: numbers of layers, for models that are asked for the last symbol alone (non-IC).
        steps: retrieval steps D of the IC models (5 in the paper).
        steps_last: retrieval steps D of the non-IC models (3 in the paper).
        sweeps: further questions: "steps" trains IC models of every depth on every D up to `most_steps`;
            "specification" goes through the readings of what the paper leaves open.
        sweep_seeds: seeds of a sweep's configurations.
        sweep_layers: numbers of layers of the specification sweep; empty means 1, the middle and the largest.
        most_steps: largest D of the sweep over D.
        chains: chains N of a sample.
        symbol_dim: dimensions K of a symbol, and of a position code.
        order: in which order the steps are shown.
        position: a position code for every token, or one for the tokens of a pair.
        frequencies: of the position codes.
        pool: number of training samples of each seed; none draws fresh ones without end.
        split_seed: seed of the held-out samples.
        heads: heads per layer.
        width: size of the residual stream.
        mlp_ratio: hidden size of the MLPs in widths; 0 means no MLP.
        causal: whether a position is kept from attending to later ones.
        training_steps: optimiser steps.
        batch_size: samples per step.
        learning_rate: of AdamW.
        beta1: decay of the optimiser's first moment.
        beta2: decay of its second moment.
        weight_decay: decoupled.
        decay: whether weight decay touches matrices only, or every weight.
        warmup_steps: steps over which the rate rises.
        clip_norm: largest gradient norm of a member; none by default.
        precision: of the matrix products in training.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        final_window: last steps whose mean held-out loss is the final loss (100 in the paper).
        final_every: steps between evaluations in the final window.
        evaluation_samples: held-out samples of every evaluation.
        analysis_samples: held-out samples on which the last checkpoint is measured.
        members_per_unit: most members that are trained as one program.
    """

    seeds: int = Field(3, ge=1)
    deepest_seeds: int = Field(6, ge=1)
    layers: Layers = (1, 2, 3, 4, 5, 6)
    layers_last: Layers = (1, 2, 3, 4, 5, 6)
    steps: int = Field(2, ge=1, le=64)
    steps_last: int = Field(2, ge=1, le=64)
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(2, ge=1)
    sweep_layers: Layers = ()
    most_steps: int = Field(5, ge=1, le=64)
    chains: int = Field(4, ge=1, le=64)
    symbol_dim: int = Field(4, ge=2)
    order: TimeOrder = "deepest-first"
    position: Literal["token", "pair"] = "token"
    frequencies: Literal["harmonic", "geometric"] = "harmonic"
    pool: int | None = Field(None, ge=1)
    split_seed: int = Field(0, ge=0)
    heads: int = Field(4, ge=1)
    width: int = Field(64, ge=1)
    mlp_ratio: float = Field(0.0, ge=0.0)
    causal: bool = True
    training_steps: int = Field(2_500, ge=1, le=10**8)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0.0)
    beta1: Beta = 0.9
    beta2: Beta = 0.95
    weight_decay: float = Field(0.1, ge=0.0)
    decay: Literal["matrices", "all"] = "matrices"
    warmup_steps: int = Field(0, ge=0)
    clip_norm: float | None = Field(None, gt=0.0)
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(50, ge=1)
    final_window: int = Field(100, ge=0)
    final_every: int = Field(20, ge=1)
    evaluation_samples: int = Field(512, ge=1)
    analysis_samples: int = Field(4096, ge=2)
    members_per_unit: int = Field(3, ge=1)

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
        if self.pool is not None and self.pool < self.batch_size:
            raise ValueError(
                f"pool: expected at least the {self.batch_size} samples of a batch, found {self.pool}; "
                f"enlarge pool or lower batch_size"
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
        return RetrievalConfig(
            steps=configuration.steps,
            targets="ic" if configuration.asked == "IC" else "last",
            chains=here.chains,
            symbol_dim=here.symbol_dim,
            order=here.order,
            position=here.position,
            frequencies=here.frequencies,
            pool=here.pool,
            split_seed=here.split_seed,
        )

    def model(self, configuration: Configuration) -> TransformerConfig:
        """The model of a configuration: GPT-2's blocks on vectors that carry their position (paper, section 7.1)."""
        here, task = self.of(configuration), self.task(configuration)
        return TransformerConfig(
            layers=configuration.layers,
            heads=here.heads,
            width=here.width,
            mlp_ratio=here.mlp_ratio,
            activation="gelu",
            norm="pre",
            causal=here.causal,
            positions="carried",
            position_size=task.symbol_dim,
            length=task.positions,
            input_kind="vectors",
            input_size=2 * task.symbol_dim,
            output_size=len(task.asked) * task.symbol_dim,
            readout=tuple(range(task.positions - task.chains, task.positions)),
            init="gpt2",
        )

    def training(self, configuration: Configuration) -> TrainingConfig:
        """The training of a configuration."""
        here = self.of(configuration)
        return TrainingConfig(
            steps=here.training_steps,
            batch_size=here.batch_size,
            optimizer="adamw",
            learning_rate=here.learning_rate,
            betas=(here.beta1, here.beta2),
            weight_decay=here.weight_decay,
            decay=here.decay,
            warmup_steps=here.warmup_steps,
            clip_norm=here.clip_norm,
            checkpoint_every=here.checkpoint_every,
            evaluate_every=here.evaluate_every,
            final_window=here.final_window,
            final_every=here.final_every,
            precision=here.precision,
        )

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
        if here.training_steps < 10_000:
            changed.insert(0, f"{here.training_steps:,} of 10,000 steps")
        return changed


def plan(config: DepthStudyConfig) -> list[UnitPlan]:
    """Units in grid order; a configuration with many seeds is cut into several."""
    units, member = [], 0
    for configuration in config.grid():
        count = config.seeds_of(configuration)
        for start in range(0, count, config.members_per_unit):
            seeds = range(start, min(start + config.members_per_unit, count))
            members = tuple(
                MemberPlan(member=member + n, seed=seed, overrides=configuration.overrides())
                for n, seed in enumerate(seeds)
            )
            member += len(members)
            units.append(
                UnitPlan(
                    label=configuration.name,
                    task=config.task(configuration),
                    model=config.model(configuration),
                    training=config.training(configuration),
                    members=members,
                )
            )
    return units


ANALYSES = {"retrieval": "json"}
"""What is measured of every unit's last checkpoint."""

PRESETS = {
    "smoke": DepthStudyConfig(
        seeds=2, deepest_seeds=2, layers=(1, 3), layers_last=(1, 3), steps=2, steps_last=2, width=32, heads=2,
        training_steps=300, batch_size=32, checkpoint_every=100, evaluation_samples=256, analysis_samples=512,
    ),
    "laptop": DepthStudyConfig(),
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
    "paper": "128 models; made for a GPU",
}
