import pytest
import torch

from hopscope.errors import UserError
from hopscope.runs import CheckpointDamaged, RunFolder, save_checkpoint
from hopscope.training import config
from hopscope.training.restore import load_ensemble, load_member, member_record


@pytest.fixture
def trained(start, finish, job_of):
    trainer = start(job_of(5, 7, 11, steps=3))
    finish(trainer)
    return trainer


def test_job_survives(trained):
    assert config.job_of(trained.unit) == trained.job


def test_ensemble_is_the_trained_one(trained):
    loaded = load_ensemble(trained.unit)
    assert torch.equal(loaded.parameters.flat, trained.model.parameters.flat)


def test_member_is_a_row_of_it(trained):
    module = load_member(RunFolder(trained.unit.run_path), 2)
    expected = trained.model.member(2).state_dict()
    assert {name: tensor.tolist() for name, tensor in module.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in expected.items()
    }


def test_earlier_checkpoint(trained, start):
    fresh = start(trained.job, name="another")
    assert torch.equal(load_ensemble(trained.unit, 0).parameters.flat, fresh.model.parameters.flat)
    assert not torch.equal(load_ensemble(trained.unit, 1).parameters.flat, fresh.model.parameters.flat)


def test_refusals(trained):
    with pytest.raises(UserError, match=r"step 2000, found steps 0, 1, 2, 3"):
        load_ensemble(trained.unit, 2000)
    with pytest.raises(UserError, match=r"member: expected 0 to 2 .* found 3"):
        member_record(RunFolder(trained.unit.run_path), 3)
    path = trained.unit.checkpoint_path(3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointDamaged):
        load_member(RunFolder(trained.unit.run_path), 0)


@pytest.mark.parametrize("change", ["another name", "another shape", "none"])
def test_a_checkpoint_of_another_model_is_refused(trained, change):
    step, tensors, metadata = trained.unit.checkpoint()
    name, *others = (name for name in tensors if name.startswith("weights/"))
    if change == "none":
        tensors = {}
    elif change == "another name":
        tensors["weights/further"] = tensors.pop(name)
    else:
        tensors[name] = tensors[name][:, :1]
    save_checkpoint(trained.unit.checkpoint_path(step), tensors, metadata)
    with pytest.raises(CheckpointDamaged, match="weights of another model than the unit's"):
        load_ensemble(trained.unit)
    assert others
