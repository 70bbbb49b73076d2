"""Attribution patching: the first-order effect of every edge at once, from one derivative (EAP), or several (EAP-IG).

*EAP* (Syed et al. 2023, arXiv:2310.10348): the effect of ablating an edge is about its difference, what it would carry
minus what it carries, times the derivative of the loss by its receiver's input.  The derivative is taken on the clean
samples.  *EAP-IG* (Hanna et al. 2024, arXiv:2403.17806) takes its mean over inputs on the line from the other sample to
the clean one.

A score is positive if ablating the edge raises the loss, to first order.
"""

from typing import Any

import torch

from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.contract import smallest_faithful
from hopscope.finders.edges import Budget, Edge, Patching
from hopscope.models.transformer import Transformer

STEPS = 5
"""Points on the line from the other sample to the clean one, as in the paper of EAP-IG."""


def eap(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Edge attribution patching."""
    patching = Patching.drawn(model, task, budget)
    return smallest_faithful(patching, attributed(patching, [1.0]))


def eap_ig(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Edge attribution patching with integrated gradients along the inputs."""
    patching = Patching.drawn(model, task, budget)
    return smallest_faithful(patching, attributed(patching, [step / STEPS for step in range(1, STEPS + 1)]))


def attributed(patching: Patching, points: list[float]) -> dict[Edge, float]:
    """Score of each edge: minus the mean derivative of the loss by how much more of the difference the edge carries.

    Args:
        patching: the model on samples.
        points: where the derivative is taken: 0 is the other sample's input, 1 the clean one.
    """
    total = torch.zeros(len(patching.edges))
    for point in points:
        embedded = patching.other_embedded + point * (patching.embedded - patching.other_embedded)
        amounts = torch.zeros(len(patching.edges), requires_grad=True)
        by_edge = dict(zip(patching.edges, amounts.unbind(), strict=True))
        loss = patching.loss_of(patching.nudged(embedded, by_edge))
        (derivative,) = torch.autograd.grad(loss, amounts)
        total -= derivative / len(points)
    return dict(zip(patching.edges, total.nan_to_num().tolist(), strict=True))
