"""The deep engine's norms: what lies between its large matrix products and its attention, and the derivatives.

Arrays and letters as in `attention`; further letters: d model, c input.
"""

import numpy as np

from hopscope.training.engines.lanes import (
    LANES,
    Array,
    compiled,
    inverse_root,
    load,
    spread,
    store,
    sum_of_lanes,
)

_NORM_EPSILON = np.float32(1e-5)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


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
        totals[d] += sum_of_lanes(load(sums, (d,)))
