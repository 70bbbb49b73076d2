"""The way to ask that a model answers best, found on questions of its own before any head is looked at.

A model whose answers are guesses has no heads to lose.  What a small pretrained model can answer depends on how it is
asked more than on anything else, so several ways are tried.  The rule is fixed: the largest lower end of the 95 %
Wilson interval of the accuracy, above guessing; of equal ones the first.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from hopscope.claims.intervals import mean, wilson
from hopscope.errors import UserError
from hopscope.language.heads.answers import Kept, choose_each
from hopscope.language.heads.config import HeadsConfig
from hopscope.language.heads.model import Attentive
from hopscope.language.heads.tokens import Reader
from hopscope.language.questions.sets import FREE_DEPTH
from hopscope.tasks.text import Question, questions
from hopscope.tasks.text.config import Formulation

SETTINGS_SEED: Final = 1 << 33
"""Added to the seed of the questions: the way to ask is chosen on others than those that heads are found on."""

_ENDS: Final[tuple[dict[str, Any], ...]] = (
    {"complete": True},
    {"complete": True, "repeats": 2},
    {"complete": True, "repeats": 4},
    {"complete": True, "few_shot": 4},
    {"complete": True, "repeats": 8},
)
_CHATS: Final[tuple[dict[str, Any], ...]] = ({"chat": True},)

_QUESTIONS: Final = 32
"""Asked in each way, at most."""


class Tried(NamedTuple):
    """One way to ask, and how often a model was right.

    Attributes:
        config: the way to ask.
        right, asked: questions answered rightly, and asked.
        guess: mean chance of a blind guess.
    """

    config: HeadsConfig
    right: int
    asked: int
    guess: float

    @property
    def least(self) -> float:
        """Lower end of the accuracy's interval, above guessing."""
        return wilson(self.right, self.asked)[0] - self.guess

    def record(self) -> dict[str, Any]:
        """One entry of `settings`, see docs/heads.md."""
        names = ("formulation", "depth", "chat", "few_shot", "repeats", "complete")
        return {
            **{name: getattr(self.config, name) for name in names},
            "questions": self.asked,
            "guess": self.guess,
            "accuracy": self.right / self.asked,
            "interval": list(wilson(self.right, self.asked)),
        }


def tried(
    model: Attentive,
    config: HeadsConfig,
    kept: Callable[[HeadsConfig, Sequence[Question]], Kept],
    progress: Callable[[str], None],
) -> list[Tried]:
    """Ask in every way, and say how often the model is right.

    Args:
        model: who is asked.
        config: number, depth (by default 1) and seed of the questions.
        kept: says where passes of an earlier call are, for a way to ask and its questions.
        progress: is told what is being done.

    Returns:
        Ways to ask that the model's tokens can tell, at least one.

    Raises:
        UserError: its tokens can tell none of them.
    """
    ways, found, refused = settings(config, chat=model.tokenizer.chat_template is not None), [], ""
    for number, way in enumerate(ways, 1):
        progress(f"ways to ask: {number} of {len(ways)}")
        place, reader = way.placed(), Reader(model.tokenizer, way.chat)
        asked = list(questions(way.text(), way.count, way.seed))
        try:
            texts = [reader.read(one, place(one)) for one in asked]
            (answers,) = choose_each(model, texts, [None], kept(way, asked))
        except UserError as error:  # a formulation whose words this tokenizer splits
            refused = str(error)
            continue
        guess = mean([1 / len(text.continuations) for text in texts])
        found.append(Tried(way, int(answers.correct.sum()), len(texts), guess))
    if not found:
        raise UserError(refused)
    return found


def settings(config: HeadsConfig, chat: bool) -> list[HeadsConfig]:
    """Every way to ask that is tried, the shortest first.

    Args:
        config: whose formulation is open.
        chat: whether the model has a chat template.
    """
    ways: Sequence[dict[str, Any]] = (*_ENDS, *(_CHATS if chat else ()))
    formulations: tuple[Formulation, ...] = FREE_DEPTH
    fixed = {
        **config.model_dump(),
        "depth": config.depth or 1,
        "count": min(config.count, _QUESTIONS),
        "seed": config.seed + SETTINGS_SEED,
    }
    return [
        HeadsConfig(**{**fixed, "formulation": formulation, **way})
        for way, formulation in product(ways, formulations)
    ]


def best(found: Sequence[Tried]) -> Tried:
    """The way to ask that the rule takes."""
    return max(found, key=lambda each: each.least)
