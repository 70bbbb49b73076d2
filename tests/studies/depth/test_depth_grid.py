"""What is trained: the paper's table, the laptop's, and what is refused."""

import pytest
from pydantic import ValidationError

from hopscope.completion import COMPLETIONS
from hopscope.studies import find_study
from hopscope.studies.depth.config import AXES, FURTHER, PRESETS, Configuration, DepthStudyConfig, Reading


def test_the_paper_preset_is_the_papers_table():
    config = PRESETS["paper"]
    units = config.jobs()
    assert sum(len(unit.members) for unit in units) == 128 and all(len(unit.members) == 8 for unit in units)
    for asked, steps in (("IC", 5), ("non-IC", 3)):
        depths = [each.layers for each in config.base() if each.asked == asked]
        assert depths == list(range(1, 9))
        assert all(each.steps == steps for each in config.base() if each.asked == asked)
    unit = units[-1]
    assert (unit.model.heads, unit.model.width, unit.model.head_size, unit.model.mlp_size) == (
        8,
        128,
        16,
        512,
    )
    assert (unit.training.steps, unit.training.batch_size, unit.task.pool) == (10_000, 512, 2**20)
    assert (unit.training.learning_rate, unit.training.weight_decay) == (1e-3, 0.1)
    assert not any(config.protocol_deviations(each) for each in config.base())


def test_final_loss_is_a_mean_over_the_last_hundred_steps():
    final = PRESETS["paper"].training(PRESETS["paper"].deepest()).final_steps()
    assert final == list(range(9_901, 10_001))


def test_the_laptop_has_six_seeds_of_the_deepest_model():
    config = PRESETS["laptop"]
    assert config.seeds_of(config.deepest()) >= 6
    assert any(each.asked == "non-IC" for each in config.base())


def test_members_are_numbered_through_and_know_their_configuration():
    config = DepthStudyConfig(sweeps=("steps", "specification"), members_per_unit=2)
    members = [member for unit in config.jobs() for member in unit.members]
    assert [member.member for member in members] == list(range(len(members)))
    by_name = {each.name: each for each in config.grid()}
    found = [by_name[unit.label] for unit in config.jobs() for _ in unit.members]
    assert list(dict.fromkeys(found)) == config.grid()
    assert [member.overrides for member in members] == [each.overrides() for each in found]
    assert len({str(each.overrides()) for each in config.grid()}) == len(config.grid())
    for each in config.grid():
        seeds = [m.seed for m, of in zip(members, found, strict=True) if of == each]
        assert seeds == list(range(config.seeds_of(each)))


def test_names_tell_configurations_apart():
    names = [each.name for each in DepthStudyConfig(sweeps=("steps", "specification")).grid()]
    assert len(set(names)) == len(names)


def test_readings_go_through_all_axes_once():
    for own in ({}, {"causal": False, "beta2": 0.999}):
        config = DepthStudyConfig(sweeps=("specification",), **own)
        readings = config.readings()
        assert readings[0] == Reading() and len(readings) == 16
        seen = {
            tuple(getattr(config.of(Configuration("IC", 3, 1, each)), name) for name in AXES)
            for each in readings
        }
        assert len(seen) == 16


def test_every_detail_is_changed_by_itself():
    """Beside the study's own recipe; clipping can be taken away where the study has it."""
    config = DepthStudyConfig(sweeps=("details",), clip_norm=1.0)
    first, *others = config.readings()
    assert first == Reading() and len(others) == 14
    assert all(len(each.changes) == 1 for each in others)
    assert {name for each in others for name in each.changes} == {*AXES, *FURTHER}
    assert len({each.words for each in others}) == 14 and all(each.words for each in others)
    clipping = [config.under(each).clip_norm for each in others if each.completion is None]
    assert clipping.count(None) == 1 and clipping.count(1.0) == 10
    jobs = {config.training(each).model_dump_json() + config.task(each).model_dump_json()
            + config.model(each).model_dump_json() for each in config.grid() if each.asked == "IC"
            and each.layers == 6}  # fmt: skip
    assert len(jobs) == 15


def test_a_completion_is_changed_whole():
    """What the study gives of it itself gives way: a reading is one of the registered ones."""
    config = PRESETS["completions"].model_copy(update={"beta2": 0.5})
    _, *others = config.readings()
    assert [each.words for each in others] == ["gpt2-base", "gpt2-schedule", "torch-base"]
    for each in others:
        said = COMPLETIONS[each.completion].values(config.training_steps)
        under = config.under(each)
        assert {name: getattr(under, name) for name in said} == said


def test_a_sweep_changes_the_details_that_it_is_asked_for():
    config = DepthStudyConfig(sweeps=("details",), details=("order", "decay"))
    _, *others = config.readings()
    assert [each.changes for each in others] == [
        {"order": "shallowest-first"}, {"order": "random"}, {"decay": "all"},
    ]  # fmt: skip
    assert "details" in config.model_dump() and "details" not in DepthStudyConfig().model_dump()


def test_both_sweeps_of_readings_name_each_once():
    config = DepthStudyConfig(sweeps=("specification", "details"))
    names = [each.name for each in config.grid()]
    assert len(config.readings()) == 16 + 10 and len({*names}) == len(names)


def test_a_value_off_the_axes_is_a_reading_of_its_own():
    config = DepthStudyConfig(sweeps=("specification",), beta2=0.98)
    assert config.readings()[0] == Reading() and len(config.readings()) == 17


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"chains": 0}, "chains"),
        ({"steps": 0}, "steps"),
        ({"symbol_dim": 5}, "even number"),
        ({"order": (1, 3)}, "permutation of 1 to 2, found [1, 3]"),
        ({"order": (1, 2, 2)}, "permutation of 1 to 2"),
        ({"pool": 63}, "at least the 64 samples of a batch, found 63"),
        ({"layers": (2, 1)}, "ascending"),
        ({"layers": (), "layers_last": ()}, "at least one number of layers"),
        ({"sweeps": ("depth",)}, "sweeps"),
        ({"details": ("mask",)}, "details: expected some of causal"),
        ({"heads": 3}, "multiple of heads"),
    ],
)
def test_what_cannot_be_trained_is_refused(fields, words):
    with pytest.raises(ValidationError, match=words.replace("[", r"\[")):
        DepthStudyConfig(**fields)


def test_the_study_is_found_and_says_what_its_units_need():
    study = find_study("depth")
    config = study.presets["smoke"]
    for unit in study.jobs(config):
        task = study.task(unit, "cpu")
        assert task.positions == unit.model.length and task.output_size == unit.model.output_size
        assert task.readout == unit.model.readout and task.input_size == unit.model.input_size


def test_heads_may_be_narrower_than_the_stream_and_runs_without_that_keep_their_record():
    plain, narrow = DepthStudyConfig(heads=1), DepthStudyConfig(heads=1, head_size=13)
    assert "head_size" not in plain.model_dump(mode="json")
    assert narrow.model_dump(mode="json")["head_size"] == 13
    assert plain.model(plain.deepest()).head_size == plain.width
    assert narrow.model(narrow.deepest()).head_size == 13


def test_what_belongs_to_a_completion_is_no_departure_from_the_paper():
    config = DepthStudyConfig()
    chosen = DepthStudyConfig(completion="torch-schedule", clip_norm=0.5, warmup_steps=7)
    assert chosen.protocol_deviations(config.deepest()) == config.protocol_deviations(config.deepest())
