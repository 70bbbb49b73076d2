import itertools
import math
import warnings

import pytest
import torch

from hopscope.errors import TimeBudgetReached
from hopscope.runs import CheckpointWarning, RunFolder
from hopscope.training import trainer as module
from hopscope.training.restore import load_ensemble


def rows(trainer):
    """The record as (step, member, split, metric) → value."""
    table = RunFolder(trainer.unit.run_path).metrics().to_pylist()
    return {(row["step"], row["member"], row["split"], row["metric"]): row["value"] for row in table}


class Killed(BaseException):
    """Stands for the end of the process: nothing may catch it."""


# Record keeping.


def test_writes_what_it_promises(start, finish, job_of):
    job = job_of(5, 7, 11, first=17)
    trainer = start(job)
    reports = finish(trainer)
    assert [report.step for report in reports] == job.training.evaluation_steps()[1:]
    assert {report.steps for report in reports} == {13}
    steps = job.training.checkpoint_steps()
    assert [step for step, _ in trainer.unit.checkpoints()] == steps == [0, 1, 2, 4, 5, 10, 13]
    parts = sorted(path.name for path in (trainer.unit.path / "metrics").iterdir())
    bounds = [(0, 0), *[(a + 1, b) for a, b in itertools.pairwise(steps)]]
    assert parts == [f"part-{a:09d}-{b:09d}.parquet" for a, b in bounds]
    measured = rows(trainer)
    assert {step for step, *_ in measured} == set(job.training.evaluation_steps())
    assert {member for _, member, *_ in measured} == {17, 18, 19}
    names = {"loss", "loss_step_1", "loss_step_2", "loss_step_3"}
    assert {(split, metric) for _, _, split, metric in measured} == {
        ("held_out", "loss"),
        *(("train", name) for name in names),
    }
    samples = {
        (row["step"], row["samples"]) for row in RunFolder(trainer.unit.run_path).metrics().to_pylist()
    }
    assert samples == {(step, 7 * step) for step in job.training.evaluation_steps()}


def test_groups_and_places_are_recorded_apart(start, finish, job_of):
    trainer = start(job_of(5, 7))
    values = {
        ("held_out", "loss"): torch.tensor([1.0, 2.0]),
        ("held_out", "loss@repeat"): torch.tensor([3.0, math.nan]),
        ("held_out", "seen", "watching", None, 1, 2): torch.tensor([5.0, 7.0]),
    }
    trainer.evaluate = lambda model, members: values
    finish(trainer)
    last = [
        row
        for row in RunFolder(trainer.unit.run_path).metrics().to_pylist()
        if row["step"] == 13 and row["split"] == "held_out"
    ]
    places = ("metric", "measure", "part", "layer", "head")
    found = {(row["member"], *(row[name] for name in places)): row["value"] for row in last}
    assert math.isnan(found.pop((1, "loss", None, "repeat", None, None)))
    assert found == {
        (0, "loss", None, None, None, None): 1.0,
        (1, "loss", None, None, None, None): 2.0,
        (0, "loss", None, "repeat", None, None): 3.0,
        (0, "seen", "watching", None, 1, 2): 5.0,
        (1, "seen", "watching", None, 1, 2): 7.0,
    }


def test_training_loss_is_the_mean_since_the_last_record(start, finish, job_of):
    often, seldom = (start(job_of(5, 7, evaluate_every=every), name=str(every)) for every in (1, 5))
    finish(often)
    finish(seldom)
    each, together = rows(often), rows(seldom)
    for member in (0, 1):
        losses = [each[step, member, "train", "loss"] for step in range(6, 11)]
        assert together[10, member, "train", "loss"] == pytest.approx(sum(losses) / 5, rel=1e-6)
        parts = [each[7, member, "train", f"loss_step_{slot}"] for slot in (1, 2, 3)]
        assert each[7, member, "train", "loss"] == pytest.approx(sum(parts) / 3, rel=1e-5)


def test_only_the_last_two_checkpoints_can_be_resumed(start, finish, job_of):
    trainer = start(job_of(5, 7))
    finish(trainer)
    with_state = []
    for step, _ in trainer.unit.checkpoints():
        _, tensors, metadata = trainer.unit.checkpoint(step)
        assert metadata == {"step": step, "frozen_at": [-1, -1]}
        if any(name.startswith("optimiser/") for name in tensors):
            with_state.append(step)
    assert with_state == [10, 13]


