"""Grid, presets and protocol of the permutation study."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator

from hopscope.models.config import TransformerConfig
from hopscope.studies.base import StudyConfig
from hopscope.tasks.config import LARGEST_VALUES, SMALLEST_VALUES, PermutationConfig
from hopscope.training.config import Beta, MemberPlan, TrainingConfig, UnitPlan

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")
PUBLISHED_EPOCHS = {"plain": 20, "repeats": 50}
"""Presentation, section 12."""

ANALYSES = {"probes": "json", "patterns": "npz"}
FIGURES: tuple[str, ...] = ("loss", "skills", "recall_by_slot", "attention")

_NAME = re.compile(r"d(\d+)/(\d+) (plain|repeats)")


@dataclass(frozen=True)
class Configuration:
    """A model and the data it learns from, written `d<width>/<heads> plain|repeats`."""

    width: int
    heads: int
    data: Literal["plain", "repeats"]

    @classmethod
    def parse(cls, name: str) -> Self:
        """From its written form.

        Raises:
            ValueError: the form is another one.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"configurations: expected names such as 'd32/2 repeats', found {name!r}")
        return cls(int(match[1]), int(match[2]), "plain" if match[3] == "plain" else "repeats")

    @property
    def name(self) -> str:
        """Its written form."""
        return f"d{self.width}/{self.heads} {self.data}"


class PermutationStudyConfig(StudyConfig):
    """The permutation-lookup study.  Details that the presentation leaves open have a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1 of every configuration.
        configurations: what is trained, such as "d32/2 repeats": width 32, 2 heads, 30 % repeats.
        all_configurations: train all five configurations instead.
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
        positions: learned position codes, or none.
        init: starting weights, as torch's encoder layer or as GPT-2.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        evaluation_limit: largest evaluation set that is gone through in full.
        members_per_unit: most members that are trained as one program.
    """

    seeds: int = Field(4, ge=1)
    configurations: tuple[str, ...] = PUBLISHED
    all_configurations: bool = False
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
    positions: Literal["learned", "none"] = "learned"
    init: Literal["torch", "gpt2"] = "torch"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(100, ge=1)
    evaluation_limit: int = Field(50_000, ge=1)
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
        """The configurations, after overrides, each once."""
        names = ALL if self.all_configurations else self.configurations
        if not names:
            raise ValueError(f"configurations: expected at least one, such as {PUBLISHED[0]!r}, found none")
        parsed = [Configuration.parse(name) for name in names]
        changed = [Configuration(self.width or c.width, self.heads or c.heads, c.data) for c in parsed]
        return list(dict.fromkeys(changed))

    def task(self, configuration: Configuration) -> PermutationConfig:
        """The training data of a configuration."""
        return PermutationConfig(
            values=self.values,
            repeat_ratio=self.repeat_ratio if configuration.data == "repeats" else 0.0,
            repeat_slots=self.repeat_slots,
            repeat_sources=self.repeat_sources,
            split_seed=self.split_seed,
            held_out_share=self.held_out_share,
        )

    def model(self, configuration: Configuration) -> TransformerConfig:
        """The model of a configuration (presentation, section 5)."""
        length = 2 * self.values - 1
        return TransformerConfig(
            layers=1,
            heads=configuration.heads,
            width=configuration.width,
            mlp_ratio=self.mlp_ratio,
            activation=self.activation,
            norm=self.norm,
            positions=self.positions,
            length=length,
            input_size=self.values + 1,
            output_size=self.values + 1,
            readout=tuple(range(0, length, 2)),
            init=self.init,
        )

    def epochs(self, configuration: Configuration) -> float:
        """Length of a configuration's training in epochs."""
        return self.epochs_plain if configuration.data == "plain" else self.epochs_repeats

    def training(self, configuration: Configuration) -> TrainingConfig:
        """The training of a configuration."""
        return TrainingConfig(
            steps=max(1, math.ceil(self.epochs(configuration) * self.samples_per_epoch / self.batch_size)),
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            betas=self.betas,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=self.evaluate_every,
        )

    def reading(self) -> str:
        """How this run reads what the presentation leaves open: the batch size, and all else that is no default."""
        values = {name: getattr(self, name) for name in ("init", "betas", "split_seed")}
        changed = [f"{name} {value}" for name, value in values.items() if value != _default(name)]
        return ", ".join([f"batch {self.batch_size}", *changed])

    def departures(self, configuration: Configuration) -> list[str]:
        """How a configuration's training departs from what the presentation states, in words; none is at scale."""
        stated: list[tuple[str, object, object]] = [
            ("V", 5, self.values),
            ("held-out share", 0.2, self.held_out_share),
            ("learning rate", 1e-3, self.learning_rate),
            ("optimiser", "adam", self.optimizer),
            ("MLP ratio", 2.0, self.mlp_ratio),
            ("activation", "relu", self.activation),
            ("norm", "post", self.norm),
            ("positions", "learned", self.positions),
            ("weight decay", 0.0, self.weight_decay),
            ("clipping", None, self.clip_norm),
        ]
        if configuration.data == "repeats":
            stated += [
                ("repeat ratio", 0.3, self.repeat_ratio),
                ("repeat slots", (), self.repeat_slots),
                ("repeat sources", (), self.repeat_sources),
            ]
        changed = [f"{name} {found} instead of {said}" for name, said, found in stated if found != said]
        trained = self.epochs(configuration) * self.samples_per_epoch / 100_000
        published = PUBLISHED_EPOCHS[configuration.data]
        return [f"{trained:g} of {published} epochs", *changed] if trained < published else changed


def _default(name: str) -> object:
    return PermutationStudyConfig.model_fields[name].default


def plan(config: PermutationStudyConfig) -> list[UnitPlan]:
    """Units in grid order; a configuration with many seeds is cut into several."""
    units, member = [], 0
    for configuration in config.grid():
        overrides = {"width": configuration.width, "heads": configuration.heads, "data": configuration.data}
        for start in range(0, config.seeds, config.members_per_unit):
            seeds = range(start, min(start + config.members_per_unit, config.seeds))
            members = tuple(
                MemberPlan(member=member + n, seed=s, overrides=overrides) for n, s in enumerate(seeds)
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


PRESETS = {
    "smoke": PermutationStudyConfig(
        seeds=2, epochs_plain=2, epochs_repeats=2, checkpoint_every=200, evaluate_every=50
    ),
    "laptop": PermutationStudyConfig(),
    "paper": PermutationStudyConfig(all_configurations=True, seeds=10, epochs_repeats=50, members_per_unit=5),
}
COSTS = {
    "smoke": "under 40 s on two cores",
    "laptop": "2 to 6 min on two cores",
    "paper": "about half an hour on two quiet cores (estimated)",
}
