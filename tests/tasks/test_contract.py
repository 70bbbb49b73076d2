"""What every task owes the trainer, the models and the probes, whatever it asks."""

import numpy as np
import pytest
import torch
from tests.oracles.tasks import reference_sample, with_reference

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.config import EquationsConfig
from hopscope.testing import check_task

from .declared import Average, Copy
from .factories import FACTORIES

SEEDS, BATCH = torch.tensor([19, 23]), 17


@pytest.fixture(params=FACTORIES)
def task(request):
    return FACTORIES[request.param]()


@pytest.fixture
def batch(task):
    return task.sample(SEEDS, "train", 29, BATCH)


def tensors(batch):
    """All tensors of a batch, by name."""
    named = {"inputs": batch.inputs, "targets": batch.targets}
    if batch.weights is not None:
        named["weights"] = batch.weights.expand(batch.targets.shape)
    named |= {f"role {name}": role for name, role in batch.roles.items()}
    return named | {f"relation {name}": relation for name, relation in batch.relations.items()}


def assert_same(first, second):
    assert tensors(first).keys() == tensors(second).keys()
    for name, tensor in tensors(first).items():
        assert torch.equal(tensor, tensors(second)[name]), name


def test_several_steps_at_once_are_the_steps_one_after_another(task):
    together = task.sample(SEEDS, "train", range(29, 32), BATCH, start=5)
    for number, step in enumerate(range(29, 32)):
        alone = task.sample(SEEDS, "train", step, BATCH, start=5)
        assert_same(together.take(slice(number * BATCH, (number + 1) * BATCH)), alone)


def right_predictions(task, batch):
    """Predictions that could not be better: all mass on the target token, or the target vector itself."""
    if task.input_kind == "vectors":
        return batch.targets
    return 100.0 * torch.nn.functional.one_hot(batch.targets, task.output_size).float()


def test_shapes_and_types(task, batch):
    shape = (len(SEEDS), BATCH, task.positions)
    for name, tensor in tensors(batch).items():
        if name not in ("targets", "weights"):
            assert tensor.shape[:3] == shape, name
    if task.input_kind == "tokens":
        assert batch.inputs.shape == shape and batch.inputs.dtype == torch.int64
        assert batch.inputs.min() >= 0 and batch.inputs.max() < task.input_size
    else:
        assert batch.inputs.shape == (*shape, task.input_size) and batch.inputs.is_floating_point()
        assert batch.inputs.isfinite().all()
    if batch.targets.is_floating_point():
        assert batch.targets.shape == (*shape[:2], len(task.readout), task.output_size)
        assert batch.targets.isfinite().all()
    else:
        assert batch.targets.shape == (*shape[:2], len(task.readout))
        assert batch.targets.min() >= 0 and batch.targets.max() < task.output_size


def test_every_position_has_every_role(task, batch):
    assert batch.roles
    assert set(task.role_values) <= set(batch.roles)
    for name, role in batch.roles.items():
        assert role.dtype == torch.int64 and role.min() >= 0, name
    for name, words in task.role_values.items():
        assert batch.roles[name].max() < len(words) == len(set(words)), name


def test_every_position_has_every_relation(task, batch):
    assert batch.relations
    own = torch.arange(task.positions)
    for name, relation in batch.relations.items():
        assert relation.dtype == torch.int64, name
        assert relation.min() >= NO_RELATION and relation.max() < task.positions, name
        assert not (relation == own).any(), f"{name}: a position is its own partner"


def test_the_same_address_gives_the_same_batch(task, batch):
    assert_same(batch, task.sample(SEEDS, "train", 29, BATCH))


def test_a_new_task_of_the_same_configuration_gives_the_same_batch(request, task, batch):
    again = FACTORIES[request.node.callspec.params["task"]]()
    assert_same(batch, again.sample(SEEDS, "train", 29, BATCH))


@pytest.mark.parametrize(
    ("seed", "stream", "step"), [(31, "train", 29), (19, "probe", 29), (19, "train", 37)]
)
def test_seed_stream_and_step_each_change_the_data(task, batch, seed, stream, step):
    other = task.sample(torch.tensor([seed]), stream, step, BATCH)
    assert not torch.equal(other.inputs, batch.inputs[:1])


def test_samples_of_one_batch_differ(batch):
    assert len(batch.inputs[0].unique(dim=0)) > 1


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_a_batch_may_be_drawn_in_pieces(task, batch, cut):
    first = task.sample(SEEDS, "train", 29, cut)
    rest = task.sample(SEEDS, "train", 29, BATCH - cut, start=cut)
    assert_same(first, batch.take(slice(cut)))
    assert_same(rest, batch.take(slice(cut, None)))


