"""Weights of the stacked way that are made of others once a step, and the way back to gradients of these.

Letters of the shapes: m member, y layer, c input (the last is 1 always), d model, e heads times their size.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.parameters import Parameters


class Views:
    """Tensors of a flat buffer by name.

    Attributes:
        whole: name → `[m, …]`.
        layers: name within a layer → `[m, y, …]`.
    """

    def __init__(self, parameters: Parameters, flat: Float[Tensor, "member size"], layers: int):
        self.whole = {name: view.detach() for name, view in parameters.views(flat).items()}
        first = "layers.0."
        names = [name.removeprefix(first) for name in self.whole if name.startswith(first)]
        self.layers = {name: _by_layer(self.whole, name, layers) for name in names}


def _by_layer(whole: Mapping[str, Tensor], name: str, layers: int) -> Float[Tensor, "m y ..."]:
    """The tensors of one name as one view: layers lie in the flat buffer at equal distances."""
    first, second = whole[f"layers.0.{name}"], whole[f"layers.{min(1, layers - 1)}.{name}"]
    apart = second.storage_offset() - first.storage_offset()
    stride = (first.stride(0), apart, *first.stride()[1:])
    return first.as_strided((first.shape[0], layers, *first.shape[1:]), stride, first.storage_offset())


class NormedLinear:
    """Linear maps of normed vectors, with the norm's gain and shift folded in.

    Attributes:
        plain, plain_bias: `[…, d, out]` and `[…, out]`, to be set before `fold`.
        matrix, bias: the same, of the vectors before gain and shift.
        back_matrix, back_bias: gradients by them, to be added to.
    """

    def __init__(self, lead: tuple[int, ...], width: int, out: int):
        self.plain, self.matrix, self.back_matrix = (torch.zeros(*lead, width, out) for _ in range(3))
        self.plain_bias, self.bias, self.back_bias = (torch.zeros(*lead, out) for _ in range(3))

    def fold(self, gain: Float[Tensor, "... d"], shift: Float[Tensor, "... d"]) -> None:
        """Make `matrix` and `bias`, and begin new gradients."""
        torch.mul(self.plain, gain[..., None], out=self.matrix)
        torch.add(_applied(shift, self.plain), self.plain_bias, out=self.bias)
        self.back_matrix.zero_()
        self.back_bias.zero_()

    def unfold(
        self,
        gain: Float[Tensor, "... d"],
        shift: Float[Tensor, "... d"],
        back_gain: Float[Tensor, "... d"],
        back_shift: Float[Tensor, "... d"],
    ) -> Float[Tensor, "... d out"]:
        """Overwrite the gradients by gain and shift; returns that by `plain` (`back_bias` is that by its bias)."""
        torch.sum(self.plain * self.back_matrix, -1, out=back_gain)
        back_shift.copy_(_applied(self.back_bias, self.plain.transpose(-1, -2)))
        return (self.back_matrix * gain[..., None]).addcmul_(shift[..., None], self.back_bias[..., None, :])


class Source:
    """The embedding, its bias the weights of one more input, and the first layer's projections as maps of the inputs.

    With x = Eᵀu the stream, C the removal of the mean, and s its deviation, the normed stream is C x / s, so that
    projections P of it are (E C P)ᵀ u / s.  The norm's gradient by E is that through C P, less what goes along the
    normed stream.

    Attributes:
        matrix: E, `[m, c, d]`; back_matrix: its gradient through the stream, to be added to.
        projections: `E C P`, `[m, c, 3 · e]`; back_projections: its gradient, to be added to.
        along: `[m, c, c]`, to be added to: sums of products of two scaled inputs, weighted by the mean product of
            the gradient and the normed stream.
    """

    def __init__(self, members: int, inputs: int, width: int, projected: int):
        self.matrix, self.back_matrix, self._centred = (
            torch.zeros(members, inputs + 1, width) for _ in range(3)
        )
        self.projections, self.back_projections = (
            torch.zeros(members, inputs + 1, projected) for _ in range(2)
        )
        self.along = torch.zeros(members, inputs + 1, inputs + 1)

    def fold(self, weight: Tensor, bias: Tensor, projections: Float[Tensor, "m d out"]) -> None:
        """Take over the embedding and the first layer's folded projections, and begin new gradients."""
        self.matrix[:, :-1], self.matrix[:, -1] = weight, bias
        torch.sub(self.matrix, self.matrix.mean(-1, keepdim=True), out=self._centred)
        torch.bmm(self._centred, projections, out=self.projections)
        for gradient in (self.back_matrix, self.back_projections, self.along):
            gradient.zero_()

    def unfold(
        self, projections: Float[Tensor, "m d out"], back_projections: Float[Tensor, "m d out"]
    ) -> Float[Tensor, "m c d"]:
        """Add to the gradient by the first layer's folded projections; returns that by `matrix`."""
        back_projections.baddbmm_(self._centred.transpose(1, 2), self.back_projections)
        through = torch.bmm(self.back_projections, projections.transpose(1, 2))
        through -= through.mean(-1, keepdim=True)
        return self.back_matrix + through - torch.bmm(self.along, self._centred)


def _applied(
    vectors: Float[Tensor, "... d"], matrices: Float[Tensor, "... d out"]
) -> Float[Tensor, "... out"]:
    return (vectors[..., None, :] @ matrices)[..., 0, :]
