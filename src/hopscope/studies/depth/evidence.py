"""What a run says, gathered by configuration: the ground of claims, figures and story."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, frozen_members
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration, Reading
from hopscope.studies.metrics import Metrics
from hopscope.studies.recipe import RETRIEVAL
from hopscope.studies.rows import Curve

LEARNED = 0.5
"""A partial loss below this counts as learned (paper, section 7.2)."""

ERRORS = 1.96
"""Standard errors within which a measured loss lies 95 % of the time."""


@dataclass(frozen=True)
class Evidence:
    """One configuration, seed by seed; what a diverged member has no value for is `None`.

    Attributes:
        configuration: which one.
        departures: how it departs from the paper's protocol, in words.
        members, seeds: run-global members and their seeds.
        frozen: members whose training broke off because it diverged.
        asked: steps k of the chain that the models are asked for.
        loss: final loss: the mean held-out loss over the final window.
        loss_error: how far the sampling of the held-out set may have moved it (1.96 standard errors).
        partial: step k → final partial losses.
        accuracy: step k → nearest-candidate accuracy at the last checkpoint.
        curves: step k → each member's partial held-out loss, as (steps, values).
        files: analysis file of each member, relative to the run.
    """

    configuration: Configuration
    departures: list[str]
    members: list[int]
    seeds: list[int]
    frozen: list[int]
    asked: tuple[int, ...]
    loss: list[float | None]
    loss_error: list[float | None]
    partial: dict[int, list[float | None]]
    accuracy: dict[int, list[float | None]]
    curves: dict[int, list[Curve]]
    files: list[str]

    @property
    def name(self) -> str:
        """The configuration's name."""
        return self.configuration.name

    def crossings(self, step: int) -> list[Crossing | None]:
        """When each member's partial loss of a step fell under 0.5, in training steps."""
        return [
            None if member in self.frozen or not curve[0] else first_crossing(*curve, LEARNED, rising=False)
            for member, curve in zip(self.members, self.curves[step], strict=True)
        ]


def known(values: Iterable[float | None]) -> list[float]:
    """Values that exist."""
    return [value for value in values if value is not None]


Evidences = Mapping[Configuration, Evidence]


def gather(run: RunFolder, config: DepthStudyConfig) -> dict[Configuration, Evidence]:
    """Evidence of every configuration, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    of: dict[Configuration, list[MemberRecord]] = {each: [] for each in config.grid()}
    for record in run.members:
        of[Configuration.from_overrides(record.overrides)].append(record)
    metrics = Metrics(run)
    return {each: _of_one(run, config, each, records, metrics) for each, records in of.items()}


def of_reading(evidence: Evidences, reading: Reading) -> dict[Configuration, Evidence]:
    """What was trained under one reading, under the names of the same configurations without it."""
    plain = Reading()
    return {
        each.with_reading(plain): replace(found, configuration=each.with_reading(plain))
        for each, found in evidence.items()
        if each.reading == reading
    }


def _of_one(
    run: RunFolder,
    config: DepthStudyConfig,
    configuration: Configuration,
    records: list[MemberRecord],
    metrics: Metrics,
) -> Evidence:
    training, task = config.training(configuration), config.task(configuration)
    analyses = [_analysis(run, record, training.steps) for record in records]
    frozen = [
        record.member
        for record in records
        if record.index in frozen_members(run.unit(record.unit), training.steps)
    ]
    final = training.final_steps()

    def of_healthy(value: Any) -> list[float | None]:
        return [
            None if record.member in frozen else value(record, found)
            for record, (_, found) in zip(records, analyses, strict=True)
        ]

    # The curves' samples are fewer than the analysis', and their error is larger by the root of that ratio.
    wider = ERRORS * max(1.0, config.analysis_samples / config.evaluation_samples) ** 0.5
    return Evidence(
        configuration=configuration,
        departures=config.departures(configuration),
        members=[record.member for record in records],
        seeds=[record.seed for record in records],
        frozen=frozen,
        asked=task.asked,
        loss=of_healthy(lambda record, _: metrics.final("loss", record.member, final)),
        loss_error=of_healthy(lambda record, found: wider * found["loss_error"][record.index]),
        partial={
            step: of_healthy(lambda record, _, k=step: metrics.final(f"loss_step_{k}", record.member, final))
            for step in task.asked
        },
        accuracy={
            step: of_healthy(lambda record, found, n=number: found["accuracy"][record.index][n])
            for number, step in enumerate(task.asked)
        },
        curves={
            step: [metrics.curve(f"loss_step_{step}", record.member) for record in records]
            for step in task.asked
        },
        files=[file for file, _ in analyses],
    )


def _analysis(run: RunFolder, record: MemberRecord, step: int) -> tuple[str, dict[str, Any]]:
    unit = run.unit(record.unit)
    path = unit.analysis_path(RETRIEVAL, step, "json")
    found = unit.read_analysis(RETRIEVAL, step)
    if not isinstance(found, dict) or not {"members", "loss_error", "accuracy"} <= set(found):
        raise UserError(
            f"{path}: expected the measurements of a unit, found another record; delete it and run the same "
            "command again"
        )
    return str(path.relative_to(run.path)), found
