"""What the deep engines have in common: weights that are folded once a step, and chunks of samples."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.tasks import Task, default_gradient
from hopscope.training.config import Training

from .autograd import Step, batches
from .columns import Linear
from .lanes import LANES

_COLUMNS = 1800
"""Columns of a chunk, at most: enough that a call costs little, few enough that its activations stay in cache."""


def by_layer(views: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Views of a flat buffer; those of one name in all layers, at equal distances, as one `[member, layer, …]`."""
    found = {name: view for name, view in views.items() if not name.startswith("layers.")}
    for name, first in views.items():
        own = name.removeprefix("layers.0.")
        if own != name:
            second = views[f"layers.{min(1, layers - 1)}.{own}"]
            assert second.untyped_storage().data_ptr() == first.untyped_storage().data_ptr(), "not one buffer"
            apart = second.storage_offset() - first.storage_offset()
            strides = (first.stride(0), apart, *first.stride()[1:])
            found[own] = first.as_strided((len(first), layers, *first.shape[1:]), strides)
    return found


class Folded:
    """What is made of the weights once a step, and the way from the gradients at it to those at the weights.

    `made` are tensors by name, which stay where they are; `slopes` are the gradients at these, to be added to.
    """

    def __init__(self, model: Transformer, buffer: Tensor, make: Callable[..., dict[str, Tensor]]):
        """`make` makes them of the weights (`by_layer`), by differentiable operations."""
        self._make, layers = make, model.config.layers
        self._leaves, self._back = by_layer(model.weights(), layers), by_layer(model.views(buffer), layers)
        with torch.no_grad():
            shapes = {name: each.shape for name, each in make(self._leaves).items()}
        self.made, self.slopes = ({name: torch.zeros(shapes[name]) for name in shapes} for _ in range(2))
        for leaf in self._leaves.values():
            leaf.requires_grad_()

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        with torch.enable_grad():
            self._graph = list(self._make(self._leaves).values())
        torch._foreach_copy_(list(self.made.values()), [each.detach() for each in self._graph])
        torch._foreach_zero_(list(self.slopes.values()))

    def unfold(self) -> None:
        """Write the gradient into the buffer."""
        leaves, slopes = list(self._leaves.values()), list(self.slopes.values())
        # A key's bias moves all scores of a row alike: it is not used, and has no gradient.
        found = torch.autograd.grad(self._graph, leaves, slopes, materialize_grads=True)
        torch._foreach_copy_(list(self._back.values()), found)


def in_chunks(
    make: Any, pass_of: Any, model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor
) -> Step:
    """An engine that passes a few samples of a member through all layers, up and down, after others.

    So what a chunk leaves on its way up is still in cache on its way down.  `make(config, weights)` is what is folded;
    `pass_of(config, folded, tiles, linear)` is a pass for so many tiles of samples: `forward(member, inputs)` gives
    predictions, `backward(member, slope)` takes the gradient at these, `[sample, row, output]`, to that at what is
    folded.
    """
    config, size = model.config, training.batch_size
    needed = -(-size // LANES)
    tiles = -(-needed // -(-needed // max(1, _COLUMNS // (LANES * config.length))))
    folded, batch_of = Folded(model, buffer, partial(make, config)), batches(task, training, seeds)
    chunk = pass_of(config, folded, tiles, Linear(training.precision))
    shape = (len(seeds), size, len(config.readout_positions), config.output_size)

    @torch.no_grad()
    def of_step(step: int) -> dict[str, Tensor]:
        batch, predictions = batch_of(step), torch.empty(shape)
        plain = batch.plain()
        folded.fold()
        for member in range(len(seeds)):
            own = plain.member(member)
            for first in range(0, size, tiles * LANES):
                samples = slice(first, min(first + tiles * LANES, size))
                count = samples.stop - first
                found = chunk.forward(member, batch.inputs[member, samples]).samples(count)
                predictions[member, samples] = found
                # The loss is a mean over the batch, of which these samples are a part.
                slope = default_gradient(found[None], own.take(samples))[0] * (count / size)
                chunk.backward(member, slope)
        folded.unfold()
        return dict(task.parts(predictions, batch))

    return of_step
