"""Recipes and starts: details of a recipe off or on, at two shapes, and starts of many sizes."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from hopscope.claims.verdict import counted
from hopscope.studies.chains.recipe import QUICK

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

ALL_ON = tuple(OFF)
SCHEDULE = ALL_ON[1:]
"""Details of which one alone decides, if N12 is right."""

ONE_HEAD: dict[str, Any] = {"model.layers": 12, "model.heads": 1, "model.head_dim": 32}
"""Twelve layers of one head, as the paper's transformers A, B and C have them."""

SHAPES: dict[str, dict[str, Any]] = {
    f"{counted(QUICK.layers, 'layer')} of {QUICK.heads} heads": {},
    "12 layers of 1 head": ONE_HEAD,
}
"""Name of each shape → how it differs from the study's model."""

GAMMAS = (0.45, 0.61, 0.78, 0.95)
"""Starts with weights of a standard deviation of fan_in^-γ: torch's own is 0.61 at width 128, GPT-2's 0.81."""

DEPTHS, HEADS = (3, 6, 12), (1, 8)


class Recipe(NamedTuple):
    """Details that are on, in the order of `OFF`, at a shape, by its name."""

    shape: str
    on: tuple[str, ...]

    @property
    def words(self) -> str:
        """What a recipe is called, whatever the shape."""
        off = [name for name in OFF if name not in self.on]
        if not off or not self.on:
            return "all off" if off else "all on"
        return f"without {off[0]}" if len(off) == 1 else f"{' and '.join(self.on)} alone"

    @property
    def label(self) -> str:
        """What its configuration is called."""
        return f"{self.shape}: {self.words}"

    @property
    def overrides(self) -> dict[str, Any]:
        """What tells it from the study as it is written."""
        off = (fields for name, fields in OFF.items() if name not in self.on)
        return SHAPES[self.shape] | {field: value for fields in off for field, value in fields.items()}


def without(detail: str) -> tuple[str, ...]:
    """All details but one, in their order."""
    return tuple(name for name in OFF if name != detail)


class Start(NamedTuple):
    """Weights of a standard deviation of fan_in^-γ, in a model of a depth with some heads in a layer."""

    gamma: float
    layers: int
    heads: int

    @property
    def shape(self) -> str:
        """Of the model, in words."""
        return f"{counted(self.layers, 'layer')} of {counted(self.heads, 'head')}"

    @property
    def words(self) -> str:
        """What a start is called, whatever the model."""
        return f"γ {self.gamma:g}"

    @property
    def label(self) -> str:
        """What its configuration is called."""
        return f"{self.words}, {self.shape}"

    @property
    def overrides(self) -> dict[str, Any]:
        """What tells it from the study as it is written."""
        shape = ONE_HEAD if self.heads == 1 else {"model.heads": self.heads}
        return {**shape, "model.layers": self.layers, "model.init": self.gamma}


def starts(heads: Iterable[int] = HEADS) -> list[Start]:
    """Weights of every size in models of every depth."""
    return [Start(gamma, layers, each) for each in heads for layers in DEPTHS for gamma in GAMMAS]
