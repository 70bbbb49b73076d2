"""The optimiser against torch's, member by member, and what a diverged member leaves alone."""

import itertools

import pytest
import torch

from hopscope.training.config import Training
from hopscope.training.optimiser import Optimiser

MEMBERS, STEPS, SIZES = 3, 29, {"matrix": 35, "bias": 11, "other": 26}
MASK = torch.cat([torch.full((size,), float(name != "bias")) for name, size in SIZES.items()])


def weights():
    return torch.randn(MEMBERS, sum(SIZES.values()), generator=torch.Generator().manual_seed(17))


def gradient(step):
    """Members differ in size, so that only some are clipped."""
    sizes = torch.tensor([0.01, 1.0, 30.0])[:, None]
    return torch.randn(weights().shape, generator=torch.Generator().manual_seed(1000 + step)) * sizes


def config(**fields):
    plain = {
        "optimizer": "adam",
        "betas": (0.9, 0.999),
        "weight_decay": 0.0,
        "clip_norm": None,
        "warmup_steps": 0,
    }
    return Training(**{"steps": STEPS, "learning_rate": 0.02, "schedule": "constant", **plain, **fields})


def train(fields, steps=STEPS, change=lambda step, losses, gradient: None):
    optimiser = Optimiser(weights(), MASK, config(**fields))
    for step in range(steps):
        losses = torch.ones(MEMBERS)
        optimiser.gradient.copy_(gradient(step))
        change(step, losses, optimiser.gradient)
        optimiser.step(step, losses)
    return optimiser


def reference(member, fields):
    """torch's own optimiser for one member alone."""
    settings, parts = (
        config(**fields),
        [part.clone() for part in weights()[member].split(list(SIZES.values()))],
    )
    decays = [settings.weight_decay * (name != "bias" or settings.decay == "all") for name in SIZES]
    groups = [{"params": [part], "weight_decay": decay} for part, decay in zip(parts, decays, strict=True)]
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    optimiser = kind(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon)
    for step in range(STEPS):
        for part, own in zip(parts, gradient(step)[member].split(list(SIZES.values())), strict=True):
            part.grad = own.clone()
        if settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parts, settings.clip_norm)
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (step + 1) / max(settings.warmup_steps, 1))
        optimiser.step()
    return torch.cat(parts)


CASES = [
    {"optimizer": kind, "weight_decay": decay, "decay": mask, "clip_norm": clip, "warmup_steps": warmup}
    for kind, (decay, mask), (clip, warmup) in itertools.product(
        ("adam", "adamw"), ((0.0, "matrices"), (0.3, "matrices"), (0.3, "all")), ((None, 0), (2.0, 19))
    )
] + [{"betas": (0.5, 0.95), "epsilon": 1e-3}]


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_equals_torch_member_by_member(fields):
    found = train(fields).flat
    for member in range(MEMBERS):
        torch.testing.assert_close(found[member], reference(member, fields), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("where", ["loss", "gradient", "one entry"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "fields", [{}, {"weight_decay": 0.3}, {"optimizer": "adamw", "weight_decay": 0.3, "clip_norm": 2.0}]
)
def test_freezes_the_bad_member_and_nobody_else(where, value, fields):
    bad, since = 1, 17

    def spoil(step, losses, gradient):
        if step == since:
            place = {
                "loss": losses[bad : bad + 1],
                "gradient": gradient[bad],
                "one entry": gradient[bad, 3:4],
            }
            place[where].fill_(value)

    whole, stopped, spoilt = train(fields), train(fields, steps=since), train(fields, change=spoil)
    assert spoilt.alive.tolist() == [True, False, True]
    for name in ("flat", "first_moment", "second_moment"):
        found = getattr(spoilt, name)
        assert torch.equal(found[[0, 2]], getattr(whole, name)[[0, 2]])
        assert torch.equal(found[bad], getattr(stopped, name)[bad])


@pytest.mark.parametrize(("warmup", "final"), [(0, 0.0), (3, 0.0), (3, 0.1), (0, 1.0)])
def test_a_cosine_falls_to_its_final_rate_after_the_last_step(warmup, final):
    """As torch's own schedule."""
    steps = 11
    settings = config(warmup_steps=warmup, steps=steps, schedule="cosine", final_rate=final)
    optimiser, weight = Optimiser(weights(), MASK, settings), torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([weight], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=steps - warmup, eta_min=0.02 * final)
    for step in range(steps + 1):
        rate = optimiser.rate(step)
        if step < warmup:
            assert rate == pytest.approx(0.02 * (step + 1) / warmup)
        else:
            assert rate == pytest.approx(schedule.get_last_lr()[0], abs=1e-9)
            theirs.step()
            schedule.step()
    assert optimiser.rate(steps) == pytest.approx(0.02 * final)
