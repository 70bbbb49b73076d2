"""The numbers of the permutation study's page, each with the file and the key it came from."""

from collections.abc import Sequence

import numpy as np

from hopscope.claims.intervals import bootstrap_mean
from hopscope.runs import RunFolder
from hopscope.studies.numbers import DASH, PageNumbers, written
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence, curve

LATE = 0.8
"""Where the last fifth of training begins."""


class Numbers(PageNumbers):
    """Those of the permutation study.

    Keys are `<path> of member <m>`, `mean of <path> over members <a>–<b>`, `95 % interval of mean of …: low` (or
    `high`), where a path is keys and places joined by dots, and `[m]` the place of the member (at the end, where it
    is not written).
    """

    def mean(self, found: Evidence, path: str, analysis: str = "probes", *, percent: bool = True) -> str:
        """The mean over a configuration's members; a dash where none has a value."""
        known = found.known(analysis, path)
        if not known:
            return DASH
        key = f"mean of {path} over {_members(found)}"
        return self.add(
            sum(known) / len(known), written(sum(known) / len(known), percent), found.file(analysis), key
        )

    def estimate(self, found: Evidence, path: str, analysis: str, *, percent: bool = True) -> str:
        """The mean over members with its 95 % bootstrap interval; a dash where none has a value."""
        known = found.known(analysis, path)
        mean = self.mean(found, path, analysis, percent=percent)
        interval = bootstrap_mean(known) if known else None
        if interval is None:
            return mean
        if interval[0] == interval[1]:
            return f"{mean} in every seed"
        key = f"95 % interval of mean of {path} over {_members(found)}"
        low, high = (
            self.add(end, written(end, percent), found.file(analysis), f"{key}: {side}")
            for end, side in zip(interval, ("low", "high"), strict=True)
        )
        return f"{mean} [{low}, {high}]"

    def range(self, found: Evidence, path: str, analysis: str = "probes", *, percent: bool = True) -> str:
        """The lowest and the highest member of a configuration; a dash where none has a value."""
        pairs = zip(found.each(analysis, path), found.members, strict=True)
        known = [(value, member) for value, member in pairs if value is not None]
        if not known:
            return DASH
        ends = [
            self.add(value, written(value, percent), found.file(analysis), f"{path} of member {member}")
            for value, member in _ends(known)
        ]
        return f" {DASH} ".join(ends)

    def shared(self, found: Evidence, path: str, analysis: str, *, percent: bool = True) -> str:
        """A number that is not one over members, such as a floor."""
        value = found.shared(analysis, path)
        file = found.sources[analysis][0].file
        return DASH if value is None else self.add(value, written(value, percent), file, path)

    def count(
        self, found: Evidence, values: Sequence[object], which: object, analysis: str, path: str
    ) -> str:
        """How many members have this value, of the values under a path."""
        number = sum(value == which for value in values)
        key = f"number of members with {which!r} at {path} over {_members(found)}"
        return self.add(number, str(number), found.file(analysis), key)

    def share(self, found: Evidence, value: float, analysis: str, path: str) -> str:
        """A mean share that was computed elsewhere, in whole percent."""
        key = f"mean of {path} over {_members(found)}"
        return self.add(value, f"{100 * value:.0f}\u00a0%", found.file(analysis), key)

    def late_range(self, run: RunFolder, found: Evidence, config: PermutationStudyConfig) -> str:
        """The lowest and the highest held-out recall in the last fifth of training; a dash where none was "
        "recorded."""
        columns = curve(run, "held_out", "recall")
        late = columns["step"] > LATE * config.training(found.configuration).steps
        values = columns["value"][late & np.isin(columns["member"], found.members)]
        if not len(values):
            return DASH
        ends = [
            self.add(value, written(value, True), "metrics.parquet",
                     f"{end} of late held_out/recall over {_members(found)}")
            for end, value in (("lowest", float(values.min())), ("highest", float(values.max())))
        ]  # fmt: skip
        return " to ".join(ends)

    def loss_range(self, found: Evidence) -> str:
        """The lowest and the highest training loss of a configuration; a dash where none was recorded."""
        pairs = zip(found.training_loss, found.members, strict=True)
        known = [(value, member) for value, member in pairs if value is not None]
        if not known:
            return DASH
        ends = [
            self.add(
                value,
                written(value, False),
                "metrics.parquet",
                f"last epoch of train/loss of member {member}",
            )
            for value, member in _ends(known)
        ]
        return f" {DASH} ".join(ends)


def _members(found: Evidence) -> str:
    return f"members {found.members[0]}–{found.members[-1]}"


def _ends(known: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The lowest and the highest value with their members; one where they are equal."""
    low, high = min(known), max(known)
    return [low] if low[0] == high[0] else [low, high]
