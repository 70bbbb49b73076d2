"""A completion sets start and schedule in one word, and what is given beside it wins: in Python, in a record, on the
command line."""

import pytest
import torch

import hopscope as hs
from hopscope.cli.run import read_options
from hopscope.completion import COMPLETION_NAMES, COMPLETIONS, departures
from hopscope.errors import UserError
from hopscope.studies import find_study
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.program import Program
from hopscope.studies.record import as_run
from hopscope.training.config import TrainJob

GPT2 = {"init": "gpt2", "warmup_steps": 0, "beta2": 0.999, "schedule": "constant", "clip_norm": None}
TORCH = {"init": "linear", "warmup_steps": 130, "beta2": 0.95, "schedule": "cosine", "clip_norm": 1.0}
"""What two completions set in 1,300 steps."""


def study(**fields):
    """Three steps of a chain; two configurations that differ in their completion, unless the fields say otherwise."""
    given = {
        "task": hs.tasks.Retrieval(steps=1, chains=2, symbol_dim=2),
        "model": hs.Model(layers=1, width=6),
        "training": hs.Training(steps=1_300, batch_size=5),
        **fields,
    }
    return hs.Study(name="small", **given)


def found(job: TrainJob):
    """What a unit is trained by, of the fields of a completion."""
    model, training = job.model, job.training
    values = {name: getattr(training, name) for name in ("warmup_steps", "schedule", "clip_norm")}
    return {"init": model.init, "beta2": training.betas[1], **values}


def jobs(made):
    """The units of a study, planned anew from the record of its run."""
    program = Program(made)
    config = program.configured(None, {})
    recorded = type(config).model_validate_json(config.model_dump_json())
    assert program.run_hash(recorded) == program.run_hash(config)
    again = Program(as_run(made, recorded))
    assert again.jobs(recorded) == program.jobs(config)
    return program.jobs(config)


@pytest.mark.parametrize("name", COMPLETION_NAMES)
def test_a_completion_sets_what_nobody_gives(name):
    said = COMPLETIONS[name].values(1_300)
    (job,) = jobs(study(completion=name, seeds=1))
    assert found(job) == {key: value for key, value in said.items() if key != "final_rate"}
    assert job.training.optimizer == "adamw" and job.training.final_rate == 0.1


def test_the_default_is_torch_schedule():
    (job,) = jobs(study(seeds=1))
    assert found(job) == TORCH
    assert hs.Model().init == "linear"
    assert [hs.Training(steps=steps).warmup_steps for steps in (7, 1_300, 9_000)] == [0, 130, 200]


def test_what_is_given_wins_and_the_record_says_so():
    given = hs.Training(steps=1_300, batch_size=5, clip_norm=1.0, schedule="constant")
    made = study(training=given, vary={"completion": ["gpt2-base", "torch-schedule"]}, seeds=1)
    assert Program(made).configured(None, {}).given == ["training.schedule", "training.clip_norm"]
    one, other = jobs(made)
    assert found(one) == {**GPT2, "clip_norm": 1.0}
    assert found(other) == {**TORCH, "schedule": "constant"}


def test_a_preset_changes_the_length_and_with_it_the_warm_up():
    made = study(seeds=1, presets={"smoke": {"training.steps": 40}})
    assert Program(made).chosen("smoke", {}).training.warmup_steps == 4
    fixed = study(
        seeds=1, training=hs.Training(steps=1_300, warmup_steps=7), presets={"smoke": {"training.steps": 40}}
    )
    assert Program(fixed).chosen("smoke", {}).training.warmup_steps == 7


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {}),
        (["--completion", "gpt2-base"], GPT2),
        # As the preset has it, and yet given: the field wins over the completion.
        (["--completion", "gpt2-base", "--clip-norm", "1.0"], {**GPT2, "clip_norm": 1.0}),
        (["--clip-norm", "None", "--beta2", "0.999"], {"clip_norm": None, "beta2": 0.999}),
        (["--init", "0.61"], {"init": 0.61}),
    ],
)
def test_the_command_line_names_a_completion(flags, expected):
    _, config = read_options(find_study("circuits"), ["--training-steps", "1300", *flags])
    assert {name: getattr(config, name) for name in TORCH} == {**TORCH, **expected}
    departing = {"clip_norm": 1.0} if expected == {**GPT2, "clip_norm": 1.0} else expected
    assert config.departures == ({} if expected == GPT2 else departing)


def test_a_declared_study_has_the_flag_too():
    program = find_study("capacity")
    _, config = read_options(program, ["--completion", "torch-schedule"])
    assert config.completion == "torch-schedule" and config.training["schedule"] == "cosine"
    assert config.training["clip_norm"] == 1.0 and "training.clip_norm" in config.given


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--completion", "torch"], "completion: expected one of gpt2-base, .*, found 'torch'"),
        (
            ["--init", "0"],
            "init: expected gpt2, linear, encoder, mimetic, or a number γ with 0 < γ <= 4 .* found 0",
        ),
        (["--init", "nan"], "init: expected gpt2, .*, found nan"),
        (
            ["--warmup-steps", "2000"],
            "warmup_steps: expected at most the .* steps of the training, found 2,000",
        ),
        (["--final-rate", "1.5"], "final_rate: expected less than or equal to 1, found 1.5"),
    ],
)
def test_bad_input_is_one_line(flags, words):
    with pytest.raises(UserError, match=words) as caught:
        read_options(find_study("circuits"), flags)
    assert "\n" not in str(caught.value)


def test_a_study_refuses_a_completion_that_there_is_not():
    with pytest.raises(UserError, match=r"study 'small': completion: expected 'gpt2-base'.*, found 'torch'"):
        study(completion="torch")
    with pytest.raises(UserError, match=r"completion: expected .* found 'torch'"):
        study(vary={"completion": ["torch"]}).grid()


def test_departures_are_the_fields_that_differ():
    assert departures("torch-schedule", 1_300, TORCH) == {}
    assert departures("gpt2-base", 1_300, {**GPT2, "init": 0.5}) == {"init": 0.5}


def test_records_from_before_there_were_completions():
    """They name no schedule where the rate was constant, and call the start of an encoder layer `torch`."""
    config = CircuitsConfig.model_validate({"beta2": 0.95, "warmup_steps": 0, "clip_norm": None})
    assert (config.completion, config.init, config.schedule) == ("gpt2-base", "gpt2", "constant")
    (job,) = jobs(study(completion="torch-base", seeds=1))
    record = job.model_dump(mode="json")
    assert "schedule" not in record["training"]
    record["model"]["init"] = "torch"
    read = TrainJob.model_validate(record)
    assert (read.training.schedule, read.model.init) == ("constant", "encoder")


def test_training_without_a_run_takes_a_completion():
    model, training = hs.Model(layers=1, width=6, init=0.5), hs.Training(steps=1, batch_size=5)
    task = hs.tasks.Retrieval(steps=1, chains=2, symbol_dim=2)
    ends = {
        name: hs.train(task, model, training, seeds=2, completion=name).transformer.parameters.flat
        for name in ("torch-schedule", "torch-base", "gpt2-base")
    }
    assert torch.equal(ends["torch-base"], ends["gpt2-base"])  # the start is given
    assert not torch.equal(ends["torch-schedule"], ends["torch-base"])
