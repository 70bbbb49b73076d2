"""Virtual weights: what a layer reads of the inputs and of what every head below it wrote, as matrices.

A stream without MLPs is a sum, x = Aᵀz, where z has the inputs, a 1, and what each head below has mixed, and the rows
of A are the embedding and the heads' output matrices.  Whatever reads the stream through a matrix R reads z through A R
("virtual weights": Elhage et al. 2021).  The squared length of the centred stream, which its norm needs, grows by what
a layer adds: |x + Wᵀm|² = |x|² + 2 m·(W x) + mᵀ(W Wᵀ)m, so that W is one more thing that is read.

Letters of the shapes: m member, y layer, z rows of A, d model, e heads times their size, r what a layer reads: queries
(to give scores to the base 2), keys, values, and what its own heads write to, with the bias (3e + e + 1); o output.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.training.engines.numba_deep.weights import Views

_OF_LAYERS = tuple(
    f"{part}.{kind}"
    for part in ("attention_norm", *(f"attention.{name}" for name in ("query", "key", "value", "output")))
    for kind in ("weight", "bias")
)
_WHOLE = ("embed.vector.weight", "embed.vector.bias", "final_norm.weight", "final_norm.bias", "readout.weight",
          "readout.bias")  # fmt: skip


class VirtualWeights:
    """Virtual weights of all members, made once a step, and the way back from their gradients.

    Attributes:
        inputs: features of an input vector.
        rows: of A up to each layer, and up to the readout.
        reads, back_reads: by member and layer `[z, r]`; the gradients are to be added to.
        query_bias, back_query_bias: `[m, y, e]`.
        gram, back_gram: `[m, y, e + 1, e + 1]`: products of the centred rows that a layer adds, its bias the last.
        first_gram, back_first_gram: `[m, inputs + 1, inputs + 1]`: of those of the embedding.
        readout, back_readout: `[m, z, o]`; bias, back_bias: `[m, o]`.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters):
        self.config, self.parameters = config, parameters
        self.inner = config.heads * config.head_size
        self.inputs = config.input_size
        self.rows = [self.inputs + 1 + self.inner * layer for layer in range(config.layers + 1)]
        plain = Views(parameters, parameters.flat, config.layers)
        self._leaves = {name: plain.layers[name].requires_grad_() for name in _OF_LAYERS}
        self._leaves |= {name: plain.whole[name].requires_grad_() for name in _WHOLE}
        self._back: Views | None = None
        self._gradient: Tensor | None = None
        members, layers, width, outer = len(parameters.flat), config.layers, config.width, self.inner + 1
        self.reads, self.back_reads = (
            [[torch.zeros(rows, 3 * self.inner + outer) for rows in self.rows[:-1]] for _ in range(members)]
            for _ in range(2)
        )
        self.query_bias, self.back_query_bias = (torch.zeros(members, layers, self.inner) for _ in range(2))
        self.gram, self.back_gram = (torch.zeros(members, layers, outer, outer) for _ in range(2))
        first = self.inputs + 1
        self.first_gram, self.back_first_gram = (torch.zeros(members, first, first) for _ in range(2))
        self.readout, self.back_readout = (
            torch.zeros(members, self.rows[-1], config.output_size) for _ in range(2)
        )
        self.bias, self.back_bias = (torch.zeros(members, config.output_size) for _ in range(2))
        self._written = torch.zeros(members, self.rows[-1], width)
        self._sources: tuple[Tensor, ...] = ()

    # From the weights.

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        with torch.enable_grad():
            self._sources = self._made()
        written, reads, shift, last, query_bias, gram, first_gram, bias = (
            each.detach() for each in self._sources
        )
        for member in range(len(written)):
            for layer, made in enumerate(self.reads[member]):
                torch.mm(written[member, : len(made)], reads[member, layer], out=made)
                made[self.inputs] += shift[member, layer] @ reads[member, layer]
                self.back_reads[member][layer].zero_()
        torch.bmm(written, last, out=self.readout)
        self.readout[:, self.inputs] += torch.bmm(shift[:, -1:], last)[:, 0]
        for made, source in (
            (self.query_bias, query_bias), (self.gram, gram), (self.first_gram, first_gram), (self.bias, bias),
        ):  # fmt: skip
            made.copy_(source)
        for gradient in (
            self.back_query_bias, self.back_gram, self.back_first_gram, self.back_readout, self.back_bias,
        ):  # fmt: skip
            gradient.zero_()

    def _made(self) -> tuple[Tensor, ...]:
        """All that virtual weights are products of, by differentiable operations on the weights.

        Returns:
            A `[m, z, d]` without what biases add to the stream; what is read of the stream, centred `[m, y, d, r]`;
            what biases add up to each layer and to the readout `[m, y + 1, d]`; the readout of the stream, centred
            `[m, d, o]`; and `query_bias`, `gram`, `first_gram` and `bias`.
        """
        leaf = self._leaves
        gain, shift = leaf["attention_norm.weight"][..., None], leaf["attention_norm.bias"][..., None, :]
        scale = self.config.head_size**-0.5 * math.log2(math.e)
        query, key, value = (leaf[f"attention.{name}.weight"] for name in ("query", "key", "value"))
        query_bias = scale * ((shift @ query)[..., 0, :] + leaf["attention.query.bias"])
        value_bias = (shift @ value)[..., 0, :] + leaf["attention.value.bias"]
        output = leaf["attention.output.weight"]
        added = (value_bias[..., None, :] @ output)[..., 0, :] + leaf["attention.output.bias"]
        writes = torch.cat((output, added[..., None, :]), 2)
        reads = torch.cat((scale * gain * query, gain * key, gain * value, writes.transpose(2, 3)), 3)
        reads = reads - reads.mean(2, keepdim=True)
        gram = writes @ reads[..., 3 * self.inner :]
        embedding = torch.cat((leaf["embed.vector.weight"], leaf["embed.vector.bias"][:, None]), 1)
        centred = embedding - embedding.mean(2, keepdim=True)
        total = torch.cat((torch.zeros_like(added[:, :1]), added.cumsum(1)), 1)
        last = leaf["final_norm.weight"][..., None] * leaf["readout.weight"]
        bias = (leaf["final_norm.bias"][:, None] @ leaf["readout.weight"])[:, 0] + leaf["readout.bias"]
        written = torch.cat((embedding, output.flatten(1, 2)), 1)
        last = last - last.mean(1, keepdim=True)
        return written, reads, total, last, query_bias, gram, centred @ centred.transpose(1, 2), bias

    # To their gradient.

    def unfold(self, gradient: Float[Tensor, "member size"]) -> None:
        """Write the gradient, laid out as the weights; it is the same buffer at every step."""
        if self._back is None or gradient is not self._gradient:
            self._gradient, self._back = gradient, Views(self.parameters, gradient, self.config.layers)
        slopes = (
            *self._product_slopes(), self.back_query_bias, self.back_gram, self.back_first_gram, self.back_bias,
        )  # fmt: skip
        found = torch.autograd.grad(self._sources, list(self._leaves.values()), slopes, allow_unused=True)
        for (name, _), slope in zip(self._leaves.items(), found, strict=True):
            destination = (self._back.layers if name in _OF_LAYERS else self._back.whole)[name]
            # A key's bias moves all scores of a row alike.
            destination.zero_() if slope is None else destination.copy_(slope)
        self._sources = ()

    def _product_slopes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients by the factors of `reads` and `readout`."""
        written, reads, shift, last = (each.detach() for each in self._sources[:4])
        back_written = torch.bmm(self.back_readout, last.transpose(1, 2))
        back_last = torch.bmm(written.transpose(1, 2), self.back_readout)
        one = self.back_readout[:, self.inputs]
        back_last += shift[:, -1, :, None] * one[:, None]
        back_reads, back_shift = torch.empty_like(reads), torch.zeros_like(shift)
        back_shift[:, -1] = torch.bmm(last, one[..., None])[..., 0]
        for member, layers in enumerate(self.back_reads):
            for layer, slope in enumerate(layers):
                read = reads[member, layer]
                back_written[member, : len(slope)].addmm_(slope, read.t())
                torch.mm(written[member, : len(slope)].t(), slope, out=back_reads[member, layer])
                back_reads[member, layer].addr_(shift[member, layer], slope[self.inputs])
                back_shift[member, layer] = read @ slope[self.inputs]
        return back_written, back_reads, back_shift, back_last
