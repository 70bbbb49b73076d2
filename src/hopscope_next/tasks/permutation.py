"""Permutation lookup (presentation, sections 1–3 and 8): read a mapping pair by pair, then answer from it.

A sequence is x₁ y₁ … x_V y_V with y = mapping(x); the x come in random order, the model sees all tokens but the last
and predicts each y at its x.  With repeats, one x copies an earlier one: elimination (the unused value) and recall
(the value seen before) then give different answers.  Some of the V! mappings are held out.
"""

import math
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator

from hopscope_next.tasks.task import Floors, Shape, Task, Use

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hopscope_next.tasks.batch import Batch
    from hopscope_next.tasks.draws import Draws

LARGEST_LISTED = 50_000
"""Sequences of a held-out set that is listed in full."""

_LARGEST_DRAW = 2**31
"""Bound of one random integer: up to V = 8 mapping and order are drawn as one number, which halves the work."""

_LARGEST_TABLE = 8
"""Up to this V all V! mappings (40,320 at 8) are kept in a table."""

_ROUNDS = 8


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
        positions = 2 * self.values - 1
        return Shape(
            inputs="tokens",
            input_size=self.values + 1,
            positions=positions,
            readout=tuple(range(0, positions, 2)),
            output_size=self.values + 1,
        )

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
        """Sequences of training mappings, or held-out ones of held-out mappings.

        Roles: `kind` (x or y), `step` (1…V, the pair of a position), `repeat` (1 where the x of the pair appeared
        before).  Relations: `previous`, `pair_mate`, `same_symbol` (from a repeated x to its earlier copy) and `recall`
        (from there to the y that stood beside that copy).
        """
        import torch

        from hopscope_next import rng

        words, held_out, orders = draws.bits(), draws.use == "held-out", math.factorial(self.values)
        count = self.mappings(held_out)
        if count * orders < _LARGEST_DRAW:
            number = rng.integers(words[..., 0], words[..., 1], count * orders)
            mapping, order = number // orders, number % orders
        else:
            more = draws.bits(1)
            mapping = rng.integers(words[..., 0], words[..., 1], count)
            order = rng.integers(more[..., 0], more[..., 1], orders)
        xs = _order(self, order)
        if self.repeat_ratio > 0.0:
            pairs = torch.tensor(self.repeat_pairs, device=draws.device)
            which = rng.integers(words[..., 3], torch.zeros_like(words[..., 3]), len(pairs))
            slot, source = pairs[which].unbind(-1)
            copied = xs.gather(-1, source[..., None] - 1)
            happens = rng.uniform(words[..., 2]) < self.repeat_ratio
            here = torch.arange(1, self.values + 1, device=draws.device) == slot[..., None]
            xs = torch.where(here & happens[..., None], copied, xs)
        return self.sequences(xs, _mapping(self, mapping, held_out))

    def sequences(self, order: "Tensor", mapping: "Tensor") -> "Batch":
        """Sequences of given x orders (repeats allowed) under given mappings, both `[member, batch, V]` of 1…V."""
        import torch

        from hopscope_next.tasks.batch import NO_RELATION, Batch

        answers = mapping.gather(-1, order - 1)
        inputs = torch.stack((order, answers), dim=-1).flatten(-2)[..., :-1]
        position = torch.arange(inputs.shape[-1], device=inputs.device).expand(inputs.shape)

        @cache
        def earlier() -> "Tensor":
            """Position of the first earlier x with the same value, for every x."""
            equal = (order[..., :, None] == order[..., None, :]).tril(-1)
            found = torch.full_like(inputs, NO_RELATION)
            found[..., ::2] = torch.where(equal.any(-1), 2 * equal.int().argmax(-1), NO_RELATION)
            return found

        def pair_mate() -> "Tensor":
            mate = torch.where(position % 2 == 0, position + 1, position - 1)
            return torch.where(mate < position.shape[-1], mate, NO_RELATION)

        def of_pair(of_x: "Tensor") -> "Tensor":
            return of_x[..., ::2].repeat_interleave(2, dim=-1)[..., : position.shape[-1]]

        mixed = 0.0 < self.repeat_ratio < 1.0
        return Batch(
            inputs,
            answers,
            groups={
                "plain": lambda: (earlier() < 0).all(-1),
                "repeat": lambda: (earlier() >= 0).any(-1),
            }
            if mixed
            else {},
            roles={
                "kind": lambda: position % 2,
                "step": lambda: position // 2 + 1,
                "repeat": lambda: (of_pair(earlier()) >= 0).long(),
            },
            relations={
                "previous": lambda: position - 1,
                "pair_mate": pair_mate,
                "same_symbol": earlier,
                "recall": lambda: torch.where(earlier() >= 0, earlier() + 1, NO_RELATION),
            },
        )

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        """Cross-entropy in nats: the mean over the V predictions (presentation, section 4), and that of each step."""
        from torch.nn.functional import cross_entropy

        targets = batch.targets.expand(predictions.shape[:-1])
        by_step = cross_entropy(predictions.movedim(-1, 1), targets, reduction="none").mean(1)
        steps = {f"loss_step_{step + 1}": by_step[:, step] for step in range(self.values)}
        return {"loss": by_step.mean(-1), **steps}

    def skills(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """Elimination, at the last step of sequences without a repeat; recall, at the repeat."""
        import torch

        repeats = batch.roles["repeat"][..., ::2] == 1
        last = torch.zeros_like(repeats)
        last[..., -1] = ~repeats.any(-1)
        return {"elimination": last, **({"recall": repeats} if self.repeat_ratio else {})}

    def counterfactuals(self, batch: "Batch") -> "Mapping[str, Tensor]":
        """The symbols x, or y, exchanged for the next larger one, V for 1."""
        import torch

        kind, following = batch.roles["kind"], batch.inputs % self.values + 1
        pairs = enumerate(("x", "y"))
        return {name: torch.where(kind == number, following, batch.inputs) for number, name in pairs}

    def cases(self, use: Use) -> "Batch | None":
        """All held-out sequences, where all have a repeat or none has, and there are not too many."""
        if use != "held-out" or 0.0 < self.repeat_ratio < 1.0:
            return None
        data = "repeats" if self.repeat_ratio else "plain"
        return self.listed(data) if self.listed_count(data) <= LARGEST_LISTED else None

    def listed_count(self, data: str, held_out: bool = True) -> int:
        """Size of the exhaustive set: orders × mappings (× allowed repeats for `"repeats"`)."""
        plain = math.factorial(self.values) * self.mappings(held_out)
        return plain * (len(self.repeat_pairs) if data == "repeats" else 1)

    def listed(
        self,
        data: str,
        *,
        held_out: bool = True,
        limit: int = LARGEST_LISTED,
        device: "torch.device | str" = "cpu",
    ) -> "Batch":
        """All sequences, or a fixed random part of them where there are more than `limit`; `member == 1`.

        Args:
            data: `"plain"` (no repeats) or `"repeats"` (every sequence has one).
            held_out: of held-out mappings, or of training ones.
            limit: largest set that is listed in full.
            device: of the tensors.
        """
        import torch

        total, orders = self.listed_count(data, held_out), math.factorial(self.values)
        pairs = torch.tensor(self.repeat_pairs, device=device)
        number = torch.arange(min(total, limit), device=device)
        if total > limit:
            mapping, order, pair = self._some(number, held_out)
        else:
            each = total // (orders * self.mappings(held_out))
            mapping, order, pair = number // each // orders, number // each % orders, number % each
        xs = _order(self, order)
        if data == "repeats":
            slot, source = pairs[pair].unbind(-1)
            xs = xs.scatter(-1, slot[:, None] - 1, xs.gather(-1, source[:, None] - 1))
        return self.sequences(xs[None], _mapping(self, mapping, held_out)[None])

    def _some(self, number: "Tensor", held_out: bool) -> "tuple[Tensor, Tensor, Tensor]":
        from hopscope_next import rng

        first, second = (rng.bits(self.split_seed, "evaluate", 0, number, block) for block in (0, 1))
        return (
            rng.integers(first[:, 0], first[:, 1], self.mappings(held_out)),
            rng.integers(first[:, 2], first[:, 3], math.factorial(self.values)),
            rng.integers(second[:, 0], second[:, 1], len(self.repeat_pairs)),
        )

    def floors(self) -> Floors:
        """Of the loss: a guess among V values, and, without repeats, among those not yet shown."""
        guess = math.log(self.values)
        floors: dict[str, float | Mapping[str, float]] = {"guess": guess}
        if self.repeat_ratio == 0.0:
            floors["elimination"] = math.log(math.factorial(self.values)) / self.values
        steps = {f"loss_step_{step}": {"guess": guess} for step in range(1, self.values + 1)}
        return {**floors, **steps, "accuracy": {"guess": 1.0 / self.values}}

    @property
    def words(self) -> Mapping[str, Any]:
        """Tokens are written as numbers."""
        return {"roles": {"kind": ("x", "y"), "repeat": ("", "repeat")}, "token": str}

    @model_validator(mode="after")
    def _slots_exist(self) -> Self:
        for name, slots in (("repeat_slots", self.repeat_slots), ("repeat_sources", self.repeat_sources)):
            outside = [slot for slot in slots if not 1 <= slot <= self.values]
            if outside:
                raise ValueError(f"{name}: expected slots from 1 to {self.values}, found {outside}")
        if not self.repeat_pairs:
            raise ValueError(
                f"repeat_slots and repeat_sources: expected at least one source before a slot, "
                f"found slots {self.repeat_slots} and sources {self.repeat_sources}"
            )
        return self


# The split: a seeded bijection of 0 … V! - 1, cut once.  Small sets of mappings are shuffled in full.  Large ones (12!
# is 479 million) are never listed: a generalised Feistel network over a factorisation V! = A·B permutes them in
# constant memory, so that the two parts have exact sizes and drawing needs no rejection.


@lru_cache(maxsize=32)
def _orders(values: int, device: "torch.device") -> "Tensor":
    import torch

    from hopscope_next import rng

    return rng.permutation_from_index(torch.arange(math.factorial(values), device=device), values) + 1


@lru_cache(maxsize=32)
def _shuffled(values: int, seed: int, device: "torch.device") -> "Tensor":
    """All mappings in the order of 63-bit random keys; ties, should there be any, keep their order."""
    import torch

    from hopscope_next import rng

    words = rng.bits(seed, "split", 0, torch.arange(math.factorial(values)))
    ranks = torch.argsort((words[:, 0] << 31) | (words[:, 1] >> 1), stable=True)
    return rng.permutation_from_index(ranks.to(device), values) + 1


def _order(task: Permutation, index: "Tensor") -> "Tensor":
    from hopscope_next import rng

    if task.values <= _LARGEST_TABLE:
        return _orders(task.values, index.device)[index]
    return rng.permutation_from_index(index, task.values) + 1


def _mapping(task: Permutation, index: "Tensor", held_out: bool) -> "Tensor":
    from hopscope_next import rng

    index = index + task.mappings(False) if held_out else index
    if task.values <= _LARGEST_TABLE:
        return _shuffled(task.values, task.split_seed, index.device)[index]
    return rng.permutation_from_index(_mixed(task, index), task.values) + 1


def _mixed(task: Permutation, index: "Tensor") -> "Tensor":
    from hopscope_next import rng

    total = math.factorial(task.values)
    highs = next(a for a in range(math.isqrt(total), 0, -1) if total % a == 0)
    lows = total // highs
    word = partial(rng.bits, task.split_seed, "split")
    high, low = index // lows, index % lows
    for number in range(0, _ROUNDS, 2):
        high = (high + word(number, low)[..., 0]) % highs
        low = (low + word(number + 1, high)[..., 0]) % lows
    return high * lows + low
