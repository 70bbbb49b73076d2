"""Layer norms of columns of features, and the way back."""

import numpy as np
from torch import Tensor

from .columns import Columns
from .lanes import LANES, Array, compiled, inverse_root, load, spread, store, sum_of_lanes

EPSILON = np.float32(1e-5)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Norm:
    """A layer norm without gain and shift; what it gives is `normed`."""

    def __init__(self, features: int, tiles: int, positions: int):
        self.normed = Columns.of(features, tiles, positions)
        self._scale = Columns.of(1, tiles, positions).array[0]  # one over the deviation

    def forward(self, stream: Columns, added: Tensor) -> None:
        """Norm the stream with what is added to it, `[feature]`."""
        _standardise(stream.array, added.numpy(), self.normed.array, self._scale)

    def backward(self, back_normed: Columns, back: Columns, back_added: Tensor) -> None:
        """From the gradient at `normed` to those at the stream and at what is added, to which it is added."""
        given = back_normed.array, self.normed.array, self._scale
        _standardise_back(*given, back.array, back_added.numpy())


@compiled
def _standardise(stream: Array, added: Array, normed: Array, scale: Array) -> None:
    # stream [d, i, p, l], to which added [d] is added first; normed and scale [i, p, l] are overwritten.
    width, tiles, positions = stream.shape[:3]
    share = spread(_ONE / np.float32(width))
    for i in range(tiles):
        for p in range(positions):
            mean, square = spread(_ZERO), spread(_ZERO)
            for d in range(width):
                x = load(stream, (d, i, p)) + spread(added[d])
                store(normed, (d, i, p), x)
                mean = mean + x
            mean = mean * share
            for d in range(width):
                x = load(normed, (d, i, p)) - mean
                square = square + x * x
            inverse = inverse_root(square * share + spread(EPSILON))
            for d in range(width):
                store(normed, (d, i, p), (load(normed, (d, i, p)) - mean) * inverse)
            store(scale, (i, p), inverse)


@compiled
def _standardise_back(
    back_normed: Array, normed: Array, scale: Array, back: Array, back_added: Array
) -> None:
    # Added to `back`, the gradient at the stream, and to back_added [d].
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
                slope = load(back_normed, (d, i, p)) * inverse - mean - load(normed, (d, i, p)) * along
                store(back, (d, i, p), load(back, (d, i, p)) + slope)
                store(sums, (d,), load(sums, (d,)) + slope)
    for d in range(width):
        back_added[d] += sum_of_lanes(load(sums, (d,)))
