"""What the deep engines have in common: weights that are folded once a step, and chunks of samples."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Task, default_gradient
from hopscope_next.training.config import Training

from .batches import Step, batches
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

    def __init__(
        self, model: Transformer, buffer: Tensor, make: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    ):
        """`make` makes them of the weights (`by_layer`), by differentiable operations; some may be weights."""
        self._make, layers = make, model.config.layers
        self._leaves, self._back = by_layer(model.weights(), layers), by_layer(model.views(buffer), layers)
        with torch.no_grad():
            made = make(self._leaves)
        own = {id(leaf) for leaf in self._leaves.values()}
        self._copied = [name for name, each in made.items() if id(each) not in own]
        self.made = {name: each.contiguous() if name in self._copied else each for name, each in made.items()}
        self.slopes = {name: torch.zeros(each.shape) for name, each in made.items()}
        for leaf in self._leaves.values():
            leaf.requires_grad_()

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        with torch.enable_grad():
            self._graph = self._make(self._leaves)
        fresh = [self._graph[name].detach() for name in self._copied]
        torch._foreach_copy_([self.made[name] for name in self._copied], fresh)
        torch._foreach_zero_(list(self.slopes.values()))

    def unfold(self) -> None:
        """Write the gradient into the buffer."""
        graph, leaves = [*self._graph.values()], [*self._leaves.values()]
        slopes = [self.slopes[name] for name in self._graph]
        found = torch.autograd.grad(graph, leaves, slopes, allow_unused=True)
        # A key's bias has none: it moves all scores of a row alike.
        whole = [
            torch.zeros_like(leaf) if each is None else each for each, leaf in zip(found, leaves, strict=True)
        ]
        torch._foreach_copy_(list(self._back.values()), whole)


def in_chunks(
    make: Any, kind: Any, model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor
) -> Step:
    """An engine that passes a few samples of a member through all layers, up and down, after others.

    So what a chunk leaves on its way up is still in cache on its way down.  `make(config, weights)` folds the weights;
    `kind(config, folded, tiles, linear)` makes the pass for so many tiles of samples: `fold` and `unfold` are those of
    `folded` and more, `forward(member, inputs)` gives predictions, `backward(member, slope)` takes the gradient at
    these, `[sample, row, output]`, to those at the folded weights.
    """
    config, size = model.config, training.batch_size
    needed = -(-size // LANES)
    tiles = -(-needed // -(-needed // max(1, _COLUMNS // (LANES * config.length))))
    folded, linear = Folded(model, buffer, lambda leaves: make(config, leaves)), Linear(training.precision)
    chunk, batch_of = kind(config, folded, tiles, linear), batches(task, training, seeds)
    shape = (len(seeds), size, len(config.readout_positions), config.output_size)

    @torch.no_grad()
    def of_step(step: int) -> dict[str, Tensor]:
        batch, predictions = batch_of(step), torch.empty(shape)
        chunk.fold()
        for member in range(len(seeds)):
            own = batch.member(member)
            for first in range(0, size, tiles * LANES):
                samples = slice(first, min(first + tiles * LANES, size))
                count = samples.stop - first
                found = chunk.forward(member, batch.inputs[member, samples]).samples(count)
                predictions[member, samples] = found
                # The loss is a mean over the batch, of which these samples are a part.
                slope = default_gradient(found[None], own.take(samples))[0] * (count / size)
                chunk.backward(member, slope)
        chunk.unfold()
        return dict(task.parts(predictions, batch))

    return of_step
