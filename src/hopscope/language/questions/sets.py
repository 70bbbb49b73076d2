"""Which questions are put to a language model, and what a scored sample must remember of each."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.language.questions.prompts import putter
from hopscope.tasks.text import FORMULATIONS, Question, TextConfig, questions
from hopscope.tasks.text.config import Formulation
from hopscope.tasks.text.split import held_out_questions

FREE_DEPTH: Final[tuple[Formulation, ...]] = ("equations", "lives_with")
"""Formulations that have a depth to choose; the others have the one that the paper gives them."""
FREE_CHAINS = ("equations", "lives_with", "kingdoms")
"""Formulations whose number of chains can be chosen."""

Measure = Literal["answers", "choice"]
"""What is measured: answers as the paper asks for them, or the likeliest of the acceptable answers."""

Precision = Literal["float32", "bfloat16"]
"""Number format of weights and activations of models in this process."""


class QuestionSet(Config):
    """Questions of one formulation, or of several, at one depth or several.

    Attributes:
        formulations: which.
        depths: of the formulations that have one to choose; None is each formulation's own.  Read as they arrive
            from a command line: 3, "3", "1,2,3", ["1", "2"] or [1, 2].
        chains: N of the formulations that have an N to choose; None is each formulation's own.
        count: questions for each formulation and depth.
        seed: of the questions.
        held_out: only questions that no training with this held-out share sees (equations); None asks all.
        split_seed: of that split.
        few_shot: solved examples of the same kind before each question.
        filler: dots between each question and its answer.
        repeats: how often each problem is told.
        measure: whether the models answer, or choose among the acceptable answers by probability.
    """

    formulations: tuple[Formulation, ...]
    depths: tuple[int, ...] | None = None
    chains: int | None = None
    count: int = Field(default=500, ge=1)
    seed: int = 0
    held_out: float | None = None
    split_seed: int = 0
    few_shot: int = Field(default=0, ge=0)
    filler: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1)
    measure: Measure = "answers"

    @field_validator("formulations")
    @classmethod
    def _different(cls, formulations: tuple[Formulation, ...]) -> tuple[Formulation, ...]:
        if not formulations or len(set(formulations)) < len(formulations):
            raise ValueError(f"different ones of {', '.join(FORMULATIONS)}")
        return formulations

    @field_validator("depths", mode="before")
    @classmethod
    def _several(cls, given: object) -> tuple[int, ...] | None:
        if given is None:
            return None
        parts = given.split(",") if isinstance(given, str) else given
        try:
            depths = tuple(int(str(part)) for part in (parts if isinstance(parts, Sequence) else [parts]))
        except ValueError:
            depths = ()
        if not depths or len(set(depths)) < len(depths):
            raise ValueError("different whole numbers such as 1,2,3")
        return depths

    def depths_of(self, formulation: Formulation) -> tuple[int, ...] | None:
        """Depths asked of one formulation; None is its own.

        Asked for alone, a formulation is given depths that it may refuse; among others it keeps its own.
        """
        return self.depths if formulation in FREE_DEPTH or len(self.formulations) == 1 else None

    def chains_of(self, formulation: Formulation) -> int | None:
        """Chains asked of one formulation; None is its own.  What holds for depths holds here too."""
        return self.chains if formulation in FREE_CHAINS or len(self.formulations) == 1 else None

    def configs(self) -> list[TextConfig]:
        """One configuration for each formulation and depth.

        Raises:
            UserError: a formulation has no such depth or number of chains.
        """
        asked = [(each, depth) for each in self.formulations for depth in self.depths_of(each) or (None,)]
        found = []
        for formulation, depth in asked:
            fields = {"formulation": formulation, "depth": depth, "chains": self.chains_of(formulation)}
            try:
                found.append(
                    TextConfig.model_validate(
                        {name: value for name, value in fields.items() if value is not None}
                    )
                )
            except ValidationError as error:
                raise UserError(validation_line(error)) from None
        return found

    def questions(self) -> Iterator[Question]:
        """The questions, by formulation, then depth, then number.

        Raises:
            UserError: as `configs`, or there are not so many different questions.
        """
        for config in self.configs():
            yield from self._of(config)

    def prompts(self) -> Iterator[tuple[Question, str]]:
        """The questions, and how each is put.

        Raises:
            UserError: as `questions`; for solved examples too.
        """
        for config in self.configs():
            put = putter(
                config,
                self.seed,
                few_shot=self.few_shot,
                filler=self.filler,
                repeats=self.repeats,
                complete=self.measure == "choice",
            )
            yield from ((question, put(question)) for question in self._of(config))

    def _of(self, config: TextConfig) -> Iterator[Question]:
        if self.held_out is None:
            return questions(config, self.count, self.seed)
        return held_out_questions(config, self.count, self.seed, self.held_out, self.split_seed)


def question_set(**fields: Any) -> QuestionSet:
    """Make a question set.

    Raises:
        UserError: a field cannot be read, with what was expected and found.
    """
    try:
        return QuestionSet(**fields)
    except ValidationError as error:
        raise UserError(validation_line(error)) from None


def remembered(question: Question, seed: int) -> dict[str, Any]:
    """What a sample keeps of a question so that its answers can be scored and read without drawing it again.

    Returns:
        Plain JSON values: formulation, depth, kind (both in words), chains, seed, acceptable, alternatives (each wrong
        acceptable answer with the chain whose answer it is and the steps at which the reading may have gone wrong),
        symbols ([chain][step]) and chain (the one that is asked).
    """
    structure = question.structure
    return {
        "formulation": question.formulation,
        "depth": question.depth,
        "kind": f"{question.formulation} D={question.depth}",
        "chains": question.chains,
        "seed": seed,
        "acceptable": list(question.acceptable),
        "alternatives": [
            {"answer": other.answer, "chain": other.chain, "lost": list(other.lost)}
            for other in structure.alternatives
        ],
        "symbols": [list(chain) for chain in structure.symbols],
        "chain": structure.chain,
    }
