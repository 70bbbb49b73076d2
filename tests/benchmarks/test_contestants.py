"""The contestants train the same model on the same data, or their speeds mean nothing."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopscope.models.transformer import Transformer
from hopscope.runs import UnitFolder
from hopscope.training.engines import ENGINES, Engine, EngineName
from hopscope.training.trainer import Trainer

Load = Callable[[str], ModuleType]
RunJax = Callable[[str, Path, dict[str, Any]], dict[str, np.ndarray]]

SEED = 5
BATCH = 131
COUNT = 4001
CHANGED = (3, 6, 8)
FIRST_LOSS = (math.log(5) - 0.1, math.log(6) + 0.6)  # six logits of small spread: a little over ln 6
LATER_LOSS = (0.8, 1.2)  # the elimination floor of plain sequences is 0.957
PLAIN_NAMES = {
    "tokens.weight": "tokens.weight",
    "positions.weight": "positions",
    "encoder.layers.0.self_attn.in_proj_weight": "qkv.weight",
    "encoder.layers.0.self_attn.in_proj_bias": "qkv.bias",
    "encoder.layers.0.self_attn.out_proj.weight": "attention_out.weight",
    "encoder.layers.0.self_attn.out_proj.bias": "attention_out.bias",
    "encoder.layers.0.linear1.weight": "ffn_in.weight",
    "encoder.layers.0.linear1.bias": "ffn_in.bias",
    "encoder.layers.0.linear2.weight": "ffn_out.weight",
    "encoder.layers.0.linear2.bias": "ffn_out.bias",
    "encoder.layers.0.norm1.weight": "norm_attention.weight",
    "encoder.layers.0.norm1.bias": "norm_attention.bias",
    "encoder.layers.0.norm2.weight": "norm_ffn.weight",
    "encoder.layers.0.norm2.bias": "norm_ffn.bias",
    "readout.weight": "readout.weight",
    "readout.bias": "readout.bias",
}


def page_model(load: Load) -> nn.Module:
    torch.manual_seed(SEED)
    model: nn.Module = load("page_loop").PageTransformer()
    with torch.no_grad():  # norms and biases away from their neutral start, so that dropping one is seen
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    return {PLAIN_NAMES[name]: value.detach() for name, value in model.named_parameters()}


def plain_model(load: Load, rows: str) -> nn.Module:
    model: nn.Module = load("plain_pytorch").PlainTransformer(rows)
    model.load_state_dict(plain_weights(page_model(load)), strict=False)
    return model


@pytest.fixture(scope="module")
def jax_results(
    load: Load, run_jax: RunJax, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """Everything that the tests below want to know of the JAX contestant, from one run of `jax_worker.py`."""
    weights = {f"weight/{name}": value.numpy() for name, value in plain_weights(page_model(load)).items()}
    inputs = some_inputs(load)
    logits = {f"logits/{changed}": changed_at(inputs, changed).numpy() for changed in CHANGED}
    batches = step_batches(load)
    given: dict[str, Any] = {
        **weights,
        **logits,
        "logits/none": inputs.numpy(),
        "seed": SEED,
        "count": COUNT,
        "step_inputs": np.stack([each.numpy() for each, _ in batches]),
        "step_targets": np.stack([each.numpy() for _, each in batches]),
    }
    return run_jax("jax_worker.py", tmp_path_factory.mktemp("jax"), given)


def changed_at(inputs: Tensor, position: int) -> Tensor:
    """The same inputs with another token at one position."""
    other = inputs.clone()
    other[:, position] = inputs[:, position] % 5 + 1
    return other


def step_batches(load: Load) -> list[tuple[Tensor, Tensor]]:
    sampler = load("plain_pytorch").Sampler(SEED)
    return [sampler(BATCH) for _ in range(3)]


def some_inputs(load: Load) -> Tensor:
    inputs: Tensor = load("plain_pytorch").Sampler(SEED)(BATCH)[0]
    return inputs


# Data.


def sequences(load: Load, name: str, request: pytest.FixtureRequest) -> np.ndarray:
    """Whole sequences x1 y1 … x5 y5 out of a contestant's generator."""
    if name == "page_loop":
        dataset = load(name).RepeatsDataset(load("_common").train_mappings(SEED))
        samples = [dataset[index] for index in range(COUNT)]
        return np.array([[*inputs.tolist(), targets[-1].item()] for inputs, targets, _ in samples])
    if name == "plain_pytorch":
        inputs, y = (each.numpy() for each in load(name).Sampler(SEED)(COUNT))
    else:
        results = request.getfixturevalue("jax_results")
        inputs, y = results["inputs"], results["y"]
    assert (inputs[:, 1::2] == y[:, :-1]).all()
    return np.concatenate([inputs, y[:, -1:]], axis=1)


