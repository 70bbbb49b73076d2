"""What the permutation study trains: names of models with their data, the grid, and how it stands to the source."""

import math
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line, values_of
from hopscope.models.config import Init
from hopscope.training.config import Beta

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")

_NAME = re.compile(r"d(?P<width>\d+)/(?P<heads>\d+) (?P<data>plain|repeats)(?P<changes>( \w+=\S+)*)")
_KEYS = {"V": "values", "ratio": "repeat_ratio", "slots": "repeat_slots", "sources": "repeat_sources",
         "positions": "positions", "batch": "batch_size", "epochs": "epochs", "split": "split_seed"}  # fmt: skip
_OPTION = {"epochs": "epochs_plain"}  # of the options, where it has another name there

Epochs = Annotated[float, Field(gt=0.0, le=1e6)]


class Cell(NamedTuple):
    """A model and its data, written `d<width>/<heads> plain|repeats`, and what differs from the options behind it.

    Attributes:
        width, heads: of the model.
        data: `plain`, or `repeats` where training has them.
        changes: options that differ here, with their values (`V=`, `ratio=`, `slots=` …); `epochs` stands for both.
    """

    width: int
    heads: int
    data: str
    changes: tuple[tuple[str, Any], ...] = ()

    @classmethod
    @lru_cache(maxsize=4096)  # claims of a large grid ask for the same few names again and again
    def parse(cls, name: str) -> Self:
        """From its written form; a `ValueError` if that is another one."""
        match = _NAME.fullmatch(name)
        if match is None:
            wanted = "expected names such as 'd32/2 repeats' or 'd32/2 repeats V=4'"
            raise ValueError(f"configurations: {wanted}, found {name!r}")
        words = [word.split("=", 1) for word in match["changes"].split()]
        for key, _ in words:
            if key not in _KEYS or sum(key == other for other, _ in words) > 1:
                wanted = f"expected each of {', '.join(_KEYS)} at most once"
                raise ValueError(f"configurations: {wanted}, found {key!r} in {name!r}")
        given = {_KEYS[key]: text.split("+") if key in ("slots", "sources") else text for key, text in words}
        own = {field: _OPTION.get(field, field) for field in _KEYS.values() if field in given}
        try:  # as options, which without changes would be asked for themselves
            options = Options.model_validate({own[field]: given[field] for field in own}) if own else None
        except ValidationError as error:
            raise ValueError(f"configurations: {name!r}: {validation_line(error)}") from None
        changes = tuple((field, getattr(options, option)) for field, option in own.items())
        return cls(int(match["width"]), int(match["heads"]), match["data"], changes)

    @property
    def name(self) -> str:
        """Its written form, which labels it everywhere."""
        keys = {field: key for key, field in _KEYS.items()}
        written = [f" {keys[field]}={_written(value)}" for field, value in self.changes]
        return f"d{self.width}/{self.heads} {self.data}{''.join(written)}"

    @property
    def bare(self) -> str:
        """The name of the same model and data under the options' batch size, epochs and split."""
        return self.without("batch_size", "epochs", "split_seed").name

    def get(self, field: str) -> Any:
        """The value of an option that differs here; `None` where it does not."""
        return dict(self.changes).get(field)

    def without(self, *fields: str) -> Self:
        """The same without some changes."""
        return self._replace(changes=tuple(each for each in self.changes if each[0] not in fields))


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Sweep(NamedTuple):
    """Configurations of a further question.

    Attributes:
        names: of the configurations.
        claimed: whether a claim hangs on it: then it has as many seeds as the study.
        whole: whether everything is measured of it, or the basic numbers alone.
    """

    names: tuple[str, ...]
    claimed: bool = False
    whole: bool = False


_CLAIMED = ("d16/1 plain", "d32/2 repeats", "d32/2 plain", "d32/2 plain V=4")
_SIZES = ("8/1", "8/2", "16/2", "24/1", "24/2", "32/4", "48/2", "64/1", "64/2")
SWEEPS = {
    "batch": Sweep(("d16/1 plain batch=128", "d32/2 repeats batch=128"), True, True),
    "batches": Sweep(
        (*(f"{name} batch={size}" for size in (64, 128, 512) for name in (*ALL, "d32/2 plain V=4")),), True
    ),
    "epochs": Sweep(
        (*(f"{name} repeats epochs=20" for name in ("d16/1", "d32/1", "d32/2")), "d16/1 plain epochs=50",
         "d32/2 plain epochs=200", "d32/2 plain V=4 epochs=200"), True,
    ),
    "splits": Sweep((*(f"{name} split={split}" for split in range(1, 10) for name in _CLAIMED),), True),
    "positions": Sweep(("d32/2 repeats positions=none", "d32/2 repeats positions=pair"), True, True),
    "memorisation": Sweep(("d32/2 plain V=4",), True, True),
    "values": Sweep((*(f"d32/2 plain V={values}" for values in (3, 6, 7, 8)),
                     *(f"d32/2 repeats V={values}" for values in (3, 4, 6, 7, 8)))),
    "capacity": Sweep((*(f"d{size} repeats" for size in _SIZES),)),
    "ratio": Sweep((*(f"d32/2 repeats ratio={ratio}" for ratio in (0.05, 0.1, 0.2, 0.5, 0.8, 1)),)),
    "slots": Sweep((*(f"d32/2 repeats slots={slots}" for slots in ("2", "3", "4", "2+3+4+5")),
                    "d32/2 repeats sources=1", "d32/2 repeats sources=4")),
}  # fmt: skip
"""Other batches, lengths, splits of the mappings, position codes; memorising four values; and one thing at a time."""

