"""The stacked way's loops: what lies between the large matrix products, and its derivatives.

Arrays are float32 and hold a chunk of samples of one member, the lanes (samples) innermost; the letters in the comments
are those of the shapes: d model, h head, j dimension of a head, i tile (of lanes), p position, r row (a position that
asks), k key, l lane.
"""

import numpy as np

from hopscope.training.fused_compiler import Array, compiled, inlined
from hopscope.training.stacked_lanes import LANES, inverse_root, larger, load, power_of_two, spread, store

_NORM_EPSILON = np.float32(1e-5)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LN_2 = np.float32(np.log(2.0))


@inlined
def _products(left: Array, other: Array, right: Array, count: int, out: Array, other_out: Array) -> None:
    """`out[n] = sum over t of left[t] * right[n, t]` for n below `count`, and the same of `other`.

    Two times four sums stay in registers, so that what is loaded is used several times.  Up to three more n than
    asked for are computed, where there are so many.
    """
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
def attend(
    query: Array, key: Array, value: Array, bias: Array, visible: Array, pattern: Array, mixed: Array
) -> None:
    """Attention.

    Args:
        query: [h, j, i, r, l], scaled so that scores are logarithms to the base 2; the bias is added to it in place.
        key, value: [h, j, i, p, l].
        bias: [h, j].
        visible: [r], how many keys, from the first on, each row sees; ascending.
        pattern: [i, h, r, p, l], overwritten: what each row gives to each key.  What it does not see must be 0 before.
        mixed: [h, j, i, r, l], overwritten: values, mixed by the pattern.
    """
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
                _softmax(row, visible[r], seen)
                if n > r:
                    _softmax(next_row, seen, seen)
                _products(row[:seen], next_row[:seen], values, size, mixed[h, :, i, r], mixed[h, :, i, n])


