"""How a question is put: as in the paper, or with solved examples, filler, the problem repeated, or as a completion.

A completion ends where the answer would follow ("… t ="), so that a model can be asked which answer it finds likeliest.
"""

from collections.abc import Callable, Mapping
from string import Formatter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hopscope.tasks.text import Mention, Question, TextConfig, questions

SHOTS_SEED: Final = 1 << 32
"""Added to the seed of the questions: solved examples are other questions than those that are asked."""

_STEMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "equations": "{} =",
        "lives_with": "{} lives in",
        "kingdoms": "The person who has {} is",
        "functions": "{}({}) =",
        "relatives": "{} lives in",
    }
)
"""Of each formulation, the beginning of a sentence that its answer ends; gaps are for what the question names."""


class Placed(NamedTuple):
    """A question as it is put, and where its parts stand.

    Attributes:
        text: what the model is given.
        tellings: where each telling of the problem begins in the text: what the question's own mentions are moved by.
        query: mentions of x_0, from which the last telling asks, in the text.
        joiner: what stands between the text and its answer.
    """

    text: str
    tellings: tuple[int, ...]
    query: tuple[Mention, ...]
    joiner: str


Put = Callable[[Question], str]
Place = Callable[[Question], Placed]


def putter(config: TextConfig, seed: int, **changes: Any) -> Put:
    """A function that writes the prompt of a question; arguments and errors as in `placer`."""
    place = placer(config, seed, **changes)
    return lambda question: place(question).text


def as_it_is(question: Question) -> Placed:
    """A question in the paper's way: its prompt, told once."""
    return Placed(question.prompt, (0,), question.structure.query, " ")


def placer(
    config: TextConfig,
    seed: int,
    *,
    few_shot: int = 0,
    filler: int = 0,
    repeats: int = 1,
    complete: bool = False,
) -> Place:
    """A function that writes the prompt of a question, and says where what stands in it.

    Args:
        config: kind of the questions.
        seed: theirs.
        few_shot: solved examples of the same kind, before the question.
        filler: dots between the question and its answer.
        repeats: how often the problem is told.
        complete: whether a completion is asked for instead of an answer.

    Raises:
        UserError: there are not so many different examples.
    """
    # One more than needed: none may be the question itself.
    shots = list(questions(config, few_shot + 1, seed + SHOTS_SEED)) if few_shot else []
    dots = "\n" + " ".join(["."] * filler) if filler else ""

    def told(question: Question) -> Placed:
        problem = _facts(question) if complete else question.prompt
        text = "\n\n".join([problem] * repeats) + dots
        tellings = tuple(number * (len(problem) + 2) for number in range(repeats))
        if complete:
            text += "\n"
            stem, query = _stem(question, at=len(text))
            return Placed(text + stem, tellings, query, " ")
        query = _moved(question.structure.query, tellings[-1])
        return Placed(text, tellings, query, "\n" if few_shot else " ")

    def place(question: Question) -> Placed:
        examples = [shot for shot in shots if shot.prompt != question.prompt][:few_shot]
        before = "".join(
            f"{one.text}{one.joiner}{shot.answer}\n\n" for shot in examples for one in [told(shot)]
        )
        own = told(question)
        return own._replace(
            text=before + own.text,
            tellings=tuple(len(before) + start for start in own.tellings),
            query=_moved(own.query, len(before)),
        )

    return place


def _facts(question: Question) -> str:
    """The lines of a problem without its question."""
    return question.prompt.rsplit("\n", 1)[0]


def _stem(question: Question, at: int) -> tuple[str, tuple[Mention, ...]]:
    """The beginning of the sentence that the answer ends, and where it names x_0, if it stands at a place of a text."""
    stem, query = "", list(question.structure.query)
    named: list[Mention] = []
    for words, gap, *_ in Formatter().parse(_STEMS[question.formulation]):
        stem += words
        if gap is not None:
            mention = query[len(named)]
            start = at + len(stem)
            stem += question.prompt[mention.start : mention.end]
            named.append(Mention(mention.symbol, start, at + len(stem)))
    return stem, tuple(named)


def _moved(mentions: tuple[Mention, ...], by: int) -> tuple[Mention, ...]:
    return tuple(Mention(each.symbol, each.start + by, each.end + by) for each in mentions)
