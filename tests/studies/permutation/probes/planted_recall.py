"""One-layer transformers, set by hand, that answer the permutation task by a mechanism that is known beforehand.

The residual stream has a part for the row's own token, one for its position, for each head a *pointer* (a position
that it attends to) and a *history* (the tokens it attends to, weighted), and the *answer* that the FFN writes.  There
are no norms.  The value 0 is the answer of a model that finds nothing; it is never right.
"""

from itertools import product

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer

SHARP = 80.0
"""Scores that differ by half of this leave nothing to the smaller one, in float32."""

SHUT = 4.0
"""How far a pointer that points elsewhere pushes a unit below its threshold; no history exceeds 1."""

ELIMINATED, RECALLED, FOUND_NOTHING = 1.0, 2.0, 0.5
"""Logits of the unused value, of the recalled one, and of 0."""

DISTINCT = {3: (0.2, 0.8), 4: (1 / 12, 2 / 12, 9 / 12), 5: (1 / 16, 2 / 16, 6 / 16, 7 / 16)}
"""V → weights of the slots.  Neither 1/V (a mean history) nor 1/(V - 1) (equal weights) comes near one of them."""

WIDTH_OF_TENT = 0.02

CODES = torch.tensor([1.0, 4.0, 2.0, 8.0, 3.0, 20.0, 0.0])
"""V = 4: weights of x₁, y₁, … x₄ in a history that can be decoded, because no two sums of an x's and a y's agree."""


def equal(values: int) -> tuple[float, ...]:
    return (1.0 / (values - 1),) * (values - 1)


