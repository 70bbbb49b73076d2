"""What small language models answered, and their circuits: what is on record of each, and rows of the evidence.

Every row is held-out and stands at the member's last training step, except attention, which stands at its checkpoint.
A member that diverged has null for what every member has (the exam's shares, what it learned, whether it was read) and
no other row.

Measure `exam`, part `depth_k`: answers to held-out questions; see `hopscope.language.questions.tally_rows`.

Measures `reading`, `circuit` and `formation`: see `hopscope.circuits.history_rows`, which also says how a time is told.
The targets are the depths of questions, parts `depth_k`.  Besides, `reading` has
    `accuracy_lost`, part `worst_recomputed`: accuracy that the circuit loses in mode recomputed, of the learned depth
        that loses most;
and `formation` has
    `rose`, part `depth_k`: when the held-out accuracy of a depth reached 90 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from hopscope.circuits.history_rows import member_rows, time_rows
from hopscope.circuits.path_history import MemberHistory, history_of
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.language.questions.answers import Tally
from hopscope.language.questions.tally_rows import SHARES, tally_rows
from hopscope.runs import RunFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.tiny_lm.config import EXAM, LEARNED, TinyLmConfig, part_of


@dataclass(frozen=True)
class Member(MemberHistory):
    """One language model of a run.

    Attributes:
        mixture: that it was trained on.
        file: its analysis file, relative to the run.
        tallies: depth → what it answered (`hopscope.language.questions.answers.Tally`); none if it diverged.
        accuracy, loss: depth → held-out curve through training.
    """

    mixture: str
    file: str
    tallies: dict[int, dict[str, Any]]
    accuracy: dict[int, Curve]
    loss: dict[int, Curve]

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return f"{self.mixture}, seed {self.seed}"

    @property
    def shown_losses(self) -> dict[str, Curve]:
        """Held-out losses of the answers through training, by depth."""
        return {f"D = {depth}": curve for depth, curve in self.loss.items()}

    @property
    def shown_rows(self) -> list[str]:
        """The roles that its paths join, and that of the first names: a question has many more."""
        named = {"given 1"}
        for path in self.paths:
            named |= {path.query, *(each.removeprefix("all ") for each in path.target.split(" + "))}
        return [row for row in self.rows if row in named]

    def learned_at(self, depth: int) -> Crossing | None:
        """When its held-out accuracy reached 90 %; a model that diverged says nothing."""
        steps, values = self.accuracy[depth]
        return None if self.diverged or not steps else first_crossing(steps, values, LEARNED, rising=True)


def gather(run: RunFolder, config: TinyLmConfig) -> list[Member]:
    """Every member of a run, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged, step = Metrics(run), diverged_members(run), config.training_steps
    members = []

    def curves(metric: str, member: int) -> dict[int, Curve]:
        return {depth: metrics.curve(f"{metric}_{part_of(depth)}", member) for depth in config.depths}

    for record in run.members:
        unit, number, gone = run.unit(record.unit), record.member, record.member in diverged
        file, exam = unit.file_of(EXAM, step), unit.read_analysis(EXAM, step)
        found = next((each for each in exam["members"] if each["member"] == number), None)
        if found is None:
            raise UserError(f"{file}: expected member {number}, found others; delete the file and run again")
        members.append(
            Member(
                **history_of(run, record, config.reader(), step, gone),
                mixture=record.overrides["mixture"],
                file=file,
                # What the last weights of a member that diverged answer says nothing of its mixture.
                tallies={} if gone else {tally["depth"]: tally for tally in found["tallies"]},
                accuracy=curves("accuracy", number),
                loss=curves("loss", number),
            )
        )
    return members


def measurements(run: RunFolder, config: TinyLmConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    yield from of_members(gather(run, config), config)


def of_members(members: Sequence[Member], config: TinyLmConfig) -> Iterator[Row]:
    """The rows of some members: their exams, circuits and formation."""
    targets = {f"D = {depth}": part_of(depth) for depth in config.depths}
    for member, add, rows in member_rows(members, config.training_steps, targets, "accuracy_lost"):
        yield from _exam_rows(member, config)
        yield from rows
        for depth in config.depths:
            rose = member.learned_at(depth)
            if rose is not None:
                yield from time_rows(add, "formation", "rose", rose, part=part_of(depth), file=GATHERED)


def _exam_rows(member: Member, config: TinyLmConfig) -> Iterator[Row]:
    """What a member answered, by depth; shares without a number if it diverged.

    Raises:
        UserError: the exam on record is damaged.
    """
    row = partial(Row, member.member, EXAM, step=config.training_steps, file=member.file)
    for depth in config.depths:
        if member.diverged:
            yield from (row(metric=name, value=None, part=part_of(depth)) for name in SHARES)
            continue
        try:
            tally = Tally.model_validate(member.tallies[depth])
        except (KeyError, ValidationError) as error:
            why = (
                validation_line(error)
                if isinstance(error, ValidationError)
                else f"no answers at depth {depth}"
            )
            raise UserError(
                f"{member.file}: expected the exam of member {member.member}, found another record ({why}); delete "
                "the file and run the same command again"
            ) from None
        yield from tally_rows(row, tally, part_of(depth))
