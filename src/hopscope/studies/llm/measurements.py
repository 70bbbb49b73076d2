"""What the models answered, as rows of the evidence table; no row has a member, because nothing was trained.

Measure `answers`, part `MODEL, KIND` (such as `openai/gpt-4o, equations D = 3`).
    `correct`: one row for each question, 1 if its first acceptable answer is right, null if none was acceptable.

Measure `tally`, with the same parts: see `hopscope.language.questions.tally_rows`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from hopscope.language.questions.answers import FILE, Answers, Tally, read_answers, share
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
    parts: dict[str, dict[str, float]] = {}
    for metric, part, value in zip(frame["metric"], frame["part"], frame["value"], strict=True):
        # Shares of nothing have no value.
        parts.setdefault(part, {})[metric] = 0.0 if value != value else float(value)
    asked = [(model, kind) for model in config.model for kind in config.kinds()]
    return [_cell(parts, model, kind) for model, kind in asked if part_of(model, *kind) in parts]


def _cell(parts: Mapping[str, Mapping[str, float]], model: str, kind: Kind) -> Tally:
    part = part_of(model, *kind)
    numbers = parts[part]
    of = dict.fromkeys(SHARES, round(numbers["questions"]))
    of["accuracy"] = round(of["answered"] * numbers["answered"])
    counts: dict[str, dict[str, int]] = {name: {} for name in COUNTS}
    for name, found in parts.items():
        if name.startswith(f"{part}: "):
            for metric, value in found.items():
                counts[metric][name.removeprefix(f"{part}: ")] = round(value)
    return Tally.model_validate(
        {"model": model, **kind._asdict(), "chains": TextConfig(formulation=kind.formulation).chains}
        | {name: share(round(of[name] * numbers[name]), of[name]) for name in SHARES}
        | {name: numbers[name] for name in NUMBERS}
        | counts
    )
