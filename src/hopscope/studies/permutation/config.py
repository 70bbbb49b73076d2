"""What the permutation study trains: a name for every model with its data, the grid, presets and the protocol."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self

import tyro
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from hopscope.config import Config, validation_line
from hopscope.models.config import Init, Model, TransformerConfig
from hopscope.studies.grid import Grid, check_names
from hopscope.tasks.config import LARGEST_VALUES, SMALLEST_VALUES, PermutationConfig
from hopscope.training.config import Beta, TrainingConfig, TrainJob

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")

_NAME = re.compile(r"d(?P<width>\d+)/(?P<heads>\d+) (?P<data>plain|repeats)(?P<changes>( \w+=\S+)*)")
_KEYS = {"V": "values", "ratio": "repeat_ratio", "slots": "repeat_slots", "sources": "repeat_sources",
         "positions": "positions", "batch": "batch_size", "epochs": "epochs", "split": "split_seed"}  # fmt: skip
"""What a name calls the fields that differ, in the order in which they are written."""


_Slots = Annotated[
    tuple[int, ...], BeforeValidator(lambda slots: slots.split("+") if isinstance(slots, str) else slots)
]


@dataclass(frozen=True)
class Configuration:
    """A model and the data it learns from, written `d<width>/<heads> plain|repeats [V=…] [ratio=…] …`.

    Attributes:
        width, heads: of the model.
        data: whether training has repeats.
        values, repeat_ratio, repeat_slots, repeat_sources, positions, batch_size, split_seed: fields of the study's
            configuration that differ here; `None` means the study's.
        epochs: length of training; `None` means the study's for this kind of data.
    """

    width: int
    heads: int
    data: Literal["plain", "repeats"]
    values: int | None = None
    repeat_ratio: float | None = None
    repeat_slots: _Slots | None = None
    repeat_sources: _Slots | None = None
    positions: Literal["learned", "pair", "none"] | None = None
    batch_size: int | None = None
    epochs: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    split_seed: int | None = None

    @classmethod
    @lru_cache(maxsize=4096)  # pages and claims of a large grid ask for the same few names again and again
    def parse(cls, name: str) -> Self:
        """From its written form.

        Raises:
            ValueError: the form is another one.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"configurations: expected names such as 'd32/2 repeats' or 'd32/2 repeats V=4', found {name!r}"
            )
        changed = [word.split("=", 1) for word in match["changes"].split()]
        keys = [key for key, _ in changed]
        for key in keys:
            if key not in _KEYS or keys.count(key) > 1:
                raise ValueError(
                    f"configurations: expected each of {', '.join(_KEYS)} at most once, found {key!r} in {name!r}"
                )
        fields: dict[str, Any] = {part: match[part] for part in ("width", "heads", "data")}
        fields |= {_KEYS[key]: text for key, text in changed}
        try:
            return cls(**fields)
        except ValidationError as error:
            raise ValueError(f"configurations: {name!r}: {validation_line(error)}") from None

    @property
    def name(self) -> str:
        """The configuration's name, as pages write it."""
        changes = self.changes
        written = [f" {key}={_written(changes[field])}" for key, field in _KEYS.items() if field in changes]
        return f"d{self.width}/{self.heads} {self.data}{''.join(written)}"

    @property
    def bare(self) -> Self:
        """The same model and data under the study's batch size, epochs and split."""
        return replace(self, batch_size=None, epochs=None, split_seed=None)

    @property
    def changes(self) -> dict[str, Any]:
        """Fields of the study's configuration that differ here, and the epochs if they do."""
        found = {field: getattr(self, field) for field in _KEYS.values()}
        return {field: value for field, value in found.items() if value is not None}

    def overrides(self) -> dict[str, Any]:
        """For the run's list of members: everything that tells this configuration from others."""
        return {"width": self.width, "heads": self.heads, "data": self.data, **self.changes}


@lru_cache(maxsize=4096)
def _resized(configuration: Configuration, width: int | None, heads: int | None) -> Configuration:
    return replace(configuration, width=width or configuration.width, heads=heads or configuration.heads)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Sweep(NamedTuple):
    """Configurations that a further question takes.

    Attributes:
        configurations: names.
        all_seeds: whether a claim hangs on it, so that it has as many seeds as the study, not as a sweep.
        whole: whether every measurement is made of it; what a claim about readings or splits needs is among the basic.
    """

    configurations: tuple[str, ...]
    all_seeds: bool = False
    whole: bool = False


