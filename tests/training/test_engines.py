"""One contract for all engines: they give what plain modules give, and depend on nothing but weights and step."""

import importlib.util
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.tasks import Permutation, Retrieval, Task
from hopscope.training import engines
from hopscope.training.config import Training

from .conftest import (
    KEY_BIAS,
    LAYER,
    NARROW,
    SEEDS,
    STACK,
    Grouped,
    OwnLoss,
    Tokens,
    Vectors,
    assert_close,
    by_engine,
    by_module,
    members,
)

needs_numba = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba is optional")
SUBSETS = Retrieval(chains=2, symbol_dim=2, steps=2, shares=(0.5, 0.75), emphasis="subsets")
PERMUTED = Permutation(values=4, repeat_ratio=0.4)
CASES = {
    "autograd": (OwnLoss(), STACK),
    "autograd, tokens": (Tokens(), LAYER.model_copy(update={"positions": "pair", "causal": False})),
    "shallow": (PERMUTED, LAYER),
    "deep": (Vectors(), STACK),
    "deep, retrieval": (SUBSETS, STACK),
    "low-rank": (Vectors(), NARROW),
}
ENGINES = {name: name.partition(",")[0] for name in CASES}
EVERY = [pytest.param(n, marks=() if ENGINES[n] == "autograd" else needs_numba) for n in CASES]


@pytest.mark.parametrize("name", EVERY)
def test_the_rule_chooses_it(name):
    task, model = CASES[name]
    assert engines.choose(task, model.for_task(task.shape()), "cpu") == ENGINES[name]


@pytest.mark.parametrize("init", ["gpt2", "linear", "encoder", "mimetic", 0.61])
@pytest.mark.parametrize("name", EVERY)
def test_equals_plain_modules(name, init, training):
    task, model = CASES[name]
    ensemble, _ = members(task, model.model_copy(update={"init": init}))
    assert_close(by_engine(ENGINES[name], ensemble, task, training), by_module(ensemble, task, training))


@needs_numba
@pytest.mark.parametrize("name", [each for each in CASES if ENGINES[each] != "autograd"])
def test_rounded_factors_are_near(name, training):
    """No further from float32 than autograd with rounded factors is."""
    task, model = CASES[name]
    ensemble, _ = members(task, model)
    rounded, expected = (
        training.model_copy(update={"precision": "bfloat16"}),
        by_module(ensemble, task, training)[1],
    )
    apart = {}
    for engine, model in ((ENGINES[name], ensemble), ("autograd", ensemble.at_precision("bfloat16"))):
        found = by_engine(engine, model, task, rounded)[1]
        apart[engine] = sum((found[each] - expected[each]).square().sum() for each in expected).sqrt()
    size = sum(each.square().sum() for each in expected.values()).sqrt()
    assert 1e-4 * size < apart[ENGINES[name]] < min(1.5 * apart["autograd"], 0.03 * size)


@needs_numba
@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_products(precision, tolerance, fills, monkeypatch):
    """By either library, of matrices that lie along either axis."""
    from hopscope.training.engines import columns

    if fills and not torch.backends.mkldnn.is_available():
        pytest.skip("torch has no oneDNN here")
    monkeypatch.setattr(columns, "_mkl_is_slow", lambda: fills)
    monkeypatch.setattr(columns, "_LARGE", 1)
    left, right, out = torch.randn(17, 31).t(), torch.randn(23, 17).t(), torch.randn(31, 46)[:, :23]
    before, linear = out.clone(), columns.Linear(precision)
    linear.product(left, right, out, add=True)
    torch.testing.assert_close(out, before + left @ right, rtol=0.0, atol=tolerance)
    linear.product(left, right, out)
    torch.testing.assert_close(out, left @ right, rtol=0.0, atol=tolerance)


SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 3),
        "head_dim": st.sampled_from([1, 5, 8]),
        "causal": st.booleans(),
        "activation": st.sampled_from(["relu", "gelu"]),
    }
)
READOUTS = st.sampled_from([(0,), (3, 4), (4, 5, 6), tuple(range(7))])
BATCHES = st.sampled_from([1, 13, 16, 300])


