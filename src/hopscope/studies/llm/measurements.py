"""What the models answered, as rows of the evidence table; no row has a member, because nothing was trained.

Measure `answers`, part `MODEL, KIND` (such as `openai/gpt-4o, equations D = 3`).
    `correct`: one row for each question, 1 if its first acceptable answer is right, null if none was acceptable.

Measure `tally`, with the same parts: see `hopscope.studies.tally_rows`.  Besides,
    `from_first_line`, `from_answer_line`: wrong answers of another chain, by how many chains further down its line
        stands than the asked one's (that which is read first, and that which gives the answer); part `MODEL, KIND: -1`.
"""

from collections.abc import Iterator
from functools import partial

from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.studies.llm.cells import FILE, Answers, read_answers
from hopscope.studies.llm.config import LanguageModelConfig
from hopscope.studies.llm.words import kind_name
from hopscope.studies.tally_rows import counted_rows, tally_rows
from hopscope.tasks.text.config import Formulation

ANSWERS, TALLY = "answers", "tally"


def part_of(model: str, formulation: Formulation, depth: int) -> str:
    """What a model's answers to one kind of question are called."""
    return f"{model}, {kind_name(formulation, depth)}"


def measurements(run: RunFolder, config: LanguageModelConfig) -> Iterator[Row]:
    """The rows of a run whose models were asked.

    Raises:
        UserError: the answers on record are missing or damaged.
    """
    return rows(read_answers(run))


def rows(found: Answers) -> Iterator[Row]:
    """The rows of answers on record."""
    for row in found.rows:
        value = None if row.correct is None else float(row.correct)
        yield Row(
            None, ANSWERS, "correct", value, part=part_of(row.model, row.formulation, row.depth), file=FILE
        )
    add = partial(Row, None, TALLY, file=FILE)
    for cell in found.cells:
        part = part_of(cell.model, cell.formulation, cell.depth)
        yield from tally_rows(add, cell, part)
        yield from counted_rows(add, "from_first_line", cell.from_first_line, part)
        yield from counted_rows(add, "from_answer_line", cell.from_answer_line, part)
