import pytest
import torch

from hopscope.tasks.batch import Batch


@pytest.fixture
def batch():
    numbers = torch.arange(2 * 3 * 5).reshape(2, 3, 5)
    return Batch(numbers, numbers + 100, numbers % 2 == 0, {"step": numbers + 200}, {"mate": numbers + 300})


@pytest.mark.parametrize(
    "samples",
    [slice(1, 3), torch.tensor([2, 0]), torch.tensor([False, True, True])],
    ids=["slice", "index", "mask"],
)
def test_take_keeps_the_same_samples_everywhere(batch, samples):
    taken = batch.take(samples)
    assert torch.equal(taken.inputs, batch.inputs[:, samples]) and taken.inputs.shape == (2, 2, 5)
    assert torch.equal(taken.targets, taken.inputs + 100)
    assert torch.equal(taken.loss_mask, taken.inputs % 2 == 0)
    assert torch.equal(taken.roles["step"], taken.inputs + 200)
    assert torch.equal(taken.relations["mate"], taken.inputs + 300)


def test_axes_must_agree():
    numbers = torch.zeros(2, 3, 5, dtype=torch.int64)
    with pytest.raises(TypeError, match="targets"):
        Batch(numbers, numbers[:, :, :3], numbers == 0, {}, {})