def test_learns(start, finish, job_of):
    trainer = start(job_of(5, 7, steps=200, batch_size=31, checkpoint_every=200, learning_rate=0.01))
    finish(trainer)
    measured = rows(trainer)
    guessing = math.log(3)
    for member in (0, 1):
        assert measured[1, member, "train", "loss"] > guessing
        assert measured[200, member, "train", "loss"] < guessing - 0.1


# Members.


def assert_same_training(found, expected):
    """The same weights to rounding, which depends on where a member's numbers lie in memory."""
    for name, weight in expected.weights.items():
        # A key bias shifts all scores of a row alike: its gradient is rounding, which Adam makes full steps of.
        if name != "layers.0.attention.key.bias":
            torch.testing.assert_close(found.weights[name], weight, rtol=1e-4, atol=1e-4, msg=name)
            assert (found.weights[name] - weight).norm() <= 2e-5 * weight.norm(), name


def test_alone_as_among_others(start, finish, job_of):
    fields = {"steps": 100, "checkpoint_every": 50, "clip_norm": 0.5, "warmup_steps": 17}
    together = start(job_of(5, 7, 11, **fields), name="together")
    finish(together)
    for index, seed in enumerate((5, 7, 11)):
        alone = start(job_of(seed, **fields), name=f"seed {seed}")
        finish(alone)
        assert_same_training(alone.model.select([0]), together.model.select([index]))


def test_order_of_members_does_not_matter(start, finish, job_of):
    forwards, backwards = start(job_of(5, 7, 11), name="a"), start(job_of(11, 7, 5), name="b")
    finish(forwards)
    finish(backwards)
    assert_same_training(forwards.model, backwards.model.select([2, 1, 0]))


def test_weights_and_data_have_their_own_seeds(start, finish, job_of):
    job = job_of(5, 5, 5)
    changed = [{}, {"init_seed": 7}, {"data_seed": 7}]
    members = tuple(m.model_copy(update={"overrides": o}) for m, o in zip(job.members, changed, strict=True))
    trainer = start(job.model_copy(update={"members": members}))
    first = trainer.model.parameters.flat.detach().clone()
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])
    finish(trainer)
    assert not torch.equal(trainer.model.parameters.flat[0], trainer.model.parameters.flat[2])


# Divergence.


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_diverging_member_stops_alone(start, finish, job_of, failing, factor):
    job = job_of(5, 7, 11, first=2)
    healthy = start(job, name="healthy")
    finish(healthy)
    spoilt = start(job, name="spoilt", task=failing(job.task, index=1, step=6, factor=factor))
    reports = finish(spoilt)

    assert spoilt.diverged_at == [-1, 8, -1]  # noticed at the first record after step 6
    assert torch.equal(spoilt.model.parameters.flat[[0, 2]], healthy.model.parameters.flat[[0, 2]])
    before = load_ensemble(spoilt.unit, 5)
    assert not torch.equal(spoilt.model.parameters.flat[1], before.parameters.flat[1])
    assert bool(spoilt.model.parameters.flat.isfinite().all())
    frozen = [event for event in RunFolder(spoilt.unit.run_path).events() if event["kind"] == "member frozen"]
    assert [(event["member"], event["step"]) for event in frozen] == [(3, 8)]
    assert [report.diverged for report in reports] == [[3] if report.step >= 8 else [] for report in reports]
    expected = {key: value for key, value in rows(healthy).items() if key[1] != 3 or key[0] < 8}
    assert rows(spoilt) == expected


def test_weights_that_overflow_in_the_last_step_are_noticed(start, finish, job_of):
    """Their loss was finite, and no later loss exists to tell."""
    trainer = start(job_of(5, 7, steps=1, learning_rate=1e39))
    finish(trainer)
    assert trainer.optimizer.first_moment.isfinite().all()
    assert not trainer.model.parameters.flat.isfinite().all()
    assert trainer.diverged_at == [1, 1]
    assert {step for step, *_ in rows(trainer)} == {0}


def test_a_diverged_member_stays_diverged_after_resuming(start, finish, job_of, failing, record):
    job = job_of(5, 7, 11)
    whole = start(job, name="whole", task=failing(job.task, index=1, step=6, factor=float("nan")))
    finish(whole)
    for _ in range(9):
        pieces = start(job, name="pieces", task=failing(job.task, index=1, step=6, factor=float("nan")))
        try:
            finish(pieces, seconds=0.0)
            break
        except TimeBudgetReached:
            continue
    assert record(pieces.unit) == record(whole.unit)
    assert pieces.diverged_at == [-1, 8, -1]


