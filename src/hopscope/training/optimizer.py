"""Adam and AdamW over the flat buffer of an ensemble, with per-member clipping and a divergence guard.

torch's optimisers know nothing of members: one member's infinite gradient would be clipped into, or averaged with,
the others'.  Here every member is a row, so each is clipped, stepped and, when its loss or gradient is no longer
finite, left as it is from then on: it has diverged.  For healthy members the update equals `torch.optim.Adam` /
`AdamW` (tested).
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
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

    def rate(self, step: int | Int[Tensor, ""]) -> float | Float[Tensor, ""]:
        """Learning rate of step number `step` (from 0)."""
        warmup, steps = self.config.warmup_steps, self.config.steps
        full: float | Tensor = self.config.learning_rate
        if self.config.schedule == "cosine" and steps > warmup:
            done = (step - warmup) / (steps - warmup)
            done = done.clamp(0.0, 1.0) if isinstance(done, Tensor) else min(max(done, 0.0), 1.0)
            angle = math.pi * done
            left = (1.0 + (angle.cos() if isinstance(angle, Tensor) else math.cos(angle))) / 2.0
            full = full * (self.config.final_rate + (1.0 - self.config.final_rate) * left)
        if not warmup:
            return full
        share = (step + 1) / warmup
        return full * (share.clamp(max=1.0) if isinstance(share, Tensor) else min(1.0, share))

    @torch.no_grad()
    def step(
        self,
        step: int | Int[Tensor, ""],
        losses: Float[Tensor, " member"],
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Take step number `step` (from 0); members whose loss or gradient is not finite have diverged.

        Args:
            step: number of steps taken before; a tensor where it is known on the device only.
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
        count = step.double() + 1.0 if isinstance(step, Tensor) else step + 1
        self._update(self.rate(step), gradient, count)

    def _update(
        self, rate: float | Tensor, gradient: Float[Tensor, "member size"], count: int | Float[Tensor, ""]
    ) -> None:
        config, flat, alive = self.config, self.parameters.flat, self.alive[:, None]
        decay = self._decay * flat if config.weight_decay else None
        if config.optimizer == "adam" and decay is not None:
            gradient = gradient + decay
        # A diverged member's gradient may hold NaN, which no product with zero removes.
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
        # Adam's correction of means that began at zero.
        first, second = 1.0 - beta1**count, 1.0 - beta2**count
        spread = self.second_moment.sqrt().div_(second**0.5).add_(config.epsilon)
        flat.sub_((self.first_moment / spread).mul_(rates / first))
