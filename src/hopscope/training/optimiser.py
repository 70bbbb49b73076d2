"""Adam and AdamW over the flat buffer of an ensemble, with clipping and a divergence guard for each member.

torch's optimisers know nothing of members: one member's infinite gradient would be clipped into, or averaged with,
the others'.  Here every member is a row, so each is clipped, stepped and, when its loss or gradient is no longer
finite, left as it is from then on: it has diverged.  For healthy members the update equals `torch.optim.Adam` and
`AdamW`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.training.config import Training


class Optimiser:
    """State and step of the optimiser.

    Attributes:
        flat: weights that it moves, `[member, size]`.
        alive: members that are still trained.
        first_moment, second_moment: running means of gradients and of their squares.
        gradient: laid out as the weights; a step uses it up.
    """

    def __init__(
        self, flat: Float[Tensor, "member size"], decay_mask: Float[Tensor, " size"], training: Training
    ):
        self.flat, self.training = flat, training
        self.alive = torch.ones(len(flat), dtype=torch.bool, device=flat.device)
        self.first_moment, self.second_moment, self.gradient = (torch.zeros_like(flat) for _ in range(3))
        everywhere = training.decay == "all"
        self._decay = (torch.ones_like(decay_mask) if everywhere else decay_mask) * training.weight_decay

    def rate(self, step: int) -> float:
        """Learning rate of step number `step` (from 0)."""
        training, warmup = self.training, self.training.warmup_steps
        full = training.learning_rate
        if training.schedule == "cosine" and training.steps > warmup:
            done = min(max((step - warmup) / (training.steps - warmup), 0.0), 1.0)
            left = (1.0 + math.cos(math.pi * done)) / 2.0
            full = full * (training.final_rate + (1.0 - training.final_rate) * left)
        return full * min(1.0, (step + 1) / warmup) if warmup else full

    def scalars(self, step: int) -> tuple[float, float, float]:
        """The rate, and by what Adam divides its first and second moments, which began at zero."""
        beta1, beta2 = self.training.betas
        return self.rate(step), 1.0 - beta1 ** (step + 1), 1.0 - beta2 ** (step + 1)

    def step(self, step: int, losses: Float[Tensor, " member"]) -> None:
        """Take step number `step` (from 0); members whose loss or gradient is not finite have diverged."""
        self.move(losses, *self.scalars(step))

    @torch.no_grad()
    def move(
        self, losses: Tensor, rate: float | Tensor, correction1: float | Tensor, correction2: float | Tensor
    ) -> None:
        """A step by its `scalars`."""
        training, flat, gradient = self.training, self.flat, self.gradient
        norm = torch.linalg.vector_norm(gradient, dim=1)
        self.alive &= norm.isfinite() & losses.isfinite()
        if training.clip_norm is not None:
            gradient.mul_((training.clip_norm / (norm + 1e-6)).clamp(max=1.0)[:, None])
        decay = self._decay * flat if training.weight_decay else None
        if training.optimizer == "adam" and decay is not None:
            gradient = gradient + decay
        # A diverged member's gradient may hold NaN, which no product with zero removes.
        alive, (beta1, beta2) = self.alive[:, None], training.betas
        gradient, moving = torch.where(alive, gradient, 0.0), alive.float()
        self.first_moment.lerp_(gradient, moving * (1.0 - beta1))
        kept = self.second_moment.mul_(torch.where(alive, beta2, 1.0))
        kept.addcmul_(gradient, gradient, value=1.0 - beta2)
        rates = moving * rate
        if training.optimizer == "adamw" and decay is not None:
            flat.sub_(decay * rates)
        spread = self.second_moment.sqrt().div_(correction2**0.5).add_(training.epsilon)
        flat.sub_((self.first_moment / spread).mul_(rates / correction1))