# Stopping and going on.


@pytest.fixture
def undisturbed(start, finish, job_of, record):
    trainer = start(job_of(5, 7), name="undisturbed")
    finish(trainer)
    return record(trainer.unit)


def test_every_call_makes_progress_whatever_the_budget(start, finish, job_of, record, undisturbed):
    steps = []
    for _ in range(99):
        trainer = start(job_of(5, 7))
        try:
            finish(trainer, seconds=0.0)
            break
        except TimeBudgetReached:
            steps.append(trainer.step)
    assert steps == [1, 2, 4, 5, 10]
    assert trainer.step == 13
    assert record(trainer.unit) == undisturbed


@pytest.mark.parametrize("name", ["write_part", "save_checkpoint", "strip_checkpoint", "drop_parts_after"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_around_every_write(start, finish, job_of, record, undisturbed, monkeypatch, name, after):
    """Each attempt gets one write further than the one before it."""
    genuine = getattr(module, name)
    allowed, done, reached = 0, 0, []

    def write(*arguments):
        nonlocal done
        if done == allowed and not after:
            raise Killed
        genuine(*arguments)
        done += 1
        if done == allowed + 1 and after:
            raise Killed

    monkeypatch.setattr(module, name, write)
    while len(reached) < 20:
        done, allowed = 0, len(reached)
        trainer = start(job_of(5, 7))
        try:
            finish(trainer)
            break
        except Killed:
            reached.append(trainer.step)
    monkeypatch.undo()
    trainer = start(job_of(5, 7))
    finish(trainer)
    assert 1 <= len(reached) < 20
    assert reached == sorted(reached)
    assert record(trainer.unit) == undisturbed


def test_killed_in_the_last_stripping(start, finish, job_of, record, undisturbed, monkeypatch):
    """No later step remains that would catch up on it."""
    trainer = start(job_of(5, 7))
    genuine = module.strip_checkpoint

    def strip(path):
        if trainer.step == 13:
            raise Killed
        genuine(path)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, "strip_checkpoint", strip)
        finish(trainer)
    assert record(trainer.unit) != undisturbed
    finish(start(job_of(5, 7)))
    assert record(trainer.unit) == undisturbed


def test_parts_after_the_checkpoint_are_dropped(start, finish, job_of, monkeypatch):
    """Until they are trained again, the record must not tell of steps that have no weights."""
    trainer = start(job_of(5, 7))
    finish(trainer)
    assert max(step for step, *_ in rows(trainer)) == 13
    trainer.unit.checkpoint_path(13).unlink()

    def die(*arguments):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, "write_part", die)
        finish(start(job_of(5, 7)))
    assert max(step for step, *_ in rows(trainer)) == 10


def test_nothing_is_repeated_once_it_is_done(start, finish, job_of, record, undisturbed):
    finish(start(job_of(5, 7)))
    again = start(job_of(5, 7))
    assert finish(again) == []
    assert again.step == 13
    assert record(again.unit) == undisturbed


DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "one bit": lambda content: content[:-5] + bytes([content[-5] ^ 4]) + content[-4:],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_checkpoint_is_passed_over(start, finish, job_of, record, undisturbed, how):
    trainer = start(job_of(5, 7))
    finish(trainer)
    path = trainer.unit.checkpoint_path(13)
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    again = start(job_of(5, 7))
    with pytest.warns(CheckpointWarning, match="going on from step-000000010") as caught:
        reports = finish(again)
    assert len(caught) == 1
    assert [report.step for report in reports] == [12, 13]
    assert record(again.unit) == undisturbed


def test_without_a_sound_checkpoint_it_starts_over(start, finish, job_of, record, undisturbed):
    trainer = start(job_of(5, 7))
    finish(trainer)
    for step in (10, 13):
        path = trainer.unit.checkpoint_path(step)
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning, match="starting from the beginning"):
        finish(start(job_of(5, 7)))
    assert record(trainer.unit) == undisturbed


def test_no_warning_without_a_reason(start, finish, job_of):
    with pytest.raises(TimeBudgetReached):
        finish(start(job_of(5, 7)), seconds=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finish(start(job_of(5, 7)))
