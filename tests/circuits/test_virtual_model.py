"""A model whose stream is never made, against the model itself: every pass, and a whole reading."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.circuits import reader
from hopscope.circuits.built_in_tasks import VectorCircuits
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.path_patching import PathPatching
from hopscope.circuits.reader import ReaderConfig, read_circuit
from hopscope.circuits.virtual_model import VirtualModel, fits, quickest
from hopscope.models.config import TransformerConfig
from hopscope.models.patterns import Related, Uniform
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask

from .untrained import everywhere

TASK = RetrievalTask(RetrievalConfig(steps=2, chains=3))
SAMPLES = 5

SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 4),
        "heads": st.integers(1, 3),
        "width": st.sampled_from([17, 61]),
        "head_dim": st.sampled_from([1, 7]),
        "causal": st.booleans(),
        "readout": st.sampled_from([None, (0,), (0, 3, 11), (2, 5, 8)]),
    }
)


def model_of(strength: float = 3.0, seed: int = 7, **shape) -> Transformer:
    """An untrained model whose heads look sharply, and of which every weight and bias does something."""
    usual = {"layers": 3, "heads": 2, "width": 61, "head_dim": 7}
    shape = {name: value for name, value in (usual | shape).items() if value is not None}
    config = TransformerConfig(
        mlp_ratio=0.0, positions="carried", length=TASK.positions, position_size=TASK.config.symbol_dim,
        input_kind="vectors", input_size=TASK.input_size, output_size=TASK.output_size, init="encoder",
        **({"readout": TASK.readout} | shape),
    )  # fmt: skip
    model = Transformer.initial(config, torch.tensor([seed]))
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.weights.items():
        weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
        if ".attention." in name and name.endswith("weight"):
            weight.mul_(strength)
    return model


def executions(model: Transformer, samples: int = SAMPLES) -> tuple[Execution, Execution]:
    batch = TASK.sample(torch.tensor([3]), "test", 0, samples)
    grammar = Grammar(batch, causal=model.config.causal, words=TASK.role_values)
    return Execution(model, grammar), Execution(VirtualModel(model), grammar)


def assert_close(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


@settings(max_examples=20)
@given(SHAPES, st.integers(0, 50))
def test_passes_are_the_models_own(shape, seed):
    slow, fast = executions(model_of(seed=seed, **shape))
    assert_close(fast.clean.predictions, slow.clean.predictions)
    for found, expected in zip(fast.patterns, slow.patterns, strict=True):
        assert_close(found, expected)
    for mode in ("rules", "recomputed"):
        passed = []
        for each in (slow, fast):
            assignment = each.assigned(each.untouched(), everywhere(slow, seed))
            base = each.run(assignment, mode)
            changed = each.assigned(assignment, {each.slots[-1]: Uniform()})
            last = each.slots[-1][0]
            passed.append(
                (base.predictions, each.run(changed, mode, last, base).predictions, each.run(changed, mode))
            )
        (one, two, whole), (fast_one, fast_two, fast_whole) = passed
        assert_close(fast_one, one)
        assert_close(fast_two, two)
        torch.testing.assert_close(fast_two, fast_whole.predictions, rtol=1e-5, atol=1e-5)
        assert_close(fast_whole.predictions, whole.predictions)


def test_streams_that_grow_from_one_do_not_meet():
    """Passes share the layers below a change: none may write over what another one has."""
    _, fast = executions(model_of(layers=4))
    changes = [{slot: Uniform()} for slot in fast.slots if slot[0] >= 2]
    base = fast.run(fast.untouched(), "rules")
    before = [base.streams[layer].numbers.clone() for layer in range(4)]
    first = [
        fast.run(fast.assigned(fast.untouched(), each), "rules", 2, base).predictions for each in changes
    ]
    again = [fast.run(fast.assigned(fast.untouched(), each), "rules").predictions for each in changes]
    assert len({float(each.sum()) for each in first}) > len(changes) // 2
    for one, other in zip(first, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for stream, numbers in zip(base.streams, before, strict=True):
        assert torch.equal(stream.numbers, numbers)
    assert torch.equal(base.predictions, fast.run(fast.untouched(), "rules").predictions)


class OwnAnswers(VectorCircuits):
    """The task whose right answers are what a model says: the model has learned it to perfection, untrained."""

    def __init__(self, model: Transformer):
        super().__init__(TASK)
        self._model = model

    def batch(self, seed, samples, use):
        batch = super().batch(seed, samples, use)
        return replace(batch, targets=self._model(batch.inputs))


@pytest.mark.parametrize("seed", [3, 5])
def test_a_reading_is_the_same(seed, monkeypatch):
    model = model_of(seed=seed, strength=4.0, layers=2)
    monkeypatch.setattr(reader, "circuit_task_of", lambda _: OwnAnswers(model))
    config = ReaderConfig(samples=7, validation=11, orders=1, random_circuits=2, most_circuits=3)
    made = []
    for quick in (lambda model: model, VirtualModel):
        monkeypatch.setattr(reader, "quickest", quick)
        made.append(read_circuit(model, TASK, config))
    slow, fast = made
    assert len(slow.circuit.paths) > 3
    assert fast.circuit.model_dump_json() == slow.circuit.model_dump_json()
    assert [times for _, times in fast.minimal] == [times for _, times in slow.minimal]
    assert (fast.verdict, fast.merges, fast.learned) == (slow.verdict, slow.merges, slow.learned)
    assert fast.loss == {name: pytest.approx(value, rel=1e-2, abs=1e-4) for name, value in slow.loss.items()}
    for one, other in zip(fast.evidence, slow.evidence, strict=True):
        assert one.removed == pytest.approx(other.removed, rel=1e-2, abs=1e-4)
        assert [each.name for each in one.carries] == [each.name for each in other.carries]
        rises = [each.rise for each in one.carries]
        assert rises == pytest.approx([each.rise for each in other.carries], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("readout", [None, (0, 3, 11)])
def test_what_flows_is_the_same(readout):
    model = model_of(readout=readout, strength=8.0)
    setting, made = OwnAnswers(model), []
    for each in executions(model, 13):
        batch = replace(each.grammar.batch, targets=each.clean.predictions)
        goal = setting.criterion(each.clean.predictions, batch, None)
        each.grammar.batch = batch
        rules = {slot: Related(relation="previous") for slot in each.slots[::2]}
        flows = PathPatching(each, goal, each.assigned(each.untouched(), rules))
        slots = [slot for slot in flows.assignment.circuit if slot[0] < 2][:5]
        carried = flows.carries(setting.counterfactuals(each.model, batch))
        made.append(
            (
                [use.rise for slot in slots for use in carried[slot]],
                {(slot, use.reader, use.part): use.rise for slot in slots for use in flows.composition(slot)},
            )
        )
    (carried, uses), (fast_carried, fast_uses) = made
    assert fast_carried == pytest.approx(carried, rel=1e-2, abs=1e-4)
    assert len(uses) > 3
    assert set(fast_uses) == set(uses)
    assert fast_uses == pytest.approx(uses, rel=1e-2, abs=1e-4)


def test_the_reader_takes_it_where_it_is_quicker():
    narrow = model_of(layers=24, heads=1, head_dim=16, width=512)
    assert fits(narrow)
    assert isinstance(quickest(narrow), VirtualModel)
    for other in (
        model_of(layers=24, heads=1, head_dim=16, width=128),
        model_of(layers=2, heads=1, head_dim=5).at("bfloat16"),
    ):
        assert not fits(other)
        assert quickest(other) is other
