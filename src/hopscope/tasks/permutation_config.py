"""Configuration of the permutation-lookup task: a value without torch."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.tasks.task import BuiltInTask, Floors, Shape, Use, made

if TYPE_CHECKING:
    import torch

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.draws import Draws
    from hopscope.tasks.permutation import PermutationTask

SMALLEST_VALUES, LARGEST_VALUES = 3, 12

KINDS = ("x", "y")

REPEATS = ("", "repeat")
"""Words of the role `repeat`: a token that is none needs no word."""


LARGEST_LISTED = 50_000
"""Sequences of a held-out set that is listed in full."""


def training_mappings(values: int, held_out_share: float) -> int:
    """Number of the V! mappings that are used in training; the others are held out, at least one and not all."""
    total = math.factorial(values)
    return total - min(max(round(held_out_share * total), 1), total - 1)


class PermutationConfig(BuiltInTask):
    """The permutation-lookup task (presentation, sections 1, 2 and 8).

    Attributes:
        values: number of values V, from 3 to 12; tokens are 1…V, a mapping is a permutation of them.
        repeat_ratio: probability that one x of a sequence copies an earlier one (0.3 in section 8).
        repeat_slots: slots (1…V) that may be the copy; empty means the last slot only, as in section 8.
        repeat_sources: slots that may be copied; empty means every slot before the copy.
        split_seed: seed of the split into training and held-out mappings.
        held_out_share: share of all V! mappings that training never sees (24 of 120 in section 2).
    """

    kind: Literal["permutation"] = "permutation"
    values: int = Field(5, ge=SMALLEST_VALUES, le=LARGEST_VALUES)
    repeat_ratio: float = Field(0.0, ge=0.0, le=1.0)
    repeat_slots: tuple[int, ...] = ()
    repeat_sources: tuple[int, ...] = ()
    split_seed: int = Field(0, ge=0, lt=1 << 63)
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)

    @property
    def positions(self) -> int:
        """Length of the input: x₁ y₁ … x_V, the last y is only ever a target."""
        return 2 * self.values - 1

    def repeat_pairs(self) -> list[tuple[int, int]]:
        """All allowed (slot, source) pairs, counted from 1, in lexicographic order."""
        slots = self.repeat_slots or (self.values,)
        sources = self.repeat_sources or tuple(range(1, self.values + 1))
        return [
            (slot, source) for slot in sorted(set(slots)) for source in sorted(set(sources)) if source < slot
        ]

    def shape(self) -> Shape:
        """V tokens and one that is none; the x's are asked for their y."""
        return Shape(
            inputs="tokens",
            input_size=self.values + 1,
            positions=self.positions,
            readout=tuple(range(0, self.positions, 2)),
            output_size=self.values + 1,
        )

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "PermutationTask":
        """The task on a device; see `Task.on`."""
        from hopscope.tasks.permutation import PermutationTask

        return made(PermutationTask, self, device, examples)

    def sample(self, draws: "Draws") -> "Batch":
        """Sequences of training mappings; held-out ones of held-out mappings."""
        return self.on(draws.device).drawn(draws, "held_out" if draws.use == "held-out" else "train")

    def cases(self, use: Use) -> "Batch | None":
        """All held-out sequences, where all have a repeat or none has, and there are not too many."""
        if use != "held-out" or 0.0 < self.repeat_ratio < 1.0:
            return None
        task, data = self.on(), "repeats" if self.repeat_ratio else "plain"
        return task.evaluation(data) if task.evaluation_count(data) <= LARGEST_LISTED else None

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
        return {"roles": {"kind": KINDS, "repeat": REPEATS}, "token": str}

    @model_validator(mode="after")
    def _slots_exist(self) -> Self:
        for name, slots in (("repeat_slots", self.repeat_slots), ("repeat_sources", self.repeat_sources)):
            outside = [slot for slot in slots if not 1 <= slot <= self.values]
            if outside:
                raise ValueError(f"{name}: expected slots from 1 to {self.values}, found {outside}")
        if not self.repeat_pairs():
            raise ValueError(
                f"repeat_slots and repeat_sources: expected at least one source before a slot, "
                f"found slots {self.repeat_slots} and sources {self.repeat_sources}"
            )
        return self
