"""Losses and gradients of one-layer post-norm models of short token sequences, several times as fast as by autograd.

Three facts make it so.  At the only layer a stream is one of few vectors, token + position, so queries, keys, scores
and what a head writes are small tables.  A causal row depends on the tokens up to it alone, so the early rows of a
batch repeat each other: each different prefix is computed once and counts as often as it occurs.  And rows lie side by
side as columns, so that what follows attention is a few products of matrices and loops over vectors, with the
derivatives written out.

Letters of the shapes: m member, n row (a prefix, asked at its last token), in tiles of lanes (i, l), h head, k key, t
token, d model; a slot r is a readout position.  Arrays of numbers are float32.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks import Task
from hopscope.training.config import Training

from .attention import softmax
from .autograd import Step, batches
from .columns import Columns, Linear, Norm
from .lanes import LANES, Array, compiled

_rectify_back = torch.ops.aten.threshold_backward.grad_input
_INNER, _OUTER, _READOUT = "mlp.inner.weight", "mlp.outer.weight", "readout.weight"
_LN_2 = np.float32(np.log(2.0))

Views = Mapping[str, Tensor]
"""Weights, or the gradients at them, by the names that they have in their layer."""


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    batch_of, members = batches(task, training, seeds), range(len(seeds))
    views = model.weights(), model.views(buffer)
    both = [{name.removeprefix("layers.0."): view for name, view in each.items()} for each in views]
    own, back = ([{name: view[m] for name, view in each.items()} for m in members] for each in both)
    tables, rows = _Tables(model, *both), _Rows(model.config, training)

    @torch.no_grad()
    def of_step(step: int) -> dict[str, Tensor]:
        batch, found = batch_of(step), list[Tensor]()
        inputs, targets = batch.inputs.contiguous().numpy(), batch.targets.contiguous().numpy()
        buffer.zero_()
        tables.forward()
        for m in members:
            made = [table[m] for table in tables.made]
            rows.gather(inputs[m], targets[m])
            rows.forward(own[m], made)
            found.append(rows.judge())
            rows.backward(own[m], back[m], made[2], [table[m] for table in tables.back])
        tables.backward()
        by_slot = torch.stack(found, 1)
        return {"loss": by_slot.mean(0)} | {f"loss_step_{slot}": loss for slot, loss in enumerate(by_slot, 1)}

    return of_step


class _Tables:
    """What attention needs of each position and token, made of the weights once a step, and the way back.

    `made` are the stream before attention `[m, r, t, d]`, scores to the base 2 `[m, h, r, t, k, t]`, and what heads
    write to the stream `[m, h, k, t, d]`; `back` are the gradients at these, to be added to.
    """

    made: list[Array]
    back: list[Array]

    def __init__(self, model: Transformer, weights: Views, slopes: Views):
        config, self._asked, self._weights, self._slopes = model.config, model.rows, weights, slopes
        self._codes = torch.tensor(config.position_codes) if config.position_count else None
        self._scale = config.head_size**-0.5 * math.log2(math.e)
        self._heads, self._keys, self._size = config.heads, config.length, config.input_size
        members, of_heads = len(model), (len(model), config.heads)
        asked, read = (len(config.readout_positions), self._size), (self._keys, self._size)
        self._shapes = (members, *asked, -1), (*of_heads, *asked, *read), (*of_heads, *read, -1)

    def forward(self) -> None:
        weights, heads = self._weights, self._heads
        stream = weights["embed.token.weight"][:, None].expand(-1, self._keys, -1, -1)
        if self._codes is not None:
            stream = stream + weights["embed.position.weight"][:, self._codes, None]
        first, every = stream[:, self._asked].flatten(1, 2), stream.flatten(1, 2)
        self._read = {"query": first, "key": every, "value": every}
        found = (
            torch.baddbmm(weights[f"attention.{name}.bias"][:, None], x, weights[f"attention.{name}.weight"])
            for name, x in self._read.items()
        )
        # Members and heads on one axis.
        query, key, value = (each.unflatten(2, (heads, -1)).transpose(1, 2).flatten(0, 1) for each in found)
        output = weights["attention.output.weight"].unflatten(1, (heads, -1)).flatten(0, 1)
        self._factors = query.mul_(self._scale), key, value, output
        tables = first, torch.bmm(query, key.transpose(1, 2)), torch.bmm(value, output)
        self._back = [torch.zeros(table.shape) for table in tables]
        self.made, self.back = (
            [table.numpy().reshape(shape) for table, shape in zip(some, self._shapes, strict=True)]
            for some in (tables, self._back)
        )

    def backward(self) -> None:
        weights, slopes, (query, key, value, output) = self._weights, self._slopes, self._factors
        first, score, write = self._back
        back_output = slopes["attention.output.weight"]
        back_output.copy_(torch.bmm(value.transpose(1, 2), write).view_as(back_output))
        asking = torch.bmm(score, key).mul_(self._scale)
        by_head = asking, torch.bmm(score.transpose(1, 2), query), torch.bmm(write, output.transpose(1, 2))
        back = []
        for (name, x), each in zip(self._read.items(), by_head, strict=True):
            slope = each.unflatten(0, (-1, self._heads)).transpose(1, 2).flatten(2)
            weight = f"attention.{name}.weight"
            torch.bmm(x.transpose(1, 2), slope, out=slopes[weight])
            torch.sum(slope, 1, out=slopes[f"attention.{name}.bias"])
            at_stream = torch.bmm(slope, weights[weight].transpose(1, 2))
            back.append(at_stream.unflatten(1, (-1, self._size)))
        stream = back[1].add_(back[2])
        stream[:, self._asked] += back[0].add_(first.view_as(back[0]))
        torch.sum(stream, 1, out=slopes["embed.token.weight"])
        if self._codes is not None:
            slopes["embed.position.weight"].index_add_(1, self._codes, stream.sum(2))


class _Normed:
    """A layer norm with gain and shift, of a stream that still lacks a bias; what it gives is `out`."""

    def __init__(self, norm: str, bias: str, width: int, tiles: int):
        self._names = f"{norm}.weight", f"{norm}.bias", bias
        self._norm, self.out = Norm(width, tiles, 1), Columns.of(width, tiles, 1)

    def forward(self, own: Views, stream: Columns) -> None:
        gain, shift, bias = (own[name] for name in self._names)
        self._norm.forward(stream, bias)
        torch.mul(self._norm.normed.matrix, gain[:, None], out=self.out.matrix).add_(shift[:, None])

    def backward(self, own: Views, slopes: Views, given: Columns, back: Columns) -> None:
        # `given`, the gradient at `out`, is used up, and `back`, that at the stream, overwritten.
        gain, shift, bias = (slopes[name] for name in self._names)
        torch.sum(given.matrix * self._norm.normed.matrix, 1, out=gain)
        torch.sum(given.matrix, 1, out=shift)
        given.matrix.mul_(own[self._names[0]][:, None])
        back.tensor.zero_()
        self._norm.backward(given, back, bias)


class _Rows:
    """The rows of one member after another, from attention to the loss and back."""

    def __init__(self, config: TransformerConfig, training: Training):
        batch, asked, width = training.batch_size, config.readout_positions, config.width
        prefixes = [config.input_size ** (position + 1) for position in asked]
        counted = sum(count <= batch for count in prefixes)
        tiles = -(-(sum(prefixes[:counted]) + batch * (len(asked) - counted)) // LANES)

        def columns(features: int, count: int) -> Iterator[Columns]:
            return (Columns.of(features, tiles, 1) for _ in range(count))

        self._linear, self._exact = Linear(training.precision), Linear("float32")
        self._share, self._asked, self._prefixes = 1.0 / batch, np.array(asked), (config.input_size, counted)
        self._slots = torch.zeros(tiles * LANES, dtype=torch.int64)
        self._rows = np.zeros((tiles * LANES, config.length), np.int64), self._slots.numpy()
        self._pattern = np.zeros((tiles, config.heads, config.length, LANES), np.float32)
        self._stream, self._sum, self._back, self._back_normed = columns(width, 4)
        self._hidden, self._back_hidden = columns(config.mlp_size, 2)
        self._logits, self._counts, self._slope = columns(config.output_size, 3)
        self._first = _Normed("attention_norm", "attention.output.bias", width, tiles)
        self._last = _Normed("mlp_norm", "mlp.outer.bias", width, tiles)

    def gather(self, inputs: Array, targets: Array) -> None:
        counts = self._counts.matrix.numpy()
        _gather(inputs, targets, self._asked, *self._prefixes, *self._rows, counts)

    def forward(self, own: Views, tables: Sequence[Array]) -> None:
        stream, (first, score, write) = self._stream.matrix.numpy(), tables
        _attend(*self._rows, self._asked, first, score, write, self._pattern, stream)
        self._first.forward(own, self._stream)
        self._linear.forward(own[_INNER], self._first.out, self._hidden)
        self._hidden.matrix.add_(own["mlp.inner.bias"][:, None]).relu_()
        self._sum.matrix.copy_(self._first.out.matrix)
        self._linear.forward(own[_OUTER], self._hidden, self._sum, add=True)
        self._last.forward(own, self._sum)
        self._exact.forward(own[_READOUT], self._last.out, self._logits)
        self._logits.matrix.add_(own["readout.bias"][:, None])

    def judge(self) -> Tensor:
        # Losses by slot; the gradient at the logits is kept.
        counts, logs, slots = self._counts.matrix, self._logits.matrix.log_softmax(0), len(self._asked)
        found = torch.zeros(slots).index_add_(0, self._slots, (counts * logs).sum(0), alpha=-self._share)
        torch.mul(logs.exp_(), counts.sum(0), out=self._slope.matrix).sub_(counts).mul_(self._share / slots)
        return found

    def backward(self, own: Views, slopes: Views, write: Array, tables: Sequence[Array]) -> None:
        linear, hidden, back, normed = self._linear, self._back_hidden, self._back, self._back_normed
        torch.sum(self._slope.matrix, 1, out=slopes["readout.bias"])
        self._exact.backward(own[_READOUT], slopes[_READOUT], self._last.out, self._slope, normed)
        self._last.backward(own, slopes, normed, back)
        linear.backward(own[_OUTER], slopes[_OUTER], self._hidden, back, hidden)
        _rectify_back(hidden.matrix, self._hidden.matrix, 0, grad_input=hidden.matrix)
        torch.sum(hidden.matrix, 1, out=slopes["mlp.inner.bias"])
        # What the first norm gives goes through the MLP, and past it.
        linear.backward(own[_INNER], slopes[_INNER], self._first.out, hidden, back, add=True)
        self._first.backward(own, slopes, back, normed)
        _attend_back(*self._rows, self._asked, write, self._pattern, normed.matrix.numpy(), *tables)


@compiled
def _gather(
    inputs: Array, targets: Array, readout: Array, size: int, counted: int,
    tokens: Array, slots: Array, counts: Array,
) -> None:  # fmt: skip
    # Makes the rows of a batch: one for each different prefix of the first `counted` slots (few enough to be numbered),
    # then one for each sequence.  inputs [batch, k] are below `size`; targets [batch, r]; readout: position of each
    # slot.  Overwritten: tokens [n, k], slots [n], and how often each target follows a row, counts [target, n].
    tokens[:], slots[:], counts[:] = 0, 0, 0.0
    row = 0
    for slot in range(len(readout)):
        seen = readout[slot] + 1
        known = np.full(size**seen if slot < counted else 0, -1, dtype=np.int64)
        for b in range(len(inputs)):
            here, code = row, 0
            if slot < counted:
                for key in range(seen):
                    code = code * size + inputs[b, key]
                here = known[code] if known[code] >= 0 else row
                known[code] = here
            if here == row:
                row += 1
                slots[here] = slot
                for key in range(seen):
                    tokens[here, key] = inputs[b, key]
            counts[targets[b, slot], here] += 1.0


@compiled
def _attend(
    tokens: Array, slots: Array, readout: Array, first: Array, score: Array, write: Array, pattern: Array, stream: Array
) -> None:  # fmt: skip
    # What the stream is after attention: pattern [i, h, k, l] and stream [d, n] are overwritten.
    heads, keys, _, width = write.shape
    summed = np.empty(width, dtype=np.float32)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        own = score[:, slot, tokens[n, last]]
        for h in range(heads):
            for k in range(keys):
                seen = own[h, k, tokens[n, k]] if k <= last else np.float32(-np.inf)
                pattern[n // LANES, h, k, n % LANES] = seen
    for i in range(len(pattern)):
        for h in range(heads):
            softmax(pattern[i, h], keys, keys)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        asking = tokens[n, last]
        for d in range(width):
            summed[d] = first[slot, asking, d]
        for h in range(heads):
            for k in range(last + 1):
                share, there = pattern[n // LANES, h, k, n % LANES], tokens[n, k]
                for d in range(width):
                    summed[d] += share * write[h, k, there, d]
        for d in range(width):
            stream[d, n] = summed[d]


@compiled
def _attend_back(
    tokens: Array, slots: Array, readout: Array, write: Array, pattern: Array, back: Array,
    back_first: Array, back_score: Array, back_write: Array,
) -> None:  # fmt: skip
    # From the gradient at the stream, back [d, n], to those at the tables, to which it is added.
    heads, keys, _, width = write.shape
    slope, own = np.empty(keys, dtype=np.float32), np.empty(width, dtype=np.float32)
    for n in range(len(slots)):
        slot = slots[n]
        last = readout[slot]
        asking = tokens[n, last]
        for d in range(width):
            own[d] = back[d, n]
        for d in range(width):
            back_first[slot, asking, d] += own[d]
        for h in range(heads):
            mean = np.float32(0.0)
            for k in range(last + 1):
                share, there, total = pattern[n // LANES, h, k, n % LANES], tokens[n, k], np.float32(0.0)
                for d in range(width):
                    total += own[d] * write[h, k, there, d]
                for d in range(width):
                    back_write[h, k, there, d] += share * own[d]
                slope[k] = total
                mean += share * total
            for k in range(last + 1):
                share = pattern[n // LANES, h, k, n % LANES]
                back_score[h, slot, asking, k, tokens[n, k]] += _LN_2 * share * (slope[k] - mean)
