"""What the permutation study trains: names of models with their data, and the grid that is made of them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.studies.chains.recipe import check_names

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")

Epochs = Annotated[float, Field(gt=0.0, le=1e6)]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("+")))


def _epochs(text: str) -> float:
    if not 0.0 < float(text) <= 1e6:
        raise ValueError
    return float(text)


_NAME = re.compile(r"d(\d+)/(\d+) (plain|repeats)((?: \w+=\S+)*)")
_CHANGES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "V": ("task.values", int), "ratio": ("task.repeat_ratio", float), "slots": ("task.repeat_slots", _numbers),
    "sources": ("task.repeat_sources", _numbers), "positions": ("model.positions", str),
    "batch": ("training.batch_size", int), "epochs": ("epochs", _epochs), "split": ("task.split_seed", int),
}  # fmt: skip
"""What may stand behind a name → the field that it changes, and how its value is read."""


class Cell(NamedTuple):
    """A model and its data, written `d<width>/<heads> plain|repeats`, and what differs from the study behind it.

    Attributes:
        width, heads: of the model.
        data: `plain`, or `repeats` where training has them.
        changes: what differs (`V`, `ratio`, `slots` …), with its values.
    """

    width: int
    heads: int
    data: str
    changes: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, name: str) -> Self:
        """From its written form; a `ValueError` if that is another one."""
        match = _NAME.fullmatch(name)
        if match is None:
            wanted = "expected names such as 'd32/2 repeats' or 'd32/2 repeats V=4'"
            raise ValueError(f"configurations: {wanted}, found {name!r}")
        width, heads, data, written = match.groups()
        changes = dict[str, Any]()
        for key, _, text in (word.partition("=") for word in written.split()):
            if key not in _CHANGES or key in changes:
                wanted = f"expected each of {', '.join(_CHANGES)} at most once"
                raise ValueError(f"configurations: {wanted}, found {key!r} in {name!r}")
            try:
                changes[key] = _CHANGES[key][1](text)
            except ValueError:
                raise ValueError(
                    f"configurations: expected a value of {key}, found {text!r} in {name!r}"
                ) from None
        return cls(int(width), int(heads), data, tuple(changes.items()))

    @property
    def name(self) -> str:
        """Its written form, which labels it everywhere."""
        written = "".join(f" {key}={_written(value)}" for key, value in self.changes)
        return f"d{self.width}/{self.heads} {self.data}{written}"

    @property
    def bare(self) -> str:
        """The name of the same model and data under the study's batch size, epochs and split."""
        kept = tuple(each for each in self.changes if each[0] not in ("batch", "epochs", "split"))
        return self._replace(changes=kept).name

    def get(self, key: str) -> Any:
        """The value of what differs here; `None` where it does not."""
        return dict(self.changes).get(key)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


_CLAIMED = ("d16/1 plain", "d32/2 repeats", "d32/2 plain", "d32/2 plain V=4")
_SIZES = ("8/1", "8/2", "16/2", "24/1", "24/2", "32/4", "48/2", "64/1", "64/2")
SWEEPS: Mapping[str, tuple[str, ...]] = {
    "batch": ("d16/1 plain batch=128", "d32/2 repeats batch=128"),
    "batches": (*(f"{name} batch={size}" for size in (64, 128, 512) for name in (*ALL, "d32/2 plain V=4")),),
    "epochs": (*(f"{name} repeats epochs=20" for name in ("d16/1", "d32/1", "d32/2")), "d16/1 plain epochs=50",
               "d32/2 plain epochs=200", "d32/2 plain V=4 epochs=200"),
    "splits": (*(f"{name} split={split}" for split in range(1, 10) for name in _CLAIMED),),
    "positions": ("d32/2 repeats positions=none", "d32/2 repeats positions=pair"),
    "memorisation": ("d32/2 plain V=4",),
    "values": (*(f"d32/2 plain V={values}" for values in (3, 6, 7, 8)),
               *(f"d32/2 repeats V={values}" for values in (3, 4, 6, 7, 8))),
    "capacity": (*(f"d{size} repeats" for size in _SIZES),),
    "ratio": (*(f"d32/2 repeats ratio={ratio}" for ratio in (0.05, 0.1, 0.2, 0.5, 0.8, 1)),),
    "slots": (*(f"d32/2 repeats slots={slots}" for slots in ("2", "3", "4", "2+3+4+5")),
              "d32/2 repeats sources=1", "d32/2 repeats sources=4"),
}  # fmt: skip
"""Further question → configurations: other batches, lengths, splits of the mappings, position codes; memorising four
values; and one thing at a time."""

