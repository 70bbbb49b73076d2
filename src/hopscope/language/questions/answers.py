"""From what a language model said to rows, and from rows to shares with intervals.

Plain values only: an Inspect log is read by its attributes, so that neither Inspect nor torch is needed to
analyse what was recorded.  A *record* is what one scored sample holds, a *row* says what was made of it,
and a *tally* sums rows of one model, formulation and depth.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from hopscope.claims.intervals import mean, wilson
from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.questions.matching import normal_form
from hopscope.tasks.text import FORMULATIONS
from hopscope.tasks.text.config import Formulation

SCORER = "retrieval_score"
"""Name of the score that holds the attempts of a sample."""


class Attempt(Config):
    """One answer as it was given.

    Attributes:
        text: what the model said.
        acceptable: the acceptable answer that this is, as the question writes it; None if it is none.
        stop: why the model stopped, in the words of the server ("stop", "max_tokens", …).
    """

    text: str
    acceptable: str | None
    stop: str | None = None


class Alternative(Config):
    """What a wrong acceptable answer tells: whose answer it is, and where the reading may have gone wrong."""

    answer: str
    chain: int | None
    lost: tuple[int, ...]


class Asked(Config):
    """What a sample keeps of its question; see `hopscope.language.questions.sets.remembered`."""

    formulation: Formulation
    depth: int
    chains: int
    seed: int
    acceptable: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    symbols: tuple[tuple[str, ...], ...]
    chain: int


class Record(Config):
    """One scored sample.

    Attributes:
        id: of the question.
        model: who answered.
        epoch: which time the question was put, from 1.
        answer: the correct answer.
        asked: what is known of the question.
        attempts: every answer, in order; the last one is the only one that can be acceptable.
        stuck: the model kept giving the same unacceptable answer and was not asked on.
    """

    id: str
    model: str
    epoch: int
    answer: str
    asked: Asked
    attempts: tuple[Attempt, ...]
    stuck: bool


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
        id: of the question.
        model: who answered.
        epoch: which time the question was put, from 1.
        formulation: of the question.
        depth: of the question.
        chains: of the question.
        chain: the one that is asked for.
        expected: the correct answer.
        guess: chance of a blind guess among the acceptable answers.
        answer: the acceptable answer that was given in the end; None if the cap was reached without one.
        correct: whether that is the correct one; None without an answer.
        first: the first answer, if it was acceptable.
        first_correct: whether the first answer was the correct one.
        attempts: answers that were asked for.
        stuck: the model kept giving the same unacceptable answer.
        lost_chain: for a wrong answer, the chain whose answer it is, if it is that of a single one.
        lost_steps: for a wrong answer, the steps at which the reading may have gone wrong.
        rejected: the answers that were not acceptable, in order.
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


class Share(Config):
    """A share of questions with its 95 % Wilson interval; all None where there is nothing to share.

    Attributes:
        count: questions that have it.
        of: questions that could.
        value: count / of.
        low: lower end of the interval.
        high: upper end.
    """

    count: int
    of: int
    value: float | None
    low: float | None
    high: float | None


class Tally(Config):
    """The rows of one model, formulation and depth, summed.

    Attributes:
        model: who answered.
        formulation: of the questions.
        depth: of the questions.
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
        rejected: unacceptable answers by kind: "stopped at hop 2", "other chain", "empty", "other".
    """

    model: str
    formulation: Formulation
    depth: int
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
    rejected: dict[str, int]


class _Score(Protocol):
    @property
    def metadata(self) -> Mapping[str, Any] | None: ...


class _Sample(Protocol):
    @property
    def id(self) -> int | str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def scores(self) -> Mapping[str, _Score] | None: ...


class Log(Protocol):
    """The part of an Inspect log (`inspect_ai.log.EvalLog`, read with its samples) that is looked at."""

    @property
    def eval(self) -> Any:
        """`eval.model` is the model's name."""

    @property
    def samples(self) -> Sequence[Any] | None:
        """Samples with `id`, `epoch`, `metadata` and `scores`."""


