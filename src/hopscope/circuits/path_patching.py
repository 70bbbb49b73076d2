"""Path patching: what a path carries, and what its readers do with it.

*Carries* (interchange): the path alone reads values from a run in which one thing is exchanged everywhere: the symbols
in some place, or the position codes.  What follows is recomputed.  If the loss rises, the path brings that thing to
where it is needed; where answers are choices, one can also count how many become what the exchanged thing says.

*Composition*: the path is removed, but only one reader notices, and only in one of its inputs: its queries (Q), its
keys (K) or its values (V); or the readout, which notices without any later head: along the stream, its norms and MLPs.
What follows is recomputed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.circuit_task import NO_ANSWER, Counterfactual
from hopscope.circuits.config import LEAST_EFFECT as LEAST_EFFECT
from hopscope.circuits.criteria import FaithfulnessCriterion, Predictions
from hopscope.circuits.execution import Assignment, Execution, Passed, Pattern, Slot
from hopscope.circuits.virtual_model import Stream
from hopscope.models.patterns import Uniform

Part = Literal["Q", "K", "V"]


def least_effect(criterion: FaithfulnessCriterion) -> float:
    """The rise of the loss from which on something counts for a criterion: its `least_effect`, or `LEAST_EFFECT`."""
    return float(getattr(criterion, "least_effect", LEAST_EFFECT))


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


@dataclass(frozen=True)
class Carried:
    """What happens if one thing is exchanged in what one path reads.

    Attributes:
        name: of the thing.
        rise: of the loss.
        kept: share of the answers at the path's rows that are right all the same, of those for which another would
            follow; `None` where answers are no choices or none would follow.
        follows: share of them that are what would follow.
    """

    name: str
    rise: float
    kept: float | None = None
    follows: float | None = None


class PathPatching:
    """What flows along the paths of a circuit, on one batch.

    Attributes:
        execution, criterion: what is run, and what is measured.
        assignment: the circuit.
        base: its recomputed pass.
    """

    def __init__(self, execution: Execution, criterion: FaithfulnessCriterion, assignment: Assignment):
        self.execution, self.criterion, self.assignment = execution, criterion, assignment
        self.base = execution.run(assignment, "recomputed")
        self.loss = self._loss(self.base.predictions)
        with torch.no_grad():
            self._patterns = [self._pattern(layer, stream) for layer, stream in enumerate(self.base.streams)]
            self._heads = [
                execution.model.blocks[layer].heads_under(self.base.streams[layer], pattern)
                for layer, pattern in enumerate(self._patterns)
            ]

    def _loss(self, predictions: Tensor) -> float:
        return self.criterion.loss(predictions, self.execution.grammar.batch)

    def _pattern(self, layer: int, stream: Stream) -> Pattern:
        own = self.assignment.own[layer][..., None]
        pattern = self.execution.model.blocks[layer].pattern(stream)
        return torch.where(own, pattern, self.assignment.given[layer])

    # Carrying.

    def carries(self, counterfactuals: Iterable[Counterfactual]) -> dict[Slot, tuple[Carried, ...]]:
        """What becomes of every path's readers if one thing is exchanged in what it reads."""
        others = [(other, self._under_base(other.stream)) for other in counterfactuals]
        return {
            slot: tuple(self._carried(slot, other, streams) for other, streams in others)
            for slot in self.assignment.circuit
        }

    def _carried(self, slot: Slot, other: Counterfactual, streams: Sequence[Stream]) -> Carried:
        layer = slot[0]
        read = self._read(slot, self._patterns[layer][:, :, slot[1]], streams[layer])
        predictions = self._finished(slot, read)
        rise = self._loss(predictions) - self.loss
        if other.right is None or other.follows is None:
            return Carried(other.name, rise)
        rows = self.execution.grammar.rows[slot[2]][:, list(self.execution.model.config.readout_positions)]
        right, follows = other.right[0], other.follows[0]
        told = rows & (right != NO_ANSWER) & (follows != NO_ANSWER) & (follows != right)
        if not bool(told.any()):
            return Carried(other.name, rise)
        answers = predictions[0].argmax(-1)[told]
        kept, followed = (float((answers == each[told]).float().mean()) for each in (right, follows))
        return Carried(other.name, rise, kept, followed)

    def _under_base(self, embedded: Stream) -> list[Stream]:
        """Streams of other inputs before each layer, under the patterns of the base."""
        streams = [embedded]
        with torch.no_grad():
            for layer, pattern in enumerate(self._patterns[:-1]):
                streams.append(self.execution.model.blocks[layer].under(streams[-1], pattern))
        return streams

    def _read(
        self, slot: Slot, pattern: Float[Tensor, "1 batch query key"], values: Stream
    ) -> Float[Tensor, "1 batch query head_dim"]:
        """Output of the slot's head under a pattern, with values from a stream."""
        layer, head, _ = slot
        with torch.no_grad():
            block = self.execution.model.blocks[layer]
            return block.heads_under(values, pattern[:, :, None], [head])[:, :, 0]

    def _finished(self, slot: Slot, read: Float[Tensor, "1 batch query head_dim"]) -> Predictions:
        """Predictions where the slot's rows have read this instead, and everything later is recomputed."""
        before = (*self.base.streams[: slot[0] + 1], self._after_read(slot, read))
        return self.execution.onward(self.assignment, "recomputed", before).predictions

    def _after_read(self, slot: Slot, read: Float[Tensor, "1 batch query head_dim"]) -> Stream:
        """The wanted rows of the stream after a layer where the slot's rows have read this instead."""
        layer, head, role = slot
        rows = self.execution.grammar.rows[role][..., None]
        heads = self._heads[layer].clone()
        heads[:, :, head] = torch.where(rows, read, heads[:, :, head])
        return self._after(layer, self.base.streams[layer], heads)

    def _after(
        self, layer: int, stream: Stream, heads: Float[Tensor, "1 batch head position head_dim"]
    ) -> Stream:
        """The wanted rows of the stream after a layer."""
        rows = self.execution.wanted(layer)
        heads = heads if rows is None else heads[..., rows, :]
        with torch.no_grad():
            return self.execution.model.blocks[layer].after_heads(stream, heads, rows)

    # Composition.

    def composition(self, slot: Slot) -> list[Composition]:
        """Uses of a path, the strongest first; see `least_effect`."""
        without = self.execution.assigned(self.assignment, {slot: Uniform()})
        ablated = self.execution.run(without, "recomputed", slot[0], self.base)
        found = [Composition(None, None, self._loss(self._direct(slot, without)) - self.loss)]
        for reader in self.assignment.circuit:
            if reader[0] > slot[0]:
                parts: tuple[Part, ...] = ("Q", "K", "V")
                found += [
                    Composition(reader, part, self._loss(self._partly(reader, part, ablated)) - self.loss)
                    for part in parts
                ]
        least = least_effect(self.criterion)
        return sorted((use for use in found if use.rise >= least), key=lambda use: -use.rise)

    def _partly(self, reader: Slot, part: Part, ablated: Passed) -> Predictions:
        """Predictions where one input of one path comes from the run without the other path."""
        layer, head, _ = reader
        stream, other = self.base.streams[layer], ablated.streams[layer]
        with torch.no_grad():
            if part == "V":
                return self._finished(reader, self._read(reader, self._patterns[layer][:, :, head], other))
            queries, keys = (other, stream) if part == "Q" else (stream, other)
            pattern = self.execution.model.blocks[layer].pattern(queries, keys, heads=[head])[:, :, 0]
        return self._finished(reader, self._read(reader, pattern, stream))

    def _direct(self, slot: Slot, without: Assignment) -> Predictions:
        """Predictions where no later head notices that the path is gone."""
        layer, head, _ = slot
        stream = self._after_read(
            slot, self._read(slot, without.given[layer][:, :, head], self.base.streams[layer])
        )
        for later in range(layer + 1, len(self._heads)):
            stream = self._after(later, stream, self._heads[later])
        with torch.no_grad():
            return self.execution.model.read_out(stream)
