"""Induction with tokens: a key that stood in the context before asks for the value that followed it."""

from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

import hopscope as hs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Induction(hs.Task):
    """Pairs of a key and a value, then one key more; a key asks for the value that followed it before.

    In every sample each key has a value of its own, a new one: nothing can be learned by heart.

    * `repeats=False`: all keys of the context differ, and the last token is one of them, each with the same chance.  So
      there is one question, and the one place of its answer is anywhere in the context.
    * `repeats=True`: every key is drawn from all keys, whatever stood before.  Each that did stand before asks, so a
      longer context has more questions for each token.

    Attributes:
        context: tokens before the last one: two for each pair.
        kinds: number of different keys, and of values.
        repeats: see above.
        shuffled: whether a question's answer is the value of any pair before it, and cannot be known (a control).
    """

    context: int = Field(16, ge=4, multiple_of=2)
    kinds: int = Field(16, ge=2)
    repeats: bool = False
    shuffled: bool = False

    @model_validator(mode="after")
    def _kinds_suffice(self) -> "Induction":
        if not self.repeats and self.kinds < self.pairs:
            raise ValueError(f"kinds: expected one for each of {self.pairs} pairs, found {self.kinds}")
        return self

    @property
    def pairs(self) -> int:
        """Number of pairs of a key and a value."""
        return self.context // 2

    def shape(self) -> hs.Shape:
        """Keys, then values; asked at the last token, or at every key that may have stood before."""
        first = 2 if self.repeats else self.context
        return hs.Shape(
            inputs="tokens",
            input_size=2 * self.kinds,
            positions=self.context + 1,
            readout=tuple(range(first, self.context + 1, 2)),
            output_size=self.kinds,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Draw the value of each key, and the keys."""
        import torch

        values = draws.permutation("values", self.kinds)  # [member, batch, key]
        if self.repeats:
            keys = draws.integers("keys", self.kinds, (self.pairs + 1,))
        else:
            keys = draws.permutation("keys", self.kinds)[..., : self.pairs]
            keys = torch.cat((keys, keys.gather(-1, draws.integers("asked", self.pairs, (1,)))), -1)
        shown = values.gather(-1, keys)
        tokens = torch.stack((keys, self.kinds + shown), -1).flatten(-2)[..., :-1]
        asked = range(1, self.pairs + 1) if self.repeats else [self.pairs]
        targets = shown[..., asked]
        if self.shuffled:
            any_pair = draws.integers("any", torch.tensor(asked, device=draws.device), (len(asked),))
            targets = shown.gather(-1, any_pair)
        weights = self.matches(tokens)[:, :, asked].any(-1).float() if self.repeats else None
        return hs.Batch(
            inputs=tokens,
            targets=targets,
            weights=weights,
            relations={"answer": partial(self.answers, tokens)},
        )

    @staticmethod
    def matches(tokens: "Tensor") -> "Tensor":
        """Which values stand behind an earlier occurrence of a key, `[member, batch, key row, value]`.

        Args:
            tokens: inputs, `[member, batch, position]`.

        Returns:
            Of row r (position 2r) and value v (position 2v + 1) whether v < r and the keys before both are equal.
        """
        keys = tokens[..., ::2]
        return (keys[..., :, None] == keys[..., None, :]).tril(-1)[..., :-1]

    @staticmethod
    def answers(tokens: "Tensor") -> "Tensor":
        """Position of the latest value that answers each row, -1 where there is none, `[member, batch, position]`."""
        import torch

        matches = Induction.matches(tokens)
        places = torch.arange(matches.shape[-1], device=tokens.device)
        found = torch.full_like(tokens, -1)
        found[..., ::2] = torch.where(matches, 2 * places + 1, -1).amax(-1)
        return found

    @staticmethod
    def chance(tokens: "Tensor", readout: "Sequence[int]") -> float:
        """Accuracy of guessing any of the different values seen so far, mean over the questions of some samples.

        This is the plateau: without matching keys nothing does better on average.

        Args:
            tokens: inputs, `[member, batch, position]`.
            readout: positions at which keys ask.
        """
        rows = [row // 2 for row in readout]
        asked = Induction.matches(tokens).any(-1)
        different = (~asked).cumsum(-1)[..., [row - 1 for row in rows]]
        return float((1.0 / different)[asked[..., rows]].mean())
