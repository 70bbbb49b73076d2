"""Running one model under rules: the forward passes that the reader does by the thousand.

An *assignment* says for every row of every head by what rule it reads.  It is run in one of two ways: in mode *rules*
every attention pattern is given (a head without rule keeps its clean pattern, the one of the unedited model on that
sample), so that only values flow; in mode *recomputed* the rows of the circuit use their own softmax over the streams
as they have become, and all other rows what they are given.

A change in one layer leaves the layers below as they are: their streams are kept and used again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import Learned, MeanMap, Rule, reads_nothing
from hopscope.models.transformer import Transformer

Slot = tuple[int, int, int]
"""Layer, head and number of the row role."""

Mode = Literal["rules", "recomputed"]

Stream = Float[Tensor, "1 batch position model"]
Pattern = Float[Tensor, "1 batch head query key"]


@dataclass(frozen=True)
class Assignment:
    """A rule for every slot, as tensors.

    Attributes:
        rules: what each slot does.
        given: patterns of the rules, and clean ones where there is none; one tensor for each layer.
        own: rows that use their own softmax where patterns are recomputed: those of the circuit.
    """

    rules: Mapping[Slot, Rule]
    given: tuple[Pattern, ...]
    own: tuple[Bool[Tensor, "1 batch head query"], ...]

    @property
    def circuit(self) -> list[Slot]:
        """Slots that read something."""
        return [slot for slot, rule in self.rules.items() if not reads_nothing(rule)]


@dataclass(frozen=True)
class Passed:
    """A finished pass.

    Attributes:
        streams: before each layer, and after the last.
        predictions: at the readout positions `[member, batch, readout, output]`.
    """

    streams: tuple[Stream, ...]
    predictions: Float[Tensor, "1 batch readout output"]


class Execution:
    """One model on one batch.

    Attributes:
        model: the model, with `member == 1`.
        grammar: rules on the batch.
        clean: streams and predictions of the unedited model; `patterns` are its attention patterns.
    """

    def __init__(self, model: Transformer, grammar: Grammar):
        self.model, self.grammar = model, grammar
        with torch.no_grad():
            stream = model.embedded(grammar.batch.inputs)
            streams, patterns = [stream], []
            for block in model.blocks:
                patterns.append(block.pattern(stream))
                stream = block.under(stream, patterns[-1])
                streams.append(stream)
            self.patterns: tuple[Pattern, ...] = tuple(patterns)
            self.clean = Passed(tuple(streams), self._read_out(stream))

    def _read_out(self, stream: Stream) -> Tensor:
        return self.model.read_out(stream[:, :, self.model.rows])

    @property
    def slots(self) -> list[Slot]:
        """Every row role of every head, layer by layer."""
        config = self.model.config
        return [
            (layer, head, role)
            for layer in range(config.layers)
            for head in range(config.heads)
            for role in range(len(self.grammar.roles))
        ]

    # Assignments.

    def untouched(self) -> Assignment:
        """All heads as they are."""
        own = torch.ones_like(self.patterns[0][..., 0], dtype=torch.bool)
        return Assignment(
            {slot: Learned() for slot in self.slots}, self.patterns, (own,) * len(self.patterns)
        )

    def assigned(self, base: Assignment, changes: Mapping[Slot, Rule]) -> Assignment:
        """Some slots under other rules; tensors of layers without a change are shared."""
        given, own = list(base.given), list(base.own)
        for layer in {slot[0] for slot in changes}:
            given[layer], own[layer] = given[layer].clone(), own[layer].clone()
        for slot, rule in changes.items():
            layer, head, role = slot
            rows = self.grammar.rows[role]
            pattern = self.rule_pattern(slot, rule)
            given[layer][0, :, head] = torch.where(rows[..., None], pattern, given[layer][0, :, head])
            own[layer][0, :, head] = torch.where(rows, not reads_nothing(rule), own[layer][0, :, head])
        return replace(base, rules={**base.rules, **changes}, given=tuple(given), own=tuple(own))

    def rule_pattern(self, slot: Slot, rule: Rule) -> Float[Tensor, "batch query key"]:
        """The pattern of a rule, for a given head where that matters."""
        layer, head, role = slot
        own = self.patterns[layer][0, :, head]
        if isinstance(rule, Learned):
            return own
        return self.grammar.of_head(role, rule, own)

    # Passes.

    def run(self, assignment: Assignment, mode: Mode, start: int = 0, base: Passed | None = None) -> Passed:
        """Run an assignment.

        Args:
            assignment: what every slot does.
            mode: what becomes of attention patterns, see the module.
            start: first layer that differs from `base`.
            base: a pass in the same mode whose layers below `start` did the same; by default nothing is shared.
        """
        if base is None:
            base, start = self.clean, 0
        return self.onward(assignment, mode, base.streams[: start + 1])

    def onward(self, assignment: Assignment, mode: Mode, before: Sequence[Stream]) -> Passed:
        """Run the layers that are left.

        Args:
            assignment, mode: as of `run`.
            before: streams before each layer that is done, and before the first that is left.
        """
        streams = list(before)
        stream = streams[-1]
        with torch.no_grad():
            for layer in range(len(before) - 1, len(self.model.blocks)):
                block, pattern = self.model.blocks[layer], assignment.given[layer]
                own = assignment.own[layer]
                if mode == "recomputed" and bool(own.any()):
                    pattern = torch.where(own[..., None], block.pattern(stream), pattern)
                stream = block.under(stream, pattern)
                streams.append(stream)
            return Passed(tuple(streams), self._read_out(stream))


def followed(execution: Execution, slot: Slot, rule: Rule) -> float:
    """How much of the attention of a slot's rows, in the unedited model, lies on what a rule reads: 0 … 1.

    A mean map is everywhere above zero: of it, what both have in common.
    """
    layer, head, role = slot
    rows = execution.grammar.rows[role]
    own = execution.patterns[layer][0, :, head][rows]
    wanted = execution.rule_pattern(slot, rule)[rows]
    shared = own.minimum(wanted) if isinstance(rule, MeanMap) else own * (wanted > 0)
    return float(shared.sum(-1).mean())
