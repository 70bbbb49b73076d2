from dataclasses import replace

import pytest
import torch

from hopscope.tasks.batch import Batch, given, joined


@pytest.fixture
def batch():
    """Two members, three samples, five positions of which two are asked."""
    numbers = torch.arange(2 * 3 * 5).reshape(2, 3, 5)
    return Batch(
        numbers,
        numbers[..., 1:3] + 100,
        weights=torch.arange(2 * 3 * 2).reshape(2, 3, 2).float(),
        groups={"even": numbers[..., 0] % 2 == 0},
        roles={"step": numbers + 200},
        relations={"mate": lambda: numbers + 300},
    )


SAMPLES = pytest.mark.parametrize(
    "samples",
    [slice(1, 3), torch.tensor([2, 0]), torch.tensor([False, True, True])],
    ids=["slice", "index", "mask"],
)


@SAMPLES
def test_take_keeps_the_same_samples_everywhere(batch, samples):
    taken = batch.take(samples)
    assert torch.equal(taken.inputs, batch.inputs[:, samples]) and taken.inputs.shape == (2, 2, 5)
    assert torch.equal(taken.targets, taken.inputs[..., 1:3] + 100)
    assert torch.equal(taken.weights, batch.weights[:, samples])
    assert torch.equal(taken.groups["even"], taken.inputs[..., 0] % 2 == 0)
    assert torch.equal(taken.roles["step"], taken.inputs + 200)
    assert torch.equal(taken.relations["mate"], taken.inputs + 300)


def test_one_member_keeps_its_axis(batch):
    second = batch.member(1)
    assert torch.equal(second.inputs, batch.inputs[1:])
    assert torch.equal(second.targets, batch.targets[1:]) and torch.equal(second.weights, batch.weights[1:])
    assert torch.equal(second.relations["mate"], second.inputs + 300)
    shared = replace(batch, weights=batch.weights[:1]).member(1)
    assert torch.equal(shared.weights, batch.weights[:1])


def test_weights_of_all_samples_alike_stay_so(batch):
    alike = replace(batch, weights=torch.tensor([[[3.0, 5.0]]]))
    assert torch.equal(alike.take(slice(2)).weights, alike.weights)
    one = alike.take(slice(1))
    assert torch.equal(one.take(torch.tensor([True])).weights, alike.weights)


def test_functions_are_called_once_and_only_when_read():
    calls = []

    def mates():
        calls.append("mate")
        return torch.zeros(2, 3, 5, dtype=torch.int64)

    numbers = torch.zeros(2, 3, 5, dtype=torch.int64)
    batch = Batch(numbers, numbers[..., :1], relations={"mate": mates, "other": numbers})
    part = batch.take(slice(2)).member(1).to("cpu")
    joined([batch, batch])
    assert list(part.relations) == ["mate", "other"] and "mate" in part.relations
    assert not calls and list(given(batch.relations)) == ["other"]
    assert part.relations["mate"].shape == (1, 2, 5)
    assert batch.relations["mate"] is batch.relations["mate"]
    assert calls == ["mate"]


def test_plain_has_neither_groups_nor_roles_nor_relations(batch):
    plain = batch.plain()
    assert not plain.groups and not plain.roles and not plain.relations
    assert plain.inputs is batch.inputs and plain.weights is batch.weights


def test_joined_batches_stand_one_after_another(batch):
    alike = replace(batch.take(slice(1)), weights=torch.tensor([[[3.0, 5.0]]])).member(0)
    together = joined([batch.member(0), alike])
    assert torch.equal(together.inputs[:, :3], batch.inputs[:1]) and together.inputs.shape == (1, 4, 5)
    assert torch.equal(together.relations["mate"], together.inputs + 300)
    assert together.weights[0, :, 0].tolist() == [0.0, 2.0, 4.0, 3.0]
    with pytest.raises(ValueError, match="weights"):
        joined([batch, replace(batch, weights=None)])


def test_axes_must_agree():
    numbers = torch.zeros(2, 3, 5, dtype=torch.int64)
    with pytest.raises(TypeError, match="targets"):
        Batch(numbers, numbers[:, :2])
    with pytest.raises(TypeError, match="weights"):
        Batch(numbers, numbers, weights=torch.zeros(2, 3, 7))
