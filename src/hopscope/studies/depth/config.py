"""What the depth study trains: depths, readings of what the paper leaves open, presets and the protocol."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from hopscope.completion import COMPLETION_NAMES, COMPLETIONS, CompletionName, Schedule
from hopscope.models.config import TransformerConfig
from hopscope.studies.grid import Grid, check_names
from hopscope.studies.recipe import RecipeConfig
from hopscope.tasks.config import RetrievalConfig, TimeOrder
from hopscope.training.config import TrainingConfig
from hopscope.words import counted

Asked = Literal["IC", "non-IC"]
"""All symbols of the chain (implicit curriculum), or the last alone (paper, section 7)."""

AXES: dict[str, tuple[Any, ...]] = {
    "causal": (True, False),
    "position": ("token", "pair"),
    "beta2": (0.95, 0.999),
    "mlp_ratio": (0.0, 4.0),
}
"""Details that the paper leaves open, and the readings of each that the specification curve goes through."""

FURTHER: dict[str, tuple[Any, ...]] = {
    "completion": COMPLETION_NAMES,
    "frequencies": ("harmonic", "geometric"),
    "order": ("deepest-first", "shallowest-first", "random"),
    "decay": ("matrices", "all"),
    "clip_norm": ("none", 1.0),
    "schedule": ("constant", "cosine"),
    "precision": ("float32", "bfloat16"),
}
"""Further details, each of which is changed by itself, beside those of `AXES`."""

DETAILS = (*AXES, *FURTHER)
"""All details of which a sweep can change one by itself."""


@dataclass(frozen=True)
class Reading:
    """One way to read what the paper leaves open; `None` means as the study's configuration says.

    Attributes:
        causal: whether a position is kept from attending to later ones.
        position: a position code for every token, or for every pair.
        beta2: decay of the optimiser's second moment.
        mlp_ratio: hidden size of the MLPs in widths, 0 for none.
        completion: start and schedule, whole: fields that the configuration gives itself are those of the completion.
        frequencies, order, decay, schedule, precision: as of the study's configuration.
        clip_norm: largest gradient norm of a member, or `none`.
    """

    causal: bool | None = None
    position: Literal["token", "pair"] | None = None
    beta2: float | None = None
    mlp_ratio: float | None = None
    completion: CompletionName | None = None
    frequencies: Literal["harmonic", "geometric"] | None = None
    order: TimeOrder | None = None
    decay: Literal["matrices", "all"] | None = None
    clip_norm: float | Literal["none"] | None = None
    schedule: Schedule | None = None
    precision: Literal["float32", "bfloat16"] | None = None

    @cached_property
    def changes(self) -> dict[str, Any]:
        """The fields in which it differs from the study's configuration."""
        return {
            field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None
        }

    @property
    def words(self) -> str:
        """In words; nothing where it changes nothing."""
        return ", ".join(reading_word(name, value) for name, value in self.changes.items())


AS_CONFIGURED = Reading()


def reading_word(name: str, value: Any) -> str:
    """One axis of a reading in words."""
    if name == "causal":
        return "causal" if value else "no mask"
    if name == "position":
        return f"code per {value}"
    if name == "beta2":
        return f"β₂ {value:g}"
    if name == "mlp_ratio":
        return f"MLP {value:g}×" if value else "no MLP"
    if name == "clip_norm":
        return "no clipping" if value == "none" else f"gradients clipped at {value:g}"
    return {
        "completion": str(value),
        "frequencies": f"{value} frequencies",
        "order": f"{value} order",
        "decay": f"decay of {'matrices' if value == 'matrices' else 'all weights'}",
        "schedule": f"{value} rate",
        "precision": str(value),
    }[name]


