"""What is on record of each member: for the rows of the evidence table, and for the page's player of circuits."""

from dataclasses import dataclass
from typing import Any

from hopscope.circuits.config import formation_name, reading_name
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.errors import UserError
from hopscope.figures.rows import Curve
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, diverged_members
from hopscope.studies.followed import DIVERGED, FollowedMember, FollowedPath, every_path, followed_paths
from hopscope.studies.metrics import Metrics
from hopscope.studies.tiny_lm.config import EXAM, LEARNED, TinyLmConfig


@dataclass(frozen=True)
class Member(FollowedMember):
    """One model.

    Attributes:
        mixture: that it was trained on.
        file: its analysis file, relative to the run.
        tallies: depth → what it answered through Inspect (`hopscope.llm.answers.Tally`); none if it diverged.
        accuracy, loss: depth → held-out curve through training, as (steps, values).
    """

    mixture: str
    file: str
    tallies: dict[int, dict[str, Any]]
    accuracy: dict[int, Curve]
    loss: dict[int, Curve]

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.mixture}, seed {self.seed}"

    @property
    def every_path(self) -> tuple[FollowedPath, ...]:
        """Every path of its smallest circuit, also those that were not followed."""
        return every_path(self.reading, depth_of)

    def learned_at(self, depth: int) -> Crossing | None:
        """When its held-out accuracy reached 90 %; a model that diverged says nothing."""
        steps, values = self.accuracy[depth]
        return None if self.frozen or not steps else first_crossing(steps, values, LEARNED, rising=True)


def gather(run: RunFolder, config: TinyLmConfig) -> list[Member]:
    """Evidence of every member, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    members = []
    for record in run.members:
        unit = run.unit(record.unit)
        step = config.training_steps
        exam = unit.read_analysis(EXAM, step)
        found = next((each for each in exam["members"] if each["member"] == record.member), None)
        file = str(unit.analysis_path(EXAM, step, "json").relative_to(run.path))
        if found is None:
            raise UserError(
                f"{file}: expected member {record.member}, found others; delete the file and run again"
            )
        frozen = record.member in diverged
        members.append(
            Member(
                member=record.member,
                seed=record.seed,
                mixture=record.overrides["mixture"],
                frozen=frozen,
                file=file,
                # What the last weights of a member that diverged answer says nothing of its mixture.
                tallies={} if frozen else {tally["depth"]: tally for tally in found["tallies"]},
                accuracy=_curves(metrics, "accuracy", record.member, config),
                loss=_curves(metrics, "loss", record.member, config),
                **_circuit(run, config, unit, record, frozen),
            )
        )
    return members


def _circuit(
    run: RunFolder, config: TinyLmConfig, unit: UnitFolder, record: MemberRecord, frozen: bool
) -> dict[str, Any]:
    """What was read of a member, and how it formed; of one that diverged there is nothing to say."""
    step, number = config.training_steps, record.member
    names = {"reading": reading_name(number, config.reader()), "formation": formation_name(number)}
    reading, followed = (unit.read_analysis(name, step) for name in names.values())
    if frozen:
        reading = {**reading, "verdict": DIVERGED, "learned": [], "paths": [], "minimal_circuits": []}
    return {
        "reading": reading,
        "checkpoints": tuple(followed["checkpoints"]),
        "paths": () if frozen else followed_paths(reading, followed, depth_of),
        "tokens": followed["tokens"],
        "rows": followed["rows"],
        "unit": unit,
        **{
            f"{what}_file": str(unit.analysis_path(name, step).relative_to(run.path))
            for what, name in names.items()
        },
    }


def depth_of(target: str) -> int:
    """The depth of a target's name: `D = 2` → 2."""
    return int(target.removeprefix("D = "))


def target_of(depth: int) -> str:
    """What the reader calls a depth: 2 → `D = 2`."""
    return f"D = {depth}"


def _curves(metrics: Metrics, what: str, member: int, config: TinyLmConfig) -> dict[int, Curve]:
    return {depth: metrics.curve(f"{what}_depth_{depth}", member) for depth in config.depths}
