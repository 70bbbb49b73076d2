"""Grid, presets and protocol of the permutation study."""

import math
from dataclasses import replace
from typing import Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.models.config import TransformerConfig
from hopscope.studies.permutation.configurations import ALL, PUBLISHED, SWEEPS, Configuration
from hopscope.tasks.config import LARGEST_VALUES, SMALLEST_VALUES, PermutationConfig
from hopscope.training.config import Beta, Cell, TrainingConfig, UnitPlan, units_of

PUBLISHED_EPOCHS = {"plain": 20, "repeats": 50}
"""Presentation, section 12."""


class PermutationStudyConfig(Config):
    """The permutation-lookup study.  Details that the presentation leaves open have a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1 of every configuration.
        configurations: what is trained, such as "d32/2 repeats": width 32, 2 heads, 30 % repeats; V=, ratio=, slots=,
            sources=, positions= and batch= may follow, as in "d32/2 repeats V=4 batch=128".
        all_configurations: train all five configurations instead.
        sweeps: further configurations by question: batch, positions, memorisation, values, capacity, ratio, slots.
        sweep_seeds: seeds of the configurations of a sweep on which no claim hangs.
        width: another width for every configuration.
        heads: another number of heads for every configuration.
        values: V, the number of values (5 in the presentation).
        repeat_ratio: share of training sequences with a repeat, in the configurations with repeats.
        repeat_slots: slots that may be the repeat; empty means the last.
        repeat_sources: slots that may be repeated; empty means all before.
        split_seed: seed of the split into training and held-out mappings.
        held_out_share: share of the mappings that is held out.
        epochs_plain: length of training on plain data, in epochs.
        epochs_repeats: length of training on data with repeats, in epochs.
        samples_per_epoch: samples of one epoch.
        batch_size: samples per step; the presentation does not state it.
        learning_rate: of the optimiser.
        optimizer: adam, or adamw with decoupled weight decay.
        betas: of the optimiser.
        weight_decay: of the optimiser.
        clip_norm: largest gradient norm of a member; none by default.
        mlp_ratio: hidden size of the MLP in widths; 0 means no MLP.
        activation: of the MLP.
        norm: where layer norms stand.
        positions: learned position codes, one for each position or for each pair, or none.
        init: starting weights, as torch's encoder layer or as GPT-2.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        evaluation_limit: largest evaluation set that is gone through in full.
        measurements: all of them, or only the basic ones: no causal tests, decoding, formation or worked sequences.
        members_per_unit: most members that are trained as one program.
    """

    seeds: int = Field(4, ge=1)
    configurations: tuple[str, ...] = PUBLISHED
    all_configurations: bool = False
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(3, ge=1)
    width: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    values: Annotated[int, tyro.conf.arg(aliases=["--V"])] = Field(5, ge=SMALLEST_VALUES, le=LARGEST_VALUES)
    repeat_ratio: float = Field(0.3, ge=0.0, le=1.0)
    repeat_slots: tuple[int, ...] = ()
    repeat_sources: tuple[int, ...] = ()
    split_seed: int = Field(0, ge=0)
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    epochs_plain: float = Field(20, gt=0.0, le=1e6)
    epochs_repeats: float = Field(50, gt=0.0, le=1e6)
    samples_per_epoch: int = Field(100_000, ge=1, le=10**9)
    batch_size: int = Field(256, ge=1)
    learning_rate: float = Field(1e-3, gt=0.0)
    optimizer: Literal["adam", "adamw"] = "adam"
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0.0)
    clip_norm: float | None = Field(None, gt=0.0)
    mlp_ratio: float = Field(2.0, ge=0.0)
    activation: Literal["relu", "gelu"] = "relu"
    norm: Literal["post", "pre", "none"] = "post"
    positions: Literal["learned", "pair", "none"] = "learned"
    init: Literal["torch", "gpt2"] = "torch"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(100, ge=1)
    evaluation_limit: int = Field(50_000, ge=1)
    measurements: Literal["all", "basic"] = "all"
    members_per_unit: int = Field(2, ge=1)

    @model_validator(mode="after")
    def _plans(self) -> Self:
        # Whatever is wrong with a model or a task is wrong with the study: say so before anything is written.
        for configuration in self.grid():
            self.model(configuration)
            self.task(configuration)
            self.training(configuration)
        return self

    def grid(self) -> list[Configuration]:
        """The configurations, after overrides, each once; those of the sweeps last."""
        return list(self._seeds_of())

    def seeds_of(self, configuration: Configuration) -> int:
        """Number of seeds of a configuration of the grid."""
        return self._seeds_of()[configuration]

    def _seeds_of(self) -> dict[Configuration, int]:
        names = ALL if self.all_configurations else self.configurations
        if not names:
            raise ValueError(f"configurations: expected at least one, such as {PUBLISHED[0]!r}, found none")
        unknown = [name for name in self.sweeps if name not in SWEEPS]
        if unknown:
            raise ValueError(f"sweeps: expected some of {', '.join(SWEEPS)}, found {unknown[0]!r}")
        asked = [(name, self.seeds) for name in names]
        for sweep in (SWEEPS[name] for name in self.sweeps):
            asked += [
                (name, self.seeds if sweep.all_seeds else self.sweep_seeds) for name in sweep.configurations
            ]
        seeds: dict[Configuration, int] = {}
        for name, count in asked:
            configuration = self._overridden(name)
            seeds[configuration] = max(count, seeds.get(configuration, 0))
        return seeds

    def is_whole(self, configuration: Configuration) -> bool:
        """Whether a configuration is studied with every measurement."""
        return self.measurements == "all" and self.is_asked(configuration)

    def is_asked(self, configuration: Configuration) -> bool:
        """Whether a configuration is asked for itself, or by a sweep on which a claim hangs; the others are swept."""
        names = list(ALL if self.all_configurations else self.configurations)
        for sweep in (SWEEPS[name] for name in self.sweeps):
            names += sweep.configurations if sweep.all_seeds else ()
        return configuration in {self._overridden(name) for name in names}

    def base(self) -> list[Configuration]:
        """What the page is about first: what was asked for without changes, or else with the same number of values."""
        asked = [each for each in self.grid() if self.is_asked(each)]
        unchanged = [each for each in asked if not each.changes]
        return unchanged or [each for each in asked if each.values in (None, self.values)]

    def _overridden(self, name: str) -> Configuration:
        parsed = Configuration.parse(name)
        return replace(parsed, width=self.width or parsed.width, heads=self.heads or parsed.heads)

    def of(self, configuration: Configuration) -> "PermutationStudyConfig":
        """This configuration of the study with the changes of one of its grid."""
        return self.model_copy(update=configuration.changes)

    def task(self, configuration: Configuration) -> PermutationConfig:
        """The training data of a configuration."""
        here = self.of(configuration)
        return PermutationConfig(
            values=here.values,
            repeat_ratio=here.repeat_ratio if configuration.data == "repeats" else 0.0,
            repeat_slots=here.repeat_slots,
            repeat_sources=here.repeat_sources,
            split_seed=here.split_seed,
            held_out_share=here.held_out_share,
        )

    def model(self, configuration: Configuration) -> TransformerConfig:
        """The model of a configuration (presentation, section 5)."""
        here = self.of(configuration)
        length = 2 * here.values - 1
        return TransformerConfig(
            layers=1,
            heads=configuration.heads,
            width=configuration.width,
            mlp_ratio=here.mlp_ratio,
            activation=here.activation,
            norm=here.norm,
            positions=here.positions,
            length=length,
            input_size=here.values + 1,
            output_size=here.values + 1,
            readout=tuple(range(0, length, 2)),
            init=here.init,
        )

    def epochs(self, configuration: Configuration) -> float:
        """Length of a configuration's training in epochs."""
        return self.epochs_plain if configuration.data == "plain" else self.epochs_repeats

    def training(self, configuration: Configuration) -> TrainingConfig:
        """The training of a configuration."""
        here = self.of(configuration)
        return TrainingConfig(
            steps=max(1, math.ceil(here.epochs(configuration) * here.samples_per_epoch / here.batch_size)),
            batch_size=here.batch_size,
            optimizer=here.optimizer,
            learning_rate=here.learning_rate,
            betas=here.betas,
            weight_decay=here.weight_decay,
            clip_norm=here.clip_norm,
            checkpoint_every=here.checkpoint_every,
            evaluate_every=here.evaluate_every,
        )

    def batch_sizes(self) -> list[int]:
        """Batch sizes of the grid, the study's own first: the readings of what the presentation leaves open."""
        others = {c.batch_size for c in self.grid() if c.batch_size is not None}
        return [self.batch_size, *sorted(others - {self.batch_size}, reverse=True)]

    def reading(self, batch_size: int) -> str:
        """A reading of what the presentation leaves open: the batch size, and all else that is no default."""
        values = {name: getattr(self, name) for name in ("init", "betas", "split_seed")}
        changed = [f"{name} {value}" for name, value in values.items() if value != _default(name)]
        return ", ".join([f"batch {batch_size}", *changed])

    def departures(self, configuration: Configuration) -> list[str]:
        """How a configuration's training departs from what the presentation states, in words; none is at scale."""
        here = self.of(configuration)
        stated: list[tuple[str, object, object]] = [
            ("V", 5, here.values),
            ("held-out share", 0.2, here.held_out_share),
            ("learning rate", 1e-3, here.learning_rate),
            ("optimiser", "adam", here.optimizer),
            ("MLP ratio", 2.0, here.mlp_ratio),
            ("activation", "relu", here.activation),
            ("norm", "post", here.norm),
            ("positions", "learned", here.positions),
            ("weight decay", 0.0, here.weight_decay),
            ("clipping", None, here.clip_norm),
        ]
        if configuration.data == "repeats":
            stated += [
                ("repeat ratio", 0.3, here.repeat_ratio),
                ("repeat slots", (), here.repeat_slots),
                ("repeat sources", (), here.repeat_sources),
            ]
        changed = [f"{name} {found} instead of {said}" for name, said, found in stated if found != said]
        trained = here.epochs(configuration) * here.samples_per_epoch / 100_000
        published = PUBLISHED_EPOCHS[configuration.data]
        return [f"{trained:g} of {published} epochs", *changed] if trained < published else changed


