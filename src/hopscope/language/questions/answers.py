"""From what a language model said to rows, from rows to shares with intervals, and how both stand on record.

Inspect's logs are read by their attributes, so that neither Inspect nor torch is needed to analyse what was recorded.
A *row* says what became of one question, and a *tally* sums the rows of one model, formulation and depth.

Chains are told side by side, so another chain that was followed is named by how many chains further down it stands than
the asked one: by the lines that are read first (those with what the question names), and by the lines that give the
answers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, ValidationError, computed_field

from hopscope.claims.intervals import mean, wilson
from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.questions.matching import normal_form
from hopscope.runs import RunFolder
from hopscope.tasks.text import FORMULATIONS, Question
from hopscope.tasks.text.config import Formulation
from hopscope.tasks.text.values import Structure

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

SCORER = "retrieval_score"
"""Name of the score that holds the attempts of a sample."""

FILE = "llm/answers.json"
"""Where the study of language models keeps `Answers`, relative to its run."""

SCHEMA_VERSION = 1


class Rejected(Config):
    """An answer that was not acceptable, and what it is.

    Attributes:
        text: what the model said.
        kind: "stopped", a symbol on the way along the asked chain; "other chain", a symbol of another one;
            "empty"; "other".
        chain: the chain on which the symbol lies, if it lies on one.
        hop: steps that the reading had gone when it stopped at this symbol: 0 is the symbol of the question.
    """

    text: str
    kind: Literal["stopped", "other chain", "empty", "other"]
    chain: int | None = None
    hop: int | None = None


class Row(Config):
    """What became of one question.

    Attributes:
        id, formulation, depth, chains: of the question.
        model: the one that answered.
        epoch: which time the question was put, from 1.
        chain: the one that is asked for.
        expected: the correct answer.
        guess: chance of a blind guess among the acceptable answers.
        answer: the acceptable answer that was given in the end; None if the cap was reached without one.
        correct: whether that is the correct one; None without an answer.
        first, first_correct: the first answer, if it was acceptable; whether it was the correct one.
        attempts: answers that were asked for.
        stuck: the model kept giving the same unacceptable answer.
        lost_chain: for a wrong answer, the chain whose answer it is, if it is that of a single one.
        lost_steps: for a wrong answer, the steps at which the reading may have gone wrong.
        rejected: the answers that were not acceptable, in order.
        said: what was said first, or, of a choice, found likeliest, as one of the question's N · (D + 1) symbols:
            "asked chain, hop 2", "other chain, hop 0"; None if it is none of them, or not known.
    """

    id: str
    model: str
    epoch: int
    formulation: Formulation
    depth: int
    chains: int
    chain: int
    expected: str
    guess: float
    answer: str | None
    correct: bool | None
    first: str | None
    first_correct: bool
    attempts: int
    stuck: bool
    lost_chain: int | None
    lost_steps: tuple[int, ...]
    rejected: tuple[Rejected, ...]
    said: str | None = None


class Share(Config):
    """A share of questions with its 95 % Wilson interval; all None where there is nothing to share.

    Attributes:
        count, of: questions that have it, and questions that could.
        value: count / of.
        low, high: ends of the interval.
    """

    count: int
    of: int
    value: float | None
    low: float | None
    high: float | None


class Tally(Config):
    """The rows of one model, formulation and depth, summed.

    Attributes:
        chains: N; 0 on records that do not say so.
        questions: rows.
        accuracy: correct among the questions with an acceptable answer (the paper's).
        first_accuracy: correct at the first attempt, among all questions.
        acceptance: first answers that were acceptable, among all questions.
        answered: questions with an acceptable answer within the cap, among all questions.
        guess: mean chance of a blind guess among acceptable answers.
        attempts: mean number of answers asked for.
        stuck: questions at which the model kept giving the same unacceptable answer.
        lost_chain: wrong answers that are the answer of a single other chain.
        lost_steps: wrong answers by the steps at which the reading may have gone wrong, such as "3" or "1,2".
        from_first_line: wrong answers of another chain, by how many chains further down its first-read line stands
            than the asked one's, from "-3" to "3" with four chains; only where the questions are known.
        from_answer_line: likewise, by the lines that give the answers.
        rejected: unacceptable answers by kind: "stopped at hop 2", "other chain", "empty", "other".
        said: questions by what was said first, as one of their symbols, acceptable or not (`Row.said`).
    """

    # `wrong` stands in the record too.
    model_config = ConfigDict(extra="ignore")

    model: str
    formulation: Formulation
    depth: int
    chains: int = 0
    questions: int
    accuracy: Share
    first_accuracy: Share
    acceptance: Share
    answered: Share
    guess: float
    attempts: float
    stuck: int
    lost_chain: int
    lost_steps: dict[str, int]
    from_first_line: dict[str, int] = {}
    from_answer_line: dict[str, int] = {}
    rejected: dict[str, int]
    said: dict[str, int] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def wrong(self) -> int:
        """Acceptable answers that are not the correct one."""
        return self.accuracy.of - self.accuracy.count


class Answers(Config):
    """What `llm/answers.json` holds.

    Attributes:
        cells: the counts, by model, formulation and depth.
        rows: what became of each question.
    """

    schema_version: int
    cells: tuple[Tally, ...]
    rows: tuple[Row, ...]


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


def rows(log: "EvalLog") -> list[Row]:
    """What became of each scored sample of an Inspect log; samples that ended in an error are left out.

    Raises:
        UserError: the log was not written by Hopscope's tasks, or was read without its samples.
    """
    if log.samples is None:
        raise UserError(f"log of {log.eval.model}: expected samples, found only a header; read the whole log")
    found = []
    for sample in log.samples:
        if sample.scores:
            score = sample.scores.get(SCORER)
            scored = (score and score.metadata) or {}
            found.append(row(str(sample.id), log.eval.model, sample.epoch, sample.metadata, scored))
    return found


def row(id: str, model: str, epoch: int, asked: Mapping[str, Any], scored: Mapping[str, Any]) -> Row:
    """What became of one question.

    Args:
        id, model, epoch: as in `Row`.
        asked: metadata of the sample (`hopscope.language.questions.sets.remembered`).
        scored: metadata of its score: `answer`, `attempts` and `stuck`.

    Raises:
        UserError: either was not written by Hopscope's tasks.
    """
    try:
        attempts = scored["attempts"]
        first, answer = attempts[0]["acceptable"], attempts[-1]["acceptable"]
        lost = next((other for other in asked["alternatives"] if other["answer"] == answer), None)
        return Row(
            id=id,
            model=model,
            epoch=epoch,
            formulation=asked["formulation"],
            depth=asked["depth"],
            chains=asked["chains"],
            chain=asked["chain"],
            expected=scored["answer"],
            guess=1 / len(asked["acceptable"]),
            answer=answer,
            correct=None if answer is None else answer == scored["answer"],
            first=first,
            first_correct=first == scored["answer"],
            attempts=len(attempts),
            stuck=scored["stuck"],
            lost_chain=lost["chain"] if lost else None,
            lost_steps=tuple(lost["lost"]) if lost else (),
            rejected=tuple(classify(one["text"], asked) for one in attempts if one["acceptable"] is None),
            said=_symbol((scored.get("scores") or {}).get("said") or attempts[0]["text"], asked),
        )
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValidationError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else type(error).__name__
        raise UserError(
            f"sample {id}: expected a question of Hopscope's tasks with the score {SCORER}, found {found}; "
            "read logs of these tasks"
        ) from None


def _symbol(text: str, asked: Mapping[str, Any]) -> str | None:
    """Which symbol of a question a text is."""
    found = classify(text, asked)
    chain = {"stopped": "asked chain", "other chain": "other chain"}.get(found.kind)
    return None if chain is None else f"{chain}, hop {found.hop}"


def classify(text: str, asked: Mapping[str, Any]) -> Rejected:
    """Say what an unacceptable answer is; a symbol that several chains share counts for the asked one."""
    bare = normal_form(text)
    if not bare:
        return Rejected(text=text, kind="empty")
    own = asked["chain"]
    for chain, symbols in sorted(enumerate(asked["symbols"]), key=lambda each: each[0] != own):
        names = [normal_form(symbol) for symbol in symbols]
        if bare in names:
            kind: Literal["stopped", "other chain"] = "stopped" if chain == own else "other chain"
            return Rejected(text=text, kind=kind, chain=chain, hop=names.index(bare))
    return Rejected(text=text, kind="other")


def tallies(rows: Iterable[Row], questions: Mapping[str, Question] | None = None) -> list[Tally]:
    """Sum rows by model (in the order in which they appear), formulation (F1 to F5) and depth.

    Args:
        rows: of any models.
        questions: by id, all that the rows answer, to say which lines wrong answers followed.
    """
    groups: dict[tuple[str, Formulation, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.formulation, row.depth), []).append(row)
    models = list(dict.fromkeys(model for model, _, _ in groups))
    keys = sorted(groups, key=lambda key: (models.index(key[0]), FORMULATIONS.index(key[1]), key[2]))
    return [_tally(*key, groups[key], questions or {}) for key in keys]


def _tally(
    model: str, formulation: Formulation, depth: int, rows: Sequence[Row], questions: Mapping[str, Question]
) -> Tally:
    answered = [row for row in rows if row.answer is not None]
    wrong = [row for row in answered if not row.correct]
    followed = [
        (questions[row.id].structure, row.chain, row.lost_chain)
        for row in wrong
        if row.lost_chain is not None and row.id in questions
    ]
    return Tally(
        model=model,
        formulation=formulation,
        depth=depth,
        chains=rows[0].chains,
        questions=len(rows),
        accuracy=share(sum(bool(row.correct) for row in answered), len(answered)),
        first_accuracy=share(sum(row.first_correct for row in rows), len(rows)),
        acceptance=share(sum(row.first is not None for row in rows), len(rows)),
        answered=share(len(answered), len(rows)),
        guess=mean([row.guess for row in rows]),
        attempts=mean([float(row.attempts) for row in rows]),
        stuck=sum(row.stuck for row in rows),
        lost_chain=sum(row.lost_chain is not None for row in wrong),
        lost_steps=_counted(",".join(map(str, row.lost_steps)) for row in wrong if row.lost_steps),
        from_first_line=_counted(further_down(*each, step=1) for each in followed),
        from_answer_line=_counted(further_down(*each, step=depth) for each in followed),
        rejected=_counted(
            f"stopped at hop {answer.hop}" if answer.kind == "stopped" else answer.kind
            for row in rows
            for answer in row.rejected
        ),
        said=_counted(row.said for row in rows if row.said is not None),
    )


def share(count: int, of: int) -> Share:
    """A share with its 95 % Wilson interval (`hopscope.claims.intervals.wilson`).

    Raises:
        ValueError: the count is negative or above the total.
    """
    if of == 0 and count == 0:
        return Share(count=0, of=0, value=None, low=None, high=None)
    low, high = wilson(count, of)
    return Share(count=count, of=of, value=count / of, low=low, high=high)


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


def _counted(things: Iterable[str | int]) -> dict[str, int]:
    return {str(thing): count for thing, count in sorted(Counter(things).items())}
