"""What is trained: how deep a model, on what it is asked, and under which reading of what the paper leaves open."""

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal, Self

Asked = Literal["IC", "non-IC"]
"""All symbols of the chain (implicit curriculum), or the last alone (paper, section 7)."""

AXES: dict[str, tuple[Any, ...]] = {
    "causal": (True, False),
    "position": ("token", "pair"),
    "beta2": (0.95, 0.999),
    "mlp_ratio": (0.0, 4.0),
}
"""Details that the paper leaves open, and the readings of each that the specification curve goes through."""


@dataclass(frozen=True)
class Reading:
    """One way to read what the paper leaves open; `None` means as the study's configuration says.

    Attributes:
        causal: whether a position is kept from attending to later ones.
        position: a position code for every token, or for every pair.
        beta2: decay of the optimiser's second moment.
        mlp_ratio: hidden size of the MLPs in widths, 0 for none.
    """

    causal: bool | None = None
    position: Literal["token", "pair"] | None = None
    beta2: float | None = None
    mlp_ratio: float | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields in which it differs from the study's configuration."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) is not None
        }

    @property
    def words(self) -> str:
        """In words; nothing where it changes nothing."""
        return ", ".join(reading_word(name, value) for name, value in self.changes.items())


def reading_word(name: str, value: Any) -> str:
    """One axis of a reading in words."""
    if name == "causal":
        return "causal" if value else "no mask"
    if name == "position":
        return f"code per {value}"
    if name == "beta2":
        return f"β₂ {value:g}"
    return f"MLP {value:g}×" if value else "no MLP"


def every_reading(own: dict[str, Any]) -> list[Reading]:
    """All combinations of the axes, as changes of a configuration's own values; the unchanged one first."""
    readings = []
    for values in product(*AXES.values()):
        chosen = dict(zip(AXES, values, strict=True))
        readings.append(Reading(**{name: value for name, value in chosen.items() if value != own[name]}))
    if Reading() not in readings:
        readings.insert(0, Reading())
    return sorted(readings, key=lambda reading: len(reading.changes))


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
    reading: Reading = Reading()

    @property
    def name(self) -> str:
        """For people, such as `IC D=3, 6 layers, no mask`."""
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return ", ".join(filter(None, [f"{self.asked} D={self.steps}", layers, self.reading.words]))

    @property
    def asked_steps(self) -> tuple[int, ...]:
        """Steps k of the chain that the model is asked for."""
        return tuple(range(1, self.steps + 1)) if self.asked == "IC" else (self.steps,)

    def with_reading(self, reading: Reading) -> "Configuration":
        """The same under another reading."""
        return replace(self, reading=reading)

    def overrides(self) -> dict[str, Any]:
        """For the run's list of members: everything that tells this configuration from others."""
        return {"asked": self.asked, "steps": self.steps, "layers": self.layers, **self.reading.changes}

    @classmethod
    def from_overrides(cls, overrides: dict[str, Any]) -> Self:
        """From what the run's list of members says."""
        changes = {name: overrides[name] for name in AXES if name in overrides}
        return cls(overrides["asked"], overrides["steps"], overrides["layers"], Reading(**changes))
