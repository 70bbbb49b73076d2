"""Losses of a task that brings none, their derivative, and the accuracy of any task with classes.

Everything takes predictions of several members and a batch whose member axis may be 1 (all members answer the same).
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from hopscope_next.tasks.batch import Batch

Predictions = Float[Tensor, "member batch readout output"]


def default_parts(predictions: Predictions, batch: Batch) -> dict[str, Float[Tensor, " member"]]:
    """`"loss"`: the sum of weight · term over all terms of a member, divided by their number.

    A term is the cross-entropy of one readout in nats where targets are classes, and the squared error of one dimension
    where they are vectors.
    """
    if batch.targets.is_floating_point():
        terms = (predictions - batch.targets).square()
    else:
        targets = batch.targets.expand(len(predictions), -1, -1)
        terms = functional.cross_entropy(predictions.movedim(-1, 1), targets, reduction="none")
    return {"loss": _weighted(terms, batch).flatten(1).mean(1)}


def default_gradient(predictions: Predictions, batch: Batch) -> Predictions:
    """Derivative of the sum of the members' losses of `default_parts` by the predictions."""
    if batch.targets.is_floating_point():
        slope = (predictions - batch.targets) * (2.0 / math.prod(predictions.shape[1:]))
        return _weighted(slope, batch)
    targets = batch.targets.expand(len(predictions), -1, -1)[..., None]
    slope = predictions.softmax(-1)
    slope.scatter_add_(-1, targets, torch.full_like(slope[..., :1], -1.0))
    return _weighted(slope.mul_(1.0 / math.prod(predictions.shape[1:-1])), batch)


def _weighted(terms: Tensor, batch: Batch) -> Tensor:
    if batch.weights is None:
        return terms
    # Weights may lack the axis of dimensions or classes.
    return terms * (batch.weights[..., None] if batch.weights.dim() < terms.dim() else batch.weights)


def accuracy(predictions: Predictions, batch: Batch) -> Float[Tensor, " member"]:
    """Share of the readouts that count at which the most probable class is the right one; NaN where none counts."""
    counts = counted(batch).expand(predictions.shape[:3])
    right = (predictions.argmax(-1) == batch.targets) & counts
    return right.flatten(1).sum(1) / counts.flatten(1).sum(1)


def counted(batch: Batch) -> Bool[Tensor, "#member batch readout"]:
    """Mask of the readouts that enter the loss."""
    _, samples, readouts = batch.targets.shape[:3]
    if batch.weights is None:
        return torch.ones(1, samples, readouts, dtype=torch.bool, device=batch.targets.device)
    counts = batch.weights > 0.0
    counts = counts if counts.dim() == 3 else counts.any(-1)
    return counts.expand(len(counts), samples, readouts)
