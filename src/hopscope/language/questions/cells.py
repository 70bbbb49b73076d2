"""What is on record of the answers: rows, one for each question, and cells, their counts by model and kind.

A cell is a tally and, for the wrong answers that are another chain's, which one was followed.  Chains are told side by
side, so a wrong one is named by how many chains further down it stands than the asked one: by the lines that are read
first (those with what the question names), and by the lines that give the answers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.questions.answers import Row, Tally, tallies
from hopscope.runs import RunFolder
from hopscope.tasks.text import Question
from hopscope.tasks.text.values import Structure

FILE = "llm/answers.json"
SCHEMA_VERSION = 1


class Cell(Tally):
    """The answers of one model to one kind of question, counted.

    Attributes:
        chains: N.
        wrong: acceptable answers that are not the correct one.
        from_first_line: wrong answers of another chain, by how many chains further down its first-read line stands
            than the asked one's, from "-3" to "3" with four chains.
        from_answer_line: likewise, by the lines that give the answers.
    """

    chains: int
    wrong: int
    from_first_line: dict[str, int]
    from_answer_line: dict[str, int]


class Answers(Config):
    """What `llm/answers.json` holds.

    Attributes:
        schema_version: of this file.
        cells: the counts, by model, formulation and depth.
        rows: what became of each question.
    """

    schema_version: int
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]


def cells_of(rows: Sequence[Row], questions: Mapping[str, Question]) -> list[Cell]:
    """Count rows.

    Args:
        rows: of all models.
        questions: by id, all that the rows answer.
    """
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.formulation, row.depth), []).append(row)
    return [
        _cell(tally, groups[tally.model, tally.formulation, tally.depth], questions)
        for tally in tallies(rows)
    ]


def _cell(tally: Tally, rows: Sequence[Row], questions: Mapping[str, Question]) -> Cell:
    followed = [
        (questions[row.id].structure, row.chain, row.lost_chain) for row in rows if row.lost_chain is not None
    ]
    return Cell(
        **dict(tally),
        chains=rows[0].chains,
        wrong=tally.accuracy.of - tally.accuracy.count,
        from_first_line=_counted(further_down(*each, step=1) for each in followed),
        from_answer_line=_counted(further_down(*each, step=tally.depth) for each in followed),
    )


def further_down(structure: Structure, asked: int, other: int, step: int) -> int:
    """How many chains further down another chain's line of a step stands than that of the asked one.

    Where a chain has two lines of a step (functions name a function and its argument), its last one counts, for the
    other chains have only that.
    """
    lines = {
        fact.chain: fact.start for fact in structure.facts if fact.step == step and fact.chain is not None
    }
    told = sorted(lines, key=lambda chain: lines[chain])
    return told.index(other) - told.index(asked)


def by_chance(offset: int, chains: int) -> float:
    """Share of wrong answers at an offset if every other chain is followed equally often."""
    return (chains - abs(offset)) / (chains * (chains - 1))


def _counted(offsets: Iterable[int]) -> dict[str, int]:
    return {str(offset): count for offset, count in sorted(Counter(offsets).items())}


def read_answers(run: RunFolder) -> Answers:
    """Everything on record of the answers.

    Raises:
        UserError: the file is missing or damaged.
    """
    found = run.read_json(FILE)
    try:
        return Answers.model_validate(found)
    except ValidationError as error:
        raise UserError(
            f"{run.path / FILE}: {validation_line(error)}; delete it and run the same command again"
        ) from None