WITH_CLAIMS = ("batch", "batches", "epochs", "splits", "positions", "memorisation")
"""Sweeps on which a claim hangs: they have as many seeds as the study."""

IN_FULL = ("batch", "positions", "memorisation")
"""Sweeps of which everything is measured, and not the basic numbers alone."""


class Options(Config):
    """What is trained, and how much of it is measured.

    Attributes:
        configurations: such as "d32/2 repeats": width 32, 2 heads, training with repeats; V=, ratio=, slots=, sources=,
            positions=, batch=, epochs= and split= may follow, as in "d32/2 repeats V=4 batch=128".
        all_configurations: the five configurations of the presentation's argument instead.
        sweeps: further configurations by question: batch, batches, epochs, splits, positions, memorisation, values,
            capacity, ratio, slots.
        sweep_seeds: seeds of the configurations of a sweep on which no claim hangs.
        epochs_plain, epochs_repeats: length of training on plain data, and on data with repeats.
        samples_per_epoch: samples of one epoch.
        measurements: all, or only the basic ones: no causal tests, head roles, formation, explorer or circuits.
        circuits: read the circuit of the first seed of each configuration that is measured in full.
    """

    configurations: tuple[str, ...] = PUBLISHED
    all_configurations: bool = False
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(3, ge=1)
    epochs_plain: Epochs = 20
    epochs_repeats: Epochs = 50
    samples_per_epoch: int = Field(100_000, ge=1, le=10**9)
    measurements: Literal["all", "basic"] = "all"
    circuits: bool = False

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        if not (self.all_configurations or self.configurations):
            raise ValueError(f"configurations: expected at least one, such as {PUBLISHED[0]!r}, found none")
        check_names("sweeps", self.sweeps, SWEEPS)
        self.grid  # noqa: B018 - names are read here
        return self

    @cached_property
    def grid(self) -> list[Cell]:
        """All configurations, each once; those of the sweeps last."""
        return self._with(self.sweeps)

    @cached_property
    def claimed(self) -> list[Cell]:
        """Those that are asked for themselves, or by a sweep on which a claim hangs; the others are swept."""
        return self._with(name for name in self.sweeps if name in WITH_CLAIMS)

    @cached_property
    def whole(self) -> set[str]:
        """Names of those of which everything is measured."""
        found = self._with(name for name in self.sweeps if name in IN_FULL)
        return {cell.name for cell in found} if self.measurements == "all" else set()

    @cached_property
    def base(self) -> list[Cell]:
        """What the page is about first: without changes, where there are such."""
        return [cell for cell in self.claimed if not cell.changes] or self.claimed

    def _with(self, sweeps: Iterable[str]) -> list[Cell]:
        asked = ALL if self.all_configurations else self.configurations
        names = [*asked, *(name for sweep in sweeps for name in SWEEPS[sweep])]
        return [*dict.fromkeys(map(Cell.parse, names))]

    def epochs(self, cell: Cell) -> float:
        """Length of a configuration's training."""
        return cell.get("epochs") or (self.epochs_plain if cell.data == "plain" else self.epochs_repeats)

    def overrides(self, cell: Cell, batch_size: int) -> dict[str, Any]:
        """What tells a configuration from the study, whose batch size is given."""
        changes = {_CHANGES[key][0]: value for key, value in cell.changes if key != "epochs"}
        samples = self.epochs(cell) * self.samples_per_epoch
        steps = math.ceil(samples / max(1, changes.get("training.batch_size", batch_size)))
        plain = {"task.repeat_ratio": 0.0} if cell.data == "plain" else {}
        size = {"model.layers": 1, "model.width": cell.width, "model.heads": cell.heads}
        return {**size, "training.steps": steps, **changes, **plain}
