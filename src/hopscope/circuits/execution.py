"""Running one model under rules: the forward passes that the reader does by the thousand.

Every row role of every head (a *slot*) reads by a rule.  In mode *rules* every attention pattern is given by its rule
(`Learned`: as in the model as it is), so that only values flow; in mode *recomputed* rows that read something in
particular use their own softmax over the streams as they have become.  A pass is a change of another one, its base:
only positions whose patterns are changed are computed, and above them those that see them.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import Learned, Rule, is_sharp, reads_nothing, visible
from hopscope.models.layers import Layer, Linear, Norm
from hopscope.models.transformer import Transformer

Slot = tuple[int, int, int]
"""Layer, head and number of the row role."""

Mode = Literal["rules", "recomputed"]
MODES: tuple[Mode, ...] = "rules", "recomputed"

Stream = Float[Tensor, "position batch model"]  # positions that follow one another lie together in memory
Heads = Float[Tensor, "row batch head size"]
Values = Float[Tensor, "key batch head size"]
Pattern = Float[Tensor, "batch head row key"]
Predictions = Float[Tensor, "1 batch readout output"]
Positions = np.ndarray  # booleans [position]

_EPSILON = 1e-5  # of a norm, as in torch
# Multiplications from which on a product is left to oneDNN, which is twice as quick then on many processors.
_LARGE = 1_000_000


class Pass(NamedTuple):
    """A finished pass: what every slot does in it, and what came of that in each layer."""

    mode: Mode
    rules: Mapping[Slot, Rule]
    given: list[Pattern]  # as the rules say; of rows that read something they are used in mode *rules*
    streams: list[Stream]  # before each layer, and after the last one at the readout positions alone
    inverse: list[Float[Tensor, "position batch 1"]]  # one over the lengths that attention divides them by
    values: list[Values]
    predictions: Predictions

    @property
    def circuit(self) -> list[Slot]:
        """Slots whose rule reads something in particular."""
        return [slot for slot, rule in self.rules.items() if not reads_nothing(rule)]

    def first(self, samples: int) -> "Pass":
        """The pass on the first samples only."""
        inside = (self.streams, self.inverse, self.values)
        streams, inverse, values = ([each[:, :samples] for each in some] for some in inside)
        given, predictions = [each[:samples] for each in self.given], self.predictions[:, :samples]
        return Pass(self.mode, self.rules, given, streams, inverse, values, predictions)


class _Maps:
    # The linear maps of one layer, into which norms are folded: as (weight [out, in], bias).  Where norms stand before
    # the blocks, nothing but the stream less its mean is ever read: what is added to it has a mean of 0 then, and it is
    # normed by its length.
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

    def of_heads(self, name: str, stream: Tensor, inverse: Tensor) -> Heads:
        weight, bias = getattr(self, name)
        return torch.addcmul(bias, _product(stream, weight), inverse).unflatten(-1, (-1, self._size))

    def after(self, stream: Tensor, heads: Heads) -> Tensor:
        # The stream after this layer, from some rows of that before it and what their heads brought home.
        layer, post = self._layer, self._layer.config.norm == "post"
        stream = _product(heads.flatten(2), *self.output).add_(stream)
        stream = layer.attention_norm(stream) if post else stream
        if layer.config.mlp_size:
            hidden = torch.addcmul(self.inner[1], _product(stream, self.inner[0]), self.inverse(stream))
            stream = _product(layer.mlp.activation(hidden), *self.outer).add_(stream)
            stream = layer.mlp_norm(stream) if post else stream
        return stream


def _folded(
    map_: Linear, norm: Norm | None = None, scale: float = 1.0, centred: bool = False
) -> tuple[Tensor, Tensor]:
    weight, bias = map_.weight.detach(), map_.bias.detach()
    if norm is not None:
        weight, bias = norm.weight.detach()[:, None] * weight, bias + norm.bias.detach() @ weight
    if centred:
        weight, bias = (each - each.mean(-1, keepdim=True) for each in (weight, bias))
    return (scale * weight).t().contiguous(), scale * bias


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    large = x.numel() * len(weight) > _LARGE and x.device.type == "cpu" and x.dtype == torch.float32
    if large and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
    return functional.linear(x, weight, bias)


class Execution:
    """One model on one batch.

    Attributes:
        model, grammar: a single transformer, and the rules on the batch.
        clean: the pass of the model as it is, in mode *rules*; `given` are its attention patterns.
        slots: every row role of every head; `reachable`: those that can matter at all.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, grammar: Grammar):
        self.model, self.grammar, inputs = model, grammar, grammar.batch.inputs
        self._maps = [_Maps(layer) for layer in cast(Iterable[Layer], model.layers)]
        roles, heads, length = len(grammar.roles), model.config.heads, inputs.shape[2]
        role_of = torch.cat((grammar.rows, ~grammar.rows.any(0)[None])).int().argmax(0)
        self._role_of = role_of[:1] if (role_of == role_of[:1]).all() else role_of
        self._positions: list[Positions] = [rows.any(0).cpu().numpy() for rows in grammar.rows]
        self._readout = np.isin(np.arange(length), model.config.readout_positions)
        self._hidden = visible(grammar.batch, model.config.causal).float().log()
        self.slots: list[Slot] = list(product(range(model.config.layers), range(heads), range(roles)))
        # In the last layer, only the rows that are read out.
        last, wanted = model.config.layers - 1, [(rows & self._readout).any() for rows in self._positions]
        self.reachable = [slot for slot in self.slots if slot[0] < last or wanted[slot[2]]]
        self._patterns = dict[tuple[Slot, str], Tensor]()
        unedited: Mapping[Slot, Rule] = dict.fromkeys(self.slots, Learned())
        passed = Pass("rules", unedited, [], [self.embedded(inputs)], [], [], torch.empty(0))
        for layer, maps in enumerate(self._maps):
            stream, rows = passed.streams[-1], _index(self._wanted(layer))
            passed.inverse.append(maps.inverse(stream))
            passed.values.append(maps.of_heads("value", stream, passed.inverse[-1]))
            passed.given.append(self.pattern(layer, passed, passed))
            passed.streams.append(maps.after(stream[rows], self.brought_home(passed, layer, rows)))
        self.clean = passed._replace(predictions=self._read_out(passed.streams[-1]))

    @torch.no_grad()
    def embedded(self, inputs: Tensor) -> Stream:
        """The stream before the first layer, of inputs with a member axis of 1."""
        return self.centred(self.model.embedded(inputs[0]).transpose(0, 1).contiguous())

    def centred(self, stream: Tensor) -> Tensor:
        """What is in a stream, `[…, model]`, without the mean that a norm before each layer takes away."""
        return stream - stream.mean(-1, keepdim=True) if self.model.config.norm == "pre" else stream

    def _read_out(self, stream: Tensor) -> Predictions:
        return self.model.read_out(stream).transpose(0, 1)[None]

    def _wanted(self, layer: int) -> Positions:
        return self._readout if layer == len(self._maps) - 1 else np.ones_like(self._readout)

    # Patterns.

    @torch.no_grad()
    def pattern(self, layer: int, queries: Pass, keys: Pass, rows: Any = ...) -> Pattern:
        """A layer's softmax over the streams of passes; of some rows, if that is asked."""
        maps, asking, inverse = self._maps[layer], queries.streams[layer][rows], queries.inverse[layer][rows]
        query = maps.of_heads("query", asking, inverse).permute(1, 2, 0, 3)
        key = maps.of_heads("key", keys.streams[layer], keys.inverse[layer]).permute(1, 2, 3, 0)
        return (query @ key).add_(self._hidden[rows]).softmax(-1)

    def own_pattern(self, slot: Slot) -> Float[Tensor, "batch query key"]:
        """The pattern of a slot's head in the model as it is."""
        return self.clean.given[slot[0]][:, slot[1]]

    def rule_pattern(self, slot: Slot, rule: Rule) -> Float[Tensor, "batch query key"]:
        """The pattern of a rule, for a given head where that matters."""
        own = self.own_pattern(slot)
        if isinstance(rule, Learned):
            return own
        key = slot, rule.model_dump_json()
        if key not in self._patterns:
            self._patterns[key] = self.grammar.pattern(slot[2], rule, own)
        return self._patterns[key]

    def attention_on(self, slot: Slot, rule: Rule) -> float:
        """Mean attention of a slot's rows, in the unedited model, on what a rule reads."""
        rows = self.grammar.rows[slot[2]]
        own, wanted = self.own_pattern(slot)[rows], self.rule_pattern(slot, rule)[rows]
        # A mean map is everywhere above zero: of it, what both have in common.
        shared = own * (wanted > 0) if is_sharp(rule) else own.minimum(wanted)
        return float(shared.sum(-1).mean())

    # Passes.

    @torch.no_grad()
    def under(
        self, base: Pass, changes: Mapping[Slot, Rule], start: Stream | None = None,
        brought: Mapping[int, Heads] = {},
    ) -> Pass:  # fmt: skip
        """A pass like its base, in which some slots follow other rules; only rows that can differ are computed anew.

        `start` is another stream before the first layer; `brought` is, by layer, what all its heads bring home in place
        of what they would, which counts at the rows of `changes` and where these are seen.
        """
        none = np.zeros_like(self._readout)
        given, changed = list(base.given), dict[int, Positions]()
        for layer in {slot[0] for slot in changes}:
            given[layer], changed[layer] = given[layer].clone(), none
        for slot, rule in changes.items():
            (layer, head, role), at = slot, _index(self._positions[slot[2]])
            was, patterns = given[layer][:, head, at], self.rule_pattern(slot, rule)[: len(given[layer]), at]
            rows = self.grammar.rows[role, : len(was), at, None]
            given[layer][:, head, at] = torch.where(rows, patterns, was)
            # Rows that are recomputed do not mind by which rule they read.
            nothing = reads_nothing(rule) or reads_nothing(base.rules[slot])
            if nothing or base.mode == "rules" or layer in brought:
                changed[layer] = changed[layer] | self._positions[role]
        streams, inverse, values = list(base.streams), list(base.inverse), list(base.values)
        rules = {**base.rules, **changes}
        passed, dirty = Pass(base.mode, rules, given, streams, inverse, values, base.predictions), none
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
                heads = brought[layer][at] if layer in brought else self.brought_home(passed, layer, at)
                after = maps.after(streams[layer][at], heads)
                streams[layer + 1] = _put(streams[layer + 1], dirty[self._wanted(layer)], after)
        return passed._replace(predictions=self._read_out(streams[-1])) if dirty.any() else passed

    def _given(self, passed: Pass, layer: int, rows: Any = ...) -> Pattern:
        # The patterns of a layer that count in a pass.
        given, rules = passed.given[layer][:, :, rows], passed.rules.items()
        if passed.mode == "rules":
            return given
        reading = torch.tensor([not reads_nothing(rule) for slot, rule in rules if slot[0] == layer])
        if not reading.any():
            return given
        # A row without a role does as it would.
        reading = functional.pad(reading.view(given.shape[1], -1), (0, 1), value=True).to(given.device)
        here = reading[:, self._role_of[: len(given), rows]].transpose(0, 1)[..., None]
        return torch.where(here, self.pattern(layer, passed, passed, rows), given)

    @torch.no_grad()
    def brought_home(self, passed: Pass, layer: int, rows: Any = ...) -> Heads:
        """What all heads of a layer bring home at some rows."""
        pattern, values = self._given(passed, layer, rows), passed.values[layer]
        return (pattern @ values.permute(1, 2, 0, 3)).permute(2, 0, 1, 3).contiguous()

    @torch.no_grad()
    def held(self, passed: Pass) -> Pass:
        """The same pass in mode *rules*: all patterns are given as they are in it."""
        given = [self._given(passed, layer) for layer in range(len(self._maps))]
        return passed._replace(mode="rules", given=given)


def _index(rows: Positions) -> Any:
    # Some positions as an index: a slice where they follow one another in equal steps.
    places = rows.nonzero()[0].tolist()
    steps = {after - before for before, after in pairwise(places)}
    if places and len(steps) < 2:
        return slice(places[0], places[-1] + 1, *steps)
    return torch.tensor(places, dtype=torch.int64)  # none of a role that the samples lack


def _put(x: Tensor, rows: Positions, new: Tensor) -> Tensor:
    # A tensor with some positions replaced.
    if rows.all():
        return new
    x = x.clone()
    x[_index(rows)] = new
    return x
