"""What the models answered, as rows of the evidence table; no row has a member, because nothing was trained.

Measure `answers`, part `MODEL, KIND` (such as `openai/gpt-4o, equations D = 3`).
    `correct`: one row for each question, 1 if its first acceptable answer is right, null if none was acceptable.

Measure `tally`, with the same parts: see `hopscope.language.questions.tally_rows`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from hopscope.language.questions.answers import FILE, Answers, Share, Tally, read_answers, share
from hopscope.language.questions.tally_rows import COUNTS, NUMBERS, SHARES, tally_rows
from hopscope.runs import RunFolder
from hopscope.runs.evidence import Row
from hopscope.studies.llm.config import Kind, LanguageModelConfig
from hopscope.tasks.text import TextConfig
from hopscope.tasks.text.config import Formulation

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

ANSWERS, TALLY = "answers", "tally"
FOLLOWED = ("from_first_line", "from_answer_line")


def part_of(model: str, formulation: Formulation, depth: int) -> str:
    """What a model's answers to one kind of question are called."""
    return f"{model}, {Kind(formulation, depth).words}"


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
        part = part_of(row.model, row.formulation, row.depth)
        yield Row(None, ANSWERS, "correct", value, part=part, file=FILE)
    add = partial(Row, None, TALLY, file=FILE)
    for cell in found.cells:
        yield from tally_rows(add, cell, part_of(cell.model, cell.formulation, cell.depth))


def cells(evidence: "Evidence", config: LanguageModelConfig) -> list[Tally]:
    """The counts again, from the evidence table: of every model and kind of question that has been asked."""
    frame = evidence.rows(measure=TALLY)
    values = {
        (metric, part): None if value != value else float(value)
        for metric, part, value in zip(frame["metric"], frame["part"], frame["value"], strict=True)
    }
    asked = [(model, kind) for model in config.model for kind in config.kinds()]
    return [
        _cell(values, model, kind) for model, kind in asked if ("questions", part_of(model, *kind)) in values
    ]


def _cell(values: Mapping[tuple[str, str], float | None], model: str, kind: Kind) -> Tally:
    part = part_of(model, *kind)
    numbers = {metric: value for (metric, of), value in values.items() if of == part}
    questions = round(numbers["questions"] or 0)
    answered = round(questions * (numbers["answered"] or 0.0))

    def share_of(name: str) -> Share:
        of = answered if name == "accuracy" else questions
        return share(round(of * (numbers[name] or 0.0)), of)

    def counts(name: str) -> dict[str, int]:
        found = {of.removeprefix(f"{part}: "): value for (metric, of), value in values.items()
                 if metric == name and of.startswith(f"{part}: ")}  # fmt: skip
        return {thing: round(value or 0.0) for thing, value in found.items()}

    return Tally.model_validate(
        {"model": model, **kind._asdict(), "chains": TextConfig(formulation=kind.formulation).chains}
        | {name: share_of(name) for name in SHARES}
        | {name: numbers[name] for name in NUMBERS}
        | {name: counts(name) for name in COUNTS}
    )