STATED = {
    "values": "V", "held_out_share": "held-out share", "learning_rate": "learning rate", "optimizer": "optimiser",
    "mlp_ratio": "MLP ratio", "activation": "activation", "norm": "norm", "positions": "positions",
    "weight_decay": "weight decay", "clip_norm": "clipping",
}  # fmt: skip
"""Options whose values the presentation states, in words: they are the defaults."""

STATED_OF_REPEATS = {
    "repeat_ratio": "repeat ratio", "repeat_slots": "repeat slots", "repeat_sources": "repeat sources",
}  # fmt: skip

_FIELDS = {
    "model": ("mlp_ratio", "activation", "norm", "positions", "init"),
    "task": ("values", "repeat_slots", "repeat_sources", "split_seed", "held_out_share"),
    "training": ("batch_size", "learning_rate", "optimizer", "betas", "weight_decay", "clip_norm",
                 "checkpoint_every", "evaluate_every"),
}  # fmt: skip
"""Where options go."""

_EPOCHS = {"plain": 20, "repeats": 50}  # presentation, section 12
_PUBLISHED_SAMPLES = 100_000


class Reading(NamedTuple):
    """A way to read what the presentation leaves open; without `epochs`, each kind of data has its stated length."""

    batch_size: int
    epochs: float | None
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """In words, such as `batch 256, 20 epochs`."""
        length = () if self.epochs is None else (f"{self.epochs:g} epochs",)
        return ", ".join((f"batch {self.batch_size}", *length, *self.more))


