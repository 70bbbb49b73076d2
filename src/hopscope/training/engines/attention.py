"""Attention over a chunk of samples that lie side by side, and the way back: what the deep engines have in common.

Activations lie as `[feature, tile, position, lane]`, the samples innermost: a matrix product sees a matrix with a
column for each position of each sample, and a loop sees vectors of samples.  Arrays are float32 and hold a chunk of
samples of one member.  Letters of the shapes: h head, j dimension of a head, i tile (of lanes), p position, r row (a
position that asks), k key, l lane.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from hopscope.models.config import TransformerConfig

from .columns import Columns
from .lanes import LANES, Array, compiled, inlined, larger, load, power_of_two, spread, store, sum_of_lanes

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LN_2 = np.float32(np.log(2.0))


class Attention:
    """Attention of one layer: from queries, keys and values to what its heads mix, and the way back.

    `up` are queries, keys, values, and room for what is mixed, `down` the gradients at these: that at what is mixed is
    given, the others are written.  `scores` `[r, k, l]` is room for the gradient at the scores of one head, 0 before.
    `positions` `[r]`, ascending, are those of the rows; all by default.
    """

    def __init__(
        self,
        config: TransformerConfig,
        up: Sequence[Columns],
        down: Sequence[Columns],
        scores: np.ndarray,
        positions: Tensor | None = None,
    ):
        length, heads = config.length, (config.heads, -1)
        rows = np.arange(length) if positions is None else positions.numpy()
        self._up, self._down = ([x.tensor.unflatten(0, heads).numpy() for x in side] for side in (up, down))
        self._visible = rows + 1 if config.causal else np.full(len(rows), length)
        shape = (up[0].array.shape[1], config.heads, len(rows), length, LANES)
        self._pattern, self._scores = np.zeros(shape, dtype=np.float32), scores

    def forward(self, bias: Tensor) -> None:
        """Mix; `bias` `[h, j]` is added to the queries in place."""
        query, key, value, mixed = self._up
        _attend(query, key, value, mixed, bias.numpy(), self._visible, self._pattern)

    def backward(self, back_bias: Tensor) -> None:
        """Overwrite the gradients at queries, keys and values, and add to that at the queries' bias."""
        query, key, value, _ = self._up
        back_query, back_key, back_value, back_mixed = self._down
        given = query, key, value, self._visible, self._pattern, self._scores
        _attend_back(*given, back_query, back_key, back_value, back_mixed, back_bias.numpy())


