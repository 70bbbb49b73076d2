"""Initial weights to the bit, the losses of 50 steps to 1e-5, and the weights after them."""

import pytest
import torch

from hopscope.executors.timing import Steps
from hopscope.models.parameters import Parameters, ParameterSpec
from hopscope.studies import find_study
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import chosen_engine
from hopscope.training.optimizer import Optimizer
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Permutation, Retrieval
from hopscope_next.training import engines
from hopscope_next.training.config import COMPLETION_NAMES, Training, completed
from hopscope_next.training.optimiser import Optimiser

NAMES = {"general": "autograd", "fused": "shallow", "stacked": "deep", "virtual": "low-rank"}


def job_of(study, preset, engine):
    """The first job of a preset that the first house trains by this engine, with two members, made small."""
    program = find_study(study)
    jobs = program.jobs(program.configured(preset, {}))
    job = next(job for job in jobs if engine in ("general", chosen_engine(job, "cpu")))
    training = job.training.model_copy(update={"batch_size": min(job.training.batch_size, 31)})
    return program, job.model_copy(update={"members": job.members[:2], "training": training})


def task_of(old):
    kind = Permutation if type(old).__name__.startswith("Permutation") else Retrieval
    return kind(**{name: value for name, value in old.model_dump().items() if name in kind.model_fields})


@pytest.mark.parametrize(
    ("study", "preset", "engine"),
    [
        ("permutation", "smoke", "fused"),
        ("permutation", "smoke", "general"),
        ("depth", "smoke", "stacked"),
        ("depth", "smoke", "general"),
        ("circuits", "smoke", "stacked"),
        ("first-steps", "smoke", "stacked"),
        ("recipes", "workstation", "virtual"),
    ],
)
def test_fifty_steps(study, preset, engine):
    program, job = job_of(study, preset, engine)
    old = Steps(job, program.task(job, "cpu"), engine)
    task, config = task_of(job.task), TransformerConfig(**job.model.model_dump())
    fields = {name: getattr(job.training, name) for name in Training.model_fields}
    training = Training(**{**fields, "examples": getattr(job.task, "pool", None)})
    init, data = (
        torch.tensor([getattr(member, f"{name}_seed") for member in job.members]) for name in ("init", "data")
    )
    new = Transformer.initial(config, init)
    optimiser = Optimiser(new.flatten(), new.decay_mask(), training)
    assert torch.equal(optimiser.flat, old.model.parameters.flat)
    if engine != "general":
        assert engines.choose(task, config, training, "cpu") == NAMES[engine]
    module = engines.load(NAMES[engine], task, config, training, "cpu")
    gradient = module.gradient(new, task, training, data, optimiser.gradient)
    for step in range(50):
        loss = gradient(step)["loss"]
        torch.testing.assert_close(loss, old.take(), rtol=0.0, atol=1e-5)
        optimiser.step(step, loss)
    for name, weight in new.weights().items():
        if not name.endswith("key.bias"):
            torch.testing.assert_close(
                weight, old.model.weights[name].detach(), rtol=1e-3, atol=2e-4, msg=name
            )


@pytest.mark.parametrize(
    "fields", [{}, {"optimizer": "adam", "clip_norm": None}, {"decay": "all", "schedule": "constant"}]
)
def test_the_optimiser_to_the_bit(fields):
    settings = {"steps": 23, "learning_rate": 0.01, "clip_norm": 0.7, **fields}
    specs = [
        ParameterSpec("map", (4, 8), "normal", 1.0, True),
        ParameterSpec("bias", (16,), "normal", 1.0, False),
    ]
    parameters = Parameters(specs, 3)
    parameters.flat.copy_(torch.linspace(-1.0, 1.0, 3 * 48).view(3, 48))
    old = Optimizer(parameters, TrainingConfig(**settings))
    new = Optimiser(parameters.flat.clone(), parameters.decay_mask, Training(**settings))
    for step in range(23):
        gradient = torch.randn(3, 48, generator=torch.Generator().manual_seed(step))
        for each in (old, new):
            each.gradient.copy_(gradient)
            each.step(step, torch.ones(3))
        assert torch.equal(new.flat, old.parameters.flat)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"examples": 7},
        {"precision": "bfloat16"},
        {"final_rate": 0.5, "final_window": 10, "final_every": 3},
    ],
)
def test_training_is_the_same_record(fields):
    old, new = (kind(steps=3000, **fields) for kind in (TrainingConfig, Training))
    assert new.model_dump_json() != "" and set(new.model_dump()) == set(old.model_dump())
    assert new.model_dump() == old.model_dump()
    for name in ("checkpoint_steps", "evaluation_steps", "final_steps"):
        assert getattr(new, name)() == getattr(old, name)()


@pytest.mark.parametrize("name", COMPLETION_NAMES)
def test_completions(name):
    from hopscope.completion import COMPLETIONS
    from hopscope_next.models.config import Model

    model, training = completed(name, Model(), Training(steps=1234))
    said = COMPLETIONS[name].values(1234)
    assert model.init == said.pop("init") and training.betas == (0.9, said.pop("beta2"))
    assert {field: getattr(training, field) for field in said} == said