class Options(Config):
    """What is trained and how, and how much of it is measured.

    Attributes:
        configurations: such as "d32/2 repeats": width 32, 2 heads, 30 % repeats; V=, ratio=, slots=, sources=,
            positions=, batch=, epochs= and split= may follow, as in "d32/2 repeats V=4 batch=128".
        all_configurations: the five configurations of the presentation's argument instead.
        sweeps: further configurations by question: batch, batches, epochs, splits, positions, memorisation, values,
            capacity, ratio, slots.
        sweep_seeds: seeds of the configurations of a sweep on which no claim hangs.
        width, heads: another width, or number of heads, for every configuration.
        values: V, the number of values (5 in the presentation).
        repeat_ratio: share of training sequences with a repeat, in the configurations with repeats.
        repeat_slots: slots that may be the repeat; empty means the last.
        repeat_sources: slots that may be repeated; empty means all before.
        split_seed: seed of the split into training and held-out mappings.
        held_out_share: share of the mappings that is held out.
        epochs_plain, epochs_repeats: length of training on plain data, and on data with repeats.
        samples_per_epoch: samples of one epoch.
        batch_size: samples per step; the presentation does not state it.
        learning_rate, optimizer, betas, weight_decay: adam, or adamw with decoupled weight decay.
        clip_norm: largest gradient norm of a member; none by default.
        mlp_ratio: hidden size of the MLP in widths; 0 means no MLP.
        activation: of the MLP.
        norm: where layer norms stand.
        positions: learned position codes, one for each position or for each pair, or none.
        init: starting weights, as torch's encoder layer or another start of `model.init`.
        checkpoint_every, evaluate_every: steps between checkpoints, and between evaluations.
        evaluation_limit: largest evaluation set that is gone through in full.
        measurements: all, or only the basic ones: no causal tests, head roles, formation, explorer or circuits.
        circuits: read the circuit of the first seed of each configuration that is measured in full.
    """

    configurations: tuple[str, ...] = PUBLISHED
    all_configurations: bool = False
    sweeps: tuple[str, ...] = ()
    sweep_seeds: int = Field(3, ge=1)
    width: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    values: int = Field(5, ge=3, le=12)
    repeat_ratio: float = Field(0.3, ge=0.0, le=1.0)
    repeat_slots: tuple[int, ...] = ()
    repeat_sources: tuple[int, ...] = ()
    split_seed: int = Field(0, ge=0)
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    epochs_plain: Epochs = 20
    epochs_repeats: Epochs = 50
    samples_per_epoch: int = Field(_PUBLISHED_SAMPLES, ge=1, le=10**9)
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
    circuits: bool = False

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        if not (self.all_configurations or self.configurations):
            raise ValueError(f"configurations: expected at least one, such as {PUBLISHED[0]!r}, found none")
        for name in self.sweeps:
            if name not in SWEEPS:
                raise ValueError(f"sweeps: expected some of {', '.join(SWEEPS)}, found {name!r}")
        self.grid  # noqa: B018 - names are read here
        return self

    # Which configurations there are.

    @cached_property
    def _asked(self) -> list[Cell]:
        return self._resized(ALL if self.all_configurations else self.configurations)

    @cached_property
    def grid(self) -> list[Cell]:
        """All of them, each once; those of the sweeps last."""
        swept = [cell for name in self.sweeps for cell in self.of_sweep(name)]
        return [*dict.fromkeys([*self._asked, *swept])]

    @cached_property
    def claimed(self) -> list[Cell]:
        """Those that are asked for themselves, or by a sweep on which a claim hangs; the others are swept."""
        swept = (cell for name in self.sweeps if SWEEPS[name].claimed for cell in self.of_sweep(name))
        return [*dict.fromkeys([*self._asked, *swept])]

    @cached_property
    def whole(self) -> set[str]:
        """Names of those of which everything is measured."""
        swept = (cell for name in self.sweeps if SWEEPS[name].whole for cell in self.of_sweep(name))
        return {cell.name for cell in (*self._asked, *swept)} if self.measurements == "all" else set()

    @cached_property
    def base(self) -> list[Cell]:
        """What the page is about first: without changes, or else with the same number of values."""
        asked = [cell for cell in self.claimed if not cell.changes]
        return asked or [cell for cell in self.claimed if cell.get("values") in (None, self.values)]

    def of_sweep(self, name: str) -> list[Cell]:
        """The configurations of a sweep, each once."""
        return self._resized(SWEEPS[name].names)

    def _resized(self, names: Iterable[str]) -> list[Cell]:
        size = {name: value for name in ("width", "heads") if (value := getattr(self, name)) is not None}
        cells = [Cell.parse(name) for name in names]
        return [*dict.fromkeys(cell._replace(**size) for cell in cells)]

    # What one of them is.

    def of(self, cell: Cell) -> "Options":
        """The options with the changes of a configuration."""
        changes = dict(cell.changes)
        if "epochs" in changes:
            changes["epochs_plain"] = changes["epochs_repeats"] = changes.pop("epochs")
        return Options.model_construct(**{**values_of(self), **changes})

    def epochs(self, cell: Cell) -> float:
        """Length of a configuration's training."""
        here = self.of(cell)
        return here.epochs_plain if cell.data == "plain" else here.epochs_repeats

    def overrides(self, cell: Cell) -> dict[str, Any]:
        """Every field of task, model and training that options decide: none of them can be given apart."""
        here = self.of(cell)
        steps = math.ceil(self.epochs(cell) * here.samples_per_epoch / here.batch_size)
        return {
            "model.layers": 1, "model.width": cell.width, "model.heads": cell.heads, "training.steps": max(1, steps),
            "task.repeat_ratio": 0.0 if cell.data == "plain" else here.repeat_ratio,
            **{f"{section}.{name}": getattr(here, name) for section, names in _FIELDS.items() for name in names},
        }  # fmt: skip

    # How they stand to the source.

    @cached_property
    def readings(self) -> list[Reading]:
        """Ways to read what the presentation leaves open that the grid has: the options' own first."""
        batches = {size for cell in self.grid if (size := cell.get("batch_size"))} - {self.batch_size}
        lengths = {length for cell in self.grid if (length := cell.get("epochs"))}
        changed = self._changed(("init", "betas", "split_seed"))
        more = tuple(f"{name} {value}" for name, (value, _) in changed.items())
        return [
            Reading(self.batch_size, None, more),
            *(Reading(size, None, more) for size in sorted(batches, reverse=True)),
            *(Reading(self.batch_size, length, more) for length in sorted(lengths)),
        ]

    def is_of(self, cell: Cell, reading: Reading) -> bool:
        """Whether a configuration is trained as a reading says."""
        if (cell.get("batch_size") or self.batch_size) != reading.batch_size:
            return False
        return cell.get("epochs") is None if reading.epochs is None else self.epochs(cell) == reading.epochs

    def trained(self, name: str, reading: Reading) -> list[Cell]:
        """Configurations of a bare name that are trained as a reading says; those of other splits last."""
        found = [cell for cell in self.grid if cell.bare == name and self.is_of(cell, reading)]
        return sorted(found, key=lambda cell: cell.get("split_seed") is not None)

    def departures(self, cell: Cell) -> list[str]:
        """How the training of a configuration departs from what the presentation states; none is at its scale."""
        here = self.of(cell)
        stated = STATED | (STATED_OF_REPEATS if cell.data == "repeats" else {})
        found = here._changed(stated).items()
        changed = [f"{stated[name]} {value} instead of {said}" for name, (value, said) in found]
        trained = here.epochs(cell) * here.samples_per_epoch / _PUBLISHED_SAMPLES
        # Two lengths are stated, each for one model: for the others, both are readings of it.
        published = _EPOCHS[cell.data if cell.get("epochs") is None else "plain"]
        return [f"{trained:g} of {published} epochs", *changed] if trained < published else changed

    def _changed(self, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
        found = {name: (getattr(self, name), Options.model_fields[name].default) for name in names}
        return {name: (value, default) for name, (value, default) in found.items() if value != default}
