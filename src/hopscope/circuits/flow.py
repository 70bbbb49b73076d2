"""What a path carries, and what its readers do with it.

*Carries* (interchange): the path alone reads values from a run in which one thing is exchanged everywhere: the symbol
of one step in every chain, for that of another sample, or the position codes.  What follows is recomputed.  If the loss
rises, the path brings that thing to where it is needed.

*Composition*: the path is removed, but only one reader notices, and only in one of its inputs: its queries (Q), its
keys (K) or its values (V); or the readout, directly.  What follows is recomputed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.execution import Assignment, Execution, Passed, Slot
from hopscope.circuits.goal import Goal
from hopscope.circuits.rules import Uniform
from hopscope.tasks.vector_task import VectorTask

Part = Literal["Q", "K", "V"]

LEAST_EFFECT = 0.02
"""Rise of the loss from which on something counts as carried, or an input as used."""


@dataclass(frozen=True)
class Composition:
    """One use of a path.

    Attributes:
        reader: the path that uses it (layer, head, row role), `None` for the readout.
        part: as its queries, keys or values; `None` for the readout.
        rise: of the loss, where only this use is without the path.
    """

    reader: Slot | None
    part: Part | None
    rise: float


class Flow:
    """What flows along the paths of a circuit, on one batch.

    Attributes:
        execution, goal: what is run, and what is measured.
        assignment: the circuit.
        base: its recomputed pass.
    """

    def __init__(self, execution: Execution, goal: Goal, assignment: Assignment):
        self.execution, self.goal, self.assignment = execution, goal, assignment
        self.base = execution.run(assignment, "recomputed")
        self.loss = self._loss(self.base.predictions)
        with torch.no_grad():
            self._patterns = [
                self._pattern(layer, stream, stream) for layer, stream in enumerate(self.base.streams[:-1])
            ]

    def _loss(self, predictions: Tensor) -> float:
        return self.goal.loss(predictions, self.execution.grammar.batch)

    def _pattern(self, layer: int, queries: Tensor, keys: Tensor) -> Float[Tensor, "1 batch head query key"]:
        own = self.assignment.own[layer][..., None]
        pattern = self.execution.model.blocks[layer].pattern(queries, keys)
        return torch.where(own, pattern, self.assignment.given[layer])

    # Carrying.

    def carries(self, task: VectorTask) -> dict[Slot, dict[str, float]]:
        """Rise of the loss by what is exchanged, for every path: symbols `x_0`, `x_1` … and `position`."""
        others = exchanged(task, self.execution.grammar.batch.inputs, self.execution.grammar.batch.roles)
        streams = {name: self._under_base(inputs) for name, inputs in others.items()}
        return {
            slot: {
                name: self._finished(slot, self._read(slot, self._patterns[slot[0]], theirs[slot[0]]))
                - self.loss
                for name, theirs in streams.items()
            }
            for slot in self.assignment.circuit
        }

    def _under_base(self, inputs: Tensor) -> list[Tensor]:
        """Streams of other inputs under the patterns of the base."""
        with torch.no_grad():
            streams = [self.execution.model.embedded(inputs)]
            for block, pattern in zip(self.execution.model.blocks, self._patterns, strict=True):
                streams.append(block.under(streams[-1], pattern))
        return streams

    def _read(self, slot: Slot, pattern: Tensor, values: Tensor) -> Float[Tensor, "1 batch query head_dim"]:
        """Output of the slot's head under a pattern, with values from a stream."""
        layer, head, _ = slot
        with torch.no_grad():
            return self.execution.model.blocks[layer].heads_under(values, pattern)[:, :, head]

    def _finished(self, slot: Slot, read: Float[Tensor, "1 batch query head_dim"]) -> float:
        """Loss where the slot's rows have read this instead, and everything later is recomputed."""
        layer, head, role = slot
        block, stream = self.execution.model.blocks[layer], self.base.streams[layer]
        rows = self.execution.grammar.rows[role]
        with torch.no_grad():
            heads = block.heads_under(stream, self._patterns[layer]).clone()
            heads[:, :, head] = torch.where(rows[..., None], read, heads[:, :, head])
            stream = block.after_heads(stream, heads)
        before = (*self.base.streams[: layer + 1], stream)
        later = self.execution.onward(self.assignment, "recomputed", before)
        return self._loss(later.predictions)

    # Composition.

    def composition(self, slot: Slot) -> list[Composition]:
        """Uses of a path, the strongest first; see `LEAST_EFFECT`."""
        without = self.execution.assigned(self.assignment, {slot: Uniform()})
        ablated = self.execution.run(without, "recomputed", slot[0], self.base)
        found = [Composition(None, None, self._direct(slot, without) - self.loss)]
        for reader in self.assignment.circuit:
            if reader[0] > slot[0]:
                parts: tuple[Part, ...] = ("Q", "K", "V")
                found += [
                    Composition(reader, part, self._partly(reader, part, ablated) - self.loss)
                    for part in parts
                ]
        return sorted((use for use in found if use.rise >= LEAST_EFFECT), key=lambda use: -use.rise)

    def _partly(self, reader: Slot, part: Part, ablated: Passed) -> float:
        """Loss where one input of one path comes from the run without the other path."""
        layer = reader[0]
        stream, other = self.base.streams[layer], ablated.streams[layer]
        with torch.no_grad():
            if part == "V":
                return self._finished(reader, self._read(reader, self._patterns[layer], other))
            queries, keys = (other, stream) if part == "Q" else (stream, other)
            pattern = self._pattern(layer, queries, keys)
        return self._finished(reader, self._read(reader, pattern, stream))

    def _direct(self, slot: Slot, without: Assignment) -> float:
        """Loss where only the readout is without what the path has written."""
        layer, head, role = slot
        block, stream = self.execution.model.blocks[layer], self.base.streams[layer]
        rows = self.execution.grammar.rows[role]
        with torch.no_grad():
            heads = block.heads_under(stream, self._patterns[layer])
            pattern = torch.where(
                rows[:, None, :, None], without.given[layer][0, :, head][:, None], self._patterns[layer][0]
            )[None]
            fewer = torch.zeros_like(heads)
            change = block.heads_under(stream, pattern)[:, :, head] - heads[:, :, head]
            fewer[:, :, head] = torch.where(rows[..., None], change, 0.0)
            bias = block.projected(torch.zeros_like(heads))
            final = self.base.streams[-1] + block.projected(fewer) - bias
            predictions = self.execution.model.read_out(final[:, :, self.execution.model.rows])
        return self._loss(predictions)


def exchanged(
    task: VectorTask, inputs: Float[Tensor, "1 batch position feature"], roles: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The same sequences with one thing exchanged for that of another sample.

    Returns:
        `x_NODE` for each node of the chains: its symbol, in all chains and at every token that holds it; `position`:
        all position codes, each moved by one tuple of two.
    """
    size = task.config.symbol_dim
    symbols, codes = inputs[0, ..., :size], inputs[0, ..., size:]
    holds, chain = roles["holds"][0], roles["chain"][0]
    found = {}
    for node in holds.unique().tolist():
        changed = symbols.clone()
        for number in range(task.config.chains):
            here = (holds == node) & (chain == number)
            first = here.int().argmax(-1)
            symbol = symbols[torch.arange(len(first)), first]
            changed = torch.where(here[..., None], symbol.roll(1, 0)[:, None], changed)
        found[f"x_{node}"] = torch.cat((changed, codes), -1)[None]
    found["position"] = torch.cat((symbols, codes.roll(2, 1)), -1)[None]
    return found