@needs_numba
@settings(max_examples=25)
@given(SHAPES, READOUTS, BATCHES, st.sampled_from([7, 16, 31]), st.sampled_from([0.0, 0.5, 2.0]))
def test_deep_shapes(shape, readout, batch, width, mlp_ratio):
    task, training = Vectors(readout=readout), Training(steps=5, batch_size=batch)
    ensemble, _ = members(task, Model(width=width, mlp_ratio=mlp_ratio, **shape))
    assert_close(by_engine("deep", ensemble, task, training), by_module(ensemble, task, training), 3e-5)


@needs_numba
@settings(max_examples=15)
@given(SHAPES, READOUTS, BATCHES)
def test_low_rank_shapes(shape, readout, batch):
    task, training = Vectors(readout=readout), Training(steps=5, batch_size=batch)
    ensemble, _ = members(task, Model(width=37, mlp_ratio=0.0, **shape))
    assert_close(by_engine("low-rank", ensemble, task, training), by_module(ensemble, task, training))


@needs_numba
@settings(max_examples=10)
@given(
    st.integers(3, 5), st.sampled_from([0.0, 0.4]), st.sampled_from([1, 41, 230]),
    st.sampled_from(["learned", "pair", "none"]), st.sampled_from([2, 7, 16]),
)  # fmt: skip
def test_shallow_shapes(values, ratio, batch, positions, width):
    task, training = Permutation(values=values, repeat_ratio=ratio), Training(steps=5, batch_size=batch)
    model = Model(heads=2, head_dim=3, width=width, norm="post", activation="relu", positions=positions)
    ensemble, _ = members(task, model)
    # Two numbers, normed, are 1 and -1: what gradient is left is rounding.
    tolerance = 1e-2 if width == 2 else 3e-5
    assert_close(
        by_engine("shallow", ensemble, task, training), by_module(ensemble, task, training), tolerance
    )


@needs_numba
@pytest.mark.parametrize("positions", ["learned", "pair", "none"])
def test_deep_on_tokens(positions, training):
    task = Tokens()
    model = STACK.model_copy(update={"positions": positions, "width": 31})
    ensemble, _ = members(task, model)
    assert_close(by_engine("deep", ensemble, task, training), by_module(ensemble, task, training))


@pytest.mark.parametrize("name", EVERY)
def test_a_step_depends_on_its_number_alone(name, training):
    """Whichever steps were drawn with it, and whatever was computed before it."""
    task, model = CASES[name]
    ensemble, _ = members(task, model)
    before = {each: weight.clone() for each, weight in ensemble.weights().items()}
    first, again = (
        by_engine(ENGINES[name], ensemble, task, training, steps) for steps in ((1, 2, 3), (5, 11, 4, 3))
    )
    assert all(torch.equal(first[part][each], again[part][each]) for part in (0, 1) for each in first[part])
    assert all(torch.equal(weight, before[each]) for each, weight in ensemble.weights().items())
    fewer = training.model_copy(update={"examples": 2})
    pooled = by_engine(ENGINES[name], ensemble, task, fewer)
    assert not torch.equal(pooled[0]["loss"], first[0]["loss"])


@pytest.mark.parametrize("name", EVERY)
def test_a_member_is_as_it_would_be_alone(name, training):
    task, model = CASES[name]
    ensemble, _ = members(task, model)
    losses, gradients = by_engine(ENGINES[name], ensemble, task, training)
    for index in range(len(SEEDS)):
        own = slice(index, index + 1)
        alone = by_engine(ENGINES[name], ensemble.select([index]), task, training, seeds=SEEDS[own])
        torch.testing.assert_close(alone[0]["loss"], losses["loss"][own], rtol=1e-6, atol=2e-6)
        for each, gradient in alone[1].items():
            torch.testing.assert_close(gradient, gradients[each][own], rtol=1e-4, atol=2e-6, msg=each)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("weight", ["readout.weight", "layers.0.attention.query.weight"])