class PlantedRecall:
    """A blank ensemble to plant recall and elimination in.

    Attributes:
        model: the ensemble; every weight but the embeddings, the readout of the answer and its bias is zero until
            something is planted.
    """

    def __init__(self, values: int, members: int, heads: int, units: int):
        self.values, self.members, self.heads = values, members, heads
        self.tokens, self.length = values + 1, 2 * values - 1
        each = self.length + self.tokens
        self.head_dim = each + 1
        width = 2 * self.tokens + self.length + heads * each
        shape = TransformerConfig(
            heads=heads,
            head_dim=self.head_dim,
            width=width,
            mlp_ratio=units / width,
            activation="relu",
            norm="none",
            length=self.length,
            input_size=self.tokens,
            output_size=self.tokens,
            readout=tuple(range(0, self.length, 2)),
        )
        self.model = Transformer(shape, Parameters(parameter_specs(shape), members))
        self.own = slice(0, self.tokens)
        self.place = slice(self.tokens, self.tokens + self.length)
        self.answer = slice(width - self.tokens, width)
        self._used = [0] * members
        # Scores are divided by this; what a head attends to shall not depend on its size.
        self._root = self.head_dim**0.5
        weights = self._weights = self.model.weights
        weights["embed.token.weight"][:, :, self.own] = torch.eye(self.tokens)
        weights["embed.position.weight"][:, :, self.place] = torch.eye(self.length)
        weights["readout.weight"][:, self.answer] = torch.eye(self.tokens)
        # Of equal answers the smallest shall win, on every machine.
        weights["readout.bias"][:] = -0.001 * torch.arange(self.tokens)
        weights["readout.bias"][:, 0] = FOUND_NOTHING

    def pointer(self, head: int) -> int:
        """Where the pointer of a head begins in the stream."""
        return self.place.stop + head * (self.length + self.tokens)

    def history(self, head: int) -> int:
        """Where the history of a head begins in the stream."""
        return self.pointer(head) + self.length

    # Attention.

    def match(self, member: int, head: int) -> "PlantedRecall":
        """A row whose token is an earlier x points to that x; all other rows point to themselves."""
        query, key = self._map(member, head, "query"), self._map(member, head, "key")
        tokens, y_rows = self.tokens, torch.arange(self.length) % 2 == 1
        query[self.own, :tokens] = SHARP * self._root * torch.eye(tokens)
        key[self.own, :tokens] = torch.eye(tokens)
        # Itself holds the same token, too: half as good as a copy for an x, better than anything for a y.
        itself = torch.where(y_rows, 3.0 * SHARP, -SHARP / 2.0)
        query[self.place, tokens : tokens + self.length] = self._root * torch.diag(itself)
        key[self.place, tokens : tokens + self.length] = torch.eye(self.length)
        self._bias(member, head, torch.where(y_rows, -2.0 * SHARP, 0.0))
        self._map(member, head, "value")[self.place, : self.length] = torch.eye(self.length)
        return self._write(member, head, 0, self.length, self.pointer(head))

    def attend_to_history(self, member: int, head: int, slots: tuple[float, ...]) -> "PlantedRecall":
        """Rows read the tokens of the y's that they see, with these weights."""
        weights = torch.zeros(self.length)
        weights[1::2] = torch.tensor(slots)
        return self.attend_with_weights(member, head, weights)

    def attend_with_weights(self, member: int, head: int, weights: torch.Tensor) -> "PlantedRecall":
        """Rows read the tokens of all positions that they see, with weights in these proportions."""
        self._bias(member, head, torch.where(weights > 0.0, weights.log(), torch.tensor(-SHARP)))
        value = self._map(member, head, "value")
        value[self.own, self.length : self.length + self.tokens] = torch.eye(self.tokens)
        return self._write(member, head, self.length, self.tokens, self.history(head))

    def _map(self, member: int, head: int, part: str) -> torch.Tensor:
        """One head's columns of a projection, `[model, head_dim]`."""
        weight = self._weights[f"layers.0.attention.{part}.weight"][member]
        return weight[:, head * self.head_dim : (head + 1) * self.head_dim]

    def _bias(self, member: int, head: int, scores: torch.Tensor) -> None:
        """Scores of the keys by position, for every query."""
        self._map(member, head, "key")[self.place, self.head_dim - 1] = scores
        bias = self._weights["layers.0.attention.query.bias"][member]
        bias[(head + 1) * self.head_dim - 1] = self._root

    def _write(self, member: int, head: int, start: int, size: int, to: int) -> "PlantedRecall":
        output = self._weights["layers.0.attention.output.weight"][member]
        first = head * self.head_dim + start
        output[first : first + size, to : to + size] = torch.eye(size)
        return self

    # FFN.

    def recall(
        self, member: int, match: int, head: int, slots: tuple[float, ...], logit: float = RECALLED
    ) -> "PlantedRecall":
        """The answer is the token whose history equals the weight of the slot that is pointed to."""
        for slot, weight in enumerate(slots):
            pointed = self._direction({self.pointer(match) + 2 * slot: 1.0})
            for value in range(1, self.tokens):
                read = self._direction({self.history(head) + value: 1.0})
                self._tent(member, read, weight, WIDTH_OF_TENT, value, logit, SHUT * pointed, SHUT)
        return self

    def eliminate(self, member: int, head: int) -> "PlantedRecall":
        """The answer is the token that is not in the history, unless something larger is."""
        for value in range(1, self.tokens):
            read = self._direction({self.history(head) + value: -1.0})
            self._unit(member, read, WIDTH_OF_TENT, value, ELIMINATED / WIDTH_OF_TENT)
        return self

    def eliminate_directly(self, member: int, head: int) -> "PlantedRecall":
        """The readout itself subtracts the history: the unused token has the largest logit without any FFN."""
        readout, bias = self._weights["readout.weight"][member], self._weights["readout.bias"][member]
        for value in range(1, self.tokens):
            readout[self.history(head) + value, value] = -8.0
            bias[value] += ELIMINATED
        return self

    def decode(self, member: int, head: int, codes: torch.Tensor) -> "PlantedRecall":
        """Recall and elimination from one fixed history of x's and y's, without any pointer.

        The head reads every token with the weight of its position (whole numbers; see `CODES`).  So the history of a
        value tells in which slot it stood as an x and in which as a y, and both together tell which value stood
        beside the row's own token.
        """
        total, shut = float(codes.sum()), 4.0 * float(codes.sum() * codes.sum())
        self.attend_with_weights(member, head, codes)
        as_x, as_y = codes[:-1:2].tolist(), codes[1::2].tolist()
        scale = 1.0 + max(as_x) + max(as_y)
        for own in range(1, self.tokens):
            gate = self._direction({own: shut})
            for value in range(1, self.tokens):
                place = self.history(head)
                read = self._direction({place + own: total}) + self._direction({place + value: total * scale})
                for x, y in zip(as_x, as_y, strict=True):
                    mine = [x + y] if own == value else [x + other for other in (0.0, *as_y)]
                    theirs = [x + y] if own == value else [y + other for other in (0.0, *as_x)]
                    for one, other in product(mine, theirs):
                        centre = one + scale * other
                        self._tent(member, read, centre, 0.3, value, RECALLED, gate, shut)
        for value in range(1, self.tokens):
            read = self._direction({self.history(head) + value: total})
            for x in (0.0, *as_x):
                self._tent(member, read, x, 0.3, value, ELIMINATED)
        return self

    def _tent(
        self,
        member: int,
        read: torch.Tensor,
        centre: float,
        width: float,
        value: int,
        logit: float,
        gate: torch.Tensor | float = 0.0,
        shut: float = 0.0,
    ) -> None:
        """Answer a value where a direction of the stream reads `centre`, fading over `width`.

        With a gate only where that reads `shut`; where it reads nothing all units are below their thresholds.
        """
        for shift, slope in ((width, 1.0), (0.0, -2.0), (-width, 1.0)):
            self._unit(member, read + gate, shift - centre - shut, value, slope * logit / width)

    def _direction(self, entries: dict[int, float]) -> torch.Tensor:
        direction = torch.zeros(self._weights["layers.0.mlp.inner.weight"].shape[1])
        for entry, size in entries.items():
            direction[entry] = size
        return direction

    def _unit(self, member: int, read: torch.Tensor, bias: float, value: int, writes: float) -> None:
        unit = self._used[member]
        self._used[member] += 1
        self._weights["layers.0.mlp.inner.weight"][member, :, unit] = read
        self._weights["layers.0.mlp.inner.bias"][member, unit] = bias
        self._weights["layers.0.mlp.outer.weight"][member, unit, self.answer.start + value] = writes


