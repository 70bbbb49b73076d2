"""Questions in equations as tokens (paper, section 4 and Appendix A.1): what a small language model is trained on.

D rounds of N lines such as "b = a", the question sentence, and in training the answer and the lines once more.  The
model answers at the last token of the question.  Names are a … z, then aa … zz.  No torch.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope_next.tasks.task import Floors, Shape, Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hopscope_next.tasks.batch import Batch
    from hopscope_next.tasks.draws import Draws
    from hopscope_next.tasks.texts import Texts

PADDING, END = "<pad>", "<end>"
"""Tokens 0 and 1: behind the end of a text, and behind an answer."""

TOKEN_PATTERN = r"[A-Za-z]+|\d+|[^\sA-Za-z\d]"
"""Regular expression of one token: a word, a number or a sign."""

KINDS = ("padding", "given", "equals", "found", "word", "query", "answer", "end", "repeated")
"""What a token is: of a line its left name, the sign, its right name or value; of the question sentence a word, or the
name that is asked about; the answer and the mark behind it; a token of a repeated line."""

LINE = 3
"""Tokens of a line: a name, the sign, a name or value."""

SENTENCE = "What is the value of ", "? Say directly only the numeric value, without any other words."
"""What stands before and behind the name that is asked about."""

_NAMES = (*ascii_lowercase, *map("".join, itertools.product(ascii_lowercase, repeat=2)))


class Equations(Task):
    """Questions in equations.

    A training text is a question, its answer and an end mark, then the lines of the question once more in another
    order.  The model predicts the answer, the mark, and the right side of every repeated line.  Held-out questions are
    the paper's, with mappings of names to values that training never has.

    Attributes:
        chains: interleaved chains N.
        depths: how many rounds D a question may have, ascending.
        mixture: how often each of them is drawn: all alike, with a probability in proportion to 1 / D (Zipf), or in
            proportion to given weights, one for each depth.
        lines: what the right side of a line may be in training: a symbol of the round before, each once, as in the
            paper ("paper"), or any name of an earlier round or value ("earlier"), so that a question with D rounds
            takes 1 to D steps.
        asked: in training, what a question is about: a name of the last round, as in the paper, or any.
        repeated: whether the lines are repeated behind the answer in training.
        held_out_share: of all N! mappings of names to values, those that training never sees.
        split_seed: seed of that split.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "round", "slot")

    chains: int = Field(4, ge=2, le=6)
    depths: tuple[int, ...] = (1, 2)
    mixture: Literal["uniform", "zipf"] | tuple[float, ...] = "uniform"
    lines: Literal["paper", "earlier"] = "earlier"
    asked: Literal["last", "any"] = "any"
    repeated: bool = True
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0, lt=1 << 63)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Of each depth in the mixture."""
        if isinstance(self.mixture, tuple):
            weights = self.mixture
        else:
            weights = tuple(1.0 if self.mixture == "uniform" else 1.0 / depth for depth in self.depths)
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Words of the values, then of the names of each round."""
        return (*map(str, range(self.chains)), *_NAMES[: self.chains * self.depths[-1]])

    @property
    def sentence(self) -> tuple[list[str], list[str]]:
        """Tokens of the question sentence before and behind the name that is asked about."""
        before, behind = (re.findall(TOKEN_PATTERN, half) for half in SENTENCE)
        return before, behind

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All tokens, in the order of their numbers; a name such as "a" may be a word of the question too."""
        before, behind = self.sentence
        values, names = self.symbols[: self.chains], self.symbols[self.chains :]
        return tuple(dict.fromkeys((PADDING, END, *values, "=", *names, *before, *behind)))

    @property
    def held_out_mappings(self) -> tuple[tuple[int, ...], ...]:
        """Those whose hash ranks first: of each name of the last round its value; the same on any machine."""
        every = list(itertools.permutations(range(self.chains)))
        every.sort(key=lambda mapping: hashlib.sha256(f"{self.split_seed}/{mapping}".encode()).digest())
        return tuple(sorted(every[: min(max(1, round(self.held_out_share * len(every))), len(every) - 1)]))

    def prompt_length(self, depth: int) -> int:
        """Tokens of a question with so many rounds: lines, and the question sentence."""
        before, behind = self.sentence
        return LINE * self.chains * depth + len(before) + 1 + len(behind)

    def answered(self, depth: int) -> tuple[int, ...]:
        """Positions where something is to be predicted: the question's last, the answer, the = of repeated lines."""
        end = self.prompt_length(depth)
        repeated = range(end + 3, end + 2 + LINE * self.chains * depth, LINE) if self.repeated else ()
        return (end - 1, end, *repeated)

    def shape(self) -> Shape:
        """Tokens; asked are the answer, the end mark, and the right side of every repeated line."""
        size, readout = len(self.vocabulary), {each for depth in self.depths for each in self.answered(depth)}
        return Shape(
            inputs="tokens",
            input_size=size,
            positions=self.answered(self.depths[-1])[-1] + 1,
            readout=tuple(sorted(readout)),
            output_size=size,
        )

    def sample(self, draws: "Draws") -> "Batch":
        """Training texts; held-out ones are the paper's questions.

        Roles: `kind` (`KINDS`), `step` (of a line: 1 is the round that the question asks for; 0 elsewhere), `round`
        (of a line: 1 is the first; behind the lines: the last), `slot` (of a word: its number in the sentence), `chain`
        (the value in which a line's symbols, the query, or the words behind it end; -1 where there is none).
        Relations: `previous`, `pair_mate` (the other symbol of a line), `same_symbol` (from a name on the right, and
        from the query, to the left of the line that tells what it is), `query` (from the words behind it), and `hop_k`
        (what stands on the right after following k lines; words behind the query count as the query).
        """
        texts = _texts(self, draws.device)
        return texts.questions(draws.address) if draws.use == "held-out" else texts.training(draws.address)

    def questions(
        self,
        count: int,
        depth: int,
        *,
        familiar: bool = False,
        step: int = 0,
        device: "torch.device | str" = "cpu",
    ) -> "Batch":
        """The paper's questions of one depth, with padding behind them and a member axis of 1.

        Args:
            count, step: how many, and where they are drawn.
            depth: number of rounds, one of `depths`.
            familiar: with mappings that training may see, in place of held-out ones.
            device: of the tensors.
        """
        import torch

        seed = torch.tensor([[self.split_seed]], device=device)
        address = (seed, "evaluate", step, torch.arange(count, device=device))
        return _texts(self, seed.device).questions(address, self.depths.index(depth), familiar=familiar)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats: over all tokens that are to be predicted, and mean over the answers."""
        from hopscope_next.tasks.loss import default_parts
        from hopscope_next.tasks.texts import answer_loss

        return {**default_parts(predictions, batch), "loss_answer": answer_loss(predictions, batch)}

    def skills(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """The answer at each depth."""
        import torch

        from hopscope_next.tasks.loss import counted

        asked, readout = counted(batch), self.shape().readout
        found = {}
        for depth in self.depths:
            end = readout.index(self.prompt_length(depth) - 1)
            here = torch.zeros_like(asked)
            of_depth = (
                batch.groups[f"D = {depth}"] if len(self.depths) > 1 else torch.ones_like(asked[..., 0])
            )
            here[..., end] = asked[..., end] & of_depth
            found[f"D = {depth}"] = here
        return found

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
        deepest, weights = self.depths[-1], self.mixture
        if isinstance(weights, tuple) and (
            len(weights) != len(self.depths) or min(weights) < 0.0 or weights[-1] == 0.0
        ):
            raise ValueError(
                f"mixture: expected a weight for each depth of {list(self.depths)}, none below 0 and the last above, "
                f"found {list(weights)}"
            )
        if (deepest * self.chains) ** self.chains >= 1 << 31:
            raise ValueError(
                f"depths: expected (depth · chains)^chains below 2^31, found ({deepest} · {self.chains})^"
                f"{self.chains}; take a smaller depth or fewer chains"
            )
        return self


@lru_cache(maxsize=32)
def _texts(task: Equations, device: "torch.device") -> "Texts":
    from hopscope_next.tasks.texts import Texts

    number = {token: place for place, token in enumerate(task.vocabulary)}
    before, behind = task.sentence
    mappings = [*itertools.permutations(range(task.chains))]
    return Texts(
        device,
        chains=task.chains,
        depths=task.depths,
        probabilities=task.probabilities,
        earlier=task.lines == "earlier",
        any_name=task.asked == "any",
        answered=[task.answered(depth) for depth in task.depths],
        symbols=[number[word] for word in task.symbols],
        sentence=([number[word] for word in before], [number[word] for word in behind]),
        equals=number["="],
        held_out=task.held_out_mappings,
        trained=[each for each in mappings if each not in {*task.held_out_mappings}],
    )
