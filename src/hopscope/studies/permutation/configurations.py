"""What is trained: a model, the data it learns from, and how it departs from the presentation, as one readable name."""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

PUBLISHED = ("d16/1 plain", "d32/2 repeats")
ALL = ("d16/1 plain", "d16/1 repeats", "d32/1 repeats", "d32/2 repeats", "d32/2 plain")

_NAME = re.compile(r"d(?P<width>\d+)/(?P<heads>\d+) (?P<data>plain|repeats)(?P<changes>( \w+=\S+)*)")
_KEYS = {"V": "values", "ratio": "repeat_ratio", "slots": "repeat_slots", "sources": "repeat_sources",
         "positions": "positions", "batch": "batch_size"}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """A model and the data it learns from, written `d<width>/<heads> plain|repeats [V=…] [ratio=…] …`.

    Attributes:
        width, heads: of the model.
        data: whether training has repeats.
        values, repeat_ratio, repeat_slots, repeat_sources, positions, batch_size: fields of the study's configuration
            that differ here; `None` means the study's.
    """

    width: int
    heads: int
    data: Literal["plain", "repeats"]
    values: int | None = None
    repeat_ratio: float | None = None
    repeat_slots: tuple[int, ...] | None = None
    repeat_sources: tuple[int, ...] | None = None
    positions: Literal["learned", "pair", "none"] | None = None
    batch_size: int | None = None

    @classmethod
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
        changes: dict[str, Any] = {}
        for key, _, text in (word.partition("=") for word in match["changes"].split()):
            if key not in _KEYS or _KEYS[key] in changes:
                raise ValueError(
                    f"configurations: expected each of {', '.join(_KEYS)} at most once, found {key!r} in {name!r}"
                )
            changes[_KEYS[key]] = _read(key, text, name)
        data: Literal["plain", "repeats"] = "plain" if match["data"] == "plain" else "repeats"
        return cls(int(match["width"]), int(match["heads"]), data, **changes)

    @property
    def name(self) -> str:
        """Its written form."""
        changed = [f" {key}={_written(value)}" for key, value in self._by_key().items() if value is not None]
        return f"d{self.width}/{self.heads} {self.data}{''.join(changed)}"

    @property
    def changes(self) -> dict[str, Any]:
        """Fields of the study's configuration that differ here."""
        return {_KEYS[key]: value for key, value in self._by_key().items() if value is not None}

    def of_batch(self, batch_size: int | None) -> "Configuration":
        """The same with another batch size."""
        return replace(self, batch_size=batch_size)

    def of_values(self, values: int | None) -> "Configuration":
        """The same with another number of values."""
        return replace(self, values=values)

    def overrides(self) -> dict[str, Any]:
        """For the run's list of members: everything that tells this configuration from others."""
        return {"width": self.width, "heads": self.heads, "data": self.data, **self.changes}

    def _by_key(self) -> dict[str, Any]:
        return {key: getattr(self, field) for key, field in _KEYS.items()}


def _read(key: str, text: str, name: str) -> Any:
    try:
        if key in ("V", "batch"):
            return int(text)
        if key in ("slots", "sources"):
            return tuple(int(part) for part in text.split("+"))
        if key == "ratio":
            return float(text)
    except ValueError:
        raise ValueError(
            f"configurations: expected a number after {key}=, found {text!r} in {name!r}"
        ) from None
    if text not in ("learned", "pair", "none"):
        raise ValueError(
            f"configurations: expected positions=learned, pair or none, found {text!r} in {name!r}"
        )
    return text


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Sweep:
    """A question that takes more configurations.

    Attributes:
        question: in words.
        configurations: names.
        all_seeds: whether a claim hangs on it, so that it has as many seeds as the study, not as a sweep.
    """

    question: str
    configurations: tuple[str, ...]
    all_seeds: bool = False


SWEEPS: dict[str, Sweep] = {
    "batch": Sweep(
        "another reading of the batch size, which the source does not state",
        ("d16/1 plain batch=128", "d32/2 repeats batch=128"),
        all_seeds=True,
    ),
    "positions": Sweep(
        "without position codes, and with one shared by the two tokens of a pair",
        ("d32/2 repeats positions=none", "d32/2 repeats positions=pair"),
        all_seeds=True,
    ),
    "memorisation": Sweep("can four values be memorised?", ("d32/2 plain V=4",), all_seeds=True),
    "values": Sweep(
        "the number of values: memorisation on plain data, recall with repeats",
        (
            *(f"d32/2 plain V={values}" for values in (3, 6, 7, 8)),
            *(f"d32/2 repeats V={values}" for values in (3, 4, 6, 7, 8)),
        ),
    ),
    "capacity": Sweep(
        "width and heads",
        tuple(
            f"d{width}/{heads} repeats"
            for width, heads in (
                (8, 1),
                (8, 2),
                (16, 2),
                (24, 1),
                (24, 2),
                (32, 4),
                (48, 2),
                (64, 1),
                (64, 2),
            )
        ),
    ),
    "ratio": Sweep(
        "the share of repeats in training",
        tuple(f"d32/2 repeats ratio={ratio}" for ratio in (0.05, 0.1, 0.2, 0.5, 0.8, 1)),
    ),
    "slots": Sweep(
        "which slots repeat in training, against which are tested",
        (
            *(f"d32/2 repeats slots={slots}" for slots in ("2", "3", "4", "2+3+4+5")),
            *(f"d32/2 repeats sources={source}" for source in (1, 4)),
        ),
    ),
}
"""Sweeps of the study, by name."""
