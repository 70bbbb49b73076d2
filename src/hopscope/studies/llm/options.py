"""What is asked of which language models."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.language import FORMULATIONS, Questions, kinds
from hopscope.language.questions import Formulation
from hopscope.study.study import Configuration

PAPER_COUNT, PAPER_DEPTHS = 500, (1, 2, 3, 4, 5)
"""Questions of each kind in the paper (section 4), and depths of equations that its claim is about."""

_LONGEST = 24  # characters of a name that fit into a legend


class Options(Config):
    """Which models are asked what.

    Attributes:
        model: models, each as Inspect names it: openai/gpt-4o, openai-api/NAME/MODEL for any server that speaks
            OpenAI's protocol, or one of this machine: hf/FOLDER, hf/FILE.gguf, hf/NAME. Several may be given.
        base_url: address of the models' server, if not the provider's own.
        formulations: which of the five formulations to ask.
        depths: retrieval steps of the equations.
        count: questions of each kind (500 in the paper).
        seed: of the questions.
        attempts: answers asked for at most until one is acceptable.
        identical: unacceptable answers of the same wording in a row after which a question is given up.
        temperature: of sampling; by default the model's own.
        max_tokens: of an answer; by default the model's own.
        measure: answers, as the paper asks for them; or choice, the likeliest of the acceptable answers as the end of a
            sentence, which needs no obedience.
        few_shot: solved examples of the same kind before each question.
        filler: dots between each question and its answer.
        repeats: how often each problem is told.
        precision: number format of weights and activations of models of this machine (hf/…).
        timeout: seconds after which a request is given up. Changes no result, and is not on record.
        max_connections: requests at a time; by default the provider's own. Changes no result, and is not on record.
    """

    model: tuple[str, ...] = ()
    base_url: str | None = None
    formulations: tuple[Formulation, ...] = FORMULATIONS
    depths: tuple[Annotated[int, Field(ge=1)], ...] = PAPER_DEPTHS
    count: int = Field(100, ge=1)
    seed: int = Field(0, ge=0)
    attempts: int = Field(10, ge=1)
    identical: int = Field(3, ge=2)
    temperature: float | None = Field(None, ge=0.0)
    max_tokens: int | None = Field(None, ge=1)
    measure: Literal["answers", "choice"] = "answers"
    few_shot: int = Field(0, ge=0)
    filler: int = Field(0, ge=0)
    repeats: int = Field(1, ge=1)
    precision: Literal["float32", "bfloat16"] = "float32"
    timeout: int = Field(50, ge=1, exclude=True)
    max_connections: int | None = Field(None, ge=1, exclude=True)

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        for name in ("model", "formulations", "depths"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(
                    f"{name}: expected each once, found {' '.join(map(str, given))}; leave one out"
                )
        if not self.formulations:
            raise ValueError(f"formulations: expected some of {', '.join(FORMULATIONS)}, found none")
        if list(self.depths) != sorted(self.depths) or ("equations" in self.formulations and not self.depths):
            raise ValueError(f"depths: expected ascending numbers of steps, found {list(self.depths)}")
        if nameless := [name for name in self.model if "/" not in name.strip("/")]:
            words = f"expected PROVIDER/MODEL, such as openai/gpt-4o, found {nameless[0]!r}"
            raise ValueError(f"model: {words}; name its provider")
        foreign = [name for name in self.model if not name.startswith("hf/")]
        if self.precision != "float32" and foreign:
            words = f"expected models of this machine (hf/…), found {foreign[0]!r}, whose server decides"
            raise ValueError(f"precision: {words}; leave it out")
        return self

    def kinds(self) -> list[Questions]:
        """The questions of every kind, in the paper's order."""
        how: dict[str, Any] = {name: getattr(self, name) for name in ("count", "seed", "measure", *_CHANGES)}
        asked = [name for name in FORMULATIONS if name in self.formulations]
        each = [kinds((name,), self.depths if name == "equations" else (), **how) for name in asked]
        return [kind for several in each for kind in several]

    @property
    def names(self) -> dict[str, str]:
        """Models → names that fit into a legend."""
        return short_names(self.model)

    def departures(self) -> list[str]:
        """How this departs from the paper's protocol, in words; none is at scale."""
        wanted, own = [[each.kind for each in one.kinds()] for one in (Options(), self)]
        absent = len({*wanted} - {*own})
        words = {
            f"{self.count} of {PAPER_COUNT} questions of each kind": self.count < PAPER_COUNT,
            f"{absent} of {len(wanted)} kinds of questions not asked": absent > 0,
            "a choice among the acceptable answers instead of an answer": self.measure == "choice",
            f"{self.few_shot} solved examples": self.few_shot > 0,
            f"{self.filler} filler tokens": self.filler > 0,
            f"each problem told {self.repeats} times": self.repeats > 1,
        }
        return [each for each, departs in words.items() if departs]


_CHANGES = ("few_shot", "filler", "repeats")


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Models → names that fit into a legend: a long path loses its middle, if what is left is still different."""
    short = {}
    for model in models:
        provider, *_, last = model.rstrip("/").split("/")
        short[model] = model if len(model) <= _LONGEST else f"{provider}/…/{last}"
    return short if len(set(short.values())) == len(short) else {model: model for model in models}


def check(options: Options) -> list[Configuration]:
    """Nothing is trained; refuse to begin without a model, or without Inspect.

    Raises:
        UserError: says how to name a model, or how to install what is missing.
    """
    if not options.model:
        raise UserError(
            "model: expected at least one to ask, found none; name it as Inspect does, such as "
            "--model openai/gpt-4o or --model hf/FOLDER"
        )
    import hopscope.language.evaluate  # noqa: F401

    return []
