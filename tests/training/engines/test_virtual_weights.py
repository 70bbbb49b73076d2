"""The engine that makes no stream against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.studies.circuit_study.config import jobs as jobs_of
from hopscope.studies.emergence.config import PRESETS
from hopscope.training.engines import chosen_engine

from .written_out import KEY_BIAS, SEEDS, assert_equal, by_way, config, drawn, model_of, reference

pytest.importorskip("numba", reason="numba is optional")
VirtualGradient = pytest.importorskip("hopscope.training.engines.virtual_weights.gradient").VirtualGradient

SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 5),
        "heads": st.integers(1, 3),
        "width": st.sampled_from([17, 31, 61]),
        "head_dim": st.sampled_from([1, 5, 8]),
        "causal": st.booleans(),
        "readout": st.sampled_from([None, (0,), (1, 4), (4, 5, 6)]),
    }
)


@settings(max_examples=60)
@given(SHAPES, st.sampled_from([1, 13, 16, 41]))
def test_equals_autograd(shape, batch):
    shape = config(**shape)
    assert_equal(VirtualGradient, model_of(shape), *drawn(shape, batch))


@pytest.mark.parametrize(("batch", "chunks"), [(67, 1), (300, 3)])
def test_a_batch_is_cut_into_chunks_and_filled_up(batch, chunks):
    shape = config(layers=3, width=31)
    model, (inputs, targets) = model_of(shape), drawn(shape, batch)
    assert_equal(VirtualGradient, model, inputs, targets)
    seen = []

    def loss_gradient(member, samples, found):
        seen.append((member, samples.stop - samples.start))
        return torch.zeros_like(found)

    gradient = torch.zeros_like(model.parameters.flat)
    views = model.parameters.views(gradient)
    for view in views.values():
        view.fill_(torch.nan)
    VirtualGradient(shape, model.parameters, batch)(inputs, loss_gradient, gradient)
    assert len(seen) == chunks * len(SEEDS)
    assert [sum(size for member, size in seen if member == index) for index in range(3)] == [batch] * 3
    assert all((view == 0.0).all() for view in views.values()), "no slope, no gradient"


def test_a_stream_that_layers_take_back_keeps_its_digits():
    """Its squared length is a sum over layers: here the second layer takes away what the first has added."""
    shape = config(layers=3, heads=1, head_dim=5, width=31)
    model = model_of(shape)
    written = model.weights["layers.0.attention.output.weight"]
    written.mul_(30.0)
    for part in ("query", "key", "value", "output"):
        for kind in ("weight", "bias"):
            first = model.weights[f"layers.0.attention.{part}.{kind}"]
            model.weights[f"layers.1.attention.{part}.{kind}"].copy_(-first if part == "output" else first)
    inputs, targets = drawn(shape, 31)
    predictions, gradient = by_way(VirtualGradient, model, inputs, targets)
    expected_predictions, expected = reference(model, inputs, targets)
    torch.testing.assert_close(predictions.double(), expected_predictions, rtol=1e-4, atol=1e-4)
    for name, found in model.parameters.views(gradient).items():
        if not name.endswith(KEY_BIAS):
            assert (found - expected[name]).norm() <= 1e-4 * expected[name].norm(), name


def test_a_member_is_as_it_would_be_alone():
    shape = config(width=31)
    inputs, targets = drawn(shape, 67)
    together = model_of(shape)
    predictions, gradient = by_way(VirtualGradient, together, inputs, targets)
    for index in range(len(SEEDS)):
        part = slice(index, index + 1)
        alone, own = by_way(VirtualGradient, together.select([index]), inputs[part], targets[part])
        torch.testing.assert_close(alone[0], predictions[index], rtol=1e-6, atol=2e-6)
        torch.testing.assert_close(own[0], gradient[index], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["readout.weight", "layers.0.attention.query.weight", "embed.vector.weight"])
def test_a_broken_member_shows_and_leaves_the_others_alone(name, value):
    shape = config()
    inputs, targets = drawn(shape, 41)
    model = model_of(shape)
    predictions, gradient = by_way(VirtualGradient, model, inputs, targets)
    model.weights[name][1, 2, 3] = value
    broken_predictions, broken = by_way(VirtualGradient, model, inputs, targets)
    assert not broken_predictions[1].isfinite().all() and not broken[1].isfinite().all()
    for index in (0, 2):
        torch.testing.assert_close(broken_predictions[index], predictions[index], rtol=0, atol=0)
        torch.testing.assert_close(broken[index], gradient[index], rtol=0, atol=0)


def test_the_buffers_of_one_batch_leave_nothing_in_the_next():
    shape = config(layers=3)
    model = model_of(shape)
    way = VirtualGradient(shape, model.parameters, 41)
    first, second = drawn(shape, 41), drawn(shape, 41, SEEDS + 10)
    fresh = by_way(way, model, *first)
    by_way(way, model, *second)
    again = by_way(way, model, *first)
    assert torch.equal(fresh[0], again[0]) and torch.equal(fresh[1], again[1])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "virtual"),
        ({"mlp_ratio": 4.0}, "stacked"),
        ({"head_size": 64}, "stacked"),
        ({"layers": 16, "steps": 3}, "virtual"),
        ({"width": 64}, "stacked"),
        ({"precision": "bfloat16"}, "general"),
    ],
)
def test_it_is_for_narrow_heads_on_a_wide_stream(changes, expected):
    made = PRESETS["paper"].model_copy(update={"precision": "float32", **changes})
    assert chosen_engine(jobs_of(made)[0], "cpu") == expected
