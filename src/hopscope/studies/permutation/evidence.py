"""What the analyses of a run say, gathered by configuration: the ground of claims, figures and story."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration

PROBES = "probes"


@dataclass(frozen=True)
class Evidence:
    """One configuration, seed by seed.

    Attributes:
        configuration: which one.
        departures: how its training departs from the source's protocol, in words.
        members, seeds: run-global members and their seeds.
        files: analysis file (relative to the run) of each member, and the member's place in its lists.
        probes: name of a probe → its value for each member (numbers, or lists by step).
        exhaustive: whether every held-out sequence was gone through.
        training_loss: mean training loss over the last epoch, for each member; `None` for one that was frozen
            before the first record.
        frozen: members whose training broke off because it diverged.
    """

    configuration: Configuration
    departures: list[str]
    members: list[int]
    seeds: list[int]
    files: list[tuple[str, int]]
    probes: dict[str, list[Any]]
    exhaustive: bool
    training_loss: list[float | None]
    frozen: list[int]

    @property
    def name(self) -> str:
        """The configuration's written form."""
        return self.configuration.name

    def healthy(self, probe: str) -> list[float]:
        """A probe's values without those of frozen members and without missing ones."""
        return self._healthy(self.probes[probe])

    def healthy_losses(self) -> list[float]:
        """`training_loss` without that of frozen members."""
        return self._healthy(self.training_loss)

    def _healthy(self, values: Sequence[float | None]) -> list[float]:
        pairs = zip(self.members, values, strict=True)
        return [value for member, value in pairs if member not in self.frozen and value is not None]


def gather(run: RunFolder, config: PermutationStudyConfig) -> dict[str, Evidence]:
    """Evidence of every configuration, by name, from the analyses and metrics on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    losses = last_epoch_loss(run, config)
    gathered: dict[str, Evidence] = {}
    for configuration in config.grid():
        steps = config.training(configuration).steps
        of_this = [m for m in run.members if Configuration.from_overrides(m.overrides) == configuration]
        probes: dict[str, list[Any]] = {}
        files, exhaustive, frozen = [], True, []
        for member in of_this:
            unit = run.unit(member.unit)
            found = unit.read_analysis(PROBES, steps)
            files.append((str(unit.analysis_path(PROBES, steps).relative_to(run.path)), member.index))
            if not isinstance(found.get("exhaustive"), dict):
                raise UserError(
                    f"{unit.analysis_path(PROBES, steps)}: expected the probes of a unit, found another record; "
                    "delete it and run the same command again"
                )
            exhaustive &= all(found["exhaustive"].values())
            # From the checkpoint: the events are a log that may lose lines.
            _, _, metadata = unit.checkpoint(steps)
            diverged = metadata["frozen_at"][member.index] >= 0
            if diverged:
                frozen.append(member.member)
            for name, values in found.items():
                if isinstance(values, list) and name != "members":
                    value = values[member.index]
                    probes.setdefault(name, []).append(_blank(value) if diverged else value)
        gathered[configuration.name] = Evidence(
            configuration=configuration,
            departures=config.departures(configuration),
            members=[member.member for member in of_this],
            seeds=[member.seed for member in of_this],
            files=files,
            probes=probes,
            exhaustive=exhaustive,
            training_loss=[
                None if member.member in frozen else losses.get(member.member) for member in of_this
            ],
            frozen=frozen,
        )
    return gathered


def _blank(value: Any) -> Any:
    """No number where a diverged member's would be: its weights are those of the step before it broke off."""
    return [None] * len(value) if isinstance(value, list) else None


def last_epoch_loss(run: RunFolder, config: PermutationStudyConfig) -> dict[int, float]:
    """Each member's mean training loss over its last epoch (or over all steps, if there are fewer).

    A row of the record is a mean over the steps since the row before it, so rows are weighted by their steps.
    """
    columns = curve(run, "train", "loss")
    per_epoch = max(1, config.samples_per_epoch // config.batch_size)
    result = {}
    for member in np.unique(columns["member"]):
        here = columns["member"] == member
        steps, values = columns["step"][here], columns["value"][here]
        weights = np.diff(steps, prepend=0)
        late = steps > steps[-1] - per_epoch
        result[int(member)] = float(np.average(values[late], weights=weights[late]))
    return result


def curve(run: RunFolder, split: str, metric: str) -> dict[str, NDArray[Any]]:
    """Columns `member`, `step`, `samples` and `value` of one metric, sorted by step, then member."""
    table = run.metrics()
    chosen = (table["split"].to_numpy() == split) & (table["metric"].to_numpy() == metric)
    return {name: table[name].to_numpy()[chosen] for name in ("member", "step", "samples", "value")}
