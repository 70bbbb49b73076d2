"""The engine for deep models against autograd, its slow obvious reference."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.completion import COMPLETIONS
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, content_hash
from hopscope.tasks.config import EquationsConfig, RetrievalConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.losses import default_gradient
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training import engines
from hopscope.training.budget import TimeBudget
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES, chosen_engine
from hopscope.training.optimizer import Optimizer
from hopscope.training.trainer import Trainer

from .written_out import KEY_BIAS, SEEDS, assert_equal, by_way, config, drawn, model_of, reference

pytest.importorskip("numba", reason="numba is optional")
DeepGradient = pytest.importorskip("hopscope.training.engines.numba_deep.gradient").DeepGradient


def by_deep(model, inputs, targets, way=DeepGradient):
    return by_way(way, model, inputs, targets)


SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 3),
        "width": st.sampled_from([3, 7, 16]),
        "head_dim": st.sampled_from([1, 5, 8]),
        "mlp_ratio": st.sampled_from([0.0, 0.5, 4.0]),
        "activation": st.sampled_from(["relu", "gelu"]),
        "causal": st.booleans(),
        "readout": st.sampled_from([None, (0,), (1, 4), (4, 5, 6)]),
    }
)


@settings(max_examples=60)
@given(SHAPES, st.sampled_from([1, 13, 16, 41]))
def test_equals_autograd(shape, batch):
    shape = config(**shape)
    # The norm of three numbers, two of them nearly alike, loses digits in any order of summing.
    tolerance = 1e-4 if shape.width == 3 else 1e-5
    assert_equal(DeepGradient, model_of(shape), *drawn(shape, batch), tolerance)


@pytest.mark.parametrize(("batch", "chunks"), [(67, 1), (300, 3)])
def test_a_batch_is_cut_into_chunks_and_filled_up(batch, chunks):
    shape = config(mlp_ratio=1.0)
    model, (inputs, targets) = model_of(shape), drawn(shape, batch)
    assert_equal(DeepGradient, model, inputs, targets)
    seen = []

    def loss_gradient(member, samples, found):
        seen.append((member, samples.stop - samples.start))
        return torch.zeros_like(found)

    DeepGradient(shape, model.parameters, batch)(
        inputs, loss_gradient, torch.zeros_like(model.parameters.flat)
    )
    assert len(seen) == chunks * len(SEEDS)
    assert [sum(size for member, size in seen if member == index) for index in range(3)] == [batch] * 3


def test_sharp_attention_keeps_its_digits():
    """Scores thousands apart."""
    shape = config()
    model = model_of(shape)
    for layer in range(2):
        for part in ("query", "key"):
            model.weights[f"layers.{layer}.attention.{part}.weight"].mul_(40.0)
    inputs, targets = drawn(shape, 31)
    predictions, gradient = by_deep(model, inputs, targets)
    expected_predictions, expected = reference(model, inputs, targets)
    assert gradient.isfinite().all()
    torch.testing.assert_close(predictions.double(), expected_predictions, rtol=1e-3, atol=1e-3)
    for name in ("embed.vector.weight", "layers.0.attention.value.weight", "readout.weight"):
        found = model.parameters.views(gradient)[name]
        torch.testing.assert_close(found.double(), expected[name], rtol=2e-2, atol=2e-3)


def test_a_member_is_as_it_would_be_alone():
    shape = config(mlp_ratio=1.0)
    inputs, targets = drawn(shape, 67)
    together = model_of(shape)
    predictions, gradient = by_deep(together, inputs, targets)
    for index in range(len(SEEDS)):
        part = slice(index, index + 1)
        alone, own = by_deep(together.select([index]), inputs[part], targets[part])
        torch.testing.assert_close(alone[0], predictions[index], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(own[0], gradient[index], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["readout.weight", "layers.0.attention.query.weight", "embed.vector.weight"])
def test_a_broken_member_shows_and_leaves_the_others_alone(name, value):
    shape = config()
    inputs, targets = drawn(shape, 41)
    model = model_of(shape)
    predictions, gradient = by_deep(model, inputs, targets)
    model.weights[name][1, 2, 3] = value
    broken_predictions, broken = by_deep(model, inputs, targets)
    assert not broken_predictions[1].isfinite().all() and not broken[1].isfinite().all()
    for index in (0, 2):
        assert torch.equal(broken_predictions[index], predictions[index])
        assert torch.equal(broken[index], gradient[index])


def test_the_buffers_of_one_batch_leave_nothing_in_the_next():
    shape = config(mlp_ratio=1.0)
    model = model_of(shape)
    way = DeepGradient(shape, model.parameters, 41)
    first, second = drawn(shape, 41), drawn(shape, 41, SEEDS + 10)
    fresh = by_deep(model, *first, way)
    by_deep(model, *second, way)
    again = by_deep(model, *first, way)
    assert torch.equal(fresh[0], again[0]) and torch.equal(fresh[1], again[1])


# Training by it.


def make_job(*seeds, model=None, **training):
    task = RetrievalConfig(chains=2, symbol_dim=2, steps=2, schedule=((11, "last"),))
    settings = {
        "steps": 31, "batch_size": 19, "checkpoint_every": 5, "evaluate_every": 3, "optimizer": "adamw",
        "learning_rate": 3e-3, "weight_decay": 0.1, "betas": (0.9, 0.95), **training,
    }  # fmt: skip
    made = RetrievalTask(task)
    shape = TransformerConfig(
        layers=3, heads=2, width=14, head_dim=5, positions="carried", position_size=2, length=made.positions,
        input_kind="vectors", input_size=made.input_size, output_size=made.output_size, readout=made.readout,
        **{"mlp_ratio": 0.0, **(model or {})},
    )  # fmt: skip
    return TrainJob(
        label="small",
        task=task,
        model=shape,
        training=TrainingConfig.model_validate(settings),
        members=tuple(MemberPlan(member=index, seed=seed) for index, seed in enumerate(seeds)),
    )


def trainer_of(folder, job, engine):
    task = RetrievalTask(job.task)
    name = content_hash(job.model_dump(mode="json"))
    members = [
        {"member": m.member, "unit": name, "index": i, "seed": m.seed, "overrides": {}}
        for i, m in enumerate(job.members)
    ]
    run = RunFolder.create(folder, "depth", job.model_dump(mode="json"), members, None)
    unit = run.unit(name).create({"plan": job.model_dump(mode="json")})
    batch = task.evaluation(11)

    def evaluate(model, members):
        return {("held_out", "loss"): task.losses(model(batch.inputs), batch)["loss"]}

    return Trainer(job, task, unit, evaluate, engine=ENGINES[engine])


def run(trainer, seconds=None):
    trainer.run(TimeBudget(seconds), lambda progress: None)


def record(unit):
    """Hashes of everything that training wrote."""
    files = [*Path(unit.path).rglob("*.parquet"), *Path(unit.path).rglob("*.safetensors")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


SUBSETS = RetrievalConfig(chains=2, symbol_dim=2, steps=2, shares=(0.5, 0.75), emphasis="subsets")
"""Every sample of every member asks for steps of its own."""


@pytest.mark.parametrize(("config", "step", "some"), [(None, 3, False), (None, 11, True), (SUBSETS, 3, True)])
def test_the_slope_is_that_of_the_loss(config, step, some):
    task = RetrievalTask(config or make_job(5).task)
    batch = task.sample(SEEDS, "train", range(step, step + 1), 13, annotate=False)
    assert (batch.weights == 0.0).any() == some
    predictions = batch.targets.flip(1).clone().requires_grad_()
    (expected,) = torch.autograd.grad(task.losses(predictions, batch)["loss"].sum(), predictions)
    torch.testing.assert_close(default_gradient(predictions.detach(), batch), expected)


@pytest.mark.parametrize(
    ("config", "completion"),
    [(SUBSETS, "gpt2-base"), *((None, name) for name in COMPLETIONS)],
    ids=["subsets", *COMPLETIONS],
)
@pytest.mark.parametrize(("engine", "mlp_ratio"), [("stacked", 0.0), ("stacked", 1.0), ("virtual", 0.0)])
def test_losses_and_training_are_those_of_the_general_way(tmp_path, engine, mlp_ratio, config, completion):
    fields = COMPLETIONS[completion].values(31)
    model = {"mlp_ratio": mlp_ratio, "init": fields.pop("init")}
    job = make_job(5, 7, model=model, betas=(0.9, fields.pop("beta2")), **fields)
    job = job.model_copy(update={"task": config or job.task})
    losses, ends = [], []
    for way in ("general", engine):
        task, seeds = RetrievalTask(job.task), torch.tensor([5, 7])
        model = Transformer.initial(job.model, seeds)
        optimizer = Optimizer(model.parameters, job.training)
        gradient = ENGINES[way].gradient(model, task, job.training, seeds, optimizer.gradient)
        several = []
        for step in range(23):
            found = gradient(step)
            several.append({name: loss.clone() for name, loss in found.items()})
            optimizer.step(step, found["loss"])
        losses.append(several)
        ends.append({name: view.detach() for name, view in model.weights.items()})
    for general, own in zip(*losses, strict=True):
        assert general.keys() == own.keys()
        for name, expected in general.items():
            torch.testing.assert_close(own[name], expected, rtol=1e-4, atol=1e-5, msg=name)
    for name, expected in ends[0].items():
        if not name.endswith(KEY_BIAS):
            torch.testing.assert_close(ends[1][name], expected, rtol=1e-2, atol=1e-3, msg=name)
    assert any(not torch.equal(ends[1][name], expected) for name, expected in ends[0].items())


@pytest.mark.parametrize("engine", ["stacked", "virtual"])
def test_a_resumed_training_is_the_undisturbed_one(tmp_path, engine):
    job = make_job(5, 7)
    whole = trainer_of(tmp_path / "whole", job, engine)
    run(whole)
    trainer = trainer_of(tmp_path / "parts", job, engine)
    for _ in range(40):
        try:
            run(trainer, 1e-9)
            break
        except TimeBudgetReached:
            trainer = trainer_of(tmp_path / "parts", job, engine)
    assert record(trainer.unit) == record(whole.unit)
    assert len(record(whole.unit)) > 10


# Which units it is for.


def test_it_is_for_the_papers_models_on_a_cpu():
    job = make_job(5)
    assert chosen_engine(job, "cpu") == "stacked"
    for change in ({"norm": "post"}, {"norm": "none"}, {"positions": "learned", "position_size": 0}):
        other = job.model_copy(update={"model": job.model.model_copy(update=change)})
        assert chosen_engine(other, "cpu") == "general", change
    rounded = job.training.model_copy(update={"precision": "bfloat16"})
    assert chosen_engine(job.model_copy(update={"training": rounded}), "cpu") == "general"


def test_without_numba_training_takes_the_general_way(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    job = make_job(5)
    assert chosen_engine(job, "cpu") == "general"
    with pytest.raises(UserError, match="numba"):
        model = Transformer.initial(job.model, torch.tensor([5]))
        ENGINES["stacked"].gradient(
            model,
            RetrievalTask(job.task),
            job.training,
            torch.tensor([5]),
            model.parameters.flat,
        )


# Language models.


@pytest.mark.parametrize("mlp_ratio", [0.0, 1.5])
def test_tokens_and_learned_positions_equal_autograd(mlp_ratio):
    task = EquationsTask(EquationsConfig(chains=3, depths=(1, 2)))
    shape = TransformerConfig(
        layers=2, heads=3, width=33, mlp_ratio=mlp_ratio, positions="learned", length=task.positions,
        input_size=task.input_size, output_size=task.output_size, readout=task.readout, init="mimetic",
    )  # fmt: skip
    training = TrainingConfig(steps=5, batch_size=19)
    model, found = model_of(shape), {}
    for engine in ("general", "stacked"):
        found[engine] = torch.full_like(model.parameters.flat, 0.0)
        losses = ENGINES[engine].gradient(model, task, training, SEEDS, found[engine])(3)
        found[f"{engine} losses"] = torch.stack(list(losses.values()))
    torch.testing.assert_close(found["stacked losses"], found["general losses"])
    torch.testing.assert_close(found["stacked"], found["general"], rtol=1e-4, atol=1e-6)
    assert found["general"].abs().max() > 0.01


def test_a_small_language_model_is_trained_by_it():
    task = EquationsConfig(chains=3, depths=(1,))
    shape = {"length": task.positions, "input_size": 20, "output_size": 20, "readout": task.readout}
    job = TrainJob(
        label="language", task=task, model=TransformerConfig(**shape),
        training=TrainingConfig(steps=1), members=(MemberPlan(member=0, seed=0),),
    )  # fmt: skip
    assert chosen_engine(job, "cpu") == "stacked"
    blind = job.model_copy(update={"model": TransformerConfig(**shape, causal=False)})
    assert chosen_engine(blind, "cpu") == "general"
