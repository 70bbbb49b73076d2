"""The engine for shallow models against autograd, its slow obvious reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.training import engines
from hopscope.training.engines import ENGINES, chosen_engine

pytest.importorskip("numba", reason="numba is optional")

from hopscope.training.engines.numba_shallow.gradient import ShallowGradient

SEEDS = torch.tensor([3, 5, 7])


def config(task, **changes):
    shape = {"heads": 2, "width": 11, "head_dim": 3, "mlp_ratio": 13 / 11, **changes}
    return TransformerConfig(
        activation="relu",
        norm="post",
        init="encoder",
        length=task.positions,
        input_size=task.input_size,
        output_size=task.output_size,
        readout=task.readout,
        **shape,
    )


def drawn(task, batch, seeds=SEEDS):
    return task.sample(seeds, "train", 17, batch, annotate=False)


def reference(model, task, batch):
    """Losses by slot and the flat gradient, by autograd."""
    weights = [view.requires_grad_() for view in model.weights.values()]
    losses = task.losses(model(batch.inputs, every_position=True)[:, :, ::2], batch)
    found = torch.autograd.grad(losses["loss"].sum(), weights)
    flat = torch.zeros_like(model.parameters.flat)
    for view, each in zip(model.parameters.views(flat).values(), found, strict=True):
        view.copy_(each)
    by_slot = torch.stack([losses[f"loss_step_{slot}"] for slot in range(1, task.config.values + 1)], 1)
    return by_slot.detach(), flat


def fused(model, batch):
    gradient = torch.full_like(model.parameters.flat, 0.0)
    way = ShallowGradient(model.config, model.parameters, batch.inputs.shape[1])
    return way(batch.inputs, batch.targets, gradient), gradient


SHAPES = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 3),
        "width": st.sampled_from([2, 7, 16]),
        "head_dim": st.sampled_from([1, 5, 8]),
        "mlp_ratio": st.sampled_from([0.5, 3.0]),
        "positions": st.sampled_from(["learned", "pair", "none"]),
    }
)


@pytest.mark.long
@settings(max_examples=16)
@given(SHAPES, st.integers(3, 6), st.sampled_from([1, 6, 41, 230]), st.sampled_from([0.0, 0.4]))
def test_equals_autograd(shape, values, size, ratio):
    task = PermutationTask(PermutationConfig(values=values, repeat_ratio=ratio))
    model = Transformer.initial(config(task, **shape), SEEDS)
    batch = drawn(task, size)
    expected_losses, expected = reference(model, task, batch)
    losses, gradient = fused(model, batch)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=2e-5)


def test_early_rows_are_counted_and_not_repeated():
    """230 sequences over five values: at most 5 + 230 rows for the first two answers, not 460."""
    task = PermutationTask(PermutationConfig(values=5))
    model = Transformer.initial(config(task), SEEDS)
    batch = drawn(task, 230)
    way = ShallowGradient(model.config, model.parameters, 230)
    way(batch.inputs, batch.targets, torch.zeros_like(model.parameters.flat))
    pairs = [{tuple(row) for row in rows} for rows in batch.inputs[:, :, :3].tolist()]
    assert way._used.tolist() == [5 + len(prefixes) + 3 * 230 for prefixes in pairs]


def test_sharp_attention_keeps_its_digits():
    """Scores hundreds apart: a softmax taken from the maximum of a whole table would be 0 / 0."""
    task = PermutationTask(PermutationConfig(values=5, repeat_ratio=0.5))
    model = Transformer.initial(config(task), SEEDS)
    for part in ("query", "key"):
        model.weights[f"layers.0.attention.{part}.weight"].mul_(40.0)
    batch = drawn(task, 31)
    expected_losses, expected = reference(model, task, batch)
    losses, gradient = fused(model, batch)
    assert gradient.isfinite().all()
    torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient, expected, rtol=2e-2, atol=2e-3)


def test_a_member_is_as_it_would_be_alone():
    task = PermutationTask(PermutationConfig(values=4, repeat_ratio=0.4))
    together = Transformer.initial(config(task), SEEDS)
    losses, gradient = fused(together, drawn(task, 230))
    for index in range(len(SEEDS)):
        alone, own = SEEDS[index : index + 1], together.select([index])
        own_losses, own_gradient = fused(own, drawn(task, 230, alone))
        torch.testing.assert_close(own_losses[0], losses[index], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(own_gradient[0], gradient[index], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_member_shows_and_leaves_the_others_alone(value):
    task = PermutationTask(PermutationConfig(values=5))
    batch = drawn(task, 41)
    model = Transformer.initial(config(task), SEEDS)
    losses, gradient = fused(model, batch)
    model.weights["readout.weight"][1, 2, 3] = value
    broken_losses, broken = fused(model, batch)
    assert not broken_losses[1].isfinite().all() and not broken[1].isfinite().all()
    for index in (0, 2):
        assert torch.equal(broken_losses[index], losses[index]) and torch.equal(
            broken[index], gradient[index]
        )


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_the_buffers_of_one_batch_leave_nothing_in_the_next(positions):
    task = PermutationTask(PermutationConfig(values=5, repeat_ratio=0.5))
    model = Transformer.initial(config(task, positions=positions), SEEDS)
    way = ShallowGradient(model.config, model.parameters, 61)
    first, second = (task.sample(SEEDS, "train", step, 61, annotate=False) for step in (1, 2))
    gradients = [torch.zeros_like(model.parameters.flat) for _ in range(2)]
    fresh = way(first.inputs, first.targets, gradients[0])
    way(second.inputs, second.targets, gradients[1])
    again = way(first.inputs, first.targets, gradients[1])
    assert torch.equal(fresh, again) and torch.equal(*gradients)


# Training by it.


def encoder(job):
    """The job with a model that it is for."""
    return job.model_copy(update={"model": job.model.model_copy(update={"activation": "relu"})})


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_training_ends_where_the_general_way_does(start, finish, job_of, positions):
    job = encoder(job_of(5, 7, steps=61, learning_rate=3e-3))
    job = job.model_copy(update={"model": job.model.model_copy(update={"positions": positions})})
    ends = []
    for engine in ("general", "fused"):
        trainer = start(job, name=engine, engine=engine)
        finish(trainer)
        ends.append({name: view.detach() for name, view in trainer.model.weights.items()})
    general, by_fused = ends
    for name, expected in general.items():
        # A key bias shifts all scores of a row alike: its gradient is rounding, which Adam makes full steps of.
        if name != "layers.0.attention.key.bias":
            torch.testing.assert_close(by_fused[name], expected, rtol=1e-3, atol=1e-4, msg=name)
    assert any(not torch.equal(by_fused[name], expected) for name, expected in general.items())


def test_a_resumed_training_is_the_undisturbed_one(start, finish, job_of, record):
    job = encoder(job_of(5, 7, steps=23))
    whole = start(job, name="whole", engine="fused")
    finish(whole)
    trainer = start(job, name="parts", engine="fused")
    for _ in range(30):
        try:
            finish(trainer, 1e-9)
            break
        except TimeBudgetReached:
            trainer = start(job, name="parts", engine="fused")
    assert record(trainer.unit) == record(whole.unit)


# Which units it is for.


def test_only_the_presentations_layer_is_trained_by_it(job_of):
    job = encoder(job_of(5))
    assert chosen_engine(job, "cpu") == "fused"
    assert chosen_engine(job, "cuda") == "compiled"
    rounded = job.model_copy(update={"training": job.training.model_copy(update={"precision": "bfloat16"})})
    assert chosen_engine(rounded, "cpu") == "general"
    for change in (
        {"layers": 2},
        {"norm": "pre"},
        {"activation": "gelu"},
        {"mlp_ratio": 0.0},
        {"causal": False},
    ):
        other = job.model_copy(update={"model": job.model.model_copy(update=change)})
        assert chosen_engine(other, "cpu") == "general", change


def test_without_numba_training_takes_the_general_way(job_of, monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert chosen_engine(encoder(job_of(5)), "cpu") == "general"
    ENGINES["general"].check("cpu")
    with pytest.raises(UserError, match=r"expected numba.*run pip install 'hopscope\[fast\]'"):
        ENGINES["fused"].check("cpu")
