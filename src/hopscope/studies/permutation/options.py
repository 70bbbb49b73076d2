"""What the permutation study trains: names of models with their data, and the grid that is made of them."""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, model_validator

from hopscope.config import Config
from hopscope.studies.chains.recipe import check_names
from hopscope.tasks.permutation import LARGEST_LISTED

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")

Epochs = Annotated[float, Field(gt=0.0, le=1e6)]


def _slots(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("+")))


_NAME = re.compile(r"d(\d+)/(\d+) (plain|repeats)((?: \w+=\S+)*)")
CHANGES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "V": ("task.values", int), "ratio": ("task.repeat_ratio", float), "slots": ("task.repeat_slots", _slots),
    "sources": ("task.repeat_sources", _slots), "positions": ("model.positions", str),
    "batch": ("training.batch_size", int), "epochs": ("epochs", TypeAdapter(Epochs).validate_python),
    "split": ("task.split_seed", int),
}  # fmt: skip
"""What may stand behind a name → the field that it changes, and how its value is read."""


class Cell(NamedTuple):
    """A model and its data.

    Attributes:
        name: `d<width>/<heads> plain|repeats`, and what differs from the study behind it; labels it everywhere.
        bare: the name of the same model and data under the study's batch size, epochs and split.
        width, heads: of the model.
        data: `plain`, or `repeats` where training has them.
        changes: what differs (`V`, `ratio`, `slots` …), with its values.
    """

    name: str
    bare: str
    width: int
    heads: int
    data: str
    changes: dict[str, Any]

    @classmethod
    def parse(cls, name: str, width: int | None = None, heads: int | None = None) -> Self:
        """From its name, but for a width or heads that are given; a `ValueError` if that is no name."""
        match = _NAME.fullmatch(name)
        words = match[4].split() if match else []
        texts = dict(word.split("=", 1) for word in words)
        try:
            if match is None or len(texts) < len(words):
                raise ValueError
            changes = {key: CHANGES[key][1](text) for key, text in texts.items()}
        except (KeyError, ValueError):
            wanted = f"'d32/2 repeats', or 'd32/2 repeats V=4' with each of {', '.join(CHANGES)} at most once"
            raise ValueError(f"configurations: expected names such as {wanted}, found {name!r}") from None
        width, heads = width or int(match[1]), heads or int(match[2])
        stem = f"d{width}/{heads} {match[3]}"
        kept = [word for word in words if word.partition("=")[0] not in ("batch", "epochs", "split")]
        return cls(" ".join([stem, *words]), " ".join([stem, *kept]), width, heads, match[3], changes)


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


class Options(Config):
    """What is trained, and how much of it is measured.

    Attributes:
        configurations: such as "d32/2 repeats": width 32, 2 heads, training with repeats; V=, ratio=, slots=, sources=,
            positions=, batch=, epochs= and split= may follow, as in "d32/2 repeats V=4 batch=128".
        all_configurations: the five configurations of the presentation's argument instead.
        sweeps: further configurations by question: batch, batches, epochs, splits, positions, memorisation, values,
            capacity, ratio, slots.
        sweep_seeds: seeds of the configurations of a sweep on which no claim hangs.
        width: of every model, in place of the one in its name.
        heads: number of heads of every model, in place of the one in its name.
        epochs_plain: length of training on plain data.
        epochs_repeats: length of training on data with repeats.
        samples_per_epoch: samples of one epoch.
        evaluation_limit: largest set of sequences that is gone through in full.
        measurements: all, or only the basic ones: no causal tests, head roles, attention, explorer or circuits.
        circuits: read the circuit of the first seed of each configuration that is measured in full.
    """

    configurations: tuple[str, ...] = PUBLISHED
    all_configurations: bool = False
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(3, ge=1)
    width: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    epochs_plain: Epochs = 20
    epochs_repeats: Epochs = 50
    samples_per_epoch: int = Field(100_000, ge=1, le=10**9)
    evaluation_limit: int = Field(LARGEST_LISTED, ge=1)
    measurements: Literal["all", "basic"] = "all"
    circuits: bool = False

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        check_names("sweeps", self.sweeps, SWEEPS)
        self.grid  # noqa: B018 - names are read here
        return self

    @cached_property
    def grid(self) -> dict[str, Cell]:
        """All configurations by name; those of the sweeps last."""
        return self.of_sweeps(*SWEEPS)

    @cached_property
    def claimed(self) -> dict[str, Cell]:
        """Those that are asked for themselves, or by a sweep on which a claim hangs; the others are swept."""
        return self.of_sweeps("batch", "batches", "epochs", "splits", "positions", "memorisation")

    @cached_property
    def whole(self) -> set[str]:
        """Names of those of which everything is measured."""
        full = self.of_sweeps("batch", "positions", "memorisation")
        return {*full} if self.measurements == "all" else set()

    @cached_property
    def base(self) -> list[str]:
        """What the page is about first: without changes, where there are such."""
        return [name for name, cell in self.claimed.items() if not cell.changes] or [*self.claimed]

    def of_sweeps(self, *sweeps: str) -> dict[str, Cell]:
        """What is asked for itself, and what belongs to those of some sweeps that are asked for."""
        asked = ALL if self.all_configurations else self.configurations
        names = [*asked, *(name for sweep in self.sweeps if sweep in sweeps for name in SWEEPS[sweep])]
        return {cell.name: cell for cell in (Cell.parse(name, self.width, self.heads) for name in names)}

    def epochs(self, cell: Cell) -> float:
        by_data = self.epochs_plain if cell.data == "plain" else self.epochs_repeats
        return cell.changes.get("epochs") or by_data