@inlined
def _products(left: Array, other: Array, right: Array, count: int, out: Array, other_out: Array) -> None:
    # out[n] = sum over t of left[t] * right[n, t] for n below count, and the same of `other`.  Two times four sums
    # stay in registers, so that what is loaded is used several times.  Up to three more n are computed, where there
    # are so many.
    terms = len(left)
    whole = min((count + 3) // 4 * 4, len(right) // 4 * 4)
    for n in range(0, whole, 4):
        a, b, c, d = spread(_ZERO), spread(_ZERO), spread(_ZERO), spread(_ZERO)
        e, f, g, h = spread(_ZERO), spread(_ZERO), spread(_ZERO), spread(_ZERO)
        for t in range(terms):
            x, y = load(left, (t,)), load(other, (t,))
            z = load(right, (n, t))
            a, e = a + x * z, e + y * z
            z = load(right, (n + 1, t))
            b, f = b + x * z, f + y * z
            z = load(right, (n + 2, t))
            c, g = c + x * z, g + y * z
            z = load(right, (n + 3, t))
            d, h = d + x * z, h + y * z
        store(out, (n,), a)
        store(out, (n + 1,), b)
        store(out, (n + 2,), c)
        store(out, (n + 3,), d)
        store(other_out, (n,), e)
        store(other_out, (n + 1,), f)
        store(other_out, (n + 2,), g)
        store(other_out, (n + 3,), h)
    for n in range(whole, count):
        a, e = spread(_ZERO), spread(_ZERO)
        for t in range(terms):
            z = load(right, (n, t))
            a, e = a + load(left, (t,)) * z, e + load(other, (t,)) * z
        store(out, (n,), a)
        store(other_out, (n,), e)


@compiled
def _attend(
    query: Array, key: Array, value: Array, mixed: Array, bias: Array, visible: Array, pattern: Array
) -> None:
    # query [h, j, i, r, l] gives scores to the base 2; bias [h, j] is added to it in place.  visible [r]: how many
    # keys, from the first on, a row sees; ascending.  What it does not see must be 0 in pattern [i, h, r, p, l] before.
    heads, size, tiles, rows = query.shape[:4]
    for i in range(tiles):
        for h in range(heads):
            keys, values = key[h, :, i].transpose((1, 0, 2)), value[h, :, i]
            for j in range(size):
                shift = spread(bias[h, j])
                for r in range(rows):
                    store(query, (h, j, i, r), load(query, (h, j, i, r)) + shift)
            for r in range(0, rows, 2):
                n = min(r + 1, rows - 1)
                row, next_row, seen = pattern[i, h, r], pattern[i, h, n], visible[n]
                _products(query[h, :, i, r], query[h, :, i, n], keys, seen, row, next_row)
                softmax(row, visible[r], seen)
                if n > r:
                    softmax(next_row, seen, seen)
                _products(row[:seen], next_row[:seen], values, size, mixed[h, :, i, r], mixed[h, :, i, n])


@inlined
def softmax(row: Array, seen: int, computed: int) -> None:
    """Softmax of the scores to the base 2 that are seen, in place; of the others those that were computed become 0."""
    top = load(row, (0,))
    for k in range(1, seen):
        top = larger(load(row, (k,)), top)
    total = spread(_ZERO)
    for k in range(seen):
        power = power_of_two(load(row, (k,)) - top)
        store(row, (k,), power)
        total = total + power
    inverse = spread(_ONE) / total
    for k in range(seen):
        store(row, (k,), load(row, (k,)) * inverse)
    _clear(row, seen, computed)


@inlined
def _clear(row: Array, seen: int, computed: int) -> None:
    # Forget what _products computed for keys that are not seen.
    for k in range(seen, min((computed + 3) // 4 * 4, len(row))):
        store(row, (k,), spread(_ZERO))


@compiled
def _attend_back(
    query: Array, key: Array, value: Array, visible: Array, pattern: Array, scores: Array,
    back_query: Array, back_key: Array, back_value: Array, back_mixed: Array, back_bias: Array,
) -> None:  # fmt: skip
    # Gradients are shaped as what they belong to and overwritten, but back_bias [h, j], which is added to.  query has
    # its bias.  scores [r, p, l]: room, 0 before.
    heads, size, tiles, rows = query.shape[:4]
    positions = key.shape[3]
    for i in range(tiles):
        for h in range(heads):
            keys, values = key[h, :, i], value[h, :, i].transpose((1, 0, 2))
            for r in range(0, rows, 2):
                n = min(r + 1, rows - 1)
                row, next_row, seen = scores[r], scores[n], visible[n]
                _products(back_mixed[h, :, i, r], back_mixed[h, :, i, n], values, seen, row, next_row)
                _softmax_back(pattern[i, h, r], row, visible[r], seen)
                if n > r:
                    _softmax_back(pattern[i, h, n], next_row, seen, seen)
                back, next_back = back_query[h, :, i, r], back_query[h, :, i, n]
                _products(row[:seen], next_row[:seen], keys, size, back, next_back)
            first = 0
            for k in range(0, positions, 2):
                n = min(k + 1, positions - 1)
                while first < rows and visible[first] <= k:
                    first += 1
                back, next_back = back_key[h, :, i, k], back_key[h, :, i, n]
                _products(scores[first:, k], scores[first:, n], query[h, :, i, first:], size, back, next_back)
                back, next_back = back_value[h, :, i, k], back_value[h, :, i, n]
                row, next_row = pattern[i, h, first:, k], pattern[i, h, first:, n]
                _products(row, next_row, back_mixed[h, :, i, first:], size, back, next_back)
            for j in range(size):
                total = spread(_ZERO)
                for r in range(rows):
                    total = total + load(back_query, (h, j, i, r))
                back_bias[h, j] += sum_of_lanes(total)


@inlined
def _softmax_back(row: Array, back: Array, seen: int, computed: int) -> None:
    # From the gradient at a row of the pattern to that at its scores, in place.
    mean = spread(_ZERO)
    for k in range(seen):
        mean = mean + load(row, (k,)) * load(back, (k,))
    for k in range(seen):
        store(back, (k,), spread(_LN_2) * load(row, (k,)) * (load(back, (k,)) - mean))
    _clear(back, seen, computed)
