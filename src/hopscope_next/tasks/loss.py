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
    if batch.weights is not None:
        terms = terms * _aligned(batch.weights, terms)
    return {"loss": terms.flatten(1).mean(1)}


def default_gradient(predictions: Predictions, batch: Batch) -> Predictions:
    """Derivative of the sum of the members' losses of `default_parts` by the predictions."""
    if batch.targets.is_floating_point():
        gradient = (predictions - batch.targets) * (2.0 / math.prod(predictions.shape[1:]))
        return gradient if batch.weights is None else gradient * _aligned(batch.weights, gradient)
    targets = batch.targets.expand(len(predictions), -1, -1)
    gradient = predictions.softmax(-1)
    gradient.scatter_add_(-1, targets[..., None], torch.full_like(gradient[..., :1], -1.0))
    gradient *= 1.0 / math.prod(predictions.shape[1:-1])
    return gradient if batch.weights is None else gradient * batch.weights[..., None]


def accuracy(predictions: Predictions, batch: Batch) -> Float[Tensor, " member"]:
    """Share of the readouts that count at which the most probable class is the right one; NaN where none counts."""
    right = predictions.argmax(-1) == batch.targets
    if batch.weights is None:
        return right.flatten(1).float().mean(1)
    counts = counted(batch).expand(right.shape)
    return (right & counts).flatten(1).sum(1) / counts.flatten(1).sum(1)


def counted(batch: Batch) -> Bool[Tensor, "#member batch readout"]:
    """Mask of the readouts that enter the loss."""
    _, samples, readouts = batch.targets.shape[:3]
    if batch.weights is None:
        return torch.ones(1, samples, readouts, dtype=torch.bool, device=batch.targets.device)
    counts = batch.weights > 0.0
    if counts.dim() > 3:
        counts = counts.any(-1)
    return counts.expand(len(counts), samples, readouts)


def _aligned(weights: Tensor, terms: Tensor) -> Tensor:
    """Weights with an axis for the dimensions of vectors, where they have none."""
    return weights[..., None] if weights.dim() < terms.dim() else weights
