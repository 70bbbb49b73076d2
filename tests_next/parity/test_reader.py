"""Circuits read in exported members are those of the first house: the same paths, the same verdict."""

import json
from pathlib import Path

import pytest
import torch

from hopscope.circuits.built_in_tasks import task_of
from hopscope.circuits.config import ReaderConfig as OldReaderConfig
from hopscope.circuits.reader import read_circuit
from hopscope.models.config import TransformerConfig as OldConfig
from hopscope.models.export import load_module
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer as OldTransformer
from hopscope.tasks.config import PermutationConfig, RetrievalConfig
from hopscope_next.circuits.reader import ReaderConfig, read
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Permutation, Retrieval

MEMBERS = Path(__file__).resolve().parents[2] / "docs" / "results" / "zoo" / "members"
NAMES = [
    *(f"emergence-d-1-4-layers-of-2-heads-seed-{seed}" for seed in (0, 2, 3, 5)),
    "first-steps-d-1-3-layers-seed-1",
    "first-steps-d-2-3-layers-seed-1",
    "first-steps-d-2-4-layers-x2-alone-seed-0",
    *(f"permutation-d16-1-plain-seed-{seed}" for seed in (0, 7)),
    *(f"permutation-d32-2-repeats-seed-{seed}" for seed in (0, 5)),
]
TABLES = ("embed.token.weight", "embed.position.weight")


def models(name):
    """The member, in both houses, and its task in both."""
    fields = json.loads((MEMBERS / name / "config.json").read_text(encoding="utf-8"))["origin"]["task"]
    module = load_module(MEMBERS / name)
    shape = module.config.model_dump()
    weights = {
        each: weight.detach() if weight.ndim < 2 or each in TABLES else weight.detach().T
        for each, weight in module.named_parameters()
    }
    parameters = Parameters(parameter_specs(OldConfig.model_validate(shape)), 1)
    parameters.load({each: weights[each][None].contiguous() for each in parameters.views()})
    shape = {each: value for each, value in shape.items() if each in TransformerConfig.model_fields}
    shape["init"] = "encoder" if shape["init"] == "torch" else shape["init"]
    model = Transformer(TransformerConfig(**shape)).load(weights)
    permutation = fields["kind"] == "permutation"
    old_task = task_of((PermutationConfig if permutation else RetrievalConfig).model_validate(fields))
    kind = Permutation if permutation else Retrieval
    task = kind(**{each: value for each, value in fields.items() if each in kind.model_fields})
    return (
        OldTransformer(OldConfig.model_validate(module.config.model_dump()), parameters),
        old_task,
        model,
        task,
    )


def kind(rule):
    return "mean_map" if rule.kind == "history" and not rule.keys else rule.kind


def paths(circuit):
    return {(path.layer, path.head, path.query, path.target or kind(path.rule)) for path in circuit.paths}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_paths_and_verdict(name):
    old_model, old_task, model, task = models(name)
    # The first house searches chains up to the threshold itself.
    searched = {"searched": 1.0} if isinstance(task, Retrieval) else {}
    found = read(model, task, ReaderConfig(random_circuits=0, **searched))
    expected = read_circuit(old_model, old_task, OldReaderConfig(random_circuits=0))
    assert found.verdict.partition(":")[0] == expected.verdict.partition(":")[0]
    assert paths(found.circuit) == paths(expected.circuit)
    assert found.circuit.reads == expected.circuit.reads
    torch.testing.assert_close(found.loss.get("full"), expected.loss.get("full"), rtol=0.2, atol=0.01)
