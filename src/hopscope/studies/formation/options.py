"""What the study `formation` trains: variants, contexts, batches, and what each configuration is called."""

from typing import Any, Self

from pydantic import model_validator

from hopscope.config import Config
from hopscope.words import counted

ONE, REPEATS = "one answer", "repeats"
"""The variants of the task: its questions are one, or as many as keys happen to come back."""

BASES = {ONE: (16, 64), REPEATS: (24, 64)}
"""Context and batch of the models that differ in something else."""

LAYERS, WIDTH = 2, 64
"""Layers and width of the models; two layers are the fewest with which an induction head is possible."""


class Options(Config):
    """What is trained.

    Attributes:
        one_contexts, repeats_contexts: contexts of each variant, in tokens.
        batches: batch sizes, ascending.
        one_steps, repeats_steps: training steps of each variant, one number for each batch size.
        every: steps between evaluations with each batch size.
        layers: other numbers of layers; 1 is a control.
        widths: other widths.
    """

    one_contexts: tuple[int, ...] = (8, 12, 16, 24)
    repeats_contexts: tuple[int, ...] = (12, 24, 48)
    batches: tuple[int, ...] = (32, 64, 128)
    one_steps: tuple[int, ...] = (1500, 800, 450)
    repeats_steps: tuple[int, ...] = (800, 400, 250)
    every: tuple[int, ...] = (20, 10, 5)
    layers: tuple[int, ...] = (1, 3, 4)
    widths: tuple[int, ...] = (32,)

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        lengths = {len(each) for each in (self.batches, self.one_steps, self.repeats_steps, self.every)}
        if len(lengths) > 1:
            raise ValueError(
                f"one_steps, repeats_steps, every: expected one number for each of {len(self.batches)} batches"
            )
        return self

    def steps(self, variant: str, batch: int) -> int:
        """Training steps of a variant with a batch size."""
        steps = self.one_steps if variant == ONE else self.repeats_steps
        return steps[self.batches.index(batch)]

    def contexts(self, variant: str) -> tuple[int, ...]:
        """Contexts of a variant, in tokens."""
        return self.one_contexts if variant == ONE else self.repeats_contexts

    def cells(self, variant: str) -> list[tuple[int, int]]:
        """Contexts and batches of a variant."""
        return [(context, batch) for context in self.contexts(variant) for batch in self.batches]


def label(variant: str, context: int, batch: int) -> str:
    """What a configuration of the grid is called."""
    return f"{variant}, context {context}, batch {batch}"


def special(variant: str, what: str) -> str:
    """What a configuration is called that differs from that of `BASES` in one thing."""
    return f"{variant}, {what}"


def differences(options: Options) -> dict[str, dict[str, Any]]:
    """What differs → the fields; each is trained at `BASES`."""
    return {
        **{counted(layers, "layer"): {"model.layers": layers} for layers in options.layers},
        **{f"width {width}": {"model.width": width} for width in options.widths},
        "shuffled values": {"task.shuffled": True},
    }


def judged(options: Options) -> bool:
    """Whether the standard models, which all others are held against, are among the cells."""
    return all(base in options.cells(variant) for variant, base in BASES.items())
