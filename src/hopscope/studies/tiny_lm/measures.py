"""What the small language models answered, and their circuits, as rows of the evidence table.

Every row is held-out and stands at the member's last training step, except attention, which stands at its checkpoint.
A member that diverged has null for what every member has (the exam's shares, what it learned, whether it was read) and
no other row.

Measure `exam`, part `depth_k`: answers to held-out questions through Inspect; see `hopscope.llm.tally_rows`.

Measures `reading`, `circuit` and `formation`: see `hopscope.circuits.history_rows`, which also says how a time is told.
The targets are the depths of questions, parts `depth_k`.  Besides, `reading` has
    `accuracy_lost`, part `worst_recomputed`: accuracy that the circuit loses in mode recomputed, of the learned depth
        that loses most;
and `formation` has
    `rose`, part `depth_k`: when the held-out accuracy of a depth reached 90 %.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pydantic import ValidationError

from hopscope.circuits.history_rows import member_rows, time_rows
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.llm.answers import Tally
from hopscope.llm.tally_rows import SHARES, tally_rows
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.tiny_lm.config import EXAM, TinyLmConfig, part_of
from hopscope.studies.tiny_lm.evidence import Member, gather, target_of


def measurements(run: RunFolder, config: TinyLmConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    yield from of_members(gather(run, config), config)


def of_members(members: Sequence[Member], config: TinyLmConfig) -> Iterator[Row]:
    """The rows of some members: their exams, circuits and formation."""
    targets = {target_of(depth): part_of(depth) for depth in config.depths}
    for member, add, rows in member_rows(members, config.training_steps, targets, "accuracy_lost"):
        yield from exam_rows(member, config)
        yield from rows
        for depth in config.depths:
            rose = member.learned_at(depth)
            if rose is not None:
                yield from time_rows(add, "formation", "rose", rose, part=part_of(depth), file=GATHERED)


def exam_rows(member: Member, config: TinyLmConfig) -> Iterator[Row]:
    """What a member answered, by depth; shares without a number if it diverged.

    Raises:
        UserError: the exam on record is damaged.
    """
    row = partial(Row, member.member, EXAM, step=config.training_steps, file=member.file)
    for depth in config.depths:
        if member.frozen:
            for name in SHARES:
                yield row(metric=name, value=None, part=part_of(depth))
        else:
            yield from tally_rows(row, _tally(member, depth), part_of(depth))


def _tally(member: Member, depth: int) -> Tally:
    try:
        return Tally.model_validate(member.tallies[depth])
    except (KeyError, ValidationError) as error:
        why = validation_line(error) if isinstance(error, ValidationError) else f"no answers at depth {depth}"
        raise UserError(
            f"{member.file}: expected the exam of member {member.member}, found another record ({why}); delete the "
            "file and run the same command again"
        ) from None