class Reading(NamedTuple):
    """A way to read what the presentation leaves open.

    Attributes:
        batch_size: samples per step.
        epochs: length of training; `None`: that which the presentation states for a model's data.
        more: all else that is no default, in words.
    """

    batch_size: int
    epochs: float | None
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The reading in words, such as `batch 256, 20 epochs`."""
        length = () if self.epochs is None else (f"{self.epochs:g} epochs",)
        return ", ".join((f"batch {self.batch_size}", *length, *self.more))


SWEEPS = {
    # Other readings of the batch size, which the source does not state.
    "batch": Sweep(("d16/1 plain batch=128", "d32/2 repeats batch=128"), all_seeds=True, whole=True),
    "batches": Sweep(
        tuple(f"{name} batch={size}" for size in (64, 128, 512) for name in (*ALL, "d32/2 plain V=4")),
        all_seeds=True,
    ),
    # Other readings of the length of training: the source states two, 20 and 50 epochs, for two models.
    "epochs": Sweep(
        (
            *(f"{name} repeats epochs=20" for name in ("d16/1", "d32/1", "d32/2")),
            "d16/1 plain epochs=50",
            *(f"d32/2 plain{values} epochs=200" for values in ("", " V=4")),
        ),
        all_seeds=True,
    ),
    # Other mappings held out: what depends on the split varies over splits as well as over seeds.
    "splits": Sweep(
        tuple(
            f"{name} split={split}"
            for split in range(1, 10)
            for name in ("d16/1 plain", "d32/2 repeats", "d32/2 plain", "d32/2 plain V=4")
        ),
        all_seeds=True,
    ),
    # Without position codes, and with one shared by the two tokens of a pair.
    "positions": Sweep(
        ("d32/2 repeats positions=none", "d32/2 repeats positions=pair"), all_seeds=True, whole=True
    ),
    # Can four values be memorised?
    "memorisation": Sweep(("d32/2 plain V=4",), all_seeds=True, whole=True),
    # The number of values: memorisation on plain data, recall with repeats.
    "values": Sweep(
        (
            *(f"d32/2 plain V={values}" for values in (3, 6, 7, 8)),
            *(f"d32/2 repeats V={values}" for values in (3, 4, 6, 7, 8)),
        )
    ),
    # Width and heads.
    "capacity": Sweep(
        tuple(
            f"d{model} repeats"
            for model in ("8/1", "8/2", "16/2", "24/1", "24/2", "32/4", "48/2", "64/1", "64/2")
        )
    ),
    # The share of repeats in training.
    "ratio": Sweep(tuple(f"d32/2 repeats ratio={ratio}" for ratio in (0.05, 0.1, 0.2, 0.5, 0.8, 1))),
    # Which slots repeat in training, against which are tested.
    "slots": Sweep(
        (
            *(f"d32/2 repeats slots={slots}" for slots in ("2", "3", "4", "2+3+4+5")),
            *(f"d32/2 repeats sources={source}" for source in (1, 4)),
        )
    ),
}
"""Sweeps of the study, by name."""

PUBLISHED_EPOCHS = {"plain": 20, "repeats": 50}
"""Presentation, section 12."""

STATED = {
    "values": "V", "held_out_share": "held-out share", "learning_rate": "learning rate", "optimizer": "optimiser",
    "mlp_ratio": "MLP ratio", "activation": "activation", "norm": "norm", "positions": "positions",
    "weight_decay": "weight decay", "clip_norm": "clipping",
}  # fmt: skip
"""Fields whose values the presentation states, in words: they are the defaults."""

STATED_OF_REPEATS = {
    "repeat_ratio": "repeat ratio", "repeat_slots": "repeat slots", "repeat_sources": "repeat sources",
}  # fmt: skip
"""The same of training with repeats alone."""


class PermutationStudyConfig(Config, Grid[Configuration]):
    """The permutation-lookup study.  Details that the presentation leaves open have a documented default.

    Attributes:
        seeds: seeds 0 … seeds - 1 of every configuration.
        configurations: what is trained, such as "d32/2 repeats": width 32, 2 heads, 30 % repeats; V=, ratio=, slots=,
            sources=, positions=, batch=, epochs= and split= may follow, as in "d32/2 repeats V=4 batch=128".
        all_configurations: train all five configurations instead.
        sweeps: further configurations by question: batch, batches, epochs, splits, positions, memorisation, values,
            capacity, ratio, slots.
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
        circuits: read the circuit of the first seed of each configuration that is measured in full.
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
    init: Init = "encoder"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(100, ge=1)
    evaluation_limit: int = Field(50_000, ge=1)
    measurements: Literal["all", "basic"] = "all"
    # Left out of the record where it is not asked for, so that runs of before there was such a field keep their names.
    circuits: bool = Field(False, exclude_if=lambda read: not read)
    members_per_unit: int = Field(2, ge=1)

    @model_validator(mode="after")
    def _plans(self) -> Self:
        if not (self.all_configurations or self.configurations):
            raise ValueError(f"configurations: expected at least one, such as {PUBLISHED[0]!r}, found none")
        check_names("sweeps", self.sweeps, SWEEPS)
        self.jobs()  # whatever is wrong with a model or a task is said before anything is written
        return self

    def asked(self) -> Iterator[tuple[Configuration, int]]:
        """Configurations after overrides, with their seeds."""
        for configuration, for_itself in self._named():
            yield configuration, self.seeds if for_itself else self.sweep_seeds

    def is_asked(self, configuration: Configuration) -> bool:
        """Whether a configuration is asked for itself, or by a sweep on which a claim hangs; the others are swept."""
        return configuration in self._asked_for_themselves()

    def _asked_for_themselves(self) -> set[Configuration]:
        return {each for each, for_itself in self._named() if for_itself}

    def _named(self) -> Iterator[tuple[Configuration, bool]]:
        names = ALL if self.all_configurations else self.configurations
        yield from ((self._overridden(name), True) for name in names)
        for sweep in self.sweeps:
            yield from ((each, SWEEPS[sweep].all_seeds) for each in self.of_sweep(sweep))

    def of_sweep(self, sweep: str) -> list[Configuration]:
        """The configurations of a sweep, after overrides, each once."""
        return list(dict.fromkeys(map(self._overridden, SWEEPS[sweep].configurations)))

    def _overridden(self, name: str) -> Configuration:
        return _resized(Configuration.parse(name), self.width, self.heads)

    def is_whole(self, configuration: Configuration) -> bool:
        """Whether a configuration is studied with every measurement."""
        asked = map(self._overridden, ALL if self.all_configurations else self.configurations)
        swept = (each for name in self.sweeps if SWEEPS[name].whole for each in self.of_sweep(name))
        return self.measurements == "all" and configuration in {*asked, *swept}

    def base(self) -> list[Configuration]:
        """What the page is about first: what was asked for without changes, or else with the same number of values."""
        for_themselves = self._asked_for_themselves()
        asked = [each for each in self.grid() if each in for_themselves]
        unchanged = [each for each in asked if not each.changes]
        return unchanged or [each for each in asked if each.values in (None, self.values)]

    def of(self, configuration: Configuration) -> "PermutationStudyConfig":
        """This configuration of the study with the changes of one of its grid."""
        changes = dict(configuration.changes)
        if "epochs" in changes:
            changes["epochs_plain"] = changes["epochs_repeats"] = changes.pop("epochs")
        return self.model_copy(update=changes)

    def task(self, configuration: Configuration) -> PermutationConfig:
        """The training data of a configuration."""
        fields = self.of(configuration).model_dump(include=set(PermutationConfig.model_fields))
        if configuration.data == "plain":
            fields["repeat_ratio"] = 0.0
        return PermutationConfig(**fields)

    def model(self, configuration: Configuration) -> TransformerConfig:
        """The model of a configuration (presentation, section 5)."""
        here = self.of(configuration)
        model = Model(
            heads=configuration.heads,
            width=configuration.width,
            mlp_ratio=here.mlp_ratio,
            activation=here.activation,
            norm=here.norm,
            positions=here.positions,
            init=here.init,
        )
        return model.for_task(self.task(configuration).shape())

    def epochs(self, configuration: Configuration) -> float:
        """Length of a configuration's training in epochs."""
        here = self.of(configuration)
        return here.epochs_plain if configuration.data == "plain" else here.epochs_repeats

    def training(self, configuration: Configuration) -> TrainingConfig:
        """The training of a configuration."""
        here = self.of(configuration)
        steps = math.ceil(here.epochs(configuration) * here.samples_per_epoch / here.batch_size)
        return TrainingConfig(
            steps=max(1, steps),
            warmup_steps=0,
            schedule="constant",
            **here.model_dump(include=set(TrainingConfig.model_fields)),
        )

    def readings(self) -> list["Reading"]:
        """Ways to read what the presentation leaves open that the grid has: the study's own first, batches descending.

        A batch size, or a length of training, that some configuration of the grid has of its own.
        """
        grid = self.grid()
        batches = {c.batch_size for c in grid if c.batch_size is not None} - {self.batch_size}
        lengths = {c.epochs for c in grid if c.epochs is not None}
        changed = self._changed(("init", "betas", "split_seed"))
        more = tuple(f"{name} {value}" for name, (value, _) in changed.items())
        return [
            Reading(self.batch_size, None, more),
            *(Reading(size, None, more) for size in sorted(batches, reverse=True)),
            *(Reading(self.batch_size, length, more) for length in sorted(lengths)),
        ]

    def trained(self, name: str, reading: "Reading") -> list[Configuration]:
        """Configurations of the grid with a bare name, trained as a reading says; those of other splits last."""

        found = [each for each in self.grid() if each.bare.name == name and self.is_of(each, reading)]
        return sorted(found, key=lambda each: each.split_seed is not None)

    def is_of(self, configuration: Configuration, reading: "Reading") -> bool:
        """Whether a configuration is trained as a reading says."""
        if (configuration.batch_size or self.batch_size) != reading.batch_size:
            return False
        if reading.epochs is None:
            return configuration.epochs is None
        return self.epochs(configuration) == reading.epochs

    def protocol_deviations(self, configuration: Configuration) -> list[str]:
        """How a configuration's training departs from what the presentation states, in words; none is at scale."""
        here = self.of(configuration)
        stated = STATED | (STATED_OF_REPEATS if configuration.data == "repeats" else {})
        changed = [
            f"{stated[name]} {value} instead of {said}"
            for name, (value, said) in here._changed(stated).items()
        ]
        trained = here.epochs(configuration) * here.samples_per_epoch / 100_000
        # The page states two lengths, each for one model: for the others, both are readings of it.
        stated_length = configuration.epochs is None
        published = PUBLISHED_EPOCHS[configuration.data] if stated_length else min(PUBLISHED_EPOCHS.values())
        return [f"{trained:g} of {published} epochs", *changed] if trained < published else changed

    def _changed(self, names: Iterable[str]) -> dict[str, tuple[object, object]]:
        """Those of some fields that are not the default, each with its value and its default."""
        found = {name: (getattr(self, name), type(self).model_fields[name].default) for name in names}
        return {name: (value, default) for name, (value, default) in found.items() if value != default}


