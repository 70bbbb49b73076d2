"""Activations of a chunk of samples that lie side by side, and linear maps and norms of them on a CPU."""

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .lanes import LANES, Array, compiled, inverse_root, load, spread, store, sum_of_lanes

EPSILON = np.float32(1e-5)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)

_LARGE = 1 << 21
"""Multiplications from which on oneDNN gains more than its calls cost."""


class Columns:
    """A column of features for each position of each sample.

    Attributes:
        tensor, array: `[feature, tile, position, lane]`, as a tensor and as an array of the same memory.
        matrix: `[feature, column]`, the same memory.
    """

    def __init__(self, tensor: Tensor):
        self.tensor, self.array, self.matrix = tensor, tensor.numpy(), tensor.flatten(1)

    @classmethod
    def of(cls, features: int, tiles: int, positions: int) -> "Columns":
        """Columns of zeros, to be overwritten."""
        return cls(torch.zeros(features, tiles, positions, LANES))

    def parts(self, *sizes: int) -> list["Columns"]:
        """Views of so many features each."""
        return [Columns(part) for part in self.tensor.split(sizes)]

    def fill(self, samples: Tensor) -> None:
        """Take over samples `[sample, position, feature]`; where there are fewer, the rest is zeros."""
        if missing := self.tensor.shape[1] * LANES - len(samples):
            samples = functional.pad(samples, (0, 0, 0, 0, 0, missing))
        self.tensor.copy_(samples.unflatten(0, (-1, LANES)).permute(3, 0, 2, 1))

    def samples(self, count: int) -> Tensor:
        """The first samples, `[sample, position, feature]`."""
        return self.tensor.permute(1, 3, 2, 0).flatten(0, 1)[:count]


class Linear:
    """Products with factors in float32, or rounded to bfloat16; sums are float32, of rounded ones rounded at the end.

    torch takes float32 products from MKL, which leaves half of each vector register of AMD's processors empty; oneDNN,
    from which it takes those of bfloat16, fills them.
    """

    def __init__(self, precision: str):
        self._rounded = precision == "bfloat16"

    def forward(self, weight: Tensor, x: Columns, out: Columns, add: bool = False) -> None:
        """`out = weightᵀ x`, or that is added."""
        self.product(weight.t(), x.matrix, out.matrix, add)

    def backward(
        self, weight: Tensor, slope: Tensor, x: Columns, back: Columns, back_x: Columns, add: bool = False
    ) -> None:
        """From the gradient at `out` to that at `x`, which is overwritten or added to, and to `slope`, added to."""
        matrix = back.matrix.bfloat16() if self._rounded else back.matrix
        self.product(x.matrix, matrix.t(), slope, add=True)
        self.product(weight, matrix, back_x.matrix, add)

    def product(self, left: Tensor, right: Tensor, out: Tensor, add: bool = False) -> None:
        """`out = left @ right`, or that is added."""
        if self._rounded:
            found = left.bfloat16() @ right.bfloat16()
        elif _mkl_is_slow() and left.numel() * right.shape[1] >= _LARGE:
            found = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
        else:
            out.addmm_(left, right, beta=int(add))
            return
        if add:
            out.add_(found)
        else:
            out.copy_(found)


@cache
def _mkl_is_slow() -> bool:
    found = torch.cpu.get_capabilities()
    wide = "AMD" in found.get("cpu_name", "") and found.get("avx512_f", False)
    return wide and torch.backends.mkldnn.is_available()


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
