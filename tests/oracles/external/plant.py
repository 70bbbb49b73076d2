"""What a plant is: a model, samples of its task, and the truth about what it reads, all as plain data and numpy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Read = tuple[int, int, str, str]
"""Layer, head, the rows that read and the keys that they read; what these words mean says `Plant.linked`."""

Pairs = set[tuple[int, int]]
"""(row, key), both positions of one sample."""


@dataclass(frozen=True)
class Plant:
    """A model whose circuit is known because it was set by hand.

    Attributes:
        name: of no other plant.
        task: configuration of the task that it solves, as plain values.
        shape, weights: of the model.
        samples: seed and number → inputs and right answers, drawn by this folder's own code.
        embed: inputs of one sample → its stream before the first layer.
        linked: inputs of one sample, name of rows, name of keys → positions that belong together.
        minimal: every set of reads that is enough.
        outside: places (layer, head) of reads that no rule of the reader's kind describes; empty for most plants.
    """

    name: str
    task: Mapping[str, object]
    shape: Mapping[str, object]
    weights: Mapping[str, np.ndarray]
    samples: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    embed: Callable[[np.ndarray], np.ndarray]
    linked: Callable[[np.ndarray, str, str], Pairs]
    minimal: tuple[frozenset[Read], ...]
    outside: tuple[tuple[int, int], ...] = ()

    @property
    def kind(self) -> str:
        """Name of the task."""
        return str(self.task["kind"])
