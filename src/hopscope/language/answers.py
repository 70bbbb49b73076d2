"""What language models said, and what it comes to: rows of evidence with intervals, and how answers fail."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

from hopscope.claims.intervals import wilson
from hopscope.language.questions import Question

SCORES = ("accuracy", "first_accuracy", "acceptance", "answered", "stuck", "guess")
"""What one question contributes to the mean of its kind; see `scores`."""


class Answer(NamedTuple):
    """What became of one question.

    Attributes:
        said: the answers in order, until one was acceptable; of a choice, the likeliest acceptable one.
        stuck: the model kept giving the same unacceptable answer.
        likeliest: of a choice, the likeliest of all symbols of the question.
        too_long: it is longer than the model's context: nothing was said.
    """

    model: str
    kind: str
    question: Question
    said: Sequence[str] = ()
    stuck: bool = False
    likeliest: str | None = None
    too_long: bool = False

    @property
    def correct(self) -> bool | None:
        """Whether the last answer is the right one; `None`: it is not acceptable, or there is none."""
        given = matched(self.said[-1], self.question.acceptable) if self.said else None
        return None if given is None else given == self.question.answer


def scores(said: Sequence[str], answer: str, acceptable: Sequence[str], stuck: bool) -> dict[str, float]:
    """What one question contributes to the mean of its kind.

    `accuracy` is NaN without an acceptable answer; `first_accuracy` and `acceptance` are of the first answer; `guess`
    is what blind guessing among the acceptable answers reaches.
    """
    given = [matched(text, acceptable) for text in said] or [None]
    right, told = [each == answer for each in given], [each is not None for each in given]
    accuracy = right[-1] if told[-1] else math.nan
    found = accuracy, right[0], told[0], told[-1], stuck, 1 / len(acceptable)
    return dict(zip(SCORES, map(float, found), strict=True))


def normal_form(text: str) -> str:
    """A text without outer space, quotes around it, a final full stop and capitals: `' "Berlin." '` is `berlin`."""
    bare = text.strip()
    while (less := bare.strip("\"'`“”‘’«»").strip().removesuffix(".").strip()) != bare:
        bare = less
    return " ".join(bare.casefold().split())


def matched(text: str, acceptable: Sequence[str]) -> str | None:
    """The acceptable answer that a text is; nothing is dug out of a sentence."""
    return next((answer for answer in acceptable if normal_form(answer) == normal_form(text)), None)


def rows(answers: Iterable[Answer]) -> Iterator[dict[str, Any]]:
    """What was answered, as rows of evidence whose part is `MODEL, KIND`, such as `openai/gpt-4o, equations D = 3`.

    `correct`: one row for each question, in an order that is the same for all models: 1 if its first acceptable answer
    is right, null if none was acceptable.  `questions`; the means of `scores`, each with the ends of its 95 % Wilson
    interval as `accuracy_low`, `accuracy_high`; the mean `attempts`; `count`, part `MODEL, KIND: WHAT`, of what went
    wrong.  A kind with a question that is longer than the model's context was not run: its one row is `too_long`.
    """
    for part, group in groupby(answers, key=lambda one: f"{one.model}, {one.kind}"):
        several = [*group]
        if too_long := sum(one.too_long for one in several):
            yield {"metric": "too_long", "part": part, "value": float(too_long)}
            continue
        every = [scores(one.said, one.question.answer, one.question.acceptable, one.stuck) for one in several]
        found: list[tuple[str, float]] = [("correct", each["accuracy"]) for each in every]
        found += [("questions", len(several)), ("attempts", fmean(len(one.said) for one in several))]
        for name in SCORES:
            known = [each[name] for each in every if not math.isnan(each[name])]
            found.append((name, fmean(known) if known else math.nan))
            if name != "guess":
                ends = wilson(round(sum(known)), len(known)) if known else (math.nan, math.nan)
                found += zip((f"{name}_low", f"{name}_high"), ends, strict=True)
        for name, value in found:
            yield {"metric": name, "part": part, "value": None if math.isnan(value) else float(value)}
        what = Counter(each for one in several for each in _findings(one))
        for name, count in sorted(what.items()):
            yield {"metric": "count", "part": f"{part}: {name}", "value": float(count)}


def _findings(one: Answer) -> Iterator[str]:
    # Which symbol was said first, or found likeliest; what unacceptable answers are.
    if one.said and "hop" in (first := _symbol(one.likeliest or one.said[0], one.question)):
        yield f"said {first}"
    for text in one.said:
        if matched(text, one.question.acceptable) is None:
            yield f"rejected, {_symbol(text, one.question)}"


def _symbol(text: str, question: Question) -> str:
    # Which symbol of a question a text is; one that several chains share counts for the asked one.
    bare = normal_form(text)
    for chain, path in sorted(enumerate(question.symbols), key=lambda each: each[0] != question.chain):
        if bare in (names := [*map(normal_form, path)]):
            return f"{'asked' if chain == question.chain else 'other'} chain, hop {names.index(bare)}"
    return "other" if bare else "empty"
