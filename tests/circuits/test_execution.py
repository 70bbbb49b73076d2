"""Passes under rules equal the plain loops, and re-using lower layers changes nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.circuits.circuit import Circuit
from hopscope.models.patterns import OverRole, Uniform

from .plain import predictions
from .untrained import HEADS, LAYERS, SHAPES, TASKS, everywhere, execution


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
def test_passes_equal_plain_loops(task, shape, mode):
    found = execution(task, shape)
    rules = everywhere(found, 5)
    fast = found.run(found.assigned(found.untouched(), rules), mode).predictions[0]
    slow = predictions(found.model.member(0), found.grammar.batch, found.grammar.roles, rules, mode)
    assert torch.allclose(fast, slow, atol=1e-5)
    if (
        found.model.config.layers > 1 or mode == "rules"
    ):  # a row that reads as it did reads the same in a first layer
        assert not torch.allclose(fast, found.clean.predictions[0], atol=1e-2)


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
def test_a_circuit_is_a_list_of_interventions(task, shape, mode):
    """What the reader runs fast is what anybody can run: one language, and one slow obvious executor."""
    found = execution(task, shape)
    rules = {
        slot: OverRole(keys=found.grammar.roles[0]) if number % 5 == 3 else rule
        for number, (slot, rule) in enumerate(everywhere(found, 5).items())
    }
    circuit = Circuit.of(found.assigned(found.untouched(), rules), found.grammar)
    fast = circuit.run(found, mode).predictions
    slow = found.model.intervene(found.grammar.batch, circuit.interventions(found, mode))
    torch.testing.assert_close(slow, fast, rtol=1e-4, atol=1e-5)
    member = found.model.member(0).intervene(
        found.grammar.batch.member(0), circuit.interventions(found, mode)
    )
    torch.testing.assert_close(member, fast[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
def test_untouched_is_the_model(mode):
    found = execution("chain", "pre-norm, MLP, not causal")
    passed = found.run(found.untouched(), mode).predictions
    assert torch.allclose(passed, found.model(found.grammar.batch.inputs), atol=1e-5)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, LAYERS * HEADS * 5 - 1), st.sampled_from(["rules", "recomputed"]))
def test_lower_layers_are_used_again(number, mode):
    found = execution("chain", "pre-norm, causal")
    base = found.assigned(found.untouched(), everywhere(found, 3))
    passed = found.run(base, mode)
    slot = found.slots[number]
    for rule in (Uniform(), found.grammar.rules(slot[2])[-1]):
        changed = found.assigned(base, {slot: rule})
        again = found.run(changed, mode, slot[0], passed)
        assert torch.equal(again.predictions, found.run(changed, mode).predictions)
        assert all(x is y for x, y in zip(again.streams[: slot[0] + 1], passed.streams, strict=False))


def test_an_assignment_leaves_its_base_alone():
    found = execution("chain", "post-norm")
    base = found.untouched()
    before = [tensor.clone() for tensor in (*base.given, *base.own)]
    changed = found.assigned(base, dict.fromkeys(found.slots, Uniform()))
    assert changed.circuit == []
    assert base.circuit == found.slots
    after = (*base.given, *base.own)
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(after, before, strict=True))
    assert not any(own.any() for own in changed.own)
