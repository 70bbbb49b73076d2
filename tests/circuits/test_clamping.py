"""A clamp is an intervention that holds through training; a run without one is the training as it was."""

import pytest
import torch

from hopscope.circuits.circuit import Path
from hopscope.circuits.clamping import clamp_of, clamped, controls_of, rerun
from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Edits
from hopscope.models.interventions import ReplacePattern
from hopscope.models.patterns import Related
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import ENGINES
from hopscope.training.optimizer import Optimizer
from hopscope.training.steps import TrainingSteps

TASK = RetrievalConfig(steps=2, chains=3, symbol_dim=2)
TRAINING = TrainingConfig(steps=7, batch_size=11, optimizer="adamw", betas=(0.9, 0.95), weight_decay=0.1)
QUERIES = {"kind": 2, "step": 0}


def model_of(task: RetrievalTask, layers: int = 2, heads: int = 2, mlp: float = 1.0) -> Transformer:
    config = TransformerConfig(
        layers=layers, heads=heads, width=10, mlp_ratio=mlp, positions="carried", position_size=2,
        length=task.positions, input_kind="vectors", input_size=4, output_size=4,
        readout=task.readout, init="gpt2",
    )  # fmt: skip
    model = Transformer.initial(config, torch.tensor([5]))
    with torch.no_grad():
        model.parameters.flat.mul_(
            4.0
        )  # far from the start, where attention is uniform and a clamp changes nothing
    return model


def path(layer: int, head: int) -> Path:
    return Path(
        layer=layer,
        head=head,
        roles=QUERIES,
        rule=Related(relation="hop_1"),
        query="query",
        target="second 1",
    )


CLAMPS = [
    (),
    (clamp_of(path(1, 0)),),
    (
        clamp_of(path(0, 1)),
        ReplacePattern(layer=1, heads=(1,), rows={"kind": 1}, by="one_hot", relation="pair_mate"),
    ),
]


def test_each_member_is_clamped_in_its_own_way_as_by_an_intervention():
    task = RetrievalTask(TASK)
    one = model_of(task)
    batch = task.sample(torch.tensor([3]), "test", 0, 13)
    clamps = [Edits(one, clamp, batch) for clamp in CLAMPS]
    found = clamped(one.select([0] * len(CLAMPS)), batch.inputs, clamps)
    edited = torch.cat([one(batch.inputs, clamp) for clamp in clamps])
    torch.testing.assert_close(found, edited, atol=1e-6, rtol=1e-5)
    assert min(float((found[a] - found[b]).abs().max()) for a, b in ((0, 1), (1, 2))) > 1e-3


def test_a_run_that_is_left_alone_is_the_training_itself():
    task = RetrievalTask(TASK)
    start = model_of(task)
    found = rerun(start, task, TRAINING, 17, 0, {"alone": ()}, steps=99, every=3, samples=19)
    trained = start.select([0])
    optimizer = Optimizer(trained.parameters, TRAINING)
    steps = TrainingSteps(ENGINES["general"], trained, task, TRAINING, torch.tensor([17]), optimizer)
    held_out = task.evaluation(19)
    losses = {}
    for step in range(TRAINING.steps + 1):
        with torch.no_grad():
            losses[step] = float(task.losses(trained(held_out.inputs), held_out)["loss"])
        if step < TRAINING.steps:
            steps.take(step)
    assert found.steps == (0, 3, 6, 7)
    assert found.losses["alone"]["loss"] == pytest.approx([losses[step] for step in found.steps], rel=1e-5)
    assert losses[0] != losses[7]


