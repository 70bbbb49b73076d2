import itertools

import pytest
import torch

from hopscope.models.parameters import Parameters, ParameterSpec
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer

MEMBERS, STEPS = 3, 53
SPECS = [
    ParameterSpec("matrix.weight", (5, 7), "uniform", 1.0, decays=True),
    ParameterSpec("matrix.bias", (11,), "constant", 0.5, decays=False),
    ParameterSpec("other.weight", (2, 13), "uniform", 1.0, decays=True),
]


def parameters(seed=17):
    made = Parameters(SPECS, MEMBERS)
    source = torch.Generator().manual_seed(seed)
    for view in made.views().values():
        view.copy_(torch.randn(view.shape, generator=source))
    return made


def gradients(step, scale=1.0):
    """The same made-up gradients for everybody; members differ in size, so that only some are clipped."""
    source = torch.Generator().manual_seed(1000 + step)
    sizes = torch.tensor([0.01, 1.0, 30.0]) * scale
    return {
        spec.name: torch.randn((MEMBERS, *spec.shape), generator=source)
        * sizes.reshape(-1, *[1] * len(spec.shape))
        for spec in SPECS
    }


def config(**fields):
    plain = {"optimizer": "adam", "betas": (0.9, 0.999), "weight_decay": 0.0, "clip_norm": None}
    settings = {"steps": STEPS, "learning_rate": 0.02, "warmup_steps": 0, "schedule": "constant", **plain}
    return TrainingConfig.model_validate({**settings, **fields})


def train(fields, steps=STEPS, change=lambda step, losses, grads: None):
    settings = config(**fields)
    optimizer = Optimizer(parameters(), settings)
    for step in range(steps):
        losses, grads = torch.ones(MEMBERS), gradients(step)
        change(step, losses, grads)
        optimizer.step(step, losses, grads)
    return optimizer


def reference(member, fields):
    """torch's own optimiser for one member alone."""
    settings = config(**fields)
    weights = {name: view[member].clone() for name, view in parameters().views().items()}
    everything = settings.decay == "all"
    groups = [
        {"params": [weights[spec.name]], "weight_decay": settings.weight_decay * (spec.decays or everything)}
        for spec in SPECS
    ]
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    optimizer = kind(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon)
    for step in range(STEPS):
        for name, gradient in gradients(step).items():
            weights[name].grad = gradient[member].clone()
        if settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), settings.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (step + 1) / max(settings.warmup_steps, 1))
        optimizer.step()
    return weights


CASES = [
    {"optimizer": kind, "weight_decay": decay, "decay": mask, "clip_norm": clip, "warmup_steps": warmup}
    for kind, (decay, mask), (clip, warmup) in itertools.product(
        ("adam", "adamw"), ((0.0, "matrices"), (0.3, "matrices"), (0.3, "all")), ((None, 0), (2.0, 19))
    )
] + [{"betas": (0.5, 0.95), "epsilon": 1e-3}]


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_equals_torch_member_by_member(fields):
    found = train(fields).parameters.views()
    for member in range(MEMBERS):
        for name, expected in reference(member, fields).items():
            torch.testing.assert_close(found[name][member], expected, rtol=2e-5, atol=2e-6, msg=name)


def test_cases_differ():
    """Decay, its mask, clipping and warm-up each change the result: none of the comparisons above is idle."""
    ends = [train(fields).parameters.flat for fields in CASES]
    differ = [not torch.equal(a, b) for a, b in itertools.combinations(ends, 2)]
    # With no decay, Adam is AdamW.
    assert len(differ) - sum(differ) == 2


def test_gaps_between_tensors_stay_zero():
    optimizer = train({"weight_decay": 0.3, "decay": "all"})
    inside = Parameters(SPECS, MEMBERS)
    for view in inside.views().values():
        view.fill_(1.0)
    assert bool((inside.flat == 0).any())
    assert not optimizer.parameters.flat[inside.flat == 0].any()


@pytest.mark.parametrize("where", ["loss", "gradient", "one entry"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "fields",
    [{}, {"optimizer": "adam", "weight_decay": 0.3}, {"optimizer": "adamw", "weight_decay": 0.3, "clip_norm": 2.0}],
    ids=["plain", "L2", "decoupled"],
)  # fmt: skip
def test_freezes_the_bad_member_and_nobody_else(where, value, fields):
    bad, bad_step = 1, 29

    def spoil(step, losses, grads):
        if step >= bad_step:
            if where == "loss":
                losses[bad] = value
            elif where == "gradient":
                grads["other.weight"][bad] = value
            else:
                grads["matrix.bias"][bad, 3] = value

    whole, stopped, spoilt = train(fields), train(fields, steps=bad_step), train(fields, change=spoil)
    assert spoilt.alive.tolist() == [True, False, True]
    others = [0, 2]
    for name in ("first_moment", "second_moment"):
        found = getattr(spoilt, name)
        assert torch.equal(found[others], getattr(whole, name)[others])
        assert torch.equal(found[bad], getattr(stopped, name)[bad])
    assert torch.equal(spoilt.parameters.flat[others], whole.parameters.flat[others])
    assert torch.equal(spoilt.parameters.flat[bad], stopped.parameters.flat[bad])
    assert not torch.equal(stopped.parameters.flat[bad], whole.parameters.flat[bad])


def test_a_frozen_member_stays_frozen():
    def spoil_once(step, losses, grads):
        if step == 5:
            losses[2] = float("nan")

    optimizer, at_that_step = train({}, change=spoil_once), train({}, steps=5)
    assert optimizer.alive.tolist() == [True, True, False]
    assert torch.equal(optimizer.parameters.flat[2], at_that_step.parameters.flat[2])


@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_rate_rises_and_stays(warmup):
    optimizer = Optimizer(parameters(), config(warmup_steps=warmup))
    rates = [optimizer.rate(step) / 0.02 for step in range(7)]
    expected = [min(1.0, (step + 1) / 5) for step in range(7)] if warmup == 5 else [1.0] * 7
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize(("warmup", "final"), [(0, 0.0), (3, 0.0), (3, 0.1), (0, 1.0)])
def test_a_cosine_falls_to_its_final_rate_after_the_last_step(warmup, final):
    """As torch's own schedule; on the device and off it."""
    steps = 11
    fields = {"warmup_steps": warmup, "steps": steps, "schedule": "cosine", "final_rate": final}
    optimizer = Optimizer(parameters(), config(**fields))
    weight = torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([weight], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=steps - warmup, eta_min=0.02 * final)
    for step in range(steps + 1):
        rate = optimizer.rate(step)
        assert optimizer.rate(torch.tensor(step)).item() == pytest.approx(rate, abs=1e-8)
        if step < warmup:
            assert rate == pytest.approx(0.02 * (step + 1) / warmup)
        else:
            assert rate == pytest.approx(schedule.get_last_lr()[0], abs=1e-9)
            theirs.step()
            schedule.step()
    assert optimizer.rate(steps) == pytest.approx(0.02 * final)