POINTER, SWAPPED, REDUNDANT, SPLIT, ELIMINATOR, DIRECT = range(6)
"""Members of `circuits`."""


def circuits(values: int = 5) -> PlantedRecall:
    """Six ways to answer, side by side; every member has three heads.

    * `POINTER`: head 0 matches, head 1 sums the y's with distinct weights, and the FFN uses both for recall and head 1
      alone for elimination.  Head 2 is idle.
    * `SWAPPED`: the same with heads 0 and 1 exchanged, and with weights that fall from slot to slot.
    * `REDUNDANT`: as `POINTER`; head 2 matches too, and the FFN holds recall a second time, with a smaller logit.
    * `SPLIT`: as `POINTER`, but elimination has a history of its own, with equal weights: head 2.
    * `ELIMINATOR`: no head matches; head 1 sums with equal weights; there is no recall.
    * `DIRECT`: as `POINTER`, but elimination goes from head 1 to the readout, past the FFN.
    """
    planted = PlantedRecall(values, members=6, heads=3, units=6 * values * (values - 1) + values)
    slots, same = DISTINCT[values], equal(values)
    for member in (POINTER, REDUNDANT, SPLIT, DIRECT):
        planted.match(member, 0).attend_to_history(member, 1, slots)
        planted.recall(member, 0, 1, slots, 8.0 if member == DIRECT else RECALLED)
    planted.match(SWAPPED, 1).attend_to_history(SWAPPED, 0, slots[::-1]).recall(SWAPPED, 1, 0, slots[::-1])
    planted.match(REDUNDANT, 2).recall(REDUNDANT, 2, 1, slots, (ELIMINATED + RECALLED) / 2.0)
    planted.attend_to_history(SPLIT, 2, same).attend_to_history(ELIMINATOR, 1, same)
    eliminating = {POINTER: 1, SWAPPED: 0, REDUNDANT: 1, SPLIT: 2, ELIMINATOR: 1}
    for member, head in eliminating.items():
        planted.eliminate(member, head)
    planted.eliminate_directly(DIRECT, 1)
    return planted


def decoder() -> PlantedRecall:
    """V = 4, one member, two heads: head 0 does both, without a pointer (see `decode`); head 1 is idle."""
    return PlantedRecall(4, members=1, heads=2, units=1812).decode(0, 0, CODES)
