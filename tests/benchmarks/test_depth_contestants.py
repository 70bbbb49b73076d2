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
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuits.config import PRESETS as CIRCUITS
from hopscope.studies.emergence.config import PRESETS as EMERGENCE
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import TrainJob

Load = Callable[[str], ModuleType]
RunJax = Callable[[str, Path, dict[str, Any]], dict[str, np.ndarray]]

SEED, BATCH, COUNT = 5, 13, 401
CHAINS, SYMBOL_DIM, STEPS = 4, 4, 3
# Steps, layers, width, heads, size of a head and MLP over the width.
USUAL, SMALL, NARROW = (3, 6, 64, 4, 16, 2), (2, 3, 11, 2, 5, 3), (2, 3, 37, 1, 5, 0)
PAPER = {"transformer-d": (4, 24, 512, 1, 16, 0), "transformer-a": (3, 12, 128, 1, 128, 4)}
SHAPES = pytest.mark.parametrize("numbers", [USUAL, SMALL], ids=["usual", "small"])


def plain_model(
    load: Load, rows: str = "loss", attention: str = "sdpa", numbers: tuple[int, ...] = USUAL
) -> nn.Module:
    """With norms and biases away from their neutral start, so that dropping one is seen."""
    torch.manual_seed(SEED)
    shape = load("_depth").Shape(*numbers)
    model: nn.Module = load("plain_pytorch_depth").PlainTransformer(shape, rows, attention)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batches(load: Load, count: int, numbers: tuple[int, ...] = USUAL) -> list[tuple[Tensor, Tensor]]:
    sampler = load("plain_pytorch_depth").Sampler(load("_depth").Shape(*numbers), SEED)
    return [sampler(BATCH) for _ in range(count)]


