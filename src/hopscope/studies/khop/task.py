"""K-hop induction: follow the last occurrence of a letter k times (Sanford, Hsu and Telgarsky, arXiv 2402.09268)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

import hopscope as hs
from hopscope.words import counted

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.tasks.task import Floors


class Hops(hs.Task):
    """Say at every letter of a text which letter is k hops back; k stands in front of the text.

    One hop goes from position i to find(i), the position after the last j < i with X_j = X_i.  The answer of k hops is
    hop_k(X)_i = X_{find^k(i)} (section 4 of the paper).  Letters are drawn uniformly, but none follows itself, and k is
    uniform over `hops`, as in the publication's experiments.  Where no such position exists, the publication asks for a
    symbol of its own and leaves it out of its errors; here it is left out of the loss too (weight 0).

    Attributes:
        letters: size of the alphabet.
        length: letters in a text.
        hops: numbers of hops that are asked for, each in a sample of its own.
    """

    letters: int = Field(4, ge=3)
    length: int = Field(32, ge=4)
    hops: tuple[int, ...] = Field((1, 2, 3, 4), min_length=1)

    def shape(self) -> hs.Shape:
        """The number of hops, then the letters; a letter is asked for at each of them."""
        return hs.Shape(
            inputs="tokens",
            input_size=self.letters + len(self.hops),
            positions=1 + self.length,
            readout=tuple(range(1, 1 + self.length)),
            output_size=self.letters,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """A text without equal neighbours, and how many hops are asked for."""
        import torch

        asked = draws.integers("hops", len(self.hops))
        first = draws.integers("first", self.letters, (1,))
        turns = 1 + draws.integers("turns", self.letters - 1, (self.length - 1,))
        text = torch.cat((first, turns), -1).cumsum(-1) % self.letters
        inputs = torch.cat((self.letters + asked[..., None], text), -1)
        hop = one_hop(inputs)
        ends = self.follow(hop, torch.tensor(self.hops, device=asked.device)[asked])
        reached = ends[..., 1:] > 0
        return hs.Batch(
            inputs=inputs,
            targets=inputs.gather(-1, ends)[..., 1:] * reached,
            weights=reached.float(),
            groups={name: asked == number for number, name in enumerate(self.names())},
            roles={"kind": draws.constant([0] + [1] * self.length, (1 + self.length,))},
            relations={
                "answer": lambda: ends.where(ends > 0, -1),
                "one_hop": lambda: hop.where(hop > 0, -1),
            },
        )

    def follow(self, hop: "Tensor", times: "Tensor") -> "Tensor":
        """Where `times` hops lead, `[member, batch, position]`; 0: nowhere.

        Args:
            hop: of `one_hop`.
            times: number of hops of each sample, `[member, batch]`.
        """
        import torch

        found = torch.arange(hop.shape[-1], device=hop.device).expand_as(hop)
        for done in range(int(times.max())):
            found = torch.where((done < times)[..., None], hop.gather(-1, found), found)
        return found

    def names(self) -> list[str]:
        """The groups of samples: `1 hop`, `2 hops`, …"""
        return [counted(hops, "hop") for hops in self.hops]

    def floors(self) -> "Floors":
        """Accuracy of a guess, and of an answer that is two hops short.

        In a long text hop_k is the same letter as hop_{k-2} in a share of 2 / letters; for k = 1 the letter before the
        current one takes its place, for k = 2 the current one.
        """
        return {"accuracy": {"a guess": 1 / self.letters, "two hops fewer": 2 / self.letters}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Words of the role `kind`, and how a token is written."""
        return {"roles": {"kind": ("hops", "letter")}, "token": self._token}

    def _token(self, token: int) -> str:
        return chr(97 + token) if token < self.letters else str(self.hops[token - self.letters])


def one_hop(inputs: "Tensor") -> "Tensor":
    """The position after the last earlier occurrence of each token, `[…, position]`; 0: it did not occur before."""
    import torch

    size = inputs.shape[-1]
    same = (inputs[..., :, None] == inputs[..., None, :]).tril(-1)
    return (same * torch.arange(1, 1 + size, device=inputs.device)).amax(-1)
