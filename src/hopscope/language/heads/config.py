"""What is asked of the heads of a model."""

from typing import Final, Literal

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.language.heads.answers import Method
from hopscope.language.heads.ranking import ANY_TARGET
from hopscope.language.questions.prompts import Place, placer
from hopscope.tasks.text import TextConfig
from hopscope.tasks.text.config import Formulation

BEST: Final = "best"
"""In place of a formulation: the way to ask that the model answers best."""

_CHANGES: Final = ("few_shot", "filler", "repeats", "complete")


class HeadsConfig(Config):
    """What is asked of the heads of a model.

    Attributes:
        formulation: of the questions; None for passages.  `best`: the one of several ways to ask (`heads.settings`)
            that the model answers best on questions of their own, which sets `depth`, `chat`, `few_shot`, `repeats` and
            `complete` too.
        depth: D of the questions on which heads are found; where the formulation has other depths, 1 … D are all
            answered without the heads.  None stands for the formulation's own.
        chains: N.
        count: questions on which heads are found, and as many others on which they are taken out, of each depth.
        seed: of the questions and of the random heads.
        chat: whether prompts go through the tokenizer's chat template.
        few_shot: solved examples of the same kind before each question.
        filler: dots between each question and its answer.
        repeats: how often each problem is told.
        complete: whether a question ends with the beginning of the sentence that its answer ends, as a forced choice
            does, instead of asking for the answer.
        method: what stands in a head's place.
        rank: target by which heads are ranked, or "any".
        top: how many heads are taken out at once; empty for 1, 2, 4, 8, at most one of eight.
        draws: sets of random heads that the top ones are compared with.
    """

    formulation: Formulation | Literal["best"] | None = None
    depth: int | None = None
    chains: int = 4
    count: int = Field(default=64, ge=2)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    chat: bool = False
    few_shot: int = Field(default=0, ge=0)
    filler: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1)
    complete: bool = False
    method: Method = "mean"
    rank: str = ANY_TARGET
    top: tuple[int, ...] = ()
    draws: int = Field(default=8, ge=1)

    @model_validator(mode="after")
    def _questions_exist(self) -> "HeadsConfig":
        changed = [name for name in _CHANGES if getattr(self, name) != type(self).model_fields[name].default]
        if self.formulation is None and changed:
            raise ValueError(
                f"{changed[0]}: expected questions, found a passage, which is read as it stands; leave it out"
            )
        if self.formulation == BEST and (self.chat or changed):
            raise ValueError(
                f"{'chat' if self.chat else changed[0]}: expected it left to the formulation {BEST}, which tries "
                "several, found it set; leave it out, or name a formulation"
            )
        if self.formulation not in (None, BEST):
            self.text()
        return self

    def text(self, depth: int | None = None) -> TextConfig:
        """The questions of a depth; of the configuration's own without one."""
        assert self.formulation not in (None, BEST), "nothing is drawn of these"
        try:
            return TextConfig(formulation=self.formulation, depth=depth or self.depth, chains=self.chains)
        except ValidationError as error:
            raise ValueError(validation_line(error)) from None

    def placed(self, depth: int | None = None) -> Place:
        """How the questions of a depth are put; of the configuration's own without one."""
        return placer(
            self.text(depth),
            self.seed,
            few_shot=self.few_shot,
            filler=self.filler,
            repeats=self.repeats,
            complete=self.complete,
        )
