"""Members in parts where memory is short: planted out-of-memory errors, and the undisturbed steps beside them."""

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import ENGINES, Engine
from hopscope.training.optimizer import Optimizer
from hopscope.training.restore import load_ensemble
from hopscope.training.steps import Fitting, TrainingSteps, is_out_of_memory
from hopscope.training.trainer import Trainer

from .conftest import evaluator, make_unit

GENERAL = ENGINES["general"]


class Memory(Engine):
    """Room for so many members: gradients and evaluations of more run out of it, from some step on."""

    def __init__(self, room, since=0):
        super().__init__(**vars(GENERAL))
        # The value is frozen for those who share it; nobody shares this one.
        vars(self).update(room=room, since=since, sizes=[])

    def gradient(self, model, task, training, seeds, buffer):
        real = GENERAL.gradient(model, task, training, seeds, buffer)

        def gradient(step):
            if step >= self.since and model.members > self.room:
                buffer.fill_(torch.nan)  # what a failed attempt leaves behind
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 17 GiB")
            self.sizes.append(model.members)
            return real(step)

        return gradient

    def evaluator(self, task):
        real = evaluator(task)

        def evaluate(model, members):
            if model.members > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 19 GiB")
            return {**real(model, members), ("held_out", "place"): torch.tensor([*members])}

        return evaluate


def steps_of(job, memory=None, precision="float32"):
    training = job.training.model_copy(update={"precision": precision})
    seeds = torch.tensor([member.seed for member in job.members])
    model = Transformer.initial(job.model, seeds)
    heard = []
    optimizer = Optimizer(model.parameters, training)
    engine, task = memory or GENERAL, PermutationTask(job.task)
    steps = TrainingSteps(engine, model, task, training, seeds, optimizer, heard.append)
    return steps, heard


@pytest.mark.parametrize(("room", "heard"), [(7, []), (4, [3]), (2, [3, 1]), (1, [3, 1])])
def test_members_in_parts_take_the_steps_that_they_take_together(job_of, room, heard):
    job = job_of(2, 3, 5, 7, 11, 13, 17, weight_decay=0.1, optimizer="adamw", clip_norm=0.3)
    memory = Memory(room, since=2)
    whole, parted = steps_of(job)[0], steps_of(job, memory)
    for step in range(5):
        expected, found = whole.take(step), parted[0].take(step)
        assert list(found) == list(expected)
        for name, losses in expected.items():
            torch.testing.assert_close(found[name], losses, rtol=1e-5, atol=1e-5)
    assert parted[1] == heard
    size = 7 if not heard else heard[-1]
    assert parted[0].fitting.at_a_time == size
    assert set(memory.sizes) == {7, size}
    torch.testing.assert_close(
        parted[0].model.parameters.flat, whole.model.parameters.flat, rtol=1e-4, atol=1e-4
    )


def test_every_part_has_one_size_and_every_member_is_in_one():
    for members in range(1, 20):
        fitting = Fitting(members, "", "", lambda size: None)
        for size in range(1, members + 1):
            fitting.at_a_time = size
            parts = fitting.parts
            assert {part.stop - part.start for part in parts} == {size}
            assert len(parts) == -(-members // size)
            assert {member for part in parts for member in range(part.start, part.stop)} == set(
                range(members)
            )


def test_one_member_that_does_not_fit_is_one_clear_line(job_of):
    steps, heard = steps_of(job_of(2, 3, 5), Memory(0))
    with pytest.raises(UserError) as raised:
        steps.take(0)
    assert heard == [1]
    message = str(raised.value)
    assert "one member" in message and "batch size below 7" in message and "\n" not in message


def test_other_errors_are_not_taken_for_it(job_of):
    class Broken(Engine):
        def gradient(self, model, task, training, seeds, buffer):
            def gradient(step):
                raise RuntimeError("expected a square, found a circle")

            return gradient

    job = job_of(2, 3)
    seeds = torch.tensor([2, 3])
    model = Transformer.initial(job.model, seeds)
    optimizer = Optimizer(model.parameters, job.training)
    steps = TrainingSteps(
        Broken(**vars(GENERAL)), model, PermutationTask(job.task), job.training, seeds, optimizer
    )
    with pytest.raises(RuntimeError, match="circle"):
        steps.take(0)
    assert steps.fitting.at_a_time == 2
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_a_rounded_unit_splits_too(job_of):
    job = job_of(2, 3, 5)
    whole, parted = steps_of(job, precision="bfloat16"), steps_of(job, Memory(1), precision="bfloat16")
    full = steps_of(job)[0].take(0)["loss"]
    expected, found = whole[0].take(0)["loss"], parted[0].take(0)["loss"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert not torch.equal(expected, full)


def test_a_unit_that_was_split_has_the_record_of_one_that_was_not(tmp_path, job_of, finish):
    job = job_of(2, 3, 5, 7, 11, steps=6, checkpoint_every=3)
    task = PermutationTask(job.task)
    ends, tables = [], []
    for memory in (Memory(5), Memory(2, since=4)):
        unit = make_unit(tmp_path / str(memory.room), job)
        trainer = Trainer(job, task, unit, memory.evaluator(task), engine=memory)
        finish(trainer)
        splits = [event for event in RunFolder(unit.run_path).events() if event["kind"] == "unit split"]
        table = RunFolder(unit.run_path).metrics().to_pylist()
        ends.append((splits, load_ensemble(unit).parameters.flat))
        tables.append({tuple(list(row.values())[:-1]): row["value"] for row in table})
    (none, expected), (splits, found) = ends
    assert none == []
    words = [(split["work"], split["step"], split["members"], split["at_a_time"]) for split in splits]
    assert words == [("evaluation", 0, 5, 2), ("training", 4, 5, 2)]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert tables[1] == pytest.approx(tables[0], rel=1e-4)


def test_an_evaluation_that_does_not_fit_is_one_clear_line(tmp_path, job_of, finish):
    job = job_of(2, 3)
    task = PermutationTask(job.task)
    trainer = Trainer(job, task, make_unit(tmp_path, job), Memory(0).evaluator(task))
    with pytest.raises(UserError, match=r"evaluation: .*one member.*held-out samples"):
        finish(trainer)


# Precision.


def test_rounded_products_learn_what_full_ones_do():
    """Two members, one retrieval step: both find the pair, and end at the same losses in the same order."""
    task = RetrievalTask(RetrievalConfig(chains=2, steps=1, symbol_dim=2, position="pair"))
    shape = TransformerConfig(
        layers=2,
        heads=2,
        width=32,
        mlp_ratio=0.0,
        length=task.positions,
        input_kind="vectors",
        input_size=task.input_size,
        output_size=task.output_size,
        positions="carried",
        position_size=2,
        readout=task.readout,
    )
    held_out, seeds = task.evaluation(1009, annotate=False), torch.tensor([5, 7])
    ends = []
    for precision in ("float32", "bfloat16"):
        training = TrainingConfig(
            steps=150, batch_size=61, learning_rate=0.002, schedule="constant", precision=precision
        )
        model = Transformer.initial(shape, seeds)
        steps = TrainingSteps(GENERAL, model, task, training, seeds, Optimizer(model.parameters, training))
        for step in range(training.steps):
            steps.take(step)
        with torch.no_grad():
            ends.append(task.losses(model(held_out.inputs), held_out)["loss_step_1"])
    full, rounded = ends
    assert (full < 0.3).all(), "half of the plateau of 0.5 and a little more"
    assert not torch.equal(full, rounded)
    torch.testing.assert_close(rounded, full, rtol=0.0, atol=0.01)
    assert torch.equal(rounded.argsort(), full.argsort())
