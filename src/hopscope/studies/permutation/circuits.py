"""The circuit of one model of each configuration: read, followed through training, and shown on the page.

Measures `reading` and `circuit`: see `hopscope.circuits.history_rows`.  The targets are the skills, parts `elimination`
and `recall`.  Both stand at the member's last training step; members that were not read have no rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.circuits.config import ReaderConfig, followed_names
from hopscope.circuits.history_rows import adding, circuit_rows, learned_rows, reading_rows
from hopscope.circuits.path_history import MemberHistory, history_of
from hopscope.runs import RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.runs.evidence import Row
from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.circuit_study.members import follow_members
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig
from hopscope.training.config import TrainJob, job_of

if TYPE_CHECKING:
    from hopscope.models.interventions import Roles
    from hopscope.tasks.batch import Batch
    from hopscope.training.budget import TimeBudget

READER = ReaderConfig()
SKILLS = ("elimination", "recall")


def read_job(config: PermutationStudyConfig, job: TrainJob) -> TrainJob | None:
    """The part of a job whose members are read: the first seed of a configuration, if the study reads circuits."""
    first = job.members[:1]
    asked = config.circuits and config.is_whole(Configuration.parse(job.label))
    return job.model_copy(update={"members": first}) if asked and first[0].seed == 0 else None


def files(config: PermutationStudyConfig, job: TrainJob) -> dict[str, str]:
    """Every file of a unit's reading."""
    read = read_job(config, job)
    return {} if read is None else followed_names([each.member for each in read.members], READER)


def analyse(
    config: PermutationStudyConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: Any,
    budget: "TimeBudget",
    device: str,
) -> None:
    """Read and follow the first member of a unit; errors as of `follow_members`."""

    def labels(batch: "Batch") -> list[str]:
        return [str(token) for token in batch.inputs[0, 0].tolist()]

    def order(roles: "Roles") -> tuple[int, ...]:  # as a sequence is read, repeats last
        return roles["repeat"], roles["step"], roles["kind"]

    read = read_job(config, job)
    if read is not None:
        follow_members(unit, read, READER, labels, order, budget)


@dataclass(frozen=True)
class Member(MemberHistory):
    """A member whose circuit was read.

    Attributes:
        configuration: its name.
        scores: skill → held-out accuracy through training.
    """

    configuration: str
    scores: dict[str, Curve]

    @property
    def name(self) -> str:
        """What the page calls it."""
        return f"{self.configuration}, seed {self.seed}"

    @property
    def shown_losses(self) -> dict[str, Curve]:
        """Share of wrong answers through training, by skill."""
        return {
            skill: (steps, [1.0 - value for value in values])
            for skill, (steps, values) in self.scores.items()
        }

    @property
    def shown_rows(self) -> list[str]:
        """The roles that its paths join."""
        targets = (each for path in self.paths for each in path.target.split(" + "))
        named = {path.query for path in self.paths} | {each.removeprefix("all ") for each in targets}
        return [row for row in self.rows if row in named] + sorted(named & {"x", "y"} - set(self.rows))


def gather(run: RunFolder, config: PermutationStudyConfig) -> list[Member]:
    """Every member that was read, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged, found = Metrics(run), diverged_members(run), []
    for record in run.members:
        job = job_of(run.unit(record.unit))
        read = read_job(config, job)
        if read is None or record.member != read.members[0].member:
            continue
        kinds = SKILLS if job.label.partition(" ")[2].startswith("repeats") else SKILLS[:1]
        found.append(
            Member(
                **history_of(run, record, READER, job.training.steps, record.member in diverged),
                configuration=job.label,
                scores={skill: metrics.curve(skill, record.member) for skill in kinds},
            )
        )
    return found


def measurements(run: RunFolder, config: PermutationStudyConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    for member in gather(run, config):
        add = adding(member.member, member.checkpoints[-1])
        yield from learned_rows(add, member, {skill: skill for skill in member.scores})
        if not member.diverged:
            yield from reading_rows(add, member)
            yield from circuit_rows(add, member)


circuits = UnitAnalysis(files, analyse, measurements)
"""The first seed of each configuration, read and followed through training."""