def records(log: Log) -> list[Record]:
    """The scored samples of an Inspect log; samples that ended in an error are left out.

    Raises:
        UserError: the log was not written by Hopscope's tasks, or was read without its samples.
    """
    if log.samples is None:
        raise UserError(f"log of {log.eval.model}: expected samples, found only a header; read the whole log")
    return [_record(log.eval.model, sample) for sample in log.samples if sample.scores]


def _record(model: str, sample: _Sample) -> Record:
    score = (sample.scores or {}).get(SCORER)
    if score is None:
        raise UserError(
            f"sample {sample.id}: expected the score {SCORER}, found {', '.join(sample.scores or {})}; "
            "read logs of hopscope's own tasks"
        )
    return record(str(sample.id), model, sample.epoch, sample.metadata, score.metadata or {})


def record(id: str, model: str, epoch: int, asked: Mapping[str, Any], scored: Mapping[str, Any]) -> Record:
    """Make a record from a sample's metadata and its score's.

    Raises:
        UserError: either was not written by Hopscope's tasks.
    """
    known = {name: asked[name] for name in Asked.model_fields if name in asked}
    given = {name: scored[name] for name in ("answer", "attempts", "stuck") if name in scored}
    try:
        return Record.model_validate({"id": id, "model": model, "epoch": epoch, "asked": known, **given})
    except ValidationError as error:
        raise UserError(f"sample {id}: {validation_line(error)}; read logs of hopscope's own tasks") from None


def rows(records: Iterable[Record]) -> list[Row]:
    """What became of each question, in the order of the records."""
    return [_row(one) for one in records]


def _row(one: Record) -> Row:
    asked, attempts = one.asked, one.attempts
    first = attempts[0].acceptable if attempts else None
    answer = attempts[-1].acceptable if attempts else None
    lost = next((other for other in asked.alternatives if other.answer == answer), None)
    return Row(
        id=one.id,
        model=one.model,
        epoch=one.epoch,
        formulation=asked.formulation,
        depth=asked.depth,
        chains=asked.chains,
        chain=asked.chain,
        expected=one.answer,
        guess=1 / len(asked.acceptable),
        answer=answer,
        correct=None if answer is None else answer == one.answer,
        first=first,
        first_correct=first == one.answer,
        attempts=len(attempts),
        stuck=one.stuck,
        lost_chain=lost.chain if lost else None,
        lost_steps=lost.lost if lost else (),
        rejected=tuple(classify(a.text, asked) for a in attempts if a.acceptable is None),
    )


def classify(text: str, asked: Asked) -> Rejected:
    """Say what an unacceptable answer is; a symbol that several chains share counts for the asked one."""
    bare = normal_form(text)
    if not bare:
        return Rejected(text=text, kind="empty")
    for chain in sorted(range(len(asked.symbols)), key=lambda chain: (chain != asked.chain, chain)):
        names = [normal_form(symbol) for symbol in asked.symbols[chain]]
        if bare in names:
            kind: Literal["stopped", "other chain"] = "stopped" if chain == asked.chain else "other chain"
            return Rejected(text=text, kind=kind, chain=chain, hop=names.index(bare))
    return Rejected(text=text, kind="other")


def tallies(rows: Iterable[Row]) -> list[Tally]:
    """Sum rows by model (in the order in which they appear), formulation (F1 to F5) and depth."""
    groups: dict[tuple[str, Formulation, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.formulation, row.depth), []).append(row)
    models = list(dict.fromkeys(model for model, _, _ in groups))
    keys = sorted(groups, key=lambda key: (models.index(key[0]), FORMULATIONS.index(key[1]), key[2]))
    return [_tally(*key, groups[key]) for key in keys]


def _tally(model: str, formulation: Formulation, depth: int, rows: Sequence[Row]) -> Tally:
    answered = [row for row in rows if row.answer is not None]
    wrong = [row for row in answered if not row.correct]
    return Tally(
        model=model,
        formulation=formulation,
        depth=depth,
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
        rejected=_counted(_kind(answer) for row in rows for answer in row.rejected),
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


def _kind(answer: Rejected) -> str:
    return f"stopped at hop {answer.hop}" if answer.kind == "stopped" else answer.kind


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
