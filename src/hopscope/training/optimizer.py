"""Adam and AdamW over the flat buffer of an ensemble, with per-member clipping and a divergence guard.

torch's optimisers know nothing of members: one member's infinite gradient would be clipped into, or averaged with,
the others'.  Here every member is a row, so each is clipped, stepped and, when its loss or gradient is no longer
finite, frozen on its own.  For healthy members the update equals `torch.optim.Adam` / `AdamW` (tested).
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hopscope.models.parameters import Parameters
from hopscope.training.config import TrainingConfig


class Optimizer:
    """State and step of the optimiser.

    Attributes:
        alive: members that are still trained.
        first_moment, second_moment: running means of gradients and of their squares.
        gradient: laid out as the weights; a step uses it up.
    """

    def __init__(self, parameters: Parameters, config: TrainingConfig):
        self.parameters, self.config = parameters, config
        self.alive: Bool[Tensor, " member"] = torch.ones(
            parameters.flat.shape[0], dtype=torch.bool, device=parameters.flat.device
        )
        self.first_moment: Float[Tensor, "member size"] = torch.zeros_like(parameters.flat)
        self.second_moment: Float[Tensor, "member size"] = torch.zeros_like(parameters.flat)
        self.gradient: Float[Tensor, "member size"] = torch.zeros_like(parameters.flat)
        self._views = parameters.views(self.gradient)
        everywhere = torch.ones_like(parameters.decay_mask)
        self._decay = (
            parameters.decay_mask if config.decay == "matrices" else everywhere
        ) * config.weight_decay

    def rate(self, step: int) -> float:
        """Learning rate of step number `step` (from 0)."""
        warmup = self.config.warmup_steps
        return self.config.learning_rate * min(1.0, (step + 1) / warmup if warmup else 1.0)

    @torch.no_grad()
    def step(
        self, step: int, losses: Float[Tensor, " member"], gradients: Mapping[str, Tensor] | None = None
    ) -> None:
        """Take step number `step` (from 0); members whose loss or gradient is not finite are frozen instead.

        Args:
            step: number of steps taken before.
            losses: each member's loss.
            gradients: name → gradient of the sum of the losses, shaped as the weights; none where `gradient` holds it.
        """
        if gradients is not None:
            for name, view in self._views.items():
                view.copy_(gradients[name])
        gradient, config = self.gradient, self.config
        norm = torch.linalg.vector_norm(gradient, dim=1)
        self.alive &= norm.isfinite() & losses.isfinite()
        if config.clip_norm is not None:
            gradient.mul_((config.clip_norm / (norm + 1e-6)).clamp(max=1.0)[:, None])
        self._update(self.rate(step), gradient, step + 1)

    def _update(self, rate: float, gradient: Float[Tensor, "member size"], count: int) -> None:
        config, flat, alive = self.config, self.parameters.flat, self.alive[:, None]
        decay = self._decay * flat if config.weight_decay else None
        if config.optimizer == "adam" and decay is not None:
            gradient = gradient + decay
        # A frozen member's gradient may hold NaN, which no product with zero removes.
        gradient = torch.where(alive, gradient, 0.0)
        beta1, beta2 = config.betas
        moving = alive.float()
        self.first_moment.lerp_(gradient, moving * (1.0 - beta1))
        self.second_moment.mul_(torch.where(alive, beta2, 1.0)).addcmul_(
            gradient, gradient, value=1.0 - beta2
        )
        rates = moving * rate
        if config.optimizer == "adamw" and decay is not None:
            flat.sub_(decay * rates)
        spread = self.second_moment.sqrt().div_(math.sqrt(1.0 - beta2**count)).add_(config.epsilon)
        flat.sub_((self.first_moment / spread).mul_(rates / (1.0 - beta1**count)))