@dataclass(frozen=True)
class Configuration:
    """A model and its task.

    Attributes:
        asked: what the queries are asked for.
        steps: retrieval steps D.
        layers: of the model.
        reading: of what the paper leaves open.
    """

    asked: Asked
    steps: int
    layers: int
    reading: Reading = AS_CONFIGURED

    @property
    def name(self) -> str:
        """For people, such as `IC D=3, 6 layers, no mask`."""
        words = [f"{self.asked} D={self.steps}", counted(self.layers, "layer"), self.reading.words]
        return ", ".join(filter(None, words))

    @property
    def asked_steps(self) -> tuple[int, ...]:
        """Steps k of the chain that the model is asked for."""
        return tuple(range(1, self.steps + 1)) if self.asked == "IC" else (self.steps,)

    def overrides(self) -> dict[str, Any]:
        """For the run's list of members: everything that tells this configuration from others."""
        return {"asked": self.asked, "steps": self.steps, "layers": self.layers, **self.reading.changes}


SWEEPS = ("steps", "specification", "details")

STATED = {
    "chains": ("chains", 4), "symbol_dim": ("symbol dimensions", 4), "width": ("width", 128), "heads": ("heads", 8),
    "mlp_ratio": ("MLP ratio", 4.0), "batch_size": ("batch", 512), "learning_rate": ("learning rate", 1e-3),
    "weight_decay": ("weight decay", 0.1),
}  # fmt: skip
"""What the paper states (section 7.1): field → in words, and its value."""

Layers = tuple[Annotated[int, Field(ge=1, le=64)], ...]