def reference_run(task, start, clamp, seed):
    """One member under one clamp, by interventions and torch's own AdamW (whose decay skips what is no matrix)."""
    model = start.select([0])
    weights = {name: view.detach().clone() for name, view in model.weights.items()}
    optimizer = Optimizer(model.parameters, TRAINING)
    for step in range(TRAINING.steps):
        batch = task.sample(torch.tensor([seed]), "train", step, TRAINING.batch_size)
        leaves = [view.requires_grad_() for view in model.weights.values()]
        predictions = model(batch.inputs, Edits(model, clamp, batch))
        loss = task.losses(predictions, batch)["loss"]
        found = torch.autograd.grad(loss.sum(), leaves)
        optimizer.step(step, loss.detach(), dict(zip(model.weights, found, strict=True)))
    held_out = task.evaluation(19)
    with torch.no_grad():
        predictions = model(held_out.inputs, Edits(model, clamp, held_out))
    moved = max(float((view.detach() - weights[name]).abs().max()) for name, view in model.weights.items())
    return float(task.losses(predictions, held_out)["loss"]), moved


@pytest.mark.parametrize("order", ["deepest-first", "random"])
def test_runs_side_by_side_are_the_runs_one_by_one(order):
    task = RetrievalTask(TASK.model_copy(update={"order": order}))
    start = model_of(task)
    names = {str(number): clamp for number, clamp in enumerate(CLAMPS)}
    found = rerun(start, task, TRAINING, 17, 0, names, steps=99, every=100, samples=19)
    for name, clamp in names.items():
        loss, moved = reference_run(task, start, clamp, 17)
        assert moved > 1e-3
        assert found.losses[name]["loss"][-1] == pytest.approx(loss, rel=1e-4)
    assert len({losses["loss"][-1] for losses in found.losses.values()}) == len(CLAMPS)


def test_a_later_start_takes_the_samples_of_its_steps():
    task = RetrievalTask(TASK)
    start = model_of(task)
    early = rerun(start, task, TRAINING, 17, 0, {"alone": ()}, steps=99, every=100, samples=19)
    late = rerun(start, task, TRAINING, 17, 4, {"alone": ()}, steps=99, every=100, samples=19)
    assert late.steps == (4, 7)
    assert early.losses["alone"]["loss"][0] == late.losses["alone"]["loss"][0]
    assert early.losses["alone"]["loss"][-1] != late.losses["alone"]["loss"][-1]


def test_a_run_takes_as_many_steps_as_are_asked_for():
    task = RetrievalTask(TASK)
    start = model_of(task)
    whole = rerun(start, task, TRAINING, 17, 0, {"alone": ()}, steps=99, every=1, samples=19)
    part = rerun(start, task, TRAINING, 17, 0, {"alone": ()}, steps=4, every=3, samples=19)
    assert part.steps == (0, 3, 4)
    assert part.losses["alone"]["loss"][-1] == whole.losses["alone"]["loss"][4]


def test_what_the_check_raises_ends_the_runs():
    task = RetrievalTask(TASK)

    def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        rerun(model_of(task), task, TRAINING, 17, 0, {"alone": ()}, steps=99, every=2, samples=3, check=late)


def test_a_control_is_the_nearest_head_that_reads_nothing_in_these_rows():
    used = [(1, 0, QUERIES), (1, 1, QUERIES), (2, 0, {"kind": 1, "step": 1})]
    (found,) = controls_of([path(1, 0)], used, layers=3, heads=2)
    assert (found.layer, found.heads, found.rows, found.by) == (0, (0,), QUERIES, "uniform")
    (later,) = controls_of([path(2, 1)], [*used, (2, 1, QUERIES)], layers=3, heads=2)
    assert (later.layer, later.heads) == (2, (0,))  # other rows of this head are in use, these are not


def test_several_paths_have_as_many_controls_each_another_head():
    used = [(1, 0, QUERIES), (1, 1, QUERIES)]
    found = controls_of([path(1, 0), path(1, 1)], used, layers=3, heads=2)
    assert [(each.layer, each.heads) for each in found] == [(0, (0,)), (0, (1,))]


def test_there_is_no_control_where_too_many_heads_read():
    used = [(layer, head, QUERIES) for layer in range(2) for head in range(2)]
    assert controls_of([path(0, 0)], used, layers=2, heads=2) is None
    assert controls_of([path(0, 0), path(0, 1)], used[1:], layers=2, heads=2) is None
