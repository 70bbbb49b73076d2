"""What is asked of which language models, and presets."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.language.questions.sets import Measure, Precision
from hopscope.tasks.text import FORMULATIONS
from hopscope.tasks.text.config import DEPTHS, Formulation

PAPER_COUNT = 500
"""Questions of each kind in the paper (section 4)."""

PAPER_DEPTHS = (1, 2, 3, 4, 5)
"""Depths of equations that the claim is about."""

_LONGEST = 24
"""Characters of a model's name that fit into a legend."""


class Kind(NamedTuple):
    """A kind of question: a cell of the study's table, for each model."""

    formulation: Formulation
    depth: int

    @property
    def words(self) -> str:
        """What it is called: the formulation, with its depth where that can be chosen."""
        name = self.formulation.replace("_", " ")
        return f"{name} D = {self.depth}" if self.formulation == "equations" else name


class LanguageModelConfig(Config):
    """Do language models solve retrieval problems in words (paper, section 4)?

    Attributes:
        model: models, each as Inspect names it: openai/gpt-4o, openai-api/NAME/MODEL for any server that speaks
            OpenAI's protocol, hopscope/FOLDER, hopscope/smollm2. Several may be given; none gives a page that says how.
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
        precision: number format of weights and activations of models in this process (hopscope/…).
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
    # Left out of the record where they are as in the paper, so that runs of before there was a choice are found again.
    measure: Measure = Field("answers", exclude_if=lambda measure: measure == "answers")
    few_shot: int = Field(0, ge=0, exclude_if=lambda count: count == 0)
    filler: int = Field(0, ge=0, exclude_if=lambda count: count == 0)
    repeats: int = Field(1, ge=1, exclude_if=lambda count: count == 1)
    precision: Precision = Field("float32", exclude_if=lambda precision: precision == "float32")
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
        nameless = next((name for name in self.model if "/" not in name.strip("/")), None)
        if nameless is not None:
            raise ValueError(
                f"model: expected PROVIDER/MODEL, such as openai/gpt-4o, found {nameless!r}; name its provider"
            )
        foreign = next((name for name in self.model if not name.startswith("hopscope/")), None)
        if self.precision != "float32" and foreign is not None:
            raise ValueError(
                f"precision: expected models of this process (hopscope/…), found {foreign!r}, whose server decides; "
                "leave it out"
            )
        return self

    def depths_of(self, formulation: Formulation) -> tuple[int, ...]:
        """Depths that a formulation is asked at."""
        return self.depths if formulation == "equations" else (DEPTHS[formulation],)

    def changes(self) -> dict[str, Any]:
        """How questions are put, where it is not the paper's way."""
        names = ("measure", "few_shot", "filler", "repeats")
        return {
            name: value
            for name in names
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }

    def kinds(self) -> list[Kind]:
        """Every kind of question, in the paper's order."""
        asked = [name for name in FORMULATIONS if name in self.formulations]
        return [Kind(name, depth) for name in asked for depth in self.depths_of(name)]

    def protocol_deviations(self) -> list[str]:
        """How this departs from the paper's protocol, in words; none is at scale."""
        wanted = LanguageModelConfig().kinds()
        absent = [kind for kind in wanted if kind not in self.kinds()]
        few = [f"{self.count} of {PAPER_COUNT} questions of each kind"] if self.count < PAPER_COUNT else []
        changes = {
            "a choice among the acceptable answers instead of an answer": self.measure == "choice",
            f"{self.few_shot} solved examples": self.few_shot > 0,
            f"{self.filler} filler tokens": self.filler > 0,
            f"each problem told {self.repeats} times": self.repeats > 1,
        }
        few += [f"{len(absent)} of {len(wanted)} kinds of questions not asked"] if absent else []
        return few + [words for words, changed in changes.items() if changed]


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Names that fit into a legend: a long path loses its middle, if what is left is still different."""
    short = {}
    for model in models:
        provider, *_, last = model.rstrip("/").split("/")
        short[model] = model if len(model) <= _LONGEST else f"{provider}/…/{last}"
    return short if len(set(short.values())) == len(short) else {model: model for model in models}


PRESETS = {
    "smoke": LanguageModelConfig(count=8),
    "laptop": LanguageModelConfig(),
    "paper": LanguageModelConfig(count=PAPER_COUNT),
}
COSTS = {
    "smoke": "72 questions to each model named with --model",
    "laptop": "900 questions to each model, of 20 to 55 short lines at most",
    "paper": "4,500 questions to each model, as in the paper",
}
