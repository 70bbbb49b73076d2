"""The curves of a run, by split, metric and member."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from hopscope.runs.store import RunFolder

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps of training, or samples seen by then, and values."""


class Metrics:
    """The metrics of one split of a run."""

    def __init__(self, run: RunFolder, split: str = "held_out"):
        """Read them.

        Raises:
            UserError: a file is missing or damaged.
        """
        table = run.metrics()
        here = table["split"].to_numpy(zero_copy_only=False) == split
        names = table["metric"].to_numpy(zero_copy_only=False)[here]
        members, steps, values = (table[name].to_numpy()[here] for name in ("member", "step", "value"))
        order = np.lexsort((steps, members, names))
        self._curves: dict[tuple[str, int], Curve] = {}
        keys = list(zip(names[order].tolist(), members[order].tolist(), strict=True))
        bounds = [n for n in range(len(keys)) if n == 0 or keys[n] != keys[n - 1]] + [len(keys)]
        for start, stop in pairwise(bounds):
            chosen = order[start:stop]
            self._curves[keys[start]] = (steps[chosen].tolist(), values[chosen].tolist())

    def curve(self, metric: str, member: int) -> Curve:
        """Steps and values of one member; empty where it has none."""
        return self._curves.get((metric, member), ([], []))

    def final(self, metric: str, member: int, steps: Iterable[int]) -> float:
        """Mean over some evaluations, those of the final window."""
        wanted = set(steps)
        return fmean(value for at, value in zip(*self.curve(metric, member), strict=True) if at in wanted)
