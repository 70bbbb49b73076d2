"""Attribution patching: the first-order effect of every edge at once, from one derivative (EAP), or several (EAP-IG).

*EAP* (Syed et al. 2023, arXiv:2310.10348): the effect of ablating an edge is about its difference, what it would carry
minus what it carries, times the derivative of a metric by its receiver's input.  The derivative is taken on the clean
samples.  *EAP-IG* (Hanna et al. 2024, arXiv:2403.17806) takes its mean over inputs on the line from the other sample to
the clean one.

**Metric.** At the loss of a model that answers perfectly all derivatives vanish.  So both methods use, as is usual, a
difference of answers: the prediction's product with the right answer minus that of the other sample.  For tokens it is
the difference of two logits.  A score is positive if ablating the edge lowers this difference, to first order.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.contract import smallest_faithful
from hopscope.finders.edges import Budget, Edge, Patching
from hopscope.models.transformer import Transformer

STEPS = 5
"""Points on the line from the other sample to the clean one, as in the paper of EAP-IG."""


def eap(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Edge attribution patching: one derivative, on the clean samples."""
    patching = Patching.drawn(model, task, budget)
    return smallest_faithful(patching, attributed(patching, [1.0]))


def eap_ig(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Edge attribution patching with integrated gradients along the inputs."""
    patching = Patching.drawn(model, task, budget)
    return smallest_faithful(patching, attributed(patching, [step / STEPS for step in range(1, STEPS + 1)]))


def attributed(patching: Patching, points: list[float]) -> dict[Edge, float]:
    """Score of each edge: the mean derivative of the metric by how much more of the difference the edge carries.

    Args:
        patching: the model on samples.
        points: where the derivative is taken: 0 is the other sample's input, 1 the clean one.
    """
    total = torch.zeros(len(patching.edges))
    answers = answer_difference(patching)
    for point in points:
        embedded = patching.other_embedded + point * (patching.embedded - patching.other_embedded)
        amounts = torch.zeros(len(patching.edges), requires_grad=True)
        by_edge = dict(zip(patching.edges, amounts.unbind(), strict=True))
        metric = (patching.nudged(embedded, by_edge) * answers).sum(-1).mean()
        total += torch.autograd.grad(metric, amounts)[0] / len(points)
    return dict(zip(patching.edges, total.tolist(), strict=True))


def answer_difference(patching: Patching) -> Float[Tensor, "batch readout output"]:
    """The right answers minus those of the other samples; tokens as one-hot vectors."""
    targets = patching.batch.targets[0]
    if not targets.is_floating_point():
        targets = functional.one_hot(targets, patching.config.output_size).float()
    return targets - targets.roll(1, 0)
