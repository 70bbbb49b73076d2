"""Activations of a chunk of samples that lie side by side, and linear maps of them on a CPU."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from .lanes import LANES

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
        """`precision` is as of `Training`."""
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
        elif add:
            out.addmm_(left, right)
            return
        else:
            torch.mm(left, right, out=out)
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
