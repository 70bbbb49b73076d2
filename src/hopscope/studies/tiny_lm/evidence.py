"""What is on record of each member: for the rows of the evidence table, and for the page's player of circuits."""

from dataclasses import dataclass
from typing import Any

from hopscope.circuits.path_history import FollowedMember, history_of
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
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

    @staticmethod
    def number(target: str) -> int:
        """The depth that a target is."""
        return depth_of(target)

    @property
    def shown_losses(self) -> dict[str, Curve]:
        """Held-out losses of the answers through training, by depth."""
        return {f"D = {depth}": curve for depth, curve in self.loss.items()}

    @property
    def shown_rows(self) -> list[str]:
        """The roles that its paths join, and that of the first names: a question has many more."""
        both = (target for path in self.paths for target in path.target.split(" + "))
        named = {
            "given 1",
            *(path.query for path in self.paths),
            *(each.removeprefix("all ") for each in both),
        }
        return [row for row in self.rows if row in named]

    def learned_at(self, depth: int) -> Crossing | None:
        """When its held-out accuracy reached 90 %; a model that diverged says nothing."""
        steps, values = self.accuracy[depth]
        return None if self.frozen or not steps else first_crossing(steps, values, LEARNED, rising=True)


def gather(run: RunFolder, config: TinyLmConfig) -> list[Member]:
    """Every member of a run, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    return [
        _member(run.unit(record.unit), config, record, record.member in diverged, metrics)
        for record in run.members
    ]


def _member(
    unit: UnitFolder, config: TinyLmConfig, record: MemberRecord, frozen: bool, metrics: Metrics
) -> Member:
    step, number = config.training_steps, record.member
    file, exam = unit.file_of(EXAM, step), unit.read_analysis(EXAM, step)
    found = next((each for each in exam["members"] if each["member"] == number), None)
    if found is None:
        raise UserError(f"{file}: expected member {number}, found others; delete the file and run again")
    return Member(
        **history_of(unit, record, config.reader(), step, frozen, depth_of),
        mixture=record.overrides["mixture"],
        file=file,
        # What the last weights of a member that diverged answer says nothing of its mixture.
        tallies={} if frozen else {tally["depth"]: tally for tally in found["tallies"]},
        accuracy=_curves(metrics, "accuracy", number, config),
        loss=_curves(metrics, "loss", number, config),
    )


def depth_of(target: str) -> int:
    """The depth of a target's name: `D = 2` → 2."""
    return int(target.removeprefix("D = "))


def target_of(depth: int) -> str:
    """What the reader calls a depth: 2 → `D = 2`."""
    return f"D = {depth}"


def _curves(metrics: Metrics, what: str, member: int, config: TinyLmConfig) -> dict[int, Curve]:
    return {depth: metrics.curve(f"{what}_depth_{depth}", member) for depth in config.depths}