@pytest.fixture(scope="module")
def jax_results(
    load: Load, run_jax: RunJax, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """Everything that the tests below want to know of the JAX contestant, from one run of its worker."""
    steps = batches(load, 3)
    weights, few = (dict(plain_model(load, numbers=each).named_parameters()) for each in (USUAL, SMALL))
    given = {
        **{f"weight/{name}": each.detach().numpy() for name, each in weights.items()},
        **{f"small/weight/{name}": each.detach().numpy() for name, each in few.items()},
        "shape": USUAL,
        "small/shape": SMALL,
        "shapes": [*PAPER.values()],
        "small/given": batches(load, 1, SMALL)[0][0].numpy(),
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
        job = load("hopscope_depth").job_of(load("_depth").Shape(), batch=COUNT, members=1, seed=SEED)
        batch = RetrievalTask(job.task).sample(torch.tensor([SEED]), "train", 0, COUNT)
        return batch.inputs[0].numpy(), batch.targets[0].numpy()
    if name == "plain_pytorch_depth":
        inputs, targets = load(name).Sampler(load("_depth").Shape(), SEED)(COUNT)
        return inputs.numpy(), targets.numpy()
    results = request.getfixturevalue("jax_results")
    return results["inputs"], results["targets"]


@pytest.mark.parametrize("name", ["ours", "plain_pytorch_depth", "jax_depth"])
def test_chains_lead_from_queries_to_targets(load: Load, name: str, request: pytest.FixtureRequest) -> None:
    inputs, targets = drawn(load, name, request)
    assert inputs.shape == (COUNT, CHAINS * (2 * STEPS + 1), 2 * SYMBOL_DIM)
    assert targets.shape == (COUNT, CHAINS, STEPS * SYMBOL_DIM)
    np.testing.assert_allclose(
        inputs[..., SYMBOL_DIM:],
        np.array([load("_depth").position_codes(load("_depth").Shape())] * COUNT),
        atol=1e-6,
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


def job_of(load: Load, numbers: tuple[int, ...]) -> TrainJob:
    job: TrainJob = load("hopscope_depth").job_of(load("_depth").Shape(*numbers), BATCH, 1, SEED)
    return job


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
@SHAPES
def test_plain_pytorch_computes_our_model(
    load: Load, rows: str, attention: str, numbers: tuple[int, ...]
) -> None:
    job = job_of(load, numbers)
    model = Transformer.initial(job.model, torch.tensor([SEED]))
    with torch.no_grad():
        noise = torch.randn(model.parameters.flat.shape, generator=torch.Generator().manual_seed(SEED))
        model.parameters.flat.add_(0.1 * noise)
    plain = plain_model(load, rows, attention, numbers)
    own = {name: each[0].detach() for name, each in model.weights.items()}
    plain.load_state_dict(ours_as_plain(own, job.model.layers))
    ((inputs, _),) = batches(load, 1, numbers)
    torch.testing.assert_close(plain(inputs), model(inputs[None])[0], rtol=1e-4, atol=1e-4)


@SHAPES
def test_jax_computes_the_same_model(
    load: Load, jax_results: dict[str, np.ndarray], numbers: tuple[int, ...]
) -> None:
    ((inputs, _),) = batches(load, 1, numbers)
    expected = plain_model(load, numbers=numbers)(inputs).detach().numpy()
    name = "predictions" if numbers == USUAL else "small/predictions"
    np.testing.assert_allclose(jax_results[name], expected, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(("name", "presets"), [("transformer-d", EMERGENCE), ("transformer-a", CIRCUITS)])
def test_the_paper_s_models_are_those_of_the_studies(
    load: Load, name: str, presets: dict[str, ChainsConfig]
) -> None:
    model, study = load("compare").MODELS[name], presets["paper"]
    job = load("hopscope_depth").job_of(model.shape, model.batch, 1, SEED)
    assert job.model == study.model().model_copy(update={"init": "gpt2"})
    assert job.task == study.task().model_copy(update={"pool": None})
    assert model.batch == study.batch_size


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_models_have_our_number_of_parameters(load: Load, name: str) -> None:
    shape = load("compare").MODELS[name].shape
    plain = load("plain_pytorch_depth").PlainTransformer(shape)
    assert sum(each.numel() for each in plain.parameters()) == own_parameters(load, name)


def test_jax_has_our_number_of_parameters(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    assert jax_results["parameters"].tolist() == [own_parameters(load, name) for name in PAPER]


def own_parameters(load: Load, name: str) -> int:
    job = load("hopscope_depth").job_of(load("compare").MODELS[name].shape, BATCH, 1, SEED)
    return sum(
        each[0].numel() for each in Transformer.initial(job.model, torch.tensor([SEED])).weights.values()
    )


def test_initial_weights_are_as_wide_as_ours(load: Load) -> None:
    job = job_of(load, USUAL)
    ours = Transformer.initial(job.model, torch.tensor([3, 5, 7]))
    torch.manual_seed(SEED)
    plain = dict(
        load("plain_pytorch_depth").PlainTransformer(load("_depth").Shape(*USUAL)).named_parameters()
    )
    own = {name: each[0].detach() for name, each in ours.weights.items()}
    for name, expected in ours_as_plain(own, job.model.layers).items():
        assert plain[name].shape == expected.shape
        assert abs(plain[name].std() - expected.std()) <= 0.15 * expected.std()


# Training.


def test_training_leaves_the_zero_prediction(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    """The loss of predicting zero is 1; averaging candidates gives 0.75, which takes some hundred steps."""
    shape = load("_depth").Shape()
    plain = load("plain_pytorch_depth").loop(shape, 64, SEED, "loss", "softmax")
    job = load("hopscope_depth").job_of(shape, batch=64, members=2, seed=SEED)
    ours = load("hopscope_ensemble").EnsembleLoop(job, "general")
    for loop in (plain, ours):
        assert loop.advance() == 64 * getattr(loop, "members", 1)
        assert abs(loop.loss() - 1.0) < 0.12
        for _ in range(95):
            loop.advance()
        assert 0.7 < loop.loss() < 0.9
    assert set(jax_results["samples"].tolist()) == {4 * 2 * 64} and 0.7 < jax_results["loss"] < 0.9
    assert abs(jax_results["readouts"][0] - jax_results["readouts"][1]).max() > 1e-3


def loops(load: Load, name: str, numbers: tuple[int, ...]) -> Any:
    shape = load("_depth").Shape(*numbers)
    if name.startswith("plain_"):
        return load("plain_pytorch_depth").loop(shape, 64, SEED, "loss", name.removeprefix("plain_"))
    if name in ("stacked", "virtual"):
        pytest.importorskip("numba")
    job = load("hopscope_depth").job_of(shape, 64, 1, SEED)
    assert load("hopscope_ensemble").engine_of(name, job) == name
    return load("hopscope_ensemble").EnsembleLoop(job, name)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("plain_sdpa", SMALL),
        ("stacked", SMALL),
        ("plain_softmax", NARROW),
        ("general", NARROW),
        ("virtual", NARROW),
    ],
)
def test_other_shapes_train(load: Load, name: str, numbers: tuple[int, ...]) -> None:
    loop = loops(load, name, numbers)
    losses = [loop.loss() for _ in range(100) if loop.advance() == 64]
    assert len(losses) == 100
    assert abs(losses[0] - 1.0) < 0.12
    assert 0.8 < np.mean(losses[-20:]) < 0.96


def test_jax_trains_other_shapes(jax_results: dict[str, np.ndarray]) -> None:
    losses = jax_results["small/losses"]
    assert abs(losses[0] - 1.0) < 0.12
    assert 0.8 < losses[-5:].mean() < 0.96


# Options.


@pytest.mark.parametrize("name", ["depth", "depth-mlp", *PAPER])
def test_options_make_the_shape(load: Load, name: str) -> None:
    model = load("compare").MODELS[name]
    words = [word for key, value in model.shape.options().items() for word in (f"--{key}", str(value))]
    options = load("hopscope_depth").options_of(words)
    assert load("_depth").shape_of(options) == model.shape


@pytest.mark.parametrize("script", ["hopscope_depth", "plain_pytorch_depth"])
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--width", "31"), "--width: expected a multiple of --heads 4, found 31"),
        (("--head-size", "0"), "--head-size: expected at least 1, found 0"),
        (("--layers", "-1"), "--layers: expected at least 1, found -1"),
        (("--mlp-ratio", "-1"), "--mlp-ratio: expected 0 or more, found -1"),
    ],
)
def test_a_shape_that_cannot_be_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], script: str, words: tuple[str, str], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load(script).main([*words])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error


def test_an_engine_that_does_not_fit_is_refused(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("hopscope_depth").main(["--engine", "virtual", "--mlp-ratio", "4"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--engine: expected virtual for narrow heads" in error
