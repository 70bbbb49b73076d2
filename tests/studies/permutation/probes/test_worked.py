"""Worked sequences of models whose probabilities are known: by planting, by the batch way, by the plain module."""

import json

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.studies.permutation.probes.worked import sequence_probabilities, worked_sequence
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.splits import MappingSplit

MEMBERS, VALUES = 3, 5
PROBE = [2, 4, 5, 3, 4, 5, 3, 2, 2, 4]


def shape(values=VALUES, **changes):
    length = 2 * values - 1
    settings = {
        "heads": 2,
        "width": 7,
        "head_dim": 11,
        "mlp_ratio": 13 / 7,
        "norm": "post",
        "init": "encoder",
        "length": length,
        "input_size": values + 1,
        "output_size": values + 1,
        "readout": tuple(range(0, length, 2)),
    }
    return TransformerConfig.model_validate({**settings, **changes})


@pytest.fixture
def model():
    return Transformer.initial(shape(), torch.tensor([3, 17, 19]))


def test_a_planted_belief_is_found_at_every_step(model):
    beliefs = torch.tensor([[0.05, 0.1, 0.2, 0.3, 0.25, 0.1], [0.5, 0.3, 0.1, 0.05, 0.03, 0.02], [1 / 6] * 6])
    model.weights["readout.weight"].zero_()
    model.weights["readout.bias"].copy_(beliefs.log())
    found = sequence_probabilities(model, PROBE)
    assert found.dtype == torch.float64
    expected = beliefs.double()[:, None].expand(MEMBERS, VALUES, VALUES + 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
    assert worked_sequence(model, PROBE)["probabilities"][1][4] == pytest.approx([0.3, 0.1, 0.05, 0.03, 0.02])


def test_it_agrees_with_the_batch_way_on_whole_sequences(model):
    batch = (
        PermutationTask(PermutationConfig(values=VALUES)).evaluation("repeats").take(slice(None, None, 1009))
    )
    expected = probes.predict(model, batch).double()
    for at, (inputs, targets) in enumerate(
        zip(batch.inputs[0].tolist(), batch.targets[0].tolist(), strict=True)
    ):
        found = sequence_probabilities(model, [*inputs, targets[-1]])
        torch.testing.assert_close(found, expected[:, at], rtol=0, atol=1e-6)


def test_a_plain_module_is_one_member_of_it(model):
    expected = sequence_probabilities(model, PROBE)
    for index in range(MEMBERS):
        found = sequence_probabilities(model.member(index), PROBE)
        torch.testing.assert_close(found, expected[index : index + 1], rtol=0, atol=1e-6)


def test_the_last_y_is_never_seen(model):
    assert torch.equal(sequence_probabilities(model, PROBE), sequence_probabilities(model, PROBE[:-1]))


def test_a_near_certainty_keeps_its_distance_from_one(model):
    model.weights["readout.weight"].zero_()
    model.weights["readout.bias"].copy_(torch.tensor([0.0, 19.0, 0.0, 0.0, 0.0, 0.0]))
    found = sequence_probabilities(model, PROBE)[0, 0, 1].item()
    # The five others weigh e^-19 each; float32 knows nothing between 1 - 6e-8 and 1.
    assert 1.0 - found == pytest.approx(5 * 5.602796437537268e-09, rel=1e-6)


def test_the_entry_says_what_the_sequence_asks(model):
    split = MappingSplit(VALUES, 0.2, 0)
    entry = worked_sequence(model, PROBE, split)
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    assert entry["tokens"] == PROBE
    assert entry["mapping"] == [1, 4, 2, 5, 3]
    assert [question["used"] for question in entry["questions"]] == [[], [4], [4, 3], [4, 3, 5], [4, 3, 5, 2]]
    last = entry["questions"][-1]
    assert (last["x"], last["target"], last["recall"], last["elimination"]) == (2, 4, 4, 1)
    assert last["ideal"] == [0.0, 0.0, 0.0, 1.0, 0.0]
    shape_found = torch.tensor(entry["probabilities"]).shape
    assert shape_found == (MEMBERS, VALUES, VALUES)


@pytest.mark.parametrize("side", ["train", "held_out"])
def test_the_entry_says_on_which_side_the_mapping_is(model, side):
    split = MappingSplit(VALUES, 0.2, 0)
    for mapping in split.mapping(torch.arange(split.count(side)), side).tolist()[::7]:
        tokens = [token for x in (3, 1, 5, 2, 3) for token in (x, mapping[x - 1])]
        assert worked_sequence(model, tokens, split)["split"] == side
    assert worked_sequence(model, tokens)["split"] is None
    undecided = [token for x in (3, 1, 3, 1, 3) for token in (x, mapping[x - 1])]
    assert worked_sequence(model, undecided, split)["split"] is None


def test_sequences_of_another_v_are_refused(model):
    with pytest.raises(UserError, match=r"10 tokens .* V = 5, or 9 .* found 8"):
        sequence_probabilities(model, [1, 2, 2, 1, 3, 3, 4, 4])
    smaller = Transformer.initial(shape(3), torch.tensor([3]))
    with pytest.raises(UserError, match=r"6 tokens .* V = 3, or 5 .* found 10"):
        worked_sequence(smaller, PROBE)


@pytest.mark.parametrize(
    "changes",
    [{"output_size": 5}, {"length": 8, "readout": None}, {"input_kind": "vectors"}],
    ids=["outputs", "positions", "vectors"],
)
def test_models_of_another_task_are_refused(changes):
    other = Transformer.initial(shape(**changes), torch.tensor([3]))
    with pytest.raises(ValueError, match="expected one of the permutation lookup task"):
        sequence_probabilities(other, PROBE)