@pytest.mark.parametrize("name", EVERY)
def test_a_broken_member_shows_and_leaves_the_others_alone(name, weight, value, training):
    task, model = CASES[name]
    ensemble, _ = members(task, model)
    sound = by_engine(ENGINES[name], ensemble, task, training)
    sound = sound[0], {each: gradient.clone() for each, gradient in sound[1].items()}
    ensemble.weights()[weight][1, 2, -1] = value
    losses, gradients = by_engine(ENGINES[name], ensemble, task, training)
    assert not losses["loss"][1].isfinite()
    for index in (0, 2):
        assert torch.equal(losses["loss"][index], sound[0]["loss"][index])
        assert all(torch.equal(gradients[each][index], sound[1][each][index]) for each in gradients)


@pytest.mark.parametrize("name", EVERY)
def test_sharp_attention_keeps_its_digits(name, training):
    """Scores hundreds apart: a softmax from the maximum of a whole table would be 0 / 0."""
    task, model = CASES[name]
    ensemble, _ = members(task, model)
    for each, weight in ensemble.weights().items():
        if each.endswith(("query.weight", "key.weight")):
            weight.mul_(20.0)
    losses, gradients = by_engine(ENGINES[name], ensemble, task, training)
    expected, _ = by_module(ensemble, task, training)
    torch.testing.assert_close(losses["loss"], expected["loss"], rtol=1e-3, atol=1e-3)
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@needs_numba
def test_a_stream_that_layers_take_back_keeps_its_digits(training):
    """Its squared length is a sum over layers: here the second layer takes away what the first has added."""
    task = Vectors()
    ensemble, _ = members(task, NARROW)
    weights = ensemble.weights()
    weights["layers.0.attention.output.weight"].mul_(30.0)
    for name, first in weights.items():
        if name.startswith("layers.0.attention."):
            sign = -1.0 if "output" in name else 1.0
            weights[name.replace("layers.0.", "layers.1.")].copy_(sign * first)
    found, expected = by_engine("low-rank", ensemble, task, training), by_module(ensemble, task, training)
    for name, gradient in found[1].items():
        if not name.endswith(KEY_BIAS):
            assert (gradient - expected[1][name]).norm() <= 1e-4 * expected[1][name].norm(), name


@needs_numba
def test_a_variance_that_rounds_below_zero_is_none():
    from hopscope.training.engines import low_rank
    from hopscope.training.engines.lanes import LANES

    read, inverse = np.ones((3, 1, 1, LANES), np.float32), np.zeros((1, 1, LANES), np.float32)
    square = np.array([-1e-3, np.nan, *[1.0] * (LANES - 2)], np.float32).reshape(1, 1, LANES)
    low_rank._scale(read, square, inverse)
    assert np.allclose(inverse[0, 0, [0, 2]], [1e-5**-0.5, 1.0], rtol=1e-4) and np.isnan(inverse[0, 0, 1])


@needs_numba
def test_powers_of_two():
    import numba

    from hopscope.training.engines import lanes

    @numba.njit
    def powers(x, out):
        for row in range(len(x)):
            lanes.store(out, (row,), lanes.power_of_two(lanes.load(x, (row,))))

    numbers = np.linspace(-140.0, 0.0, 1001 * lanes.LANES, dtype=np.float32)
    numbers[:3] = (-np.inf, np.nan, -1e30)
    out = np.zeros((1001, lanes.LANES), dtype=np.float32)
    powers(numbers.reshape(out.shape), out)
    found, normal = out.ravel(), numbers >= -126.0
    assert np.isnan(found[1]) and found[0] == found[2] == 2.0**-126 and found[-1] == 1.0
    np.testing.assert_allclose(found[normal], np.exp2(numbers[normal].astype(np.float64)), rtol=5e-7)


# Which engine.


