"""What the depth study trains: depths, readings of what the paper leaves open, and how they depart from the paper."""

from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.claims.verdict import counted
from hopscope.studies.chains.evidence import few, of_plateau
from hopscope.studies.chains.recipe import COMPLETED, Recipe, check_names
from hopscope.training.config import COMPLETION_NAMES, CompletionName, Training, completion_values

Asked = Literal["IC", "non-IC"]
"""All symbols of the chain (implicit curriculum), or the last alone (paper, section 7)."""

DETAILS: dict[str, dict[Any, str]] = {
    "causal": {True: "causal", False: "no mask"},
    "position": {"token": "code per token", "pair": "code per pair"},
    "beta2": {0.95: "β₂ 0.95", 0.999: "β₂ 0.999"},
    "mlp_ratio": {0.0: "no MLP", 4.0: "MLP 4×"},
    "completion": {name: name for name in COMPLETION_NAMES},
    "frequencies": {name: f"{name} frequencies" for name in ("harmonic", "geometric")},
    "order": {name: f"{name} order" for name in ("deepest-first", "shallowest-first", "random")},
    "decay": {"matrices": "decay of matrices", "all": "decay of all weights"},
    "clip_norm": {"none": "no clipping", 1.0: "gradients clipped at 1"},
    "schedule": {name: f"{name} rate" for name in ("constant", "cosine")},
    "precision": {name: name for name in ("float32", "bfloat16")},
}
"""Details that the paper leaves open → the readings of each, with their words."""

CROSSED = ("causal", "position", "beta2", "mlp_ratio")
"""Details of which the specification curve goes through all combinations."""

STATED = {
    "chains": ("chains", 4), "symbol_dim": ("symbol dimensions", 4), "width": ("width", 128), "heads": ("heads", 8),
    "mlp_ratio": ("MLP ratio", 4.0), "batch_size": ("batch", 512), "learning_rate": ("learning rate", 1e-3),
    "weight_decay": ("weight decay", 0.1), "final_window": ("last steps whose mean is the final loss", 100),
}  # fmt: skip
"""What the paper states (section 7.1): field → in words, and its value."""

Layers = tuple[Annotated[int, Field(ge=1, le=64)], ...]

Reading = tuple[tuple[str, Any], ...]
"""One way to read what the paper leaves open: the details that differ from the study's own, with their values."""


def words_of(reading: Reading) -> str:
    """A reading in words; nothing where it changes nothing."""
    return ", ".join(DETAILS[name][value] for name, value in reading)


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
        sweeps: further questions: "specification" goes through all combinations of four details that the paper leaves
            open; "details" changes each of eleven by itself.
        details: which of them the sweep "details" changes.
        sweep_seeds: seeds of a sweep's configurations.
        sweep_layers: numbers of layers of the sweeps; empty means 1, the middle and the largest.
    """
    )

    deepest_seeds: int = Field(6, ge=1)
    head_size: int | None = Field(None, ge=1)
    layers: Layers = (1, 2, 3, 4, 5, 6)
    layers_last: Layers = (1, 2, 3, 4, 5, 6)
    steps: int = Field(2, ge=1, le=64)
    steps_last: int = Field(2, ge=1, le=64)
    sweeps: tuple[Literal["specification", "details"], ...] = ()
    details: tuple[str, ...] = tuple(DETAILS)
    sweep_seeds: int = Field(2, ge=1)
    sweep_layers: Layers = ()

    @model_validator(mode="after")
    def _plans(self) -> Self:
        for name in ("layers", "layers_last"):
            numbers = getattr(self, name)
            if list(numbers) != sorted(set(numbers)):
                raise ValueError(f"{name}: expected ascending numbers of layers, found {list(numbers)}")
        check_names("details", self.details, DETAILS)
        return self

    # Which models there are; `completion` is the study's own.

    def base(self, asked: Asked, reading: Reading = ()) -> list[Cell]:
        """One panel of Figure 4: models of all depths that are asked so."""
        steps, depths = (self.steps, self.layers) if asked == "IC" else (self.steps_last, self.layers_last)
        return [Cell(asked, steps, layers, reading) for layers in depths]

    def cells(self, completion: CompletionName, seeds: int = 1) -> dict[Cell, int]:
        """Every configuration with its number of seeds; of one that comes twice, the larger number counts."""
        found = dict.fromkeys([*self.base("IC"), *self.base("non-IC")], seeds)
        if self.layers:
            found[self.base("IC")[-1]] = max(seeds, self.deepest_seeds)
        if len(readings := self.readings(completion)) > 1:
            middle = {self.layers[len(self.layers) // 2], self.layers[-1]} if self.layers else set()
            panels: tuple[tuple[Asked, int], ...] = (("IC", self.steps), ("non-IC", self.steps_last))
            swept = self.sweep_layers or sorted({1, *middle})
            for reading, panel, layers in product(readings, panels, swept):
                cell = Cell(*panel, layers, reading)
                found[cell] = max(self.sweep_seeds, found.get(cell, 0))
        return found

    def readings(self, completion: CompletionName) -> list[Reading]:
        """The readings that are tried, as changes of the study's own, which comes first."""
        said = completion_values(completion, Training(steps=self.training_steps))
        by_completion = {**said["model"], **said["training"], "beta2": said["training"]["betas"][1]}
        own: dict[str, Any] = {"completion": completion}
        for name in DETAILS.keys() - own:
            follows = name in COMPLETED and getattr(self, name) is None
            own[name] = by_completion[name] if follows else getattr(self, name)
        own["clip_norm"] = own["clip_norm"] or "none"
        crossed, single = "specification" in self.sweeps, "details" in self.sweeps
        every = product(*(DETAILS[name] for name in CROSSED)) if crossed else ()
        tried: list[Any] = [zip(CROSSED, each, strict=True) for each in every]
        tried += [[(name, value)] for name in self.details for value in DETAILS[name]] if single else []
        found = [tuple((name, value) for name, value in each if value != own[name]) for each in tried]
        return sorted(dict.fromkeys([(), *found]), key=len)

    def under(self, reading: Reading) -> "Options":
        """The options under a reading: under a completion, fields that the options give are those of it."""
        changes = {name: value for name, value in reading if name != "completion"}
        own = dict.fromkeys(COMPLETED) if len(changes) < len(reading) else {}
        return self.model_copy(update={**own, **changes})

    def of_plateau(self, loss: float) -> float:
        """See `hopscope.studies.chains.evidence.of_plateau`."""
        return of_plateau(loss, self.chains)

    def fields_of(self, cell: Cell) -> dict[str, Any]:
        here, targets = self.under(cell.reading), "ic" if cell.asked == "IC" else "last"
        found = here.overrides(cell.steps, targets, cell.layers, here.head_size)
        return found | {name: value for name, value in cell.reading if name == "completion"}

    def deviations(self, asked: Asked, reading: Reading = ()) -> list[str]:
        """How models depart from what the paper states (section 7.1), in words; none is at scale."""
        here, (steps, said) = self.under(reading), (self.steps, 5) if asked == "IC" else (self.steps_last, 3)
        changed = few(self.training_steps, 10_000, "steps")
        changed += [f"D {steps}, not {said}"] * (steps != said)
        for name, (words, stated) in STATED.items():
            if (value := getattr(here, name)) != stated:
                changed.append(f"{words} {value:g}, not {stated:g}")
        found = "fresh samples" if here.pool is None else f"a pool of {here.pool:,}"
        return changed + [f"{found}, not a pool of 2²⁰"] * (here.pool != 2**20)
