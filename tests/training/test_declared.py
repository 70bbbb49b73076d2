"""Tasks that users declare, by every engine that trains them: the same gradients, the same record."""

import hashlib
from pathlib import Path

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash
from hopscope.tasks.batch import Batch
from hopscope.tasks.config import PermutationConfig, RetrievalConfig, TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.task import Shape, Task
from hopscope.training import engines
from hopscope.training.budget import TimeBudget
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.optimizer import Optimizer
from hopscope.training.trainer import Trainer

SEEDS = torch.tensor([3, 5, 7])
needs_numba = pytest.mark.skipif(
    not engines.ENGINES["stacked"].installed(), reason="the stacked way is optional"
)


class Earlier(Task):
    """Which token stood three places before, asked at two places of which the second counts twice, now and then."""

    def shape(self):
        return Shape(inputs="tokens", input_size=5, positions=7, readout=(3, 6), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (7,))
        counts = 2 * draws.integers("counts", 2, (1,))
        weights = torch.cat((torch.ones_like(counts), counts), -1).float()
        return Batch(tokens, tokens[..., [0, 3]], weights=weights, groups={"even": tokens[..., 0] % 2 == 0})


class Sum(Task):
    """The sum of the vectors, and a loss of its own with its derivative."""

    def shape(self):
        return Shape(
            inputs="vectors", input_size=5, positions=7, readout=(6,), output_size=3, position_size=2
        )

    def sample(self, draws):
        vectors = draws.normal("vectors", (7, 3))
        codes = draws.constant(torch.stack((torch.arange(7) / 7, torch.ones(7)), -1), (7, 2))
        return Batch(torch.cat((vectors, codes), -1), vectors.sum(-2, keepdim=True))

    def parts(self, predictions, batch):
        wrong = predictions - batch.targets
        fourth = wrong.square().square().mean((1, 2, 3))
        return {"loss": fourth / 10, "loss_square": wrong.square().mean((1, 2, 3))}

    def loss_gradient(self, predictions, batch):
        wrong = predictions - batch.targets
        return 4 * wrong * wrong.square() / (10 * wrong[0].numel())


def model_of(task, **changes):
    shape = task.shape()
    carried = {"positions": "carried", "position_size": 2} if shape.position_size else {}
    fields = {
        "layers": 2, "heads": 3, "width": 11, "head_dim": 5, "length": shape.positions, "input_kind": shape.inputs,
        "input_size": shape.input_size, "output_size": shape.output_size, "readout": shape.readout,
    }  # fmt: skip
    return TransformerConfig(**fields | carried | changes)


def job_of(task, model=None, **training):
    reference = TaskReference(
        reference="tests:Task", source="0", shape=task.shape(), gradient=task.differentiable_without_autograd
    )
    return TrainJob(
        label="declared",
        task=reference,
        model=model or model_of(task),
        training=TrainingConfig(**{"steps": 23, "batch_size": 13, "checkpoint_every": 8} | training),
        members=tuple(MemberPlan(member=number, seed=int(seed)) for number, seed in enumerate(SEEDS)),
    )


def noisy(config):
    """Members whose biases and gains are all at work."""
    model = Transformer.initial(config, SEEDS)
    noise = torch.randn(model.parameters.flat.shape, generator=torch.Generator().manual_seed(11))
    model.parameters.flat.add_(0.2 * noise)
    return model


