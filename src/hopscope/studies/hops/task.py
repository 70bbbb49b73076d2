"""k-hop induction: induction that starts again from what it has found (arXiv 2402.09268, section 5)."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

import hopscope as hs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hopscope.tasks.task import Floors


def nth_hop(number: int) -> str:
    """The group of samples that ask for so many hops."""
    return f"hop_{number}"


class HopInduction(hs.Task):
    """At every position, follow k hops back and say which letter stands there.

    One hop goes from a position to the letter right after the last earlier occurrence of the same letter; there is
    none for a letter that was not seen before.  A further hop starts from the position that was found.  The first
    token says k, which is drawn for each sample: 0 … `hops`.  Where a hop does not exist, the answer is *none*.

    Attributes:
        hops: most hops that are asked for.
        letters: size of the alphabet.
        length: letters of a sequence.
    """

    hops: int = Field(4, ge=1)
    letters: int = Field(4, ge=2)
    length: int = Field(32, ge=2)

    def shape(self) -> hs.Shape:
        """A token that says k, then letters; at each of them a letter or *none* is asked for."""
        return hs.Shape(
            inputs="tokens",
            input_size=self.letters + self.hops + 1,
            positions=self.length + 1,
            readout=tuple(range(1, self.length + 1)),
            output_size=self.letters + 1,
        )

    def sample(self, draws: "hs.Draws") -> "hs.Batch":
        """Letters that are uniform, and their answers."""
        import torch

        letters = draws.integers("letters", self.letters, (self.length,))
        asked = draws.integers("hops", self.hops + 1)
        answers = torch.stack([*self.answers(letters)], -1)
        chosen = asked[..., None, None].expand(*letters.shape, 1)
        names = {nth_hop(number): asked == number for number in range(self.hops + 1)}
        return hs.Batch(
            inputs=torch.cat((self.letters + asked[..., None], letters), -1),
            targets=answers.gather(-1, chosen)[..., 0],
            groups=names,
        )

    def answers(self, letters: "Tensor") -> "list[Tensor]":
        """Answers after 0 … `hops` hops, `[..., position]`; the number `letters` says *none*."""
        import torch

        size = letters.shape[-1]
        place = torch.arange(size, device=letters.device)
        after_same = letters[..., :, None] == letters[..., None, :].roll(1, -1)
        after_same &= (place <= place[:, None]) & (place > 0)
        one = torch.where(after_same, place, -1).amax(-1)
        found, at = [], place.expand(letters.shape)
        for _ in range(self.hops + 1):
            found.append(torch.where(at >= 0, letters.gather(-1, at.clamp(min=0)), self.letters))
            at = torch.where(at >= 0, one.gather(-1, at.clamp(min=0)), -1)
        return found

    def parts(self, predictions: "Tensor", batch: "hs.Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats, and the share of the positions whose answer is most probable."""
        right = (predictions.argmax(-1) == batch.targets).float().mean((1, 2))
        return {**super().parts(predictions, batch), "accuracy": right}

    def loss_gradient(self, predictions: "Tensor", batch: "hs.Batch") -> "Tensor":
        """Derivative of the loss by the predictions."""
        return super().loss_gradient(predictions, batch)

    def floors(self) -> "Floors":
        """Accuracy of a letter at random."""
        return {"accuracy": {"a letter at random": 1.0 / self.letters}}

    def reference(self, draws: Any) -> "Mapping[str, Any] | None":
        """The same sample by loops."""
        letters = draws.integers("letters", self.letters, (self.length,))
        asked = draws.integers("hops", self.hops + 1)
        targets = []
        for start in range(self.length):
            at: int | None = start
            for _ in range(asked):
                same = [] if at is None else [j for j in range(1, at + 1) if letters[j - 1] == letters[at]]
                at = same[-1] if same else None
            targets.append(self.letters if at is None else letters[at])
        return {"inputs": [self.letters + asked, *letters], "targets": targets}
