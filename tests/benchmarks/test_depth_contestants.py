"""The contestants of the comparison by depth train the same model on the same task."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hopscope.models.transformer import Transformer
from hopscope.tasks.retrieval import RetrievalTask

Load = Callable[[str], ModuleType]
RunJax = Callable[[str, Path, dict[str, Any]], dict[str, np.ndarray]]

SEED, BATCH, COUNT, MLP_RATIO = 5, 13, 401, 2
CHAINS, SYMBOL_DIM, STEPS = 4, 4, 3


def plain_model(load: Load, rows: str = "loss", attention: str = "sdpa") -> nn.Module:
    """With norms and biases away from their neutral start, so that dropping one is seen."""
    torch.manual_seed(SEED)
    model: nn.Module = load("plain_pytorch_depth").PlainTransformer(MLP_RATIO, rows, attention)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batches(load: Load, count: int) -> list[tuple[Tensor, Tensor]]:
    sampler = load("plain_pytorch_depth").Sampler(SEED)
    return [sampler(BATCH) for _ in range(count)]


@pytest.fixture(scope="module")
def jax_results(
    load: Load, run_jax: RunJax, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """Everything that the tests below want to know of the JAX contestant, from one run of its worker."""
    steps = batches(load, 3)
    weights = {f"weight/{name}": each.detach().numpy() for name, each in plain_model(load).named_parameters()}
    given = {
        **weights,
        "seed": SEED,
        "count": COUNT,
        "given": steps[0][0].numpy(),
        "step_inputs": np.stack([inputs.numpy() for inputs, _ in steps]),
        "step_targets": np.stack([targets.numpy() for _, targets in steps]),
    }
    return run_jax("jax_depth_worker.py", tmp_path_factory.mktemp("jax"), given)


# Data.


def drawn(load: Load, name: str, request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[sample, position, feature]` and targets `[sample, query, number]` of a contestant's generator."""
    if name == "ours":
        plan = load("hopscope_depth").plan_of(batch=COUNT, members=1, seed=SEED)
        batch = RetrievalTask(plan.task).sample(torch.tensor([SEED]), "train", 0, COUNT)
        return batch.inputs[0].numpy(), batch.targets[0].numpy()
    if name == "plain_pytorch_depth":
        inputs, targets = load(name).Sampler(SEED)(COUNT)
        return inputs.numpy(), targets.numpy()
    results = request.getfixturevalue("jax_results")
    return results["inputs"], results["targets"]


@pytest.mark.parametrize("name", ["ours", "plain_pytorch_depth", "jax_depth"])
def test_chains_lead_from_queries_to_targets(load: Load, name: str, request: pytest.FixtureRequest) -> None:
    inputs, targets = drawn(load, name, request)
    assert inputs.shape == (COUNT, CHAINS * (2 * STEPS + 1), 2 * SYMBOL_DIM)
    assert targets.shape == (COUNT, CHAINS, STEPS * SYMBOL_DIM)
    np.testing.assert_allclose(
        inputs[..., SYMBOL_DIM:], np.array([load("_depth").position_codes()] * COUNT), atol=1e-6
    )
    held = inputs[..., :SYMBOL_DIM]
    pairs = held[:, : 2 * STEPS * CHAINS].reshape(COUNT, STEPS, CHAINS, 2, SYMBOL_DIM)[:, ::-1]
    symbols, places = held[:, 2 * STEPS * CHAINS :], []
    for step in range(STEPS):
        same = (symbols[:, :, None] == pairs[:, step, None, :, 0]).all(-1)
        assert (same.sum(-1) == 1).all()
        places.append(same.argmax(-1))
        symbols = np.take_along_axis(pairs[:, step, :, 1], places[-1][..., None], 1)
        np.testing.assert_array_equal(symbols, targets[..., step * SYMBOL_DIM : (step + 1) * SYMBOL_DIM])
    # Every order of the queries and of each block is as likely as any other: the first goes to each place alike.
    for place in places:
        counts = np.bincount(place[:, 0], minlength=CHAINS)
        assert (abs(counts - COUNT / CHAINS) < 5 * (COUNT * 3 / 16) ** 0.5).all()
    assert abs(held.mean()) < 0.05 and abs(held.std() - 1.0) < 0.05


# The model.


