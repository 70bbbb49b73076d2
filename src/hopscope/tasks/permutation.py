"""Permutation lookup (presentation, sections 1–3 and 8): read a mapping pair by pair, then answer from it.

A sequence is x₁ y₁ … x_V y_V with y = mapping(x); the x come in random order, the model sees all tokens but the last
and predicts each y at its x.  With repeats, one x copies an earlier one: elimination (the unused value) and recall
(the value seen before) then give different answers.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope import rng
from hopscope.tasks.batch import NO_RELATION, Batch
from hopscope.tasks.device import DeviceTask
from hopscope.tasks.draws import Draws
from hopscope.tasks.permutation_config import LARGEST_LISTED, PermutationConfig
from hopscope.tasks.splits import ENUMERATED_VALUES, MappingSplit

_LARGEST_DRAW = 2**31
"""Bound of one random integer: up to V = 8 mapping and order are drawn as one number, which halves the work."""


class PermutationTask(DeviceTask):
    """The task of one configuration on one device.

    Attributes:
        config: what the task is.
        split: which mappings are training and which held out.

    Roles: `kind` (x or y), `step` (1…V, the pair the position belongs to), `repeat` (1 where the token's x, or the
    x of its pair, appeared before).  Relations: `previous` (the token before), `pair_mate` (the other token of the
    pair, if it is part of the input), `same_symbol` (from a repeated x to its earlier copy) and `recall` (from a
    repeated x to the y that stood beside that copy).
    """

    def __init__(
        self, config: PermutationConfig, device: torch.device | str = "cpu", examples: int | None = None
    ):
        """Make the tables of the task; `Task.on` explains `examples`."""
        super().__init__(config, device, examples)
        self.config = config
        self.split = MappingSplit(config.values, config.held_out_share, config.split_seed, self.device)
        self._order_count = math.factorial(config.values)
        self._pairs = torch.tensor(config.repeat_pairs(), device=self.device)
        self._orders: Tensor | None = None
        if config.values <= ENUMERATED_VALUES:
            ranks = torch.arange(math.factorial(config.values), device=self.device)
            self._orders = rng.permutation_from_index(ranks, config.values) + 1

    def order(self, index: Int[Tensor, "..."]) -> Int[Tensor, "... value"]:
        """Order number `index` (lexicographic rank) of the x values 1…V."""
        if self._orders is not None:
            return self._orders[index]
        return rng.permutation_from_index(index, self.config.values) + 1

    def drawn(self, draws: Draws, split: str = "train", *, annotate: bool = True) -> Batch:
        """Samples whose mapping comes from a part of the split (`"train"` or `"held_out"`).

        Each is a function of (seed, stream, step, index) alone: neither the other members nor the size of the batch
        change it.
        """
        words, mappings = draws.bits(), self.split.count(split)
        if mappings * self._order_count < _LARGEST_DRAW:
            number = rng.integers(words[..., 0], words[..., 1], mappings * self._order_count)
            mapping, order = number // self._order_count, number % self._order_count
        else:
            more = draws.bits(1)
            mapping = rng.integers(words[..., 0], words[..., 1], mappings)
            order = rng.integers(more[..., 0], more[..., 1], self._order_count)
        xs = self.order(order)
        if self.config.repeat_ratio > 0.0:
            xs = self._repeat(xs, words[..., 2], words[..., 3])
        return self.batch(xs, self.split.mapping(mapping, split), annotate=annotate)

    def _repeat(
        self,
        order: Int[Tensor, "member batch value"],
        whether: Int[Tensor, "member batch"],
        which: Int[Tensor, "member batch"],
    ) -> Int[Tensor, "member batch value"]:
        """Let one x copy an earlier one, where the first word falls below the repeat ratio."""
        pair = rng.integers(which, torch.zeros_like(which), len(self._pairs))
        slot, source = self._pairs[pair].unbind(-1)
        copied = order.gather(-1, source[..., None] - 1)
        happens = rng.uniform(whether) < self.config.repeat_ratio
        here = torch.arange(1, self.config.values + 1, device=self.device) == slot[..., None]
        return torch.where(here & happens[..., None], copied, order)

    def batch(
        self,
        order: Int[Tensor, "member batch value"],
        mapping: Int[Tensor, "member batch value"],
        *,
        annotate: bool = True,
    ) -> Batch:
        """Sequences of given x orders (repeats allowed) under given mappings, both with entries 1…V."""
        answers = mapping.gather(-1, order - 1)
        sequence = torch.stack((order, answers), dim=-1).flatten(-2)
        plain = Batch(sequence[..., :-1], answers)
        return self.annotate(plain) if annotate else plain

    def annotate(self, batch: Batch) -> Batch:
        """The same batch with groups, roles and relations."""
        position = torch.arange(self.positions, device=self.device).expand(batch.inputs.shape)
        earlier = cache(lambda: self._earlier_copy(batch.inputs))
        roles = {
            "kind": lambda: position % 2,
            "step": lambda: position // 2 + 1,
            "repeat": lambda: (self._of_pair(earlier()) >= 0).long(),
        }
        relations = {
            "previous": lambda: position - 1,
            "pair_mate": partial(self._pair_mate, position),
            "same_symbol": earlier,
            "recall": lambda: torch.where(earlier() >= 0, earlier() + 1, NO_RELATION),
        }
        groups = {}
        if 0.0 < self.config.repeat_ratio < 1.0:
            groups = {
                "plain": lambda: (earlier() < 0).all(-1),
                "repeat": lambda: (earlier() >= 0).any(-1),
            }
        return replace(batch, groups=groups, roles=roles, relations=relations)

    def _pair_mate(
        self, position: Int[Tensor, "member batch position"]
    ) -> Int[Tensor, "member batch position"]:
        mate = torch.where(position % 2 == 0, position + 1, position - 1)
        return torch.where(mate < self.positions, mate, NO_RELATION)

    def _of_pair(self, of_x: Int[Tensor, "member batch position"]) -> Int[Tensor, "member batch position"]:
        """For both tokens of a pair what holds of its x."""
        return of_x[..., ::2].repeat_interleave(2, dim=-1)[..., : self.positions]

    def _earlier_copy(
        self, inputs: Int[Tensor, "member batch position"]
    ) -> Int[Tensor, "member batch position"]:
        """Position of the first earlier x with the same value, for every x; `NO_RELATION` elsewhere."""
        xs = inputs[..., ::2]
        equal = (xs[..., :, None] == xs[..., None, :]).tril(-1)
        first = torch.where(equal.any(-1), 2 * equal.int().argmax(-1), NO_RELATION)
        earlier = torch.full_like(inputs, NO_RELATION)
        earlier[..., ::2] = first
        return earlier

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Cross-entropy in nats: the mean over the V predictions (presentation, section 4), and that of each step."""
        logits, targets = predictions.movedim(-1, 1), batch.targets.expand(predictions.shape[:-1])
        by_step = torch.nn.functional.cross_entropy(logits, targets, reduction="none").mean(1)
        return self.named_losses(by_step)

    def named_losses(self, by_step: Float[Tensor, "member slot"]) -> Mapping[str, Float[Tensor, " member"]]:
        """`losses` from the mean cross-entropy of each step."""
        parts = {f"loss_step_{step + 1}": by_step[:, step] for step in range(self.config.values)}
        return {"loss": by_step.mean(-1), **parts}

    # Held-out evaluation.

    def evaluation_count(self, data: str, split: str = "held_out") -> int:
        """Size of the exhaustive set: orders × mappings of the split (× allowed repeats for `"repeats"`)."""
        plain = math.factorial(self.config.values) * self.split.count(split)
        return plain * (len(self.config.repeat_pairs()) if data == "repeats" else 1)

    def evaluation(
        self, data: str, split: str = "held_out", *, limit: int = LARGEST_LISTED, annotate: bool = True
    ) -> Batch:
        """All sequences of a split, or a fixed random part of them where there are more than `limit`.

        Args:
            data: `"plain"` (no repeats) or `"repeats"` (every sequence has one).
            split: `"held_out"` or `"train"` mappings.
            limit: largest set that is listed in full; a larger one is sampled without regard to the seed of any
                member, so that all members answer the same questions.
            annotate: whether roles and relations are worked out.

        Returns:
            A batch with `member == 1`; `evaluation_count(data, split) <= limit` tells that it is exhaustive.
        """
        mapping, order, pair = self._numbered(data, split, limit)
        xs = self.order(order)
        if data == "repeats":
            slot, source = self._pairs[pair].unbind(-1)
            xs = xs.scatter(-1, slot[:, None] - 1, xs.gather(-1, source[:, None] - 1))
        return self.batch(xs[None], self.split.mapping(mapping, split)[None], annotate=annotate)

    def _numbered(self, data: str, split: str, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mapping, order and repeat of each evaluation sequence."""
        total = self.evaluation_count(data, split)
        if total > limit:
            return self._drawn(split, limit)
        number = torch.arange(total, device=self.device)
        orders, pairs = math.factorial(self.config.values), total // self.evaluation_count("plain", split)
        return number // pairs // orders, number // pairs % orders, number % pairs

    def _drawn(self, split: str, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """A fixed random part of a set that is too large to list."""
        index = torch.arange(count, device=self.device)
        first, second = (
            rng.bits(self.config.split_seed, "evaluate", 0, index, block=block) for block in (0, 1)
        )
        return (
            rng.integers(first[:, 0], first[:, 1], self.split.count(split)),
            rng.integers(first[:, 2], first[:, 3], math.factorial(self.config.values)),
            rng.integers(second[:, 0], second[:, 1], len(self._pairs)),
        )