def analyses(config: PermutationStudyConfig, job: TrainJob) -> dict[str, str]:
    """What is measured of a unit's last checkpoint: less for sweeps on which no claim hangs."""
    configuration = Configuration.parse(job.label)
    repeats = configuration.data == "repeats"
    names = ["posteriors", *(["slots"] if repeats else [])]
    if config.is_whole(configuration):
        names += ["battery", "roles", "decoding", "worked", *(["formation"] if repeats else [])]
    return {"probes": "json", "patterns": "npz", **dict.fromkeys(names, "json")}


PRESETS = {
    "smoke": PermutationStudyConfig(
        seeds=2, epochs_plain=2, epochs_repeats=2, checkpoint_every=200, evaluate_every=50
    ),
    "laptop": PermutationStudyConfig(seeds=10, circuits=True, members_per_unit=5),
    "paper": PermutationStudyConfig(
        all_configurations=True,
        seeds=10,
        sweeps=("batch", "positions", "memorisation", "values", "capacity", "ratio", "slots"),
        members_per_unit=5,
        checkpoint_every=200,
        evaluate_every=50,
    ),
    "readings": PermutationStudyConfig(
        all_configurations=True,
        seeds=10,
        sweeps=("memorisation", "batch", "batches", "epochs", "splits"),
        members_per_unit=10,
        evaluate_every=50,
    ),
}
COSTS = {
    "smoke": "about a minute on two cores",
    "laptop": "5 to 7 min on two cores",
    "paper": "1 to 1.5 hours on two cores (190 models)",
    "readings": "about 2 hours on two cores (660 models)",
}
