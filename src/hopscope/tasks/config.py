"""Configurations of the tasks: values without torch, so that plans and help texts load fast."""

from typing import Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config

SMALLEST_VALUES, LARGEST_VALUES = 3, 12


class PermutationConfig(Config):
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