@pytest.mark.parametrize("name", ["page_loop", "plain_pytorch", "jax_vmap"])
def test_sequences_are_valid_and_as_frequent_as_described(
    load: Load, request: pytest.FixtureRequest, name: str
) -> None:
    drawn = sequences(load, name, request)
    assert drawn.shape == (COUNT, 10)
    x, y = drawn[:, ::2], drawn[:, 1::2]
    assert np.isin(drawn, range(1, 6)).all()
    assert all(len(set(row)) == 4 for row in x[:, :4].tolist())
    repeats = (x[:, :4] == x[:, 4:]).any(axis=1)
    # Five standard deviations of a proportion over this many draws.
    assert abs(repeats.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / COUNT)
    slots = (x[repeats, :4] == x[repeats, 4:]).mean(axis=0)
    assert np.abs(slots - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / repeats.sum())
    seen = {
        tuple(answer for _, answer in sorted(zip(xs, ys, strict=True)))
        for xs, ys in zip(x[~repeats].tolist(), y[~repeats].tolist(), strict=True)
    }
    assert seen == set(load("_common").train_mappings(SEED))
    for xs, ys in zip(x[repeats].tolist(), y[repeats].tolist(), strict=True):
        assert ys[4] == ys[xs[:4].index(xs[4])]
        assert len(set(ys)) == 4


def test_the_split_keeps_96_distinct_mappings_and_follows_the_seed(load: Load) -> None:
    train_mappings = load("_common").train_mappings
    assert len(set(train_mappings(SEED))) == 96
    assert all(sorted(mapping) == [1, 2, 3, 4, 5] for mapping in train_mappings(SEED))
    assert train_mappings(SEED) == train_mappings(SEED) != train_mappings(SEED + 1)


def test_the_page_masks_the_x_predictions(load: Load) -> None:
    inputs, targets, mask = load("page_loop").RepeatsDataset(load("_common").train_mappings(SEED))[0]
    assert mask.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert inputs[1:].tolist() == targets[:-1].tolist()


def test_data_loader_workers_draw_different_batches(load: Load) -> None:
    loop = load("page_loop").PageLoop(batch=37, workers=2, seed=SEED, samples=74)
    # To the end, or else the collector waits for the loader's processes.
    first, second = (inputs for inputs, *_ in loop.loader)
    assert not torch.equal(first, second)


# Models.


def test_members_have_the_described_number_of_parameters(load: Load) -> None:
    width, tokens, positions = 32, 6, 9
    attention = 4 * (width * width + width)
    ffn = 2 * width * 2 * width + 2 * width + width
    expected = (tokens + positions) * width + attention + ffn + 4 * width + width * tokens + tokens
    assert expected == load("_common").PARAMETERS
    for model in (load("page_loop").PageTransformer(), load("plain_pytorch").PlainTransformer("all")):
        assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize("rows", ["all", "loss"])
def test_plain_pytorch_computes_the_page_s_model(load: Load, rows: str) -> None:
    inputs = some_inputs(load)
    expected = page_model(load)(inputs)[:, ::2]
    torch.testing.assert_close(plain_model(load, rows)(inputs), expected, rtol=1e-5, atol=1e-5)


