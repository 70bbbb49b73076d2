"""What the depth study trains: depths, readings of what the paper leaves open, and how they depart from the paper."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.claims.verdict import counted
from hopscope.studies.chains.recipe import COMPLETED, Recipe, check_names
from hopscope.training.config import COMPLETION_NAMES, CompletionName, Training, completion_values

Asked = Literal["IC", "non-IC"]
"""All symbols of the chain (implicit curriculum), or the last alone (paper, section 7)."""

AXES: dict[str, tuple[Any, ...]] = {
    "causal": (True, False), "position": ("token", "pair"), "beta2": (0.95, 0.999), "mlp_ratio": (0.0, 4.0),
}  # fmt: skip
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
SWEEPS = ("steps", "specification", "details")

STATED = {
    "chains": ("chains", 4), "symbol_dim": ("symbol dimensions", 4), "width": ("width", 128), "heads": ("heads", 8),
    "mlp_ratio": ("MLP ratio", 4.0), "batch_size": ("batch", 512), "learning_rate": ("learning rate", 1e-3),
    "weight_decay": ("weight decay", 0.1),
}  # fmt: skip
"""What the paper states (section 7.1): field → in words, and its value."""

Layers = tuple[Annotated[int, Field(ge=1, le=64)], ...]

Reading = tuple[tuple[str, Any], ...]
"""One way to read what the paper leaves open: the details that differ from the study's own, with their values."""


def words_of(reading: Reading) -> str:
    """A reading in words; nothing where it changes nothing."""
    said: dict[str, Callable[[Any], str]] = {
        "causal": lambda value: "causal" if value else "no mask",
        "position": lambda value: f"code per {value}",
        "beta2": lambda value: f"β₂ {value:g}",
        "mlp_ratio": lambda value: f"MLP {value:g}×" if value else "no MLP",
        "clip_norm": lambda value: "no clipping" if value == "none" else f"gradients clipped at {value:g}",
        "frequencies": lambda value: f"{value} frequencies",
        "order": lambda value: f"{value} order",
        "decay": lambda value: f"decay of {'matrices' if value == 'matrices' else 'all weights'}",
        "schedule": lambda value: f"{value} rate",
    }
    return ", ".join(said.get(name, str)(value) for name, value in reading)


class Cell(NamedTuple):
    """A model and its task: what the queries are asked for, retrieval steps D, layers, and a reading."""

    asked: Asked
    steps: int
    layers: int
    reading: Reading = ()

    @property
    def label(self) -> str:
        """For people, such as `IC D=3, 6 layers, no mask`."""
        words = [f"{self.asked} D={self.steps}", counted(self.layers, "layer"), words_of(self.reading)]
        return ", ".join(filter(None, words))

    @property
    def asked_steps(self) -> tuple[int, ...]:
        """Steps k of the chain that the model is asked for."""
        return tuple(range(1, self.steps + 1)) if self.asked == "IC" else (self.steps,)