def test_a_member_is_alone_in_what_it_sees(task, batch):
    for member in range(len(SEEDS)):
        alone = task.sample(SEEDS[member : member + 1], "train", 29, BATCH)
        for name, tensor in tensors(alone).items():
            assert torch.equal(tensor[0], tensors(batch)[name][member]), name


def test_without_annotation_only_roles_and_relations_are_missing(task, batch):
    plain = task.sample(SEEDS, "train", 29, BATCH, annotate=False)
    assert not plain.roles and not plain.relations and not plain.groups
    for name in ("inputs", "targets"):
        assert torch.equal(getattr(plain, name), getattr(batch, name)), name


def test_equal_to_the_plain_reference_sample_for_sample(task, batch):
    for member, seed in enumerate(SEEDS.tolist()):
        for index in range(BATCH):
            expected = reference_sample(task.config, seed, "train", 29, index)
            assert expected["roles"].keys() == batch.roles.keys()
            assert expected["relations"].keys() == batch.relations.keys()
            names = ("inputs", "targets", "weights")
            flat = {name: expected[name] for name in names if name in expected}
            flat |= {f"role {name}": role for name, role in expected["roles"].items()}
            flat |= {f"relation {name}": relation for name, relation in expected["relations"].items()}
            for name, tensor in tensors(batch).items():
                tolerance = 1e-6 if tensor.is_floating_point() else 0.0
                np.testing.assert_allclose(
                    tensor[member, index].tolist(),
                    np.broadcast_to(flat[name], tensor.shape[2:]),
                    0,
                    tolerance,
                    err_msg=name,
                )


def test_losses_are_finite_and_differentiable_for_each_member_alone(task, batch):
    shape = (len(SEEDS), BATCH, len(task.readout), task.output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(41)).requires_grad_()
    losses = task.losses(predictions, batch)
    for name, loss in losses.items():
        assert loss.shape == (len(SEEDS),) and loss.isfinite().all(), name
    (gradient,) = torch.autograd.grad(losses["loss"][0], predictions)
    assert gradient.isfinite().all()
    assert (gradient[0].flatten(0, 1).abs().amax(-1) > 0).all(), "an answer does not enter the loss"
    assert not gradient[1].any(), "one member's loss depends on another's predictions"


def test_the_loss_is_lowest_where_every_prediction_is_right(task, batch):
    right = right_predictions(task, batch)
    floor = task.losses(right, batch)["loss"]
    torch.testing.assert_close(floor, torch.zeros_like(floor), rtol=0, atol=1e-6)
    noise = torch.randn(right.shape, generator=torch.Generator().manual_seed(43))
    assert (task.losses(noise, batch)["loss"] > floor + 0.1).all()


def test_the_loss_is_a_mean_over_samples(task, batch):
    generator = torch.Generator().manual_seed(47)
    predictions = torch.randn(len(SEEDS), BATCH, len(task.readout), task.output_size, generator=generator)
    whole = task.losses(predictions, batch)
    each = [task.losses(predictions[:, i : i + 1], batch.take(slice(i, i + 1))) for i in range(BATCH)]
    for name, loss in whole.items():
        torch.testing.assert_close(loss, torch.stack([part[name] for part in each]).mean(0), msg=name)


# The same, and more, as users check their own tasks.

EQUATIONS = {
    "equations": EquationsConfig(chains=3, depths=(1, 2)),
    "equations, the paper's": EquationsConfig(
        chains=4, depths=(2,), lines="paper", asked="last", repeated=False
    ),
}
DECLARED = {"copy": Copy(), "average": Average(), "average, scheduled": Average(begin=30, later=2.0)}


@pytest.mark.parametrize("name", [*FACTORIES, *EQUATIONS, *DECLARED])
def test_every_task_passes_the_public_contract(name):
    if name in DECLARED:
        check_task(DECLARED[name])
        return
    task = EQUATIONS[name] if name in EQUATIONS else FACTORIES[name]().config
    check_task(with_reference(task))


@pytest.mark.parametrize("name", [*FACTORIES, *EQUATIONS])
def test_the_contract_holds_every_built_in_task_to_its_reference(name):
    """A reference that says something else is refused, so the test above compares the two."""

    def other(self, draws):
        return {"inputs": [-7] * self.shape().positions}

    task = EQUATIONS[name] if name in EQUATIONS else FACTORIES[name]().config
    kind = type("Other", (type(task),), {"reference": other})
    with pytest.raises(AssertionError, match=r"Other\.reference: inputs: expected"):
        check_task(kind.model_validate(task.model_dump()))
