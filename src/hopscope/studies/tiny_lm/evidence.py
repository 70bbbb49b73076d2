"""What a run says, member by member: the ground of claims, figures and story."""

from dataclasses import dataclass
from typing import Any

from hopscope.circuits.config import formation_name, reading_name
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.errors import UserError
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, frozen_members
from hopscope.studies.followed import DIVERGED, FollowedMember, followed_paths
from hopscope.studies.metrics import Metrics
from hopscope.studies.rows import Curve
from hopscope.studies.tiny_lm.config import EXAM, TinyLmConfig

LEARNED = 0.9
"""Held-out accuracy from which on a depth counts as learned."""


@dataclass(frozen=True)
class Member(FollowedMember):
    """One model.

    Attributes:
        mixture: that it was trained on.
        file: its analysis file, relative to the run.
        key: where it stands there.
        folder: the model as a Hugging Face folder, relative to the run; None if it diverged.
        tallies: depth → what it answered through Inspect (`hopscope.llm.answers.Tally`).
        accuracy, loss: depth → held-out curve through training, as (steps, values).
    """

    mixture: str
    file: str
    key: str
    folder: str | None
    tallies: dict[int, dict[str, Any]]
    accuracy: dict[int, Curve]
    loss: dict[int, Curve]

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.mixture}, seed {self.seed}"

    def score(self, depth: int) -> float | None:
        """Share of questions that it answered rightly at once, through Inspect; None if it was not asked."""
        tally = self.tallies.get(depth)
        return None if tally is None else tally["first_accuracy"]["value"]

    def learned_at(self, depth: int) -> Crossing | None:
        """When its held-out accuracy reached 90 %; a model that diverged says nothing."""
        steps, values = self.accuracy[depth]
        return None if self.frozen or not steps else first_crossing(steps, values, LEARNED, rising=True)


def gather(run: RunFolder, config: TinyLmConfig) -> list[Member]:
    """Evidence of every member, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics = Metrics(run)
    members = []
    for record in run.members:
        unit = run.unit(record.unit)
        step = config.training_steps
        exam = unit.read_analysis(EXAM, step)
        here = next((n for n, each in enumerate(exam["members"]) if each["member"] == record.member), None)
        file = str(unit.analysis_path(EXAM, step, "json").relative_to(run.path))
        if here is None:
            raise UserError(
                f"{file}: expected member {record.member}, found others; delete the file and run again"
            )
        found = exam["members"][here]
        members.append(
            Member(
                member=record.member,
                seed=record.seed,
                mixture=record.overrides["mixture"],
                frozen=record.index in frozen_members(unit, step),
                file=file,
                key=f"members.{here}",
                folder=found["folder"],
                tallies={tally["depth"]: tally for tally in found["tallies"]},
                accuracy=_curves(metrics, "accuracy", record.member, config),
                loss=_curves(metrics, "loss", record.member, config),
                **_circuit(run, config, unit, record),
            )
        )
    return members


def _circuit(run: RunFolder, config: TinyLmConfig, unit: UnitFolder, record: MemberRecord) -> dict[str, Any]:
    """What was read of a member, and how it formed; of one that diverged there is nothing to say."""
    step, number = config.training_steps, record.member
    names = {"reading": reading_name(number, config.reader()), "formation": formation_name(number)}
    reading, followed = (unit.read_analysis(name, step) for name in names.values())
    frozen = record.index in frozen_members(unit, step)
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


def _curves(metrics: Metrics, what: str, member: int, config: TinyLmConfig) -> dict[int, Curve]:
    return {depth: metrics.curve(f"{what}_depth_{depth}", member) for depth in config.depths}