def ours_as_plain(own: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Our weights by the names of the plain modules; ours stand input first."""
    named = {
        "embed.weight": own["embed.vector.weight"].T,
        "embed.bias": own["embed.vector.bias"],
        "norm.weight": own["final_norm.weight"],
        "norm.bias": own["final_norm.bias"],
        "readout.weight": own["readout.weight"].T,
        "readout.bias": own["readout.bias"],
    }
    for number in range(layers):
        there, here = f"blocks.{number}", f"layers.{number}"
        parts = [f"{here}.attention.{part}" for part in ("query", "key", "value")]
        named[f"{there}.qkv.weight"] = torch.cat([own[f"{part}.weight"].T for part in parts])
        named[f"{there}.qkv.bias"] = torch.cat([own[f"{part}.bias"] for part in parts])
        names = {"attention_out": "attention.output", "mlp_in": "mlp.inner", "mlp_out": "mlp.outer"}
        for theirs, name in names.items():
            named[f"{there}.{theirs}.weight"] = own[f"{here}.{name}.weight"].T
            named[f"{there}.{theirs}.bias"] = own[f"{here}.{name}.bias"]
        for theirs, name in {"norm_attention": "attention_norm", "norm_mlp": "mlp_norm"}.items():
            for leaf in ("weight", "bias"):
                named[f"{there}.{theirs}.{leaf}"] = own[f"{here}.{name}.{leaf}"]
    return named


@pytest.mark.parametrize("rows", ["all", "loss"])
@pytest.mark.parametrize("attention", ["sdpa", "softmax"])
def test_plain_pytorch_computes_our_model(load: Load, rows: str, attention: str) -> None:
    plan = load("hopscope_depth").plan_of(batch=BATCH, members=1, seed=SEED, mlp_ratio=MLP_RATIO)
    model = Transformer.initial(plan.model, torch.tensor([SEED]))
    with torch.no_grad():
        noise = torch.randn(model.parameters.flat.shape, generator=torch.Generator().manual_seed(SEED))
        model.parameters.flat.add_(0.1 * noise)
    plain = plain_model(load, rows, attention)
    own = {name: each[0].detach() for name, each in model.weights.items()}
    plain.load_state_dict(ours_as_plain(own, plan.model.layers))
    ((inputs, _),) = batches(load, 1)
    torch.testing.assert_close(plain(inputs), model(inputs[None])[0], rtol=1e-4, atol=1e-4)


def test_jax_computes_the_same_model(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    ((inputs, _),) = batches(load, 1)
    expected = plain_model(load)(inputs).detach().numpy()
    np.testing.assert_allclose(jax_results["predictions"], expected, rtol=1e-4, atol=1e-4)


def test_jax_takes_the_steps_of_torch_s_adamw(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    model = plain_model(load)
    optimizer = load("plain_pytorch_depth").optimizer_of(model)
    for inputs, targets in batches(load, 3):
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    stepped = dict(model.named_parameters())
    for name, there in (("matrix", "blocks.2.mlp_in.weight"), ("bias", "blocks.2.qkv.bias")):
        expected = stepped[there].detach().numpy()
        # A key's bias has no gradient but rounding, of which Adam makes a whole step either way.
        kept = slice(None) if name == "matrix" else np.r_[0:64, 128:192]
        np.testing.assert_allclose(jax_results[f"stepped/{name}"][kept], expected[kept], rtol=1e-3, atol=2e-5)


def test_initial_weights_are_as_wide_as_ours(load: Load) -> None:
    plan = load("hopscope_depth").plan_of(batch=BATCH, members=3, seed=SEED, mlp_ratio=MLP_RATIO)
    ours = Transformer.initial(plan.model, torch.tensor([3, 5, 7]))
    torch.manual_seed(SEED)
    plain = dict(load("plain_pytorch_depth").PlainTransformer(MLP_RATIO).named_parameters())
    own = {name: each[0].detach() for name, each in ours.weights.items()}
    for name, expected in ours_as_plain(own, plan.model.layers).items():
        assert plain[name].shape == expected.shape
        assert abs(plain[name].std() - expected.std()) <= 0.15 * expected.std()


# Training.


def test_training_leaves_the_zero_prediction(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    """The loss of predicting zero is 1; averaging candidates gives 0.75, which takes some hundred steps."""
    plain = load("plain_pytorch_depth").PlainLoop(64, SEED, 0, "loss", "softmax")
    plan = load("hopscope_depth").plan_of(batch=64, members=2, seed=SEED)
    ours = load("hopscope_ensemble").EnsembleLoop(plan, "general")
    for loop in (plain, ours):
        assert loop.advance() == 64 * getattr(loop, "members", 1)
        assert abs(loop.loss() - 1.0) < 0.12
        for _ in range(95):
            loop.advance()
        assert 0.7 < loop.loss() < 0.9
    assert set(jax_results["samples"].tolist()) == {4 * 2 * 64} and 0.7 < jax_results["loss"] < 0.9
    assert abs(jax_results["readouts"][0] - jax_results["readouts"][1]).max() > 1e-3
