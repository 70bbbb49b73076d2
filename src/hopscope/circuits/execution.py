"""Running one model under rules: the forward passes that the reader does by the thousand.

An *assignment* says for every row of every head by what rule it reads.  It is run in one of two ways: in mode *rules*
every attention pattern is given (a head without rule keeps its clean pattern, the one of the unedited model on that
sample), so that only values flow; in mode *recomputed* the rows of the circuit use their own softmax over the streams
as they have become, and all other rows what they are given.

A change in one layer leaves the layers below as they are: their streams are kept and used again.  What nobody looks at
is not computed: of the last layer, all rows but those that are read out; of patterns, all heads and rows but those of
the circuit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.circuits.grammar import Grammar
from hopscope.circuits.virtual_model import ReadModel, Stream
from hopscope.models.patterns import NOTHING, Learned, MeanMap, Rule, reads_nothing

Slot = tuple[int, int, int]
"""Layer, head and number of the row role."""

Mode = Literal["rules", "recomputed"]

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
        """Slots whose rule reads at least one token."""
        return [slot for slot, rule in self.rules.items() if not reads_nothing(rule)]


@dataclass(frozen=True)
class Passed:
    """A finished pass.

    Attributes:
        streams: before each layer.
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

    def __init__(self, model: ReadModel, grammar: Grammar):
        self.model, self.grammar = model, grammar
        with torch.no_grad():
            stream: Stream = model.embedded(grammar.batch.inputs)
            streams, patterns = [], []
            for layer in range(len(model.blocks)):
                block, rows = model.blocks[layer], self.wanted(layer)
                streams.append(stream)
                patterns.append(block.pattern(stream))
                stream = block.under(
                    stream, patterns[-1] if rows is None else patterns[-1][..., rows, :], rows
                )
            self.patterns: tuple[Pattern, ...] = tuple(patterns)
            self.clean = Passed(tuple(streams), model.read_out(stream))

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
        for nothing in NOTHING:
            # Mostly there are many, and their pattern is the same for all heads.
            slots = [slot for slot, rule in changes.items() if rule == nothing]
            for layer, rows in self._rows(slots).items():
                pattern = self.grammar.pattern(nothing)[:, None]
                given[layer] = torch.where(rows[..., None], pattern, given[layer])
                own[layer] = own[layer] & ~rows
        reading = {slot: rule for slot, rule in changes.items() if not reads_nothing(rule)}
        for layer, rows in self._rows(reading).items():
            given[layer], own[layer] = given[layer].clone(), own[layer] | rows
        for slot, rule in reading.items():
            layer, head, role = slot
            rows, here = self.grammar.rows[role][..., None], given[layer][0, :, head]
            given[layer][0, :, head] = torch.where(rows, self.rule_pattern(slot, rule), here)
        return replace(base, rules={**base.rules, **changes}, given=tuple(given), own=tuple(own))

    def _rows(self, slots: Iterable[Slot]) -> dict[int, Bool[Tensor, "1 batch head query"]]:
        """Rows of some slots, by layer."""
        found: dict[int, Tensor] = {}
        for layer, head, role in slots:
            if layer not in found:
                found[layer] = torch.zeros_like(self.patterns[layer][..., 0], dtype=torch.bool)
            found[layer][0, :, head] |= self.grammar.rows[role]
        return found

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
            before: streams before each layer that is done, and before the first that is left; if none is left, after
                the last, at the readout positions alone.
        """
        *done, stream = before
        with torch.no_grad():
            for layer in range(len(done), len(self.model.blocks)):
                done.append(stream)
                rows = self.wanted(layer)
                pattern = assignment.given[layer] if rows is None else assignment.given[layer][..., rows, :]
                if mode == "recomputed":
                    pattern = self._recomputed(layer, stream, assignment.own[layer], pattern)
                stream = self.model.blocks[layer].under(stream, pattern, rows)
            return Passed(tuple(done), self.model.read_out(stream))

    def wanted(self, layer: int) -> slice | Tensor | None:
        """Rows of a layer that anybody looks at, `None` for all."""
        return self.model.rows if layer == len(self.model.blocks) - 1 else None

    def _recomputed(
        self,
        layer: int,
        stream: Stream,
        own: Bool[Tensor, "1 batch head query"],
        given: Float[Tensor, "1 batch head row key"],
    ) -> Float[Tensor, "1 batch head row key"]:
        """Given patterns of a layer's wanted rows, but the softmax of a stream for the heads' own rows."""
        wanted = self.wanted(layer)
        every = torch.arange(own.shape[-1], device=own.device)
        every = every if wanted is None else every[wanted]
        own = own[..., every]
        heads = own.any((0, 1, 3)).nonzero()[:, 0]
        rows = own.any((0, 1, 2)).nonzero()[:, 0]
        if not len(heads):
            return given
        place = (..., heads[:, None], rows, slice(None))
        pattern = self.model.blocks[layer].pattern(stream, None, every[rows], heads.tolist())
        found = given.clone()
        found[place] = torch.where(own[place[:-1]][..., None], pattern, given[place])
        return found


def mean_attention(execution: Execution, slot: Slot, rule: Rule) -> float:
    """How much of the attention of a slot's rows, in the unedited model, lies on what a rule reads: 0 … 1.

    A mean map is everywhere above zero: of it, what both have in common.
    """
    layer, head, role = slot
    rows = execution.grammar.rows[role]
    own = execution.patterns[layer][0, :, head][rows]
    wanted = execution.rule_pattern(slot, rule)[rows]
    shared = own.minimum(wanted) if isinstance(rule, MeanMap) else own * (wanted > 0)
    return float(shared.sum(-1).mean())
