"""Passes under rules equal the plain loops, and re-using lower layers changes nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.rules import Identity, Learned, MeanMap, TwoTargets, Uniform
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask

from .plain import predictions

SAMPLES, LAYERS, HEADS = 2, 3, 2
TASKS = {
    "chain": lambda: RetrievalTask(RetrievalConfig(steps=2, chains=5)),
    "any order": lambda: RetrievalTask(RetrievalConfig(steps=3, chains=2, order="random")),
    "graph": lambda: ConditionalTask(ConditionalConfig(chains=2)),
}
SHAPES = {
    "pre-norm, causal": {"mlp_ratio": 0.0},
    "pre-norm, MLP, not causal": {"causal": False},
    "post-norm": {"norm": "post", "activation": "relu"},
    "some rows read out": {"readout": (0, 3, 10)},
    "one layer, every third row read out": {"layers": 1, "readout": (2, 5, 8, 11)},
}


def execution(task: str, shape: str, seed: int = 7) -> Execution:
    made = TASKS[task]()
    usual = {"layers": LAYERS, "readout": made.readout}
    config = TransformerConfig(
        heads=HEADS, width=11, head_dim=13, positions="carried", length=made.positions,
        position_size=made.config.symbol_dim, input_kind="vectors", input_size=made.input_size,
        output_size=made.output_size, init="torch", **usual | SHAPES[shape],
    )  # fmt: skip
    model = Transformer.initial(config, torch.tensor([seed]))
    batch = made.sample(torch.tensor([seed]), "test", 0, SAMPLES)
    return Execution(model, Grammar(batch, causal=config.causal, words=made.role_values))


def everywhere(found: Execution, seed: int) -> dict:
    """Some rule for every slot, of every kind."""
    rules = {}
    for number, slot in enumerate(found.slots):
        singles = found.grammar.rules(slot[2])
        choices = [Uniform(), Identity(), MeanMap(), Learned(), *singles]
        if len(singles) > 3:
            choices.append(TwoTargets(first=singles[-1], second=singles[2], share=0.3))
        rules[slot] = choices[(7 * number + seed) % len(choices)]
    return rules


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