class Options(Recipe):  # noqa: D101 - which goes on with that of the recipe, for the flags
    __doc__ = (
        (Recipe.__doc__ or "").rstrip()
        + """
        deepest_seeds: seeds of the deepest model with all targets, if more than of the others.
        head_size: size of a head; width / heads by default.
        layers: numbers of layers, for models that are asked for the whole chain (IC).
        layers_last: numbers of layers, for models that are asked for the last symbol alone (non-IC).
        steps: retrieval steps D of the IC models (5 in the paper).
        steps_last: retrieval steps D of the non-IC models (3 in the paper).
        sweeps: further questions: "steps" trains IC models of every depth on every D up to `most_steps`;
            "specification" goes through all combinations of four details that the paper leaves open; "details"
            changes each of eleven by itself.
        details: which of them the sweep "details" changes.
        sweep_seeds: seeds of a sweep's configurations.
        sweep_layers: numbers of layers of these two sweeps; empty means 1, the middle and the largest.
        most_steps: largest D of the sweep over D.
    """
    )

    deepest_seeds: int = Field(6, ge=1)
    head_size: int | None = Field(None, ge=1)
    layers: Layers = (1, 2, 3, 4, 5, 6)
    layers_last: Layers = (1, 2, 3, 4, 5, 6)
    steps: int = Field(2, ge=1, le=64)
    steps_last: int = Field(2, ge=1, le=64)
    sweeps: tuple[str, ...] = ()
    details: tuple[str, ...] = DETAILS
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
        return self

    # Which models there are; `completion` is the study's own.

    def steps_of(self, asked: Asked) -> int:
        """D of the models that are asked so, but for those of the sweep over D."""
        return self.steps if asked == "IC" else self.steps_last

    @property
    def base(self) -> list[Cell]:
        """Both panels of Figure 4: all depths, with all targets and with the last alone."""
        last = [Cell("non-IC", self.steps_last, layers) for layers in self.layers_last]
        return [Cell("IC", self.steps, layers) for layers in self.layers] + last

    def cells(self, completion: CompletionName, seeds: int = 1) -> dict[Cell, int]:
        """Every configuration with its number of seeds; of one that comes twice, the larger number counts."""
        found: dict[Cell, int] = dict.fromkeys(self.base, seeds)

        def add(some: Iterable[Cell], seeds: int) -> None:
            found.update({each: max(seeds, found.get(each, 0)) for each in some})

        if self.layers:
            add([Cell("IC", self.steps, self.layers[-1])], self.deepest_seeds)
        if "steps" in self.sweeps:
            every = product(range(1, self.most_steps + 1), self.layers)
            add([Cell("IC", steps, layers) for steps, layers in every], self.sweep_seeds)
        if len(readings := self.readings(completion)) > 1:
            middle = {self.layers[len(self.layers) // 2], self.layers[-1]} if self.layers else set()
            swept: Any = product(readings, ("IC", "non-IC"), self.sweep_layers or sorted({1, *middle}))
            cells = [Cell(asked, self.steps_of(asked), layers, reading) for reading, asked, layers in swept]
            add(cells, self.sweep_seeds)
        return found

    def readings(self, completion: CompletionName) -> list[Reading]:
        """The readings that are tried, as changes of the study's own, which comes first."""
        found: list[Reading] = [()]
        for values in product(*AXES.values()) if "specification" in self.sweeps else ():
            chosen = zip(AXES, values, strict=True)
            found.append(
                tuple((name, value) for name, value in chosen if value != self.own(name, completion))
            )
        for name in self.details if "details" in self.sweeps else ():
            others = (value for value in {**AXES, **FURTHER}[name] if value != self.own(name, completion))
            found += [((name, value),) for value in others]
        return sorted(dict.fromkeys(found), key=len)

    def own(self, name: str, completion: CompletionName) -> Any:
        """What the study itself has of a detail."""
        if name == "completion":
            return completion
        if name not in COMPLETED or getattr(self, name) is not None:
            return getattr(self, name)
        said = completion_values(completion, Training(steps=self.training_steps))
        both = {**said["model"], **said["training"], "beta2": said["training"]["betas"][1]}
        return "none" if both[name] is None else both[name]

    def under(self, reading: Reading) -> "Options":
        """The options under a reading: under a completion, fields that the options give are those of it."""
        changes = {name: value for name, value in reading if name != "completion"}
        own = dict.fromkeys(COMPLETED) if len(changes) < len(reading) else {}
        return self.model_copy(update={**own, **changes})

    def fields_of(self, cell: Cell) -> dict[str, Any]:
        """All fields of a configuration that the options decide."""
        here, targets = self.under(cell.reading), "ic" if cell.asked == "IC" else "last"
        found = here.overrides(cell.steps, targets, cell.layers, here.head_size)
        return found | {name: value for name, value in cell.reading if name == "completion"}

    def deviations(self, cell: Cell) -> list[str]:
        """How a configuration departs from what the paper states (section 7.1), in words; none is at scale."""
        here, steps = self.under(cell.reading), 5 if cell.asked == "IC" else 3
        changed = [f"{self.training_steps:,} of 10,000 steps"] * (self.training_steps < 10_000)
        changed += [f"D {cell.steps}, not {steps}"] * (cell.steps != steps)
        for name, (words, said) in STATED.items():
            if (value := getattr(here, name)) != said:
                changed.append(f"{words} {value:g}, not {said:g}")
        found = "fresh samples" if here.pool is None else f"a pool of {here.pool:,}"
        return changed + [f"{found}, not a pool of 2²⁰"] * (here.pool != 2**20)
