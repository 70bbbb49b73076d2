"""Gradients of deep pre-norm models, several times as fast as by autograd.

Between the large matrix products, which torch does best, everything is a loop over vectors of samples that stays in
registers, compiled by numba (`loops`, `attention`), with the derivatives written out.  What norms and biases do is
folded into the matrices once a step (`weights`).  A chunk of a few dozen samples passes all layers up and down before
the next one begins, so that what it leaves on its way up is still in cache on its way down.

It gives what autograd gives, to rounding (tested); `docs/performance.md` has the ratios.
"""

import torch
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.models.transformer import Transformer
from hopscope.tasks.device import DeviceTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Gradient
from hopscope.training.engines.attention import Columns
from hopscope.training.engines.batches import ChunkedGradient, fill, in_chunks
from hopscope.training.engines.lanes import LANES
from hopscope.training.engines.numba_deep.layers import FirstLayer, LastLayer, Layer, Readout, Room
from hopscope.training.engines.numba_deep.weights import DeepWeights


class DeepGradient(ChunkedGradient):
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of members that `engines.fits_deep` accepts.
        batch: samples of each member in a batch.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters, batch: int):
        super().__init__(config, parameters, batch, LANES)
        self._weights: DeepWeights = DeepWeights(config, parameters)
        tiles = self.tiles
        self._inputs = Columns.of(self._weights.inputs + 1, tiles, config.length)
        self._inputs.apart[-1] = 1.0
        # Learned codes of positions are columns of the embedding: which one a position has never changes.
        for position, code in enumerate(config.position_codes if config.position_count else ()):
            self._inputs.apart[config.input_size + code, :, position] = 1.0
        self._stream = Columns.of(config.width, tiles, config.length)
        room = top = Room(config, tiles, config.length)
        self._layers = [Layer(config, tiles, room) for _ in range(config.layers)]
        if len(config.readout_positions) < config.length:
            top = Room(config, tiles, len(config.readout_positions))
            self._layers[-1] = LastLayer(config, tiles, top, room)
        if self._weights.few_inputs:
            self._layers[0] = FirstLayer(config, tiles, room, self._inputs)
        self._readout, self._room = Readout(config, tiles, top), room

    def _forward(self, member: int, inputs: Tensor) -> Tensor:
        if self.config.input_kind == "tokens":
            inputs = functional.one_hot(inputs, self.config.input_size).float()
        fill(self._inputs.apart[: self.config.input_size], inputs)
        stream = self._stream
        torch.mm(self._weights.source.matrix[member].t(), self._inputs.matrix, out=stream.matrix)
        for weights, layer in zip(self._weights.layers[member], self._layers, strict=True):
            stream = layer.forward(weights, stream)
        self._readout.forward(self._weights.readouts[member], stream)
        return self._readout.predictions.apart

    def _backward(self, member: int, slope: Tensor) -> None:
        fill(self._readout.slope.apart, slope)
        self._readout.backward(self._weights.readouts[member])
        for weights, layer in zip(
            reversed(self._weights.layers[member]), reversed(self._layers), strict=True
        ):
            layer.backward(weights)
        self._weights.source.back_matrix[member].addmm_(self._inputs.matrix, self._room.back.rows)


def gradient(
    model: Transformer, task: DeviceTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    """Losses and gradients of deep stacks; see `Engine.gradient`."""
    return in_chunks(DeepGradient, model, task, training, seeds, buffer)
