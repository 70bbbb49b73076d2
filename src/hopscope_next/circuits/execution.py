"""Running one model under rules: the forward passes that the reader does by the thousand.

An *assignment* says for every row role of every head (a *slot*) by what rule it reads.  In mode *rules* every attention
pattern is given (a slot without rule keeps that of the unedited model), so that only values flow; in mode *recomputed*
rows that read something in particular use their own softmax over the streams as they have become.  A pass is a change
of another one, its base: only positions whose patterns are changed are computed, and above them those that see them.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import product
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope_next.circuits.grammar import Grammar
from hopscope_next.circuits.rules import Learned, MeanMap, Rule, reads_nothing
from hopscope_next.models.layers import Layer, Linear, Norm
from hopscope_next.models.transformer import Transformer

Slot = tuple[int, int, int]
"""Layer, head and number of the row role."""

Mode = Literal["rules", "recomputed"]

Stream = Float[Tensor, "position batch model"]  # positions that follow one another lie together in memory
Heads = Float[Tensor, "row batch head size"]
Values = Float[Tensor, "key batch head size"]
Pattern = Float[Tensor, "batch head row key"]
Predictions = Float[Tensor, "1 batch readout output"]
Positions = np.ndarray  # booleans [position]

_EPSILON = 1e-5  # of a norm, as in torch
_READS, _UNIFORM, _IDENTITY = range(3)
_KINDS = {"uniform": _UNIFORM, "identity": _IDENTITY}


class Activations(NamedTuple):
    """A finished pass: streams before each layer (after the last one at the readout positions alone), one over the
    lengths that attention divides them by, values, and predictions."""

    streams: list[Stream]
    inverse: list[Float[Tensor, "position batch 1"]]
    values: list[Values]
    predictions: Predictions

    def first(self, samples: int) -> "Activations":
        """The pass on the first samples only."""
        streams, inverse, values = ([each[:, :samples] for each in part] for part in self[:3])
        return Activations(streams, inverse, values, self.predictions[:, :samples])


class LayerPatterns(NamedTuple):
    """What the rows of one layer read: patterns, and `kinds` `[head, role]`, whether rows read something, uniformly, or
    themselves (the last role is that of rows without one)."""

    given: Pattern
    kinds: np.ndarray


class Assignment(NamedTuple):
    """A rule for every slot, and what the rows of each layer read under it."""

    rules: Mapping[Slot, Rule]
    layers: Sequence[LayerPatterns]

    @property
    def circuit(self) -> list[Slot]:
        """Slots whose rule reads something in particular."""
        return [slot for slot, rule in self.rules.items() if not reads_nothing(rule)]

    def first(self, samples: int) -> "Assignment":
        """The same on the first samples only."""
        return Assignment(self.rules, [LayerPatterns(given[:samples], kinds) for given, kinds in self.layers])


class _Maps:
    # The linear maps of one layer, into which norms are folded.  Where norms stand before the blocks, nothing but the
    # stream less its mean is ever read: what is added to it has a mean of 0 then, and it is normed by its length.
    def __init__(self, layer: Layer):
        config, attention, self._layer = layer.config, layer.attention, layer
        self._before, self._size = config.norm == "pre", config.head_size
        norm = layer.attention_norm if self._before else None
        self.query = _folded(attention.query, norm, config.head_size**-0.5)
        self.key, self.value = _folded(attention.key, norm), _folded(attention.value, norm)
        self.output = _folded(attention.output, centred=self._before)
        if config.mlp_size:
            self.inner = _folded(layer.mlp.inner, layer.mlp_norm if self._before else None)
            self.outer = _folded(layer.mlp.outer, centred=self._before)

    def inverse(self, stream: Tensor) -> Tensor:
        if not self._before:
            return stream.new_ones(*stream.shape[:-1], 1)
        length = torch.linalg.vector_norm(stream, dim=-1, keepdim=True)
        return length.square_().div_(stream.shape[-1]).add_(_EPSILON).rsqrt_()

    def of_heads(self, name: str, stream: Tensor, inverse: Tensor, heads: Tensor | None = None) -> Heads:
        weight, bias = getattr(self, name)
        if heads is not None and len(heads) * self._size < len(bias):
            parts = (each.unflatten(0, (-1, self._size)).index_select(0, heads) for each in (weight, bias))
            weight, bias = (each.flatten(0, 1) for each in parts)
        found = _product(stream, weight)
        return torch.addcmul(bias, found, inverse, out=found).unflatten(-1, (-1, self._size))

    def after(self, stream: Tensor, heads: Heads) -> Tensor:
        # The stream after this layer, from some rows of that before it and what their heads brought home.
        layer, post = self._layer, self._layer.config.norm == "post"
        stream = _product(heads.flatten(2), *self.output, stream)
        stream = layer.attention_norm(stream) if post else stream
        if layer.config.mlp_size:
            hidden = torch.addcmul(self.inner[1], _product(stream, self.inner[0]), self.inverse(stream))
            stream = _product(layer.mlp.activation(hidden), *self.outer, stream)
            stream = layer.mlp_norm(stream) if post else stream
        return stream


def _folded(
    map_: Linear, norm: Norm | None = None, scale: float = 1.0, centred: bool = False
) -> tuple[Tensor, Tensor]:
    # Weight [out, in] and bias.
    weight, bias = map_.weight.detach(), map_.bias.detach()
    if norm is not None:
        weight, bias = norm.weight.detach()[:, None] * weight, bias + norm.bias.detach() @ weight
    if centred:
        weight, bias = (each - each.mean(-1, keepdim=True) for each in (weight, bias))
    return (scale * weight).t().contiguous(), scale * bias


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, to: Tensor | None = None) -> Tensor:
    # By oneDNN, which is twice as quick on many processors as the library that `linear` takes.
    if x.device.type != "cpu" or x.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        found = functional.linear(x, weight, bias)
        return found if to is None else found + to
    if to is None:
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
    return torch.ops.mkldnn._linear_pointwise.binary(x.contiguous(), to.contiguous(), weight, bias, "add")


class Execution:
    """One model on one batch.

    Attributes:
        model, grammar: a single transformer, and the rules on the batch; `samples` is its size.
        clean: the pass of the unedited model; `own` are its attention patterns, `unedited` its assignment.
        slots: every row role of every head; `reachable`: those that can matter at all.
        positions: of the rows of each role; `readout_mask`: those that are read out.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, grammar: Grammar):
        self.model, self.grammar, inputs = model, grammar, grammar.batch.inputs
        self._maps = [_Maps(layer) for layer in cast(Iterable[Layer], model.layers)]
        roles, heads, (_, self.samples, length) = len(grammar.roles), model.config.heads, inputs.shape[:3]
        role_of = torch.full((self.samples, length), roles)
        for number, rows in enumerate(grammar.rows.cpu()):
            role_of[rows] = number
        self._roles = role_of.numpy() if (role_of != role_of[:1]).any() else role_of[:1].numpy()
        self.positions: list[Positions] = [rows.any(0).cpu().numpy() for rows in grammar.rows]
        self.readout_mask = np.isin(np.arange(length), model.config.readout_positions)
        seen = torch.ones(length, length, device=inputs.device)
        seen = seen.tril() if model.config.causal else seen
        self._hidden, self._uniform = seen.log(), seen / seen.sum(-1, keepdim=True)
        self._itself, self._heads = torch.eye(length).to(seen), torch.arange(heads, device=inputs.device)
        self.slots: list[Slot] = list(product(range(model.config.layers), range(heads), range(roles)))
        # In the last layer, only the rows that are read out.
        last, wanted = model.config.layers - 1, [(rows & self.readout_mask).any() for rows in self.positions]
        self.reachable = [slot for slot in self.slots if slot[0] < last or wanted[slot[2]]]
        self._patterns, self._whole, self.own = dict[tuple[Slot, str], Tensor](), self, list[Tensor]()
        passed = Activations([self.embedded(inputs)], [], [], torch.empty(0))
        for layer, maps in enumerate(self._maps):
            stream, rows = passed.streams[-1], _index(self._wanted(layer))
            passed.inverse.append(maps.inverse(stream))
            passed.values.append(maps.of_heads("value", stream, passed.inverse[-1]))
            self.own.append(self.pattern(layer, passed, passed, self._heads))
            passed.streams.append(
                maps.after(stream[rows], _mixed(self.own[-1][:, :, rows], passed.values[-1]))
            )
        self.clean = passed._replace(predictions=self._read_out(passed.streams[-1]))
        reads = [LayerPatterns(own, np.full((heads, roles + 1), _READS)) for own in self.own]
        self.unedited = Assignment(dict.fromkeys(self.slots, Learned()), reads)

    def first(self, samples: int) -> "Execution":
        """The same on the first samples; what rules mean is what they mean on all."""
        found = copy(self)
        found.samples, found.clean, found._roles = samples, self.clean.first(samples), self._roles[:samples]
        found.own, found.unedited = [own[:samples] for own in self.own], self.unedited.first(samples)
        return found

    @torch.no_grad()
    def embedded(self, inputs: Tensor) -> Stream:
        """The stream before the first layer, of inputs with a member axis of 1."""
        stream = self.model.embedded(inputs[0]).transpose(0, 1).contiguous()
        return stream - stream.mean(-1, keepdim=True) if self.model.config.norm == "pre" else stream

    def _read_out(self, stream: Tensor) -> Predictions:
        return self.model.read_out(stream).transpose(0, 1)[None]

    def _wanted(self, layer: int) -> Positions:
        return self.readout_mask if layer == len(self._maps) - 1 else np.ones_like(self.readout_mask)

    def pattern(
        self, layer: int, queries: Activations, keys: Activations, heads: Tensor, rows: Any = ...
    ) -> Pattern:
        """Attention patterns of some heads, from the streams of passes; of some rows, if that is asked."""
        maps, (asking, inverse) = self._maps[layer], (part[layer][rows] for part in queries[:2])
        query = maps.of_heads("query", asking, inverse, heads).permute(1, 2, 0, 3)
        key = maps.of_heads("key", keys.streams[layer], keys.inverse[layer], heads).permute(1, 2, 3, 0)
        return (query @ key).add_(self._hidden[rows]).softmax(-1)

    # Assignments.

    def assigned(self, base: Assignment, changes: Mapping[Slot, Rule]) -> Assignment:
        """Some slots under other rules; layers without a change are shared."""
        layers = list(base.layers)
        for layer in {slot[0] for slot in changes}:
            given, kinds = layers[layer].given.clone(), layers[layer].kinds.copy()
            here = {slot: rule for slot, rule in changes.items() if slot[0] == layer}
            for slot, rule in here.items():
                kinds[slot[1:]] = _KINDS.get(rule.kind, _READS)
            # Mostly many read nothing, and the pattern of that is the same for all.
            for kind, pattern in ((_UNIFORM, self._uniform), (_IDENTITY, self._itself)):
                of = (kinds == kind) & (layers[layer].kinds != kind)
                for head in of.any(1).nonzero()[0]:
                    rows = torch.from_numpy(of[head][self._roles])[..., None].to(given.device)
                    given[:, head] = torch.where(rows, pattern, given[:, head])
            for slot, rule in here.items():
                if not reads_nothing(rule):
                    rows = self.grammar.rows[slot[2], : self.samples, :, None]
                    given[:, slot[1]] = torch.where(rows, self.rule_pattern(slot, rule), given[:, slot[1]])
            layers[layer] = LayerPatterns(given, kinds)
        return Assignment({**base.rules, **changes}, layers)

    def rule_pattern(self, slot: Slot, rule: Rule) -> Float[Tensor, "batch query key"]:
        """The pattern of a rule, for a given head where that matters."""
        layer, head, role = slot
        if isinstance(rule, Learned):
            return self.own[layer][:, head]
        key = slot, rule.model_dump_json()
        if key not in self._patterns:
            self._patterns[key] = self.grammar.pattern(role, rule, self._whole.own[layer][:, head])
        return self._patterns[key][: self.samples]

    def attention_on(self, slot: Slot, rule: Rule) -> float:
        """Mean attention of a slot's rows, in the unedited model, on what a rule reads."""
        rows, (layer, head, role) = self.grammar.rows, slot
        own, wanted = (each[rows[role]] for each in (self.own[layer][:, head], self.rule_pattern(slot, rule)))
        # A mean map is everywhere above zero: of it, what both have in common.
        shared = own.minimum(wanted) if isinstance(rule, MeanMap) else own * (wanted > 0)
        return float(shared.sum(-1).mean())

    def changed(self, slots: Iterable[Slot]) -> dict[int, Positions]:
        """Positions of the rows of some slots, by layer."""
        found: dict[int, Positions] = {}
        for layer, _, role in slots:
            found[layer] = found.get(layer, False) | self.positions[role]
        return found

    # Passes.

    @torch.no_grad()
    def run(
        self, assignment: Assignment, mode: Mode, base: Activations | None = None,
        changed: Mapping[int, Positions] | None = None, start: Stream | None = None,
        patch: tuple[Slot, Float[Tensor, "position batch size"]] | None = None,
    ) -> Activations:  # fmt: skip
        """Run an assignment as a change of a base, which is a pass in the same mode.

        Args:
            assignment, mode: what every slot does, and what becomes of attention patterns.
            base: by default the pass of the unedited model.
            changed: layer → positions of rows that differ from it; all by default.
            start: another stream before the first layer.
            patch: what the rows of one slot, which are among those that differ, bring home instead.
        """
        base, none = base or self.clean, np.zeros_like(self.readout_mask)
        changed, dirty = {0: ~none} if changed is None else changed, none
        streams, inverse, values = list(base.streams), list(base.inverse), list(base.values)
        passed = Activations(streams, inverse, values, base.predictions)
        if start is not None:
            streams[0], dirty = start, ~none
        for layer, maps in enumerate(self._maps):
            if dirty.any():
                x = streams[layer][_index(dirty)]
                lengths = maps.inverse(x)
                inverse[layer] = _put(inverse[layer], dirty, lengths)
                values[layer] = _put(values[layer], dirty, maps.of_heads("value", x, lengths))
            # A row sees those before it, or all.
            seeing = np.logical_or.accumulate(dirty) if self.model.config.causal else dirty | dirty.any()
            dirty = (seeing | changed.get(layer, none)) & self._wanted(layer)
            if dirty.any():
                at = _index(dirty)
                heads = self._head_outputs(assignment.layers[layer], dirty, layer, passed, mode)
                if patch and patch[0][0] == layer:
                    (_, head, role), read = patch
                    rows = self.grammar.rows[role, : self.samples].t()[at, :, None]
                    heads[:, :, head] = torch.where(rows, read[at], heads[:, :, head])
                after = maps.after(streams[layer][at], heads)
                streams[layer + 1] = _put(streams[layer + 1], dirty[self._wanted(layer)], after)
        return passed._replace(predictions=self._read_out(streams[-1])) if dirty.any() else passed

    def _head_outputs(
        self, reads: LayerPatterns, rows: Positions, layer: int, passed: Activations, mode: Mode
    ) -> Heads:
        # What all heads of a layer bring home at some rows.
        values, kinds = passed.values[layer], reads.kinds[:, self._roles[:, rows]]  # [head, batch, row]
        some = torch.from_numpy((kinds != _UNIFORM).any((1, 2)).nonzero()[0]).to(values.device)
        given, whole = reads.given[:, :, _index(rows)], len(some) == len(kinds)
        if not whole:
            found = (self._uniform[_index(rows)] @ values.flatten(1)).unflatten(1, values.shape[1:])
            if not len(some):
                return found
            given, kinds = given.index_select(1, some), kinds[some.cpu().numpy()]
        places = (kinds == _READS).any((0, 1)).nonzero()[0]
        if mode == "recomputed" and len(places):
            own = self.pattern(layer, passed, passed, some, torch.from_numpy(rows.nonzero()[0][places]))
            here = torch.from_numpy((kinds[:, :, places] == _READS).swapaxes(0, 1))[..., None].to(
                given.device
            )
            if len(places) == given.shape[2]:
                given = torch.where(here, own, given)
            else:
                at = torch.from_numpy(places).to(given.device)
                given = given.index_copy(2, at, torch.where(here, own, given.index_select(2, at)))
        read = _mixed(given, values if whole else values.index_select(2, some))
        if whole:
            return read
        return found.index_copy_(2, some, read)

    # Parts of passes.

    @torch.no_grad()
    def with_frozen_patterns(self, assignment: Assignment, passed: Activations) -> Assignment:
        """An assignment with all patterns given as they are in its recomputed pass."""
        layers = []
        for layer, (given, kinds) in enumerate(assignment.layers):
            own = torch.from_numpy((kinds == _READS)[:, self._roles].swapaxes(0, 1))[..., None].to(
                given.device
            )
            pattern = self.pattern(layer, passed, passed, self._heads)
            layers.append(LayerPatterns(torch.where(own, pattern, given), kinds))
        return Assignment(assignment.rules, layers)

    def head_outputs(self, assignment: Assignment, passed: Activations, layer: int) -> Heads:
        """What all heads of a layer bring home at the rows that are wanted: given patterns, and values of a pass."""
        return _mixed(assignment.layers[layer].given[:, :, _index(self._wanted(layer))], passed.values[layer])

    @torch.no_grad()
    def predictions_from(self, passed: Activations, layer: int, heads: Sequence[Heads]) -> Predictions:
        """Predictions from a layer on, where its heads and all later ones bring home this."""
        stream = passed.streams[layer]
        for number, brought in enumerate(heads, layer):
            stream = self._maps[number].after(stream[_index(self._wanted(number))], brought)
        return self._read_out(stream)


def _mixed(pattern: Pattern, values: Values) -> Heads:
    return (pattern @ values.permute(1, 2, 0, 3)).permute(2, 0, 1, 3).contiguous()


def _index(rows: Positions) -> Any:
    # Some positions as an index: a slice where they follow one another.
    places = rows.nonzero()[0]
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return slice(int(places[0]), int(places[-1]) + 1)
    return torch.from_numpy(places)


def _put(x: Tensor, rows: Positions, new: Tensor) -> Tensor:
    # A tensor with some positions replaced.
    if rows.all():
        return new
    x = x.clone()
    x[_index(rows)] = new
    return x