@needs_numba
@pytest.mark.parametrize("positions", ["learned", "pair", "none"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("task", [Earlier(), Sum()], ids=["tokens", "vectors"])
def test_the_stacked_way_equals_autograd(task, causal, positions):
    carried = {} if positions == "none" and task.shape().position_size else {"positions": positions}
    config = model_of(task, causal=causal, **carried | ({"position_size": 0} if carried else {}))
    job = job_of(task, config)
    assert engines.chosen_engine(job, "cpu") == "stacked"
    model, found = noisy(config), {}
    for engine in ("general", "stacked"):
        found[engine] = torch.zeros_like(model.parameters.flat)
        losses = engines.ENGINES[engine].gradient(model, task.on(), job.training, SEEDS, found[engine])(3)
        found[f"{engine} losses"] = {name: loss.detach() for name, loss in losses.items()}
    assert found["general losses"].keys() == found["stacked losses"].keys()
    torch.testing.assert_close(found["stacked losses"], found["general losses"], rtol=1e-4, atol=1e-5)
    size = found["general"].abs().max()
    torch.testing.assert_close(found["stacked"], found["general"], rtol=1e-4, atol=float(1e-5 * size))
    assert size > 0.01


def test_which_engine_a_declared_task_gets(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: "numba")
    task = Earlier()
    assert engines.chosen_engine(job_of(task), "cpu") == "stacked"
    assert engines.chosen_engine(job_of(task), "cuda") == "general"
    for change in (
        {"norm": "post"},
        {"layers": 1},
        {"norm": "none"},
        {"input_size": engines.MOST_INPUTS * 11},
    ):
        assert engines.chosen_engine(job_of(task, model_of(task, **change)), "cpu") == "general", change
    assert engines.chosen_engine(job_of(task, precision="bfloat16"), "cpu") == "general"

    class Own(Earlier):
        def parts(self, predictions, batch):
            return {"loss": predictions.logsumexp(-1).mean((1, 2))}

    assert engines.chosen_engine(job_of(Own()), "cpu") == "general"
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert engines.chosen_engine(job_of(task), "cpu") == "general"


@pytest.mark.parametrize("engine", ["general", "fused"])
def test_drawing_ahead_changes_no_batch(engine):
    """A step's gradient is the same whichever steps were drawn together with it: backwards, each is drawn anew."""
    pytest.importorskip("numba") if engine == "fused" else None
    task = Earlier().on() if engine == "general" else PermutationConfig(values=4).on()
    config = model_of(Earlier()) if engine == "general" else None
    if config is None:
        config = TransformerConfig(
            width=16,
            heads=2,
            length=7,
            input_size=5,
            output_size=5,
            activation="relu",
            norm="post",
            readout=task.readout,
        )
    found = []
    for steps in ((3, 4, 5, 17), (17, 5, 4, 3)):
        model = noisy(config)
        buffer = torch.zeros_like(model.parameters.flat)
        work = engines.ENGINES[engine].gradient(
            model, task, TrainingConfig(steps=31, batch_size=13), SEEDS, buffer
        )
        found.append({step: (work(step)["loss"].clone(), buffer.clone()) for step in steps})
    for step, (loss, gradient) in found[0].items():
        assert torch.equal(loss, found[1][step][0]) and torch.equal(gradient, found[1][step][1])


@needs_numba
@pytest.mark.parametrize("engine", ["general", "stacked"])
def test_the_general_view_of_a_task_of_the_package_trains_alike(engine):
    task = RetrievalConfig(chains=3, steps=2, targets=(1,), schedule=((4, "ic"),))
    found = []
    for on in (task.on(), TaskOnDevice(task)):
        model = noisy(model_of(task, position_size=4))
        buffer = torch.zeros_like(model.parameters.flat)
        work = engines.ENGINES[engine].gradient(
            model, on, TrainingConfig(steps=31, batch_size=13), SEEDS, buffer
        )
        found.append([(work(step)["loss"].detach(), buffer.clone()) for step in (3, 4)])
    for first, other in zip(*found, strict=True):
        torch.testing.assert_close(first, other)


@needs_numba
def test_the_fused_way_takes_the_general_view():
    task = PermutationConfig(values=4, repeat_ratio=0.5)
    config = TransformerConfig(
        width=16,
        heads=2,
        length=7,
        input_size=5,
        output_size=5,
        activation="relu",
        norm="post",
        readout=(0, 2, 4, 6),
    )
    losses = []
    for on in (task.on(), TaskOnDevice(task)):
        model = noisy(config)
        buffer = torch.zeros_like(model.parameters.flat)
        losses.append(
            engines.ENGINES["fused"].gradient(
                model, on, TrainingConfig(steps=3, batch_size=13), SEEDS, buffer
            )(2)
        )
    assert all(torch.equal(losses[1][name], values) for name, values in losses[0].items())


# Whole trainings.


def trainer_of(path, job, task, engine):
    name = content_hash(job.model_dump(mode="json"))
    members = [
        {"member": m.member, "unit": name, "index": i, "seed": m.seed, "overrides": {}}
        for i, m in enumerate(job.members)
    ]
    run = RunFolder.create(path, "declared", job.model_dump(mode="json"), members, None)
    unit = run.unit(name).create({"plan": job.model_dump(mode="json")})
    on = task.on("cpu", job.training.examples)
    held_out = on.evaluation(101)

    def evaluate(model, members):
        return {
            ("held_out", name): values for name, values in on.losses(model(held_out.inputs), held_out).items()
        }

    return Trainer(job, on, unit, evaluate, engine=engines.ENGINES[engine])


def record(unit):
    """Hashes of everything that training wrote."""
    files = [*Path(unit.path).rglob("*.parquet"), *Path(unit.path).rglob("*.safetensors")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


@needs_numba
@pytest.mark.parametrize("examples", [None, 29])
@pytest.mark.parametrize("engine", ["general", "stacked"])
def test_a_resumed_training_is_the_undisturbed_one(tmp_path, engine, examples):
    from hopscope.errors import TimeBudgetReached

    task = Earlier()
    job = job_of(task, examples=examples)
    whole = trainer_of(tmp_path / "whole", job, task, engine)
    whole.run(TimeBudget(None), lambda progress: None)
    for _ in range(20):
        trainer = trainer_of(tmp_path / "parts", job, task, engine)
        try:
            trainer.run(TimeBudget(1e-9), lambda progress: None)
            break
        except TimeBudgetReached:
            continue
    assert record(trainer.unit) == record(whole.unit) and len(record(whole.unit)) > 5


@pytest.mark.long
def test_a_declared_task_is_learned():
    task, job = Earlier(), job_of(Earlier(), model_of(Earlier(), width=33), steps=400, learning_rate=3e-3)
    on = task.on()
    model = Transformer.initial(job.model, SEEDS)
    optimizer = Optimizer(model.parameters, job.training)
    engine = engines.chosen_engine(job, "cpu")
    gradient = engines.ENGINES[engine].gradient(model, on, job.training, SEEDS, optimizer.gradient)
    for step in range(400):
        optimizer.step(step, gradient(step)["loss"])
    held_out = on.evaluation(503)
    with torch.no_grad():
        losses = on.losses(model(held_out.inputs), held_out)
    assert (losses["accuracy"] > 0.9).all() and (losses["accuracy@even"] > 0.9).all()