def test_jax_computes_the_page_s_model(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    expected = page_model(load)(some_inputs(load))[:, ::2].detach().numpy()
    np.testing.assert_allclose(jax_results["logits/none"], expected, rtol=1e-5, atol=1e-5)


def test_jax_takes_the_steps_of_torch_s_adam(load: Load, jax_results: dict[str, np.ndarray]) -> None:
    model = plain_model(load, "all")
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for inputs, targets in step_batches(load):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    for name in ("qkv.weight", "ffn_in.weight", "readout.weight"):
        stepped = model.get_parameter(name).detach()
        assert (stepped - before[name]).abs().max() > 2e-3
        np.testing.assert_allclose(jax_results[f"stepped/{name}"], stepped.numpy(), atol=1e-5)


def logits_of(load: Load, name: str, inputs: Tensor) -> np.ndarray:
    model = page_model(load) if name == "page_loop" else plain_model(load, name.removeprefix("plain_"))
    logits: np.ndarray = model(inputs).detach().numpy()
    return logits[:, ::2] if name == "page_loop" else logits


@pytest.mark.parametrize("name", ["page_loop", "plain_all", "plain_loss", "jax_vmap"])
@pytest.mark.parametrize("changed", CHANGED)
def test_no_position_sees_a_later_one(
    load: Load, request: pytest.FixtureRequest, name: str, changed: int
) -> None:
    if name == "jax_vmap":
        results = request.getfixturevalue("jax_results")
        before, after = results["logits/none"], results[f"logits/{changed}"]
    else:
        inputs = some_inputs(load)
        before, after = (logits_of(load, name, each) for each in (inputs, changed_at(inputs, changed)))
    answers_before = (changed + 1) // 2  # answers stand at positions 0, 2, 4, 6, 8
    np.testing.assert_allclose(after[:, :answers_before], before[:, :answers_before], atol=1e-5)
    assert (np.abs(after - before)[:, answers_before:].max(axis=(0, 2)) > 1e-3).all()


# Training.


def ensemble(load: Load, engine: str, **size: int) -> Any:
    if engine == "fused":
        pytest.importorskip("numba")
    ours = load("hopscope_ensemble")
    return ours.EnsembleLoop(ours.job_of(**size, seed=SEED), engine)


def loops(load: Load, name: str) -> Any:
    if name == "page_loop":
        return load(name).PageLoop(batch=128, workers=0, seed=SEED)
    if name.startswith("hopscope_"):
        return ensemble(load, name.removeprefix("hopscope_"), batch=128, members=2)
    return load("plain_pytorch").loop(batch=128, rows=name.removeprefix("plain_"), seed=SEED)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name", ["page_loop", "plain_all", "plain_loss", "hopscope_general", "hopscope_fused"]
)
def test_training_goes_from_guessing_towards_elimination(load: Load, name: str) -> None:
    loop = loops(load, name)
    assert loop.advance() == 128 * getattr(loop, "members", 1)
    assert FIRST_LOSS[0] < loop.loss() < FIRST_LOSS[1]
    for _ in range(299):
        loop.advance()
    assert LATER_LOSS[0] < loop.loss() < LATER_LOSS[1]


@pytest.mark.parametrize("engine", ["general", "fused"])
def test_our_contestant_takes_the_trainer_s_steps(load: Load, engine: EngineName) -> None:
    loop = ensemble(load, engine, batch=BATCH, members=3)
    job, task = loop.steps.job, loop.steps.task
    unit = object.__new__(UnitFolder)  # no step touches the folder
    trainer = Trainer(job, task, unit, lambda _: {}, engine=ENGINES[engine])
    start = trainer.model.parameters.flat.detach().clone()
    for _ in range(2):
        losses = trainer._steps.take(trainer.step)
        trainer.step += 1
        assert loop.advance() == BATCH * 3
        assert loop.loss() == losses["loss"].mean().item()
    weights = trainer.model.parameters.flat
    assert (weights - start).abs().max() > 1e-3
    torch.testing.assert_close(loop.steps.model.parameters.flat, weights, rtol=0, atol=0)


