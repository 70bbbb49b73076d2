"""What the study of recipes trains: details of a recipe off or on, at two shapes, and starts of many sizes."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.studies.grid import check_names
from hopscope.studies.quick import QUICK
from hopscope.studies.study import Configuration
from hopscope.words import counted

STEPS = 3
"""Steps of the chains."""

OFF: dict[str, dict[str, Any]] = {
    "start": {"model.init": "gpt2"},
    "warm-up": {"training.warmup_steps": 0},
    "β₂": {"training.betas": (0.9, 0.999)},
    "cosine": {"training.schedule": "constant"},
    "clipping": {"training.clip_norm": None},
}
"""Detail → what a model has where it is off.  All on is `torch-schedule`, all off is `gpt2-base`."""

SCHEDULE = tuple(name for name in OFF if name != "start")
"""Details of which one alone decides, if N12 is right."""

ONE_HEAD: dict[str, Any] = {"model.layers": 12, "model.heads": 1, "model.head_dim": 32}
"""Twelve layers of one head, as the paper's transformers A, B and C have them (`quick_shapes.py:one_head`)."""

SHAPES: dict[str, dict[str, Any]] = {
    f"{counted(QUICK.layers, 'layer')} of {QUICK.heads} heads": {},
    "12 layers of 1 head": ONE_HEAD,
}
"""Name of each shape → how it differs from the study's model."""

GAMMAS = (0.45, 0.61, 0.78, 0.95)
"""Starts with weights of a standard deviation of fan_in^-γ: torch's own is 0.61 at width 128, GPT-2's 0.81."""

DEPTHS, HEADS = (3, 6, 12), (1, 8)

PARTS = ("without", "alone", "factorial", "starts")


class Options(Config):
    """What is trained beside the models that have every detail.

    Attributes:
        parts: "without": each detail off, alone; "alone": each on, alone, and none; "factorial": all ways; "starts":
            starts of four sizes with every other detail on, in models of three depths with one head or eight.
        decisive_seeds: seeds of "without" and "alone", and of the models with every detail, if more than of the others.
    """

    parts: tuple[str, ...] = ("without",)
    decisive_seeds: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _are_parts(self) -> Self:
        check_names("parts", self.parts, PARTS)
        return self


class Recipe(NamedTuple):
    """A recipe at a shape.

    Attributes:
        shape: name of the shape.
        on: details that are on, in the order of `OFF`.
    """

    shape: str
    on: tuple[str, ...]

    @property
    def words(self) -> str:
        """What a recipe is called, whatever the shape."""
        off = [name for name in OFF if name not in self.on]
        if not off:
            return "all on"
        if not self.on:
            return "all off"
        return f"without {off[0]}" if len(off) == 1 else f"{' and '.join(self.on)} alone"

    @property
    def label(self) -> str:
        """What its configuration is called."""
        return f"{self.shape}: {self.words}"

    @property
    def overrides(self) -> dict[str, Any]:
        """What tells it from the study as it is written."""
        return SHAPES[self.shape] | {
            field: value
            for name, fields in OFF.items()
            if name not in self.on
            for field, value in fields.items()
        }


ALL_ON = tuple(OFF)


def without(detail: str) -> tuple[str, ...]:
    """All details but one, in their order."""
    return tuple(name for name in OFF if name != detail)


def recipes(parts: Sequence[str]) -> dict[tuple[str, ...], bool]:
    """Details that are on → whether the recipe is one of those that decide; in the order in which a page shows them."""
    found: dict[tuple[str, ...], bool] = {ALL_ON: True}
    if "without" in parts:
        found |= {without(name): True for name in OFF}
    if "alone" in parts:
        found |= {(name,): True for name in OFF} | {(): True}
    if "factorial" in parts:
        every = (on for count in range(len(OFF), -1, -1) for on in combinations(OFF, count))
        found = dict.fromkeys(every, False) | found
    return found


class Start(NamedTuple):
    """A start of a size, in a model of a depth.

    Attributes:
        gamma: weights have a standard deviation of fan_in^-γ.
        layers, heads: of the model.
    """

    gamma: float
    layers: int
    heads: int

    @property
    def label(self) -> str:
        """What its configuration is called."""
        return f"γ {self.gamma:g}, {counted(self.layers, 'layer')} of {counted(self.heads, 'head')}"

    @property
    def overrides(self) -> dict[str, Any]:
        """What tells it from the study as it is written."""
        shape = ONE_HEAD if self.heads == 1 else {"model.heads": self.heads}
        return {**shape, "model.layers": self.layers, "model.init": self.gamma}


def starts(parts: Sequence[str]) -> Iterator[Start]:
    """The starts that are tried."""
    if "starts" in parts:
        yield from (Start(gamma, layers, heads) for heads in HEADS for layers in DEPTHS for gamma in GAMMAS)


def configurations(options: Options) -> list[Configuration]:
    """All that is trained, by label."""
    found = []
    for shape in SHAPES:
        for on, decides in recipes(options.parts).items():
            each = Recipe(shape, on)
            seeds = options.decisive_seeds if decides and options.decisive_seeds > 1 else None
            found.append(Configuration(label=each.label, overrides=each.overrides, seeds=seeds))
    found += [Configuration(label=each.label, overrides=each.overrides) for each in starts(options.parts)]
    return found
