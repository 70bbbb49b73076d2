"""Multi-query associative recall: pairs of a key and a value, then every key again (Arora et al., arXiv 2312.04927)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

import hopscope as hs

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks.task import Floors

BLANK = 0
"""Token between the queries."""


class MultiQueryRecall(hs.Task):
    """Pairs of a key and a value, then each key again, at a place of its own: answer its value there.

    Samples are those of the publication's generator.  Of a vocabulary of V tokens, 0 is the blank, 1 … V/2 - 1 are keys
    and the rest are values.  Each sample has different keys and different values.  After the pairs, keys may stand at
    every second position, in slots s = 1, 2, …; slots are drawn one after another without replacement, for the first
    pair first, in proportion to s^(power - 1).  All other positions are blank.

    Attributes:
        pairs: number of pairs P.
        vocabulary: number of tokens V.
        length: length of a sequence; by default 4 P, where every slot has a key.
        power: of the distribution of slots; 1 is uniform, the publication has 0.01.
    """

    pairs: int = Field(8, ge=2)
    vocabulary: int = Field(128, ge=6, multiple_of=2)
    length: int | None = Field(None, ge=8, multiple_of=2)
    power: float = Field(0.01, gt=0.0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.length is not None and self.length < 4 * self.pairs:
            raise ValueError(f"length: expected 4 * pairs = {4 * self.pairs} or more, found {self.length}")
        if self.vocabulary < 2 * self.pairs + 2:
            raise ValueError(f"vocabulary: expected {2 * self.pairs + 2} or more, found {self.vocabulary}")
        return self

    @property
    def slots(self) -> int:
        """Number of positions where a key may stand again."""
        return ((self.length or 4 * self.pairs) - 2 * self.pairs) // 2

    def rates(self) -> list[float]:
        """What the probability of each slot is proportional to."""
        return [slot ** (self.power - 1) for slot in range(1, 1 + self.slots)]

    def shape(self) -> hs.Shape:
        """Pairs, then slots with a blank behind each; a token is asked for at every slot."""
        context = 2 * self.pairs
        return hs.Shape(
            inputs="tokens",
            input_size=self.vocabulary,
            positions=context + 2 * self.slots,
            readout=tuple(range(context, context + 2 * self.slots, 2)),
            output_size=self.vocabulary,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Keys, values, and a slot for each pair."""
        import torch

        half, pairs = self.vocabulary // 2, self.pairs
        keys = 1 + draws.permutation("keys", half - 1)[..., :pairs]
        values = half + draws.permutation("values", half)[..., :pairs]
        # Of exponential clocks the one with rate r rings first in proportion to r: drawing without replacement.
        rates = torch.tensor(self.rates(), device=draws.device)
        slots = (-torch.log1p(-draws.uniform("slots", (self.slots,))) / rates).argsort(-1)[..., :pairs]
        pair = (
            draws.constant(-1, (self.slots,))
            .clone()
            .scatter(-1, slots, draws.constant(range(pairs), (pairs,)))
        )
        asked, of = pair >= 0, pair.clamp(min=0)
        source = torch.where(asked, 2 * of + 1, -1)
        before = [-1 if position % 2 == 0 else position - 1 for position in range(2 * pairs)]
        return hs.Batch(
            inputs=torch.cat((_woven(keys, values), _woven(keys.gather(-1, of) * asked, BLANK)), -1),
            targets=values.gather(-1, of) * asked,
            weights=None if self.slots == pairs else asked.float(),
            roles={"kind": draws.constant([0, 1] * pairs + [2, 3] * self.slots, self._size())},
            relations={
                "value": torch.cat((draws.constant(-1, (2 * pairs,)), _woven(source, -1)), -1),
                "key": draws.constant(before + [-1] * (2 * self.slots), self._size()),
            },
        )

    def _size(self) -> tuple[int]:
        return (2 * self.pairs + 2 * self.slots,)

    def by_place(self) -> float:
        """Accuracy of the best answer from the place of a query alone; a lower bound of it where slots stay empty.

        A slot of rate r is drawn at a time t with density r e^(-r t), and each other slot, of rate r', before it with
        probability 1 - e^(-r' t).  The number of those before it says which pair it belongs to.
        """
        import numpy as np

        rates = np.array(self.rates())
        points, weights = np.polynomial.legendre.leggauss(60)
        total = 0.0
        for slot, rate in enumerate(rates):
            later = ((points[:, None] + 1) / 2) ** (np.delete(rates, slot) / rate)
            counts = np.zeros((len(points), self.pairs))
            counts[:, 0] = 1.0
            for share in later.T[..., None]:
                counts = counts * share + np.pad(counts, ((0, 0), (1, 0)))[:, :-1] * (1 - share)
            total += float((weights / 2 @ counts).max())
        return total / self.pairs

    def floors(self) -> "Floors":
        """Accuracy of a value of the sample at random, and of the best answer by place alone."""
        return {"accuracy": {"any value of the sample": 1 / self.pairs, "by place alone": self.by_place()}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`, and how a token is written."""
        return {"roles": {"kind": ("key", "value", "query", "blank")}, "token": self._token}

    def _token(self, token: int) -> str:
        half = self.vocabulary // 2
        return "_" if token == BLANK else f"k{token}" if token < half else f"v{token - half}"


def _woven(first: "Tensor", second: "Tensor | int") -> "Tensor":
    """Two tensors by turns along the last axis."""
    import torch

    if isinstance(second, int):
        second = torch.full_like(first, second)
    return torch.stack((first, second), -1).flatten(-2)