class Halved(Permutation):
    """Other losses than those that an engine knows."""

    standard_loss: ClassVar[bool] = True

    def parts(self, predictions, batch):
        return Task.parts(self, predictions, batch)


class Weighed(Permutation):
    """Sequences with weights, which an engine that knows the losses would leave out."""

    def sequences(self, *of):
        found = super().sequences(*of)
        return replace(found, weights=found.targets % 2.0)


@pytest.mark.parametrize(
    ("task", "model", "expected"),
    [
        (OwnLoss(), STACK, "autograd"),
        (Vectors(), STACK.model_copy(update={"norm": "post"}), "autograd"),
        (Tokens(), STACK, "deep"),
        (Tokens(), STACK.model_copy(update={"layers": 1}), "autograd"),
        (Tokens(), STACK.model_copy(update={"width": 2, "heads": 1}), "autograd"),
        (Vectors(), NARROW.model_copy(update={"width": 16}), "deep"),
        (PERMUTED, LAYER.model_copy(update={"activation": "gelu"}), "autograd"),
        (Halved(values=4), LAYER, "autograd"),
        (Weighed(values=4), LAYER, "autograd"),
    ],
)
@needs_numba
def test_the_rule(task, model, expected):
    assert engines.choose(task, model.for_task(task.shape()), "cpu") == expected


@pytest.mark.parametrize(
    ("missing", "cuda", "cpu"), [("numba", "compiled", "autograd"), ("triton", "autograd", "deep")]
)
def test_the_rule_knows_what_is_installed(monkeypatch, missing, cuda, cpu):
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == missing else name)
    config = STACK.for_task(Vectors().shape())
    assert engines.choose(Vectors(), config, "cuda") == cuda
    assert engines.choose(Vectors(), config, "cpu") == cpu
    assert (
        engines.choose(OwnLoss(), config, "cuda") == engines.choose(Grouped(), config, "cuda") == "autograd"
    )
    assert engines.choose(Vectors(), config, "mps") == "autograd"


WANTING = [
    ("deep", OwnLoss(), STACK, "the default loss for deep"),
    ("deep", Vectors(), STACK.model_copy(update={"norm": "none"}), "pre-norm layers"),
    ("low-rank", Tokens(), NARROW, "inputs that are vectors"),
    ("low-rank", Vectors(), NARROW.model_copy(update={"positions": "learned"}), "no learned positions"),
    ("low-rank", Vectors(), STACK, "no MLPs"),
    ("shallow", Tokens(), LAYER, "the samples and losses of Permutation"),
    ("shallow", PERMUTED, STACK, "one causal post-norm layer"),
    ("shallow", PERMUTED, LAYER.model_copy(update={"causal": False}), "one causal post-norm layer"),
    ("shallow", PERMUTED, LAYER.model_copy(update={"activation": "gelu"}), "an MLP with relu"),
    ("shallow", PERMUTED, LAYER.model_copy(update={"mlp_ratio": 0.0}), "an MLP with relu"),
]


@needs_numba
@pytest.mark.parametrize(("name", "task", "model", "words"), WANTING)
def test_an_engine_that_is_named_is_refused_what_it_cannot_train(name, task, model, words):
    """It would train something else, and say nothing."""
    config = model.for_task(task.shape())
    assert engines.choose(task, config, "cpu") != name
    with pytest.raises(UserError, match=f"engine: expected {words}.* use engine autograd"):
        engines.load(name, task, config, "cpu")


def test_what_is_missing_is_one_line(monkeypatch):
    given = Vectors(), STACK.for_task(Vectors().shape())
    with pytest.raises(UserError, match=r"engine: expected one of compiled, shallow, .* found 'general'"):
        engines.load("general", *given, "cpu")
    if importlib.util.find_spec("numba"):
        with pytest.raises(UserError, match="engine: expected a CPU for deep"):
            engines.load("deep", *given, "cuda")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    words = r"engine: expected numba for deep, found none; run pip install 'hopscope\[fast\]'"
    with pytest.raises(UserError, match=words):
        engines.load("deep", *given, "cpu")
