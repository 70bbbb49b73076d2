"""Probes of the tasks on vectors: partial losses, and how often the nearest candidate is the right one.

What every probe needs stands here too: numbers of a tensor for a JSON record.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.vector_task import VectorTask

CHUNK = 1024
"""Sequences per forward pass of an evaluation: bounds memory, not results."""


def predict(model: Transformer, batch: Batch) -> Float[Tensor, "member batch readout output"]:
    """Each member's predictions at the queries."""
    with torch.no_grad():
        return torch.cat([model(part.inputs) for part in batch.pieces(CHUNK)], dim=1)


def held_out(model: Transformer, task: VectorTask, batch: Batch) -> dict[tuple[str, str], Tensor]:
    """Loss, partial losses and nearest-candidate accuracies on held-out samples, for the curves."""
    predicted = predict(model, batch)
    measured = {**task.losses(predicted, batch), **task.accuracies(predicted, batch)}
    return {("held_out", name): values for name, values in measured.items()}


def measure_retrieval(model: Transformer, task: VectorTask, count: int) -> dict[str, Any]:
    """Measure members on `count` held-out samples.

    Returns:
        `samples`; `names`, of the symbols; lists over members of `loss` and `loss_error`, and of lists over symbols
        of `partial`, `partial_error` and `accuracy`.  An `…_error` is the standard error of a loss over samples.
    """
    batch = task.evaluation(count, annotate=False)
    predicted = predict(model, batch)
    squared = (predicted - batch.targets).double().square()
    by_symbol = squared.unflatten(-1, (len(task.names), -1)).mean((2, 4))
    accuracies = task.accuracies(predicted, batch)
    return {
        "samples": count,
        "names": list(task.names),
        "loss": json_numbers(by_symbol.mean((1, 2))),
        "loss_error": json_numbers(_standard_error(by_symbol.mean(2))),
        "partial": json_numbers(by_symbol.mean(1)),
        "partial_error": json_numbers(_standard_error(by_symbol)),
        "accuracy": json_numbers(torch.stack([accuracies[f"accuracy_{name}"] for name in task.names], 1)),
    }


def _standard_error(of_samples: Float[Tensor, "member batch *axes"]) -> Float[Tensor, " member *axes"]:
    """Of a mean over samples; the queries of one sample are not independent, so a sample counts once."""
    return of_samples.std(1) / math.sqrt(of_samples.shape[1])


def json_numbers(values: Tensor) -> Any:
    """Nested lists for a JSON record, with None for what does not exist (NaN, infinity)."""
    return _finite(values.double().tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return value if math.isfinite(value) else None
