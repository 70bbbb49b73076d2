import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hopscope.training.config import MemberPlan, TrainingConfig

COUNTS = st.integers(1, 700)


@given(COUNTS, COUNTS, COUNTS)
def test_schedules(steps, checkpoint_every, evaluate_every):
    config = TrainingConfig(steps=steps, checkpoint_every=checkpoint_every, evaluate_every=evaluate_every)
    checkpoints, evaluations = config.checkpoint_steps(), config.evaluation_steps()
    for schedule, every in ((checkpoints, checkpoint_every), (evaluations, evaluate_every)):
        assert schedule == sorted(set(schedule))
        assert (schedule[0], schedule[-1]) == (0, steps)
        assert set(range(0, steps + 1, every)) <= set(schedule)
        assert {2**n for n in range(10) if 2**n < min(every, steps)} <= set(schedule)
    assert set(checkpoints) <= set(evaluations)


@given(COUNTS, COUNTS)
def test_nothing_else_is_a_checkpoint(steps, every):
    for step in TrainingConfig(steps=steps, checkpoint_every=every).checkpoint_steps():
        is_power = step & (step - 1) == 0 and step < every
        assert step % every == 0 or step == steps or is_power


def test_checkpoints_written_out():
    assert TrainingConfig(steps=23, checkpoint_every=7).checkpoint_steps() == [0, 1, 2, 4, 7, 14, 21, 23]
    assert TrainingConfig(steps=3, checkpoint_every=500).checkpoint_steps() == [0, 1, 2, 3]
    assert TrainingConfig(steps=5, checkpoint_every=1).checkpoint_steps() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("batch_size", 0), ("learning_rate", 0.0), ("learning_rate", float("inf")),
        ("betas", (0.9, 1.0)), ("betas", (-0.1, 0.9)), ("epsilon", 0.0), ("weight_decay", -0.1),
        ("clip_norm", 0.0), ("warmup_steps", -1),
        ("final_rate", 1.5), ("final_rate", -0.1),
        ("checkpoint_every", 0), ("optimizer", "sgd"),
    ],
)  # fmt: skip
def test_refuses(field, value):
    with pytest.raises(ValidationError) as caught:
        TrainingConfig.model_validate({"steps": 3, field: value})
    assert caught.value.errors()[0]["loc"][0] == field


def test_a_warm_up_is_no_longer_than_the_training():
    assert TrainingConfig(steps=3, warmup_steps=3).warmup_steps == 3
    with pytest.raises(
        ValidationError, match="warmup_steps: expected at most the 3 steps of the training, found 4"
    ):
        TrainingConfig(steps=3, warmup_steps=4)


def test_seeds_of_weights_and_data_can_differ():
    plain = MemberPlan(member=0, seed=5)
    assert (plain.init_seed, plain.data_seed) == (5, 5)
    mixed = MemberPlan(member=0, seed=5, overrides={"init_seed": 7, "data_seed": 11})
    assert (mixed.init_seed, mixed.data_seed) == (7, 11)