def _default(name: str) -> object:
    return PermutationStudyConfig.model_fields[name].default


def plan(config: PermutationStudyConfig) -> list[UnitPlan]:
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


def analyses(config: PermutationStudyConfig, plan: UnitPlan) -> dict[str, str]:
    """What is measured of a unit's last checkpoint: less for sweeps on which no claim hangs."""
    configuration = Configuration.parse(plan.label)
    repeats = configuration.data == "repeats"
    names = ["posteriors", *(["slots"] if repeats else [])]
    if config.is_whole(configuration):
        names += ["battery", "roles", "decoding", "worked", *(["formation"] if repeats else [])]
    return {"probes": "json", "patterns": "npz", **dict.fromkeys(names, "json")}


PRESETS = {
    "smoke": PermutationStudyConfig(
        seeds=2, epochs_plain=2, epochs_repeats=2, checkpoint_every=200, evaluate_every=50
    ),
    "laptop": PermutationStudyConfig(),
    "paper": PermutationStudyConfig(
        all_configurations=True,
        seeds=10,
        sweeps=tuple(SWEEPS),
        members_per_unit=5,
        checkpoint_every=200,
        evaluate_every=50,
    ),
}
COSTS = {
    "smoke": "about a minute on two cores",
    "laptop": "4 to 6 min on two cores",
    "paper": "1 to 1.5 hours on two cores (190 models)",
}
