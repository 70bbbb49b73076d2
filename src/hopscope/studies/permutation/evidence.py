"""What the analyses of a run say, gathered by configuration; `measures` makes rows of the evidence table of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hopscope.errors import UserError
from hopscope.probes.onsets import transition
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, diverged_members
from hopscope.studies.permutation.config import PermutationStudyConfig, analyses
from hopscope.studies.permutation.configurations import Configuration
from hopscope.training.plan import unit_plan

if TYPE_CHECKING:
    import pyarrow as pa

PROBES = "probes"


@dataclass(frozen=True)
class Source:
    """One member's place in an analysis.

    Attributes:
        file: of the analysis, relative to the run.
        record: what is in it.
        index: the member's place in its lists.
    """

    file: str
    record: Mapping[str, Any]
    index: int


@dataclass(frozen=True)
class Analysed:
    """What is on record of one configuration, seed by seed, before it becomes rows of the evidence table.

    Attributes:
        configuration: which one.
        members, seeds: run-global members and their seeds.
        sources: name of an analysis → where each member stands in it.
        training_loss: mean training loss over the last epoch, for each member; `None` for one that was frozen
            before the first record.
        frozen: members whose training broke off because it diverged.
        curves: name of a held-out or training metric → each member's curve, as (samples, values).
    """

    configuration: Configuration
    members: list[int]
    seeds: list[int]
    sources: dict[str, list[Source]]
    training_loss: list[float | None]
    frozen: list[int]
    curves: dict[str, list[tuple[list[float], list[float]]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The configuration's written form."""
        return self.configuration.name


def gather(run: RunFolder, config: PermutationStudyConfig) -> dict[str, Analysed]:
    """The analyses of every configuration, by name, from the analyses and metrics on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    losses = last_epoch_loss(run, config)
    curves = _curves(run)
    diverged = diverged_members(run)
    gathered: dict[str, Analysed] = {}
    for configuration in config.grid():
        steps = config.training(configuration).steps
        of_this = [m for m in run.members if Configuration.from_overrides(m.overrides) == configuration]
        frozen = [member.member for member in of_this if member.member in diverged]
        sources = _sources(run, config, of_this, steps)
        gathered[configuration.name] = Analysed(
            configuration=configuration,
            members=[member.member for member in of_this],
            seeds=[member.seed for member in of_this],
            sources=sources,
            training_loss=[
                None if member.member in frozen else losses.get(member.member) for member in of_this
            ],
            frozen=frozen,
            curves={
                name: [by_member.get(member.member, ([], [])) for member in of_this]
                for name, by_member in curves.items()
            },
        )
    return gathered


def _sources(
    run: RunFolder, config: PermutationStudyConfig, members: Sequence[MemberRecord], steps: int
) -> dict[str, list[Source]]:
    sources: dict[str, list[Source]] = {}
    read: dict[tuple[str, str], dict[str, Any]] = {}
    for member in members:
        unit = run.unit(member.unit)
        for name, kind in analyses(config, unit_plan(unit)).items():
            path = unit.analysis_path(name, steps, kind)
            if kind != "json":
                continue
            if (unit.hash, name) not in read:
                read[unit.hash, name] = _read(unit, name, steps)
            sources.setdefault(name, []).append(
                Source(str(path.relative_to(run.path)), read[unit.hash, name], member.index)
            )
    return sources


def _read(unit: UnitFolder, name: str, steps: int) -> dict[str, Any]:
    found = unit.read_analysis(name, steps)
    members = found.get("members") if isinstance(found, dict) else None
    complete = name != PROBES or isinstance(found.get("exhaustive"), dict)
    if not isinstance(members, list) or not complete:
        raise UserError(
            f"{unit.analysis_path(name, steps)}: expected the {name} of a unit, found another record; "
            "delete it and run the same command again"
        )
    return found


def transitions(found: Analysed, values: int) -> list[dict[str, Any] | None]:
    """How sudden recall was, seed by seed (see `probes.onsets.transition`); `None` without a curve."""
    results: list[dict[str, Any] | None] = []
    pairs = zip(found.curves["held_out/recall"], found.curves["train/loss"], strict=True)
    for member, ((samples, recall), (loss_samples, losses)) in zip(found.members, pairs, strict=True):
        by_time = dict(zip(loss_samples, losses, strict=True))
        if member in found.frozen or not samples:
            results.append(None)
            continue
        results.append(
            transition(samples, recall, [by_time.get(time) for time in samples], chance=1 / (values - 1))
        )
    return results


METRICS = (("train", "loss"), ("held_out", "loss"), ("held_out", "elimination"), ("held_out", "recall"))


def _curves(run: RunFolder) -> dict[str, dict[int, tuple[list[float], list[float]]]]:
    """Metric (`split/name`) → member → samples and values."""
    curves: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    table = run.metrics()
    for split, metric in METRICS:
        columns = _columns(table, split, metric)
        by_member = curves.setdefault(f"{split}/{metric}", {})
        for member in np.unique(columns["member"]):
            here = columns["member"] == member
            by_member[int(member)] = (columns["samples"][here].tolist(), columns["value"][here].tolist())
    return curves


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
    return _columns(run.metrics(), split, metric)


def _columns(table: "pa.Table", split: str, metric: str) -> dict[str, NDArray[Any]]:
    chosen = (table["split"].to_numpy() == split) & (table["metric"].to_numpy() == metric)
    return {name: table[name].to_numpy()[chosen] for name in ("member", "step", "samples", "value")}