def test_our_contestant_computes_the_page_s_model(load: Load) -> None:
    job = load("hopscope_ensemble").job_of(batch=BATCH, members=1, seed=SEED)
    model = Transformer.initial(job.model, torch.tensor([SEED]))
    page = page_model(load)
    own = {name: value[0].detach() for name, value in model.weights.items()}
    theirs = {f"encoder.layers.0.{name}": value for name, value in encoder_layer(own).items()}
    theirs |= {"tokens.weight": own["embed.token.weight"], "positions.weight": own["embed.position.weight"]}
    theirs |= {"readout.weight": own["readout.weight"].T, "readout.bias": own["readout.bias"]}
    page.load_state_dict(theirs)
    inputs = some_inputs(load)
    torch.testing.assert_close(model(inputs[None])[0], page(inputs)[:, ::2], rtol=1e-5, atol=1e-5)


def encoder_layer(own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our weights of the only layer by the names of `torch.nn.TransformerEncoderLayer`; ours stand input first."""
    attention, mlp = "layers.0.attention", "layers.0.mlp"
    parts = ("query", "key", "value")
    return {
        "self_attn.in_proj_weight": torch.cat([own[f"{attention}.{part}.weight"].T for part in parts]),
        "self_attn.in_proj_bias": torch.cat([own[f"{attention}.{part}.bias"] for part in parts]),
        "self_attn.out_proj.weight": own[f"{attention}.output.weight"].T,
        "self_attn.out_proj.bias": own[f"{attention}.output.bias"],
        "linear1.weight": own[f"{mlp}.inner.weight"].T,
        "linear1.bias": own[f"{mlp}.inner.bias"],
        "linear2.weight": own[f"{mlp}.outer.weight"].T,
        "linear2.bias": own[f"{mlp}.outer.bias"],
        "norm1.weight": own["layers.0.attention_norm.weight"],
        "norm1.bias": own["layers.0.attention_norm.bias"],
        "norm2.weight": own["layers.0.mlp_norm.weight"],
        "norm2.bias": own["layers.0.mlp_norm.bias"],
    }


def test_the_engine_is_a_study_s_unless_it_is_asked_for(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = load("hopscope_ensemble")
    job = ours.job_of(batch=BATCH, members=1, seed=SEED)
    deep = ours.job_of(batch=BATCH, members=1, seed=SEED, layers=2)
    for installed, expected in ((True, "fused"), (False, "general")):
        monkeypatch.setattr(
            Engine, "installed", lambda self, installed=installed: installed or not self.packages
        )
        assert ours.engine_of("auto", job) == expected
        assert ours.engine_of("auto", deep) == ours.engine_of("general", job) == "general"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--engine", "fused", "--layers", "2"), "--engine: expected fused for one layer on tokens only"),
        (("--values", "2"), "values: expected"),
        (("--width", "31"), "width: expected a multiple of heads = 2, found 31"),
        (("--layers", "0"), "layers: expected"),
    ],
)
def test_our_contestant_refuses_what_does_not_fit(
    load: Load, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("hopscope_ensemble").main([*words])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error


def test_without_numba_the_fused_way_names_the_command_that_installs_it(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "installed", lambda self: not self.packages)
    with pytest.raises(SystemExit) as stopped:
        load("hopscope_ensemble").main(["--engine", "fused"])
    assert stopped.value.code == 2
    assert "pip install 'hopscope[fast]'" in capsys.readouterr().err


def test_jax_trains_and_its_members_differ(jax_results: dict[str, np.ndarray]) -> None:
    losses = jax_results["losses"]
    assert jax_results["samples"] == 128 * 2 * 10 * len(losses)
    # A call takes ten steps, so the first loss is no longer the initial one.
    assert LATER_LOSS[1] < losses[0] < FIRST_LOSS[1]
    assert LATER_LOSS[0] < losses[-1] < LATER_LOSS[1]
    readouts = jax_results["readouts"]
    assert np.abs(readouts[0] - readouts[1]).max() > 0.01