@inlined
def _softmax(row: Array, seen: int, computed: int) -> None:
    """Of the scores to the base 2 that are seen, in place; the others become 0."""
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
    """Forget what `_products` computed for keys that are not seen."""
    for k in range(seen, min((computed + 3) // 4 * 4, len(row))):
        store(row, (k,), spread(_ZERO))


@compiled
def attend_back(
    query: Array, key: Array, value: Array, visible: Array, pattern: Array, back_mixed: Array,
    back_query: Array, back_key: Array, back_value: Array, back_bias: Array, scores: Array,
) -> None:  # fmt: skip
    """Gradient through `attend`.

    Args:
        query: with the bias.
        back_mixed: [h, j, i, r, l].
        back_query, back_key, back_value: shaped as those, overwritten.
        back_bias: [h, j], added to.
        scores: [r, p, l], room, 0 before.
    """
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
                _products(
                    row[:seen], next_row[:seen], keys, size, back_query[h, :, i, r], back_query[h, :, i, n]
                )
            first = 0
            for k in range(0, positions, 2):
                n = min(k + 1, positions - 1)
                while first < rows and visible[first] <= k:
                    first += 1
                _products(
                    scores[first:, k], scores[first:, n], query[h, :, i, first:], size,
                    back_key[h, :, i, k], back_key[h, :, i, n],
                )  # fmt: skip
                _products(
                    pattern[i, h, first:, k], pattern[i, h, first:, n], back_mixed[h, :, i, first:], size,
                    back_value[h, :, i, k], back_value[h, :, i, n],
                )  # fmt: skip
            for j in range(size):
                total = spread(_ZERO)
                for r in range(rows):
                    total = total + load(back_query, (h, j, i, r))
                back_bias[h, j] += _sum(total)


@inlined
def _softmax_back(row: Array, back: Array, seen: int, computed: int) -> None:
    """From the gradient at a row of the pattern to that at its scores, in place."""
    mean = spread(_ZERO)
    for k in range(seen):
        mean = mean + load(row, (k,)) * load(back, (k,))
    for k in range(seen):
        store(back, (k,), spread(_LN_2) * load(row, (k,)) * (load(back, (k,)) - mean))
    _clear(back, seen, computed)


@inlined
def _sum(lanes: Array) -> np.float32:
    room = np.empty((1, LANES), dtype=np.float32)
    store(room, (0,), lanes)
    total = np.float32(0.0)
    for n in range(LANES):
        total += room[0, n]
    return total


@compiled
def standardise(stream: Array, shift: Array, normed: Array, scale: Array) -> None:
    """Take mean and deviation out of the stream.

    Args:
        stream: [d, i, p, l].
        shift: [d], to be added to the stream first.
        normed: shaped as the stream, overwritten.
        scale: [i, p, l], overwritten: one over the standard deviation.
    """
    width, tiles, positions = stream.shape[:3]
    share = spread(_ONE / np.float32(width))
    for i in range(tiles):
        for p in range(positions):
            mean = spread(_ZERO)
            for d in range(width):
                x = load(stream, (d, i, p)) + spread(shift[d])
                store(normed, (d, i, p), x)
                mean = mean + x
            mean = mean * share
            square = spread(_ZERO)
            for d in range(width):
                x = load(normed, (d, i, p)) - mean
                square = square + x * x
            inverse = inverse_root(square * share + spread(_NORM_EPSILON))
            for d in range(width):
                store(normed, (d, i, p), (load(normed, (d, i, p)) - mean) * inverse)
            store(scale, (i, p), inverse)


@compiled
def standardise_inputs(stream: Array, inputs: Array, scaled: Array) -> None:
    """What is left of `standardise` where the stream is a linear map of few inputs: the inputs over the deviation.

    Args:
        stream: [d, i, p, l].
        inputs: [c, i, p, l], of which the stream is a linear map.
        scaled: shaped as the inputs, overwritten: inputs over the standard deviation of the stream.
    """
    width, tiles, positions = stream.shape[:3]
    share = spread(_ONE / np.float32(width))
    for i in range(tiles):
        for p in range(positions):
            mean = spread(_ZERO)
            for d in range(width):
                mean = mean + load(stream, (d, i, p))
            mean = mean * share
            square = spread(_ZERO)
            for d in range(width):
                x = load(stream, (d, i, p)) - mean
                square = square + x * x
            inverse = inverse_root(square * share + spread(_NORM_EPSILON))
            for c in range(len(inputs)):
                store(scaled, (c, i, p), load(inputs, (c, i, p)) * inverse)


@compiled
def weigh_inputs(scaled: Array, back_scaled: Array, width: int) -> None:
    """Weight the scaled inputs of every position by how far the gradient points along the normed stream.

    Args:
        scaled: [c, i, p, l].
        back_scaled: gradient by them; becomes the weighted inputs.
        width: of the stream.
    """
    features, tiles, positions = scaled.shape[:3]
    share = spread(_ONE / np.float32(width))
    for i in range(tiles):
        for p in range(positions):
            along = spread(_ZERO)
            for c in range(features):
                along = along + load(scaled, (c, i, p)) * load(back_scaled, (c, i, p))
            along = along * share
            for c in range(features):
                store(back_scaled, (c, i, p), load(scaled, (c, i, p)) * along)


@compiled
def standardise_back(back_normed: Array, normed: Array, scale: Array, back: Array, totals: Array) -> None:
    """Gradient through `standardise`, added to that of the stream.

    Args:
        back_normed: [d, i, p, l].
        back: [d, i, p, l], added to.
        totals: [d], sums of `back` are added to it.
    """
    width, tiles, positions = normed.shape[:3]
    share = spread(_ONE / np.float32(width))
    sums = np.zeros((width, LANES), dtype=np.float32)
    for i in range(tiles):
        for p in range(positions):
            mean, along = spread(_ZERO), spread(_ZERO)
            for d in range(width):
                slope = load(back_normed, (d, i, p))
                mean = mean + slope
                along = along + slope * load(normed, (d, i, p))
            inverse = load(scale, (i, p))
            mean, along = mean * share * inverse, along * share * inverse
            for d in range(width):
                slope = load(back, (d, i, p)) + (
                    load(back_normed, (d, i, p)) * inverse - mean - load(normed, (d, i, p)) * along
                )
                store(back, (d, i, p), slope)
                store(sums, (d,), load(sums, (d,)) + slope)
    for d in range(width):
        totals[d] += _sum(load(sums, (d,)))