class DepthStudyConfig(RecipeConfig, Grid[Configuration]):
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
            "specification" goes through all combinations of four details that the paper leaves open; "details"
            changes each of ten by itself.
        details: which of the ten the sweep "details" changes.
        sweep_seeds: seeds of a sweep's configurations.
        sweep_layers: numbers of layers of these two sweeps; empty means 1, the middle and the largest.
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
    details: tuple[str, ...] = Field(DETAILS, exclude_if=lambda names: names == DETAILS)
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
        check_names("sweeps", self.sweeps, SWEEPS)
        check_names("details", self.details, DETAILS)
        self.jobs()  # whatever is wrong with a model or a task is said before anything is written
        return self

    # What is trained.

    def asked(self) -> Iterator[tuple[Configuration, int]]:
        """Both panels, and then the sweeps, with their seeds."""
        yield from ((each, self.seeds) for each in self.base())
        if self.layers:
            yield self.deepest(), self.deepest_seeds
        swept = self.by_steps() if "steps" in self.sweeps else []
        swept += self._specifications() if len(self.readings()) > 1 else []
        yield from ((each, self.sweep_seeds) for each in swept)

    def steps_of(self, asked: Asked) -> int:
        """D of the models that are asked so, but for those of the sweep over D."""
        return self.steps if asked == "IC" else self.steps_last

    def base(self) -> list[Configuration]:
        """Both panels of Figure 4: all depths, with all targets and with the last alone."""
        panels: dict[Asked, Layers] = {"IC": self.layers, "non-IC": self.layers_last}
        return [
            Configuration(asked, self.steps_of(asked), layers)
            for asked, depths in panels.items()
            for layers in depths
        ]

    def deepest(self) -> Configuration:
        """The configuration of the deepest IC model."""
        return Configuration("IC", self.steps, self.layers[-1])

    def by_steps(self) -> list[Configuration]:
        """IC models of every depth on every D."""
        every = range(1, self.most_steps + 1)
        return [Configuration("IC", steps, layers) for steps in every for layers in self.layers]

    def readings(self) -> list[Reading]:
        """The readings that are tried, as changes of the study's own, which comes first."""
        found = [AS_CONFIGURED]
        for values in product(*AXES.values()) if "specification" in self.sweeps else ():
            chosen = dict(zip(AXES, values, strict=True))
            changes = {name: value for name, value in chosen.items() if value != getattr(self, name)}
            found.append(Reading(**changes))
        for name in self.details if "details" in self.sweeps else ():
            own = getattr(self, name)
            choices = {**AXES, **FURTHER}[name]
            found += [
                Reading(**{name: value}) for value in choices if value != ("none" if own is None else own)
            ]
        return sorted(dict.fromkeys(found), key=lambda reading: len(reading.changes))

    def _specifications(self) -> list[Configuration]:
        middle = {self.layers[len(self.layers) // 2], self.layers[-1]} if self.layers else set()
        return [
            Configuration(asked, self.steps_of(asked), layers, reading)
            for reading in self.readings()
            for asked in get_args(Asked)
            for layers in self.sweep_layers or sorted({1, *middle})
        ]

    # How it is trained.

    def under(self, reading: Reading) -> "DepthStudyConfig":
        """The study under a reading."""
        changed = {name: None if value == "none" else value for name, value in reading.changes.items()}
        if reading.completion is not None:
            changed = COMPLETIONS[reading.completion].values(self.training_steps) | changed
        return self.model_copy(update=changed)

    def of(self, configuration: Configuration) -> "DepthStudyConfig":
        """This configuration of the study under the reading of one of its grid."""
        return self.under(configuration.reading)

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

    def protocol_deviations(self, configuration: Configuration) -> list[str]:
        """How a configuration departs from what the paper states (section 7.1), in words; none is at scale."""
        here = self.of(configuration)
        paper_steps = 5 if configuration.asked == "IC" else 3
        changed = [f"D {configuration.steps}, not {paper_steps}"] * (configuration.steps != paper_steps)
        changed += [
            f"{words} {getattr(here, name):g}, not {said:g}"
            for name, (words, said) in STATED.items()
            if getattr(here, name) != said
        ]
        if here.pool != 2**20:
            found = "fresh samples" if here.pool is None else f"a pool of {here.pool:,}"
            changed.append(f"{found}, not a pool of 2²⁰")
        if here.training_steps < 10_000:
            changed.insert(0, f"{here.training_steps:,} of 10,000 steps")
        return changed


_QUICK: dict[str, Any] = {
    "completion": "torch-schedule", "steps_last": 3, "width": 128, "heads": 8, "head_size": 16, "position": "pair",
    "batch_size": 64, "learning_rate": 4e-3, "training_steps": 1_000, "checkpoint_every": 250, "evaluate_every": 20,
    "members_per_unit": 4,
}  # fmt: skip
"""The shape that learns chains soonest (`campaigns/quick_shapes.py`)."""

PRESETS = {
    "smoke": DepthStudyConfig(
        completion="torch-schedule",
        seeds=2, deepest_seeds=2, layers=(1, 3), layers_last=(1, 3), steps=2, steps_last=2, width=32, heads=2,
        training_steps=300, batch_size=32, checkpoint_every=100, evaluation_samples=256, analysis_samples=512,
    ),
    "laptop": DepthStudyConfig(**_QUICK, seeds=3, deepest_seeds=6, steps=3),
    "workstation": DepthStudyConfig(
        **_QUICK, seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=tuple(range(1, 9)), steps=4,
    ),
    "completions": DepthStudyConfig(
        **_QUICK, seeds=4, deepest_seeds=4, layers=(6,), layers_last=(6,), sweep_layers=(6,), sweep_seeds=4, steps=3,
        sweeps=("details",), details=("completion",),
    ),
    "details": DepthStudyConfig(
        **_QUICK, seeds=4, deepest_seeds=4, layers=(6,), layers_last=(6,), sweep_layers=(6,), sweep_seeds=4, steps=3,
        sweeps=("details",),
    ),
    "paper": DepthStudyConfig(
        completion="torch-schedule",
        seeds=8, deepest_seeds=8, layers=tuple(range(1, 9)), layers_last=tuple(range(1, 9)), steps=5, steps_last=3,
        pool=2**20, heads=8, width=128, mlp_ratio=4.0, training_steps=10_000, batch_size=512,
        checkpoint_every=1_000, final_every=1, evaluation_samples=1024,
        members_per_unit=8,
    ),
}  # fmt: skip
COSTS = {
    "smoke": "under a minute on two cores",
    "laptop": "15 to 30 min on two cores: 39 models",
    "workstation": "about 1 h 30 min on two cores: 128 models",
    "completions": "about 20 min on two cores: 32 models",
    "details": "about 1 h on two cores: 96 models",
    "paper": "128 models; made for a GPU",
}
