"""How a question is put: as in the paper, or with solved examples, filler, the problem repeated, or as a completion.

A completion ends where the answer would follow ("… t ="), so that a model can be asked which answer it finds likeliest.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hopscope.tasks.text import Question, TextConfig, questions

SHOTS_SEED: Final = 1 << 32
"""Added to the seed of the questions: solved examples are other questions than those that are asked."""

_STEMS: Final[Mapping[str, Callable[..., str]]] = MappingProxyType(
    {
        "equations": "{} =".format,
        "lives_with": "{} lives in".format,
        "kingdoms": "The person who has {} is".format,
        "functions": "{}({}) =".format,
        "relatives": "{} lives in".format,
    }
)
"""Of each formulation, the beginning of a sentence that its answer ends; given what the question names."""

Put = Callable[[Question], str]


def putter(
    config: TextConfig,
    seed: int,
    *,
    few_shot: int = 0,
    filler: int = 0,
    repeats: int = 1,
    complete: bool = False,
) -> Put:
    """A function that writes the prompt of a question.

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

    def told(question: Question) -> str:
        problem = _completion(question) if complete else (question.prompt, "")
        whole = "\n\n".join([problem[0]] * repeats)
        dots = "\n" + " ".join(["."] * filler) if filler else ""
        return whole + dots + ("\n" + problem[1] if problem[1] else "")

    def put(question: Question) -> str:
        examples = [shot for shot in shots if shot.prompt != question.prompt][:few_shot]
        joiner = " " if complete else "\n"
        return "\n\n".join([*(told(shot) + joiner + shot.answer for shot in examples), told(question)])

    return put


def _completion(question: Question) -> tuple[str, str]:
    """The facts of a question, and the beginning of the sentence that its answer ends."""
    facts: Sequence[str] = question.prompt.split("\n")[:-1]
    named = [question.prompt[mention.start : mention.end] for mention in question.structure.query]
    return "\n".join(facts), _STEMS[question.formulation](*named)
