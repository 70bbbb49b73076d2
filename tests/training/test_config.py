import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.training.config import COMPLETION_NAMES, DEFAULT, Training, completed, departures

COUNTS = st.integers(1, 700)


@given(COUNTS, COUNTS, COUNTS)
def test_schedules(steps, checkpoint_every, evaluate_every):
    training = Training(steps=steps, checkpoint_every=checkpoint_every, evaluate_every=evaluate_every)
    checkpoints, evaluations = training.checkpoint_steps(), training.evaluation_steps()
    for schedule, every in ((checkpoints, checkpoint_every), (evaluations, evaluate_every)):
        assert schedule == sorted(set(schedule)) and (schedule[0], schedule[-1]) == (0, steps)
        assert set(range(0, steps + 1, every)) <= set(schedule)
        assert {2**n for n in range(10) if 2**n < min(every, steps)} <= set(schedule)
    assert set(checkpoints) <= set(evaluations)
    for step in checkpoints:
        assert (
            step % checkpoint_every == 0
            or step == steps
            or (step & (step - 1) == 0 and step < checkpoint_every)
        )


def test_the_final_window_is_evaluated_more_often():
    training = Training(steps=23, evaluate_every=10, checkpoint_every=20, final_window=6, final_every=2)
    assert training.evaluation_steps() == [0, 1, 2, 4, 8, 10, 16, 19, 20, 21, 23]
    assert training.final_steps() == [19, 20, 21, 23] and Training(steps=23).final_steps() == [23]
    longer = Training(steps=3, final_window=5)
    assert longer.final_steps() == [1, 2, 3], "the loss before training is not among the last ones"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("batch_size", 0), ("learning_rate", 0.0), ("learning_rate", float("inf")), ("betas", (0.9, 1.0)),
        ("epsilon", 0.0), ("weight_decay", -0.1), ("clip_norm", 0.0), ("warmup_steps", -1), ("final_rate", 1.5),
        ("checkpoint_every", 0), ("optimizer", "sgd"), ("precision", "float16"), ("examples", 0),
    ],
)  # fmt: skip
def test_refuses(field, value):
    with pytest.raises(ValidationError) as caught:
        Training.model_validate({"steps": 3, field: value})
    assert caught.value.errors()[0]["loc"][0] == field


def test_a_warm_up_is_no_longer_than_the_training():
    assert Training(steps=3, warmup_steps=3).warmup_steps == 3
    with pytest.raises(
        UserError, match="warmup_steps: expected at most the 3 steps of the training, found 4"
    ):
        Training(steps=3, warmup_steps=4)


@pytest.mark.parametrize("name", COMPLETION_NAMES)
def test_a_completion_sets_what_is_not_given(name):
    model, training = completed(name, Model(), Training(steps=3000))
    assert departures(name, model, training) == {}
    assert Training.model_validate_json(training.model_dump_json()) == training
    base, schedule = name.endswith("base"), training.schedule
    assert (model.init, schedule) == (name[:4].replace("torc", "linear"), "constant" if base else "cosine")
    assert (training.warmup_steps, training.betas, training.clip_norm) == (
        (0, (0.9, 0.999), None) if base else (200, (0.9, 0.95), 1.0)
    )
    given = completed(name, Model(init="mimetic"), Training(steps=3000, clip_norm=0.5, weight_decay=0.3))
    assert departures(name, *given) == {"model.init": "mimetic", "training.clip_norm": 0.5}


def test_what_is_not_said_is_as_the_default_completion_sets_it():
    assert departures(DEFAULT, Model(), Training(steps=3000)) == {}


def test_a_configuration_loads_no_torch():
    code = "import sys; from hopscope.training import config, engines; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
