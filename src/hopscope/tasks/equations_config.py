"""Configuration of questions in equations, as a small language model is trained on them: a value without torch."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.tasks.task import BuiltInTask, Floors, Shape, made
from hopscope.tasks.text import TextConfig
from hopscope.tasks.text.tokens import equations_vocabulary, question_words

if TYPE_CHECKING:
    import torch

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws
    from hopscope.tasks.equations import EquationsTask

LARGEST_MAPPING = 6
"""Chains of equations, at most: a table of all their mappings is kept."""

KINDS = ("padding", "given", "equals", "found", "word", "query", "answer", "end", "repeated")
"""What a token is: of a line its left name, the sign, its right name or value; of the question sentence a word, or the
name that is asked about; the answer and the mark behind it; a token of a repeated line."""

LINE = 3
"""Tokens of a line of equations: a name, the sign, a name or value."""


class EquationsConfig(BuiltInTask):
    """Questions in equations (paper, section 4 and Appendix A.1) as tokens, for a small language model.

    A training text is a question, its answer and an end mark, then the lines of the question once more in another
    order.  The model predicts the answer, the mark, and the right side of every repeated line.

    Attributes:
        chains: interleaved chains N.
        depths: how many rounds D a question may have, ascending.
        mixture: how often each of them is drawn: all alike, with a probability in proportion to 1 / D (Zipf), or in
            proportion to given weights, one for each depth.
        lines: what the right side of a line may be in training: a symbol of the round before, each once, as in the
            paper ("paper"), or any name of an earlier round or value ("earlier"), so that a question with D rounds
            takes 1 to D steps.  Held-out questions are the paper's always.
        asked: in training, what a question is about: a name of the last round, as in the paper, or any.
        repeated: whether the lines are repeated behind the answer in training.
        held_out_share: of all N! mappings of names to values, those that training never sees.
        split_seed: seed of that split.
    """

    kind: Literal["equations"] = "equations"
    chains: int = Field(4, ge=2, le=LARGEST_MAPPING)
    depths: tuple[int, ...] = (1, 2)
    mixture: Literal["uniform", "zipf"] | tuple[float, ...] = "uniform"
    lines: Literal["paper", "earlier"] = "earlier"
    asked: Literal["last", "any"] = "any"
    repeated: bool = True
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def shares(self) -> tuple[float, ...]:
        """Probability of each depth in the mixture."""
        if isinstance(self.mixture, tuple):
            weights = self.mixture
        else:
            weights = tuple(1.0 if self.mixture == "uniform" else 1.0 / depth for depth in self.depths)
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All tokens, in the order of their numbers."""
        return equations_vocabulary(self.chains, self.depths[-1])

    def prompt_length(self, depth: int) -> int:
        """Tokens of a question with so many rounds: lines, and the question sentence."""
        before, behind = question_words(self.chains, depth)
        return LINE * self.chains * depth + len(before) + 1 + len(behind)

    def answered(self, depth: int) -> tuple[int, ...]:
        """Positions where something is to be predicted: the question's last, the answer, the = of repeated lines."""
        end = self.prompt_length(depth)
        repeated = range(end + 3, end + 2 + LINE * self.chains * depth, LINE) if self.repeated else ()
        return (end - 1, end, *repeated)

    @property
    def positions(self) -> int:
        """Length of the input: all but the last token of the longest text."""
        return self.answered(self.depths[-1])[-1] + 1

    @property
    def readout(self) -> tuple[int, ...]:
        """Positions where something is to be predicted at some depth, ascending."""
        return tuple(sorted({position for depth in self.depths for position in self.answered(depth)}))

    def shape(self) -> Shape:
        """Tokens; asked are the answer, the end mark, and the right side of every repeated line."""
        size = len(self.vocabulary)
        return Shape(
            inputs="tokens", input_size=size, positions=self.positions, readout=self.readout, output_size=size
        )

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "EquationsTask":
        """The task on a device; see `Task.on`."""
        from hopscope.tasks.equations import EquationsTask

        return made(EquationsTask, self, device, examples)

    def sample(self, draws: "Draws") -> "Batch":
        """Training texts; held-out ones are the paper's questions, with a mapping that training never has."""
        task = self.on(draws.device)
        return task.held_out_mixture(draws) if draws.use == "held-out" else task.drawn(draws)

    def floors(self) -> Floors:
        """Of the answer: a guess among the values."""
        return {"loss_answer": {"guess": math.log(self.chains)}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`, and the vocabulary."""
        return {"roles": {"kind": KINDS}, "token": self.vocabulary.__getitem__}

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if not self.depths or list(self.depths) != sorted(set(self.depths)) or self.depths[0] < 1:
            raise ValueError(f"depths: expected ascending numbers from 1, found {list(self.depths)}")
        if isinstance(self.mixture, tuple):
            _check_weights(self.mixture, self.depths)
        deepest = self.depths[-1]
        # Refuses what cannot be written.
        TextConfig(formulation="equations", depth=deepest, chains=self.chains)
        if (deepest * self.chains) ** self.chains >= 1 << 31:
            raise ValueError(
                f"depths: expected (depth · chains)^chains below 2^31, found ({deepest} · {self.chains})^"
                f"{self.chains}; take a smaller depth or fewer chains"
            )
        return self


def _check_weights(weights: tuple[float, ...], depths: tuple[int, ...]) -> None:
    """Refuse weights that leave out the deepest questions: those of a task without them are drawn otherwise."""
    if len(weights) != len(depths) or min(weights) < 0.0 or weights[-1] == 0.0:
        raise ValueError(
            f"mixture: expected a weight for each depth of {list(depths)}, none below 0 and the last above, "
            f"found {list(weights)}"
        )
