"""Permutation lookup (presentation, sections 1–3 and 8): read a mapping pair by pair, then answer from it.

A sequence is x₁ y₁ … x_V y_V with y = mapping(x); the x come in random order, the model sees all tokens but the last
and predicts each y at its x.  With repeats, one x copies an earlier one: elimination (the unused value) and recall
(the value seen before) then give different answers.  Some of the V! mappings are held out.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope.tasks.task import Floors, Shape, Task, Use, expect
from hopscope.theory import elimination_floor

if TYPE_CHECKING:
    from torch import Tensor, device

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws

Data = Literal["plain", "repeats"]

LARGEST_LISTED = 50_000
"""Sequences of a held-out set that is listed in full."""

_LARGEST_TABLE = 8
"""Up to this V all V! mappings (40,320 at 8) are kept in a table."""


class Permutation(Task):
    """The permutation-lookup task (presentation, sections 1, 2 and 8).

    Attributes:
        values: number of values V, from 3 to 12; tokens are 1…V, a mapping is a permutation of them.
        repeat_ratio: probability that one x of a sequence copies an earlier one (0.3 in section 8).
        repeat_slots: slots (1…V) that may be the copy; empty means the last slot only, as in section 8.
        repeat_sources: slots that may be copied; empty means every slot before the copy.
        split_seed: seed of the split into training and held-out mappings.
        held_out_share: share of all V! mappings that training never sees (24 of 120 in section 2).
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "step", "repeat")

    values: int = Field(5, ge=3, le=12)
    repeat_ratio: float = Field(0.0, ge=0.0, le=1.0)
    repeat_slots: tuple[int, ...] = ()
    repeat_sources: tuple[int, ...] = ()
    split_seed: int = Field(0, ge=0, lt=1 << 63)
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)

    def shape(self) -> Shape:
        """V tokens and one that is none; the x's are asked for their y."""
        size, length = self.values + 1, 2 * self.values - 1
        readout = tuple(range(0, length, 2))
        return Shape(inputs="tokens", input_size=size, positions=length, readout=readout, output_size=size)

    @property
    def repeat_pairs(self) -> list[tuple[int, int]]:
        """All allowed (slot, source) pairs, counted from 1, in lexicographic order."""
        slots = sorted({*(self.repeat_slots or (self.values,))})
        sources = sorted({*(self.repeat_sources or range(1, self.values + 1))})
        return [(slot, source) for slot in slots for source in sources if source < slot]

    def mappings(self, held_out: bool) -> int:
        """Number of the V! mappings that are used in training, or held out: at least one of each."""
        total = math.factorial(self.values)
        held = min(max(round(self.held_out_share * total), 1), total - 1)
        return held if held_out else total - held

    def sample(self, draws: "Draws") -> "Batch":
        """Sequences of training mappings, or held-out ones of held-out mappings; see `sequences`."""
        from hopscope import rng

        held_out, orders = draws.use == "held-out", math.factorial(self.values)
        (high, low, whether, which), count = draws.bits().unbind(-1), self.mappings(held_out)
        if count * orders < 1 << 31:  # one random number for both, which halves the work up to V = 8
            number = rng.integers(high, low, count * orders)
            mapping, order = number // orders, number % orders
        else:
            mapping, more = rng.integers(high, low, count), draws.bits(1)
            order = rng.integers(more[..., 0], more[..., 1], orders)
        xs = self._order(order)
        if self.repeat_ratio > 0.0:
            pair = rng.integers(which, which * 0, len(_tables(self, draws.device)[0]))
            xs = self._repeated(xs, pair).where((rng.uniform(whether) < self.repeat_ratio)[..., None], xs)
        return self.sequences(xs, self.mapping(mapping, held_out))

    def sequences(self, xs: "Tensor", mapping: "Tensor") -> "Batch":
        """Sequences of given x (repeats allowed) under given mappings, both `[member, batch, V]` of 1…V.

        Roles: `kind` (x or y), `step` (1…V, the pair of a position), `repeat` (1 where the x of the pair appeared
        before).  Relations: `previous`, `pair_mate`, `same_symbol` (from a repeated x to its earlier copy) and `recall`
        (from there to the y that stood beside that copy).
        """
        import torch

        from hopscope.tasks.batch import NO_RELATION, Batch

        def flat(of_x: "Tensor", of_y: "Tensor") -> "Tensor":
            return torch.stack((of_x, of_y), dim=-1).flatten(-2)[..., :-1]

        def same() -> "Tensor":
            equal = (xs[..., :, None] == xs[..., None, :]).tril(-1)
            first = torch.where(equal.any(-1), 2 * equal.int().argmax(-1), NO_RELATION)
            return flat(first, torch.full_like(first, NO_RELATION))

        answers = mapping.gather(-1, xs - 1)
        inputs, last = flat(xs, answers), 2 * self.values - 2
        position = torch.arange(last + 1, device=xs.device).expand(inputs.shape)
        groups = {"plain": lambda: (same() < 0).all(-1), "repeat": lambda: (same() >= 0).any(-1)}
        roles = {
            "kind": lambda: position % 2,
            "step": lambda: position // 2 + 1,
            "repeat": lambda: (same()[..., ::2] >= 0).long().repeat_interleave(2, -1)[..., :-1],
        }
        relations = {
            "previous": lambda: position - 1,
            "pair_mate": lambda: torch.where(position < last, position ^ 1, NO_RELATION),
            "same_symbol": same,
            "recall": lambda: same() + (same() >= 0),
        }
        groups = groups if 0.0 < self.repeat_ratio < 1.0 else {}
        return Batch(inputs, answers, groups=groups, roles=roles, relations=relations)

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats: the mean over the V predictions (presentation, section 4), and that of each step."""
        from hopscope.tasks.batch import terms, weighted

        by_step = weighted(terms(predictions, batch), batch).mean(1)
        steps = {f"loss_step_{step}": loss for step, loss in enumerate(by_step.unbind(-1), 1)}
        return {"loss": by_step.mean(-1), **steps}

    def skills(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Elimination, at the last step of sequences without a repeat; recall, at the repeat."""
        repeats = batch.roles["repeat"][..., ::2] == 1
        last = repeats.new_zeros(repeats.shape)
        last[..., -1] = ~repeats.any(-1)
        return {"elimination": last, **({"recall": repeats} if self.repeat_ratio else {})}

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """The symbols x, or y, exchanged for the next larger one, V for 1."""
        kind, following = batch.roles["kind"], batch.inputs % self.values + 1
        return {name: following.where(kind == number, batch.inputs) for number, name in enumerate("xy")}

    def cases(self, use: Use) -> "Batch | None":
        """All held-out sequences, where all have a repeat or none has, and there are not too many."""
        data: Data = "repeats" if self.repeat_ratio else "plain"
        fits = self.repeat_ratio in (0.0, 1.0) and self.listed_count(data) <= LARGEST_LISTED
        return self.listed(data) if use == "held-out" and fits else None

    def listed_count(self, data: Data, held_out: bool = True) -> int:
        """Size of the exhaustive set: orders × mappings (× allowed repeats for `"repeats"`)."""
        pairs = len(self.repeat_pairs) if data == "repeats" else 1
        return math.factorial(self.values) * self.mappings(held_out) * pairs

    def listed(
        self, data: Data, held_out: bool = True, limit: int = LARGEST_LISTED, device: "device | str" = "cpu"
    ) -> "Batch":
        """All sequences without repeats, or each with one, of held-out or training mappings; with a member axis of 1.

        Of more than `limit`, so many are drawn, always the same ones, with replacement.
        """
        import torch

        from hopscope import rng

        total, mappings = self.listed_count(data, held_out), self.mappings(held_out)
        orders, pairs = math.factorial(self.values), len(self.repeat_pairs)
        number = torch.arange(min(total, limit), device=device)
        if total > limit:
            first, second = (rng.bits(self.split_seed, "evaluate", 0, number, block) for block in (0, 1))
            mapping = rng.integers(first[:, 0], first[:, 1], mappings)
            order = rng.integers(first[:, 2], first[:, 3], orders)
            pair = rng.integers(second[:, 0], second[:, 1], pairs)
        else:
            each = total // (orders * mappings)
            mapping, order, pair = number // each // orders, number // each % orders, number % each
        xs = self._order(order)
        xs = self._repeated(xs, pair) if data == "repeats" else xs
        return self.sequences(xs[None], self.mapping(mapping, held_out)[None])

    def floors(self) -> Floors:
        """Of the loss: a guess among V values, and, without repeats, among those not yet shown."""
        guess = math.log(self.values)
        steps = {f"loss_step_{step}": {"guess": guess} for step in range(1, self.values + 1)}
        left = {} if self.repeat_ratio else {"elimination": elimination_floor(self.values)}
        return {"guess": guess, **left, **steps, "accuracy": {"guess": 1.0 / self.values}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Tokens are written as numbers."""
        return {"roles": {"kind": ("x", "y"), "repeat": ("", "repeat")}, "token": str}

    def mapping(self, number: "Tensor", held_out: bool) -> "Tensor":
        """Training or held-out mappings by number, as the images of 1…V."""
        number = number + self.mappings(False) if held_out else number
        if self.values > _LARGEST_TABLE:
            return self._order(_mixed(math.factorial(self.values), self.split_seed, number))
        return self._order(number, shuffled=True)

    def _order(self, rank: "Tensor", *, shuffled: bool = False) -> "Tensor":
        import torch

        from hopscope import rng

        if self.values > _LARGEST_TABLE:
            return rng.permutation_from_index(rank, self.values) + 1
        return torch.embedding(_tables(self, rank.device)[1 + shuffled], rank)

    def _repeated(self, xs: "Tensor", pair: "Tensor") -> "Tensor":
        slot, source = _tables(self, xs.device)[0][pair].unbind(-1)
        return xs.scatter(-1, slot[..., None] - 1, xs.gather(-1, source[..., None] - 1))

    @model_validator(mode="after")
    def _slots_exist(self) -> Self:
        for name, slots in (("repeat_slots", self.repeat_slots), ("repeat_sources", self.repeat_sources)):
            outside = [slot for slot in slots if not 1 <= slot <= self.values]
            expect(not outside, name, f"slots from 1 to {self.values}", outside)
        found = f"slots {self.repeat_slots} and sources {self.repeat_sources}"
        expect(bool(self.repeat_pairs), "repeat_sources", "at least one before a slot", found)
        return self


# The split: a seeded bijection of 0 … V! - 1, cut once.  Small sets of mappings are shuffled in full.  Large ones (12!
# is 479 million) are never listed: a generalised Feistel network over a factorisation V! = A·B permutes them in
# constant memory, so that the two parts have exact sizes and drawing needs no rejection.


@lru_cache(maxsize=8)
def _tables(task: Permutation, device: "device") -> "list[Tensor]":
    """The pairs of slots; of few values all permutations by rank, and by 63-bit random keys (equal ones by rank)."""
    import torch

    from hopscope import rng

    tables = [torch.tensor(task.repeat_pairs)]
    if task.values <= _LARGEST_TABLE:
        every = torch.arange(math.factorial(task.values))
        first, second, *_ = rng.bits(task.split_seed, "split", 0, every).unbind(-1)
        shuffled = torch.argsort((first << 31) | (second >> 1), stable=True)
        orders = rng.permutation_from_index(every, task.values) + 1
        tables += [orders, orders[shuffled]]
    return [table.to(device) for table in tables]


def _mixed(total: int, seed: int, number: "Tensor") -> "Tensor":
    from hopscope import rng

    highs = next(a for a in range(math.isqrt(total), 0, -1) if total % a == 0)
    lows = total // highs
    high, low = number // lows, number % lows
    for round_ in range(0, 8, 2):
        high = (high + rng.bits(seed, "split", round_, low)[..., 0]) % highs
        low = (low + rng.bits(seed, "split", round_ + 1, high)[..., 0]) % lows
    return high * lows + low
