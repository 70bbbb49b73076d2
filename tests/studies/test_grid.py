"""The grid of the permutation study: units, member numbers, presets, and what counts as the source's protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.runs import content_hash
from hopscope.studies import find_study, study_names
from hopscope.studies.loading import BUILT_IN
from hopscope.studies.permutation.config import (
    ALL,
    COSTS,
    PRESETS,
    PUBLISHED,
    SWEEPS,
    Configuration,
    PermutationStudyConfig,
    analyses,
)


def members_of(units):
    return [
        (member.member, unit.label, member.seed, member.overrides)
        for unit in units
        for member in unit.members
    ]


@given(
    seeds=st.integers(1, 13),
    per_unit=st.integers(1, 13),
    names=st.lists(st.sampled_from(ALL), min_size=1, max_size=5, unique=True),
)
def test_members_are_numbered_in_grid_order_then_by_seed(seeds, per_unit, names):
    units = PermutationStudyConfig(seeds=seeds, members_per_unit=per_unit, configurations=tuple(names)).jobs()
    members = members_of(units)
    assert [number for number, *_ in members] == list(range(seeds * len(names)))
    assert [(label, seed) for _, label, seed, _ in members] == [(n, s) for n in names for s in range(seeds)]
    for _, label, _, overrides in members:
        assert Configuration(**overrides).name == label
    assert all(1 <= len(unit.members) <= per_unit for unit in units)
    assert len(units) == len(names) * -(-seeds // per_unit)
    assert len({content_hash(unit.model_dump(mode="json")) for unit in units}) == len(units)


def test_published_models():
    plain, repeats = PermutationStudyConfig(seeds=2).jobs()
    assert (plain.label, repeats.label) == PUBLISHED
    for unit, width, heads, ratio, epochs in ((plain, 16, 1, 0.0, 20), (repeats, 32, 2, 0.3, 50)):
        assert (unit.model.layers, unit.model.width, unit.model.heads) == (1, width, heads)
        assert (unit.model.length, unit.model.input_size, unit.model.output_size) == (9, 6, 6)
        assert unit.model.readout == (0, 2, 4, 6, 8)
        assert unit.model.causal
        assert (unit.task.values, unit.task.repeat_ratio, unit.task.held_out_share) == (5, ratio, 0.2)
        assert unit.training.batch_size * unit.training.steps >= epochs * 100_000
        assert unit.training.batch_size * (unit.training.steps - 1) < epochs * 100_000


def test_fields_reach_the_units():
    config = PermutationStudyConfig(
        values=7, width=44, heads=11, repeat_ratio=0.17, repeat_slots=(3, 5), learning_rate=0.013,
        optimizer="adamw", betas=(0.7, 0.93), weight_decay=0.19, clip_norm=2.3, mlp_ratio=0.0, activation="gelu",
        norm="pre", positions="none", init="gpt2", checkpoint_every=29, evaluate_every=31, split_seed=37,
        held_out_share=0.41, batch_size=43,
    )  # fmt: skip
    (_, unit) = config.model_copy(update={"seeds": 1}).jobs()
    assert unit.label == "d44/11 repeats"
    assert (unit.model.length, unit.model.input_size, unit.model.readout) == (13, 8, (0, 2, 4, 6, 8, 10, 12))
    for part, fields in (
        (unit.model, ("mlp_ratio", "activation", "norm", "positions", "init")),
        (unit.task, ("repeat_ratio", "repeat_slots", "split_seed", "held_out_share")),
        (unit.training, ("learning_rate", "optimizer", "betas", "weight_decay", "clip_norm", "batch_size",
                         "checkpoint_every", "evaluate_every")),
    ):  # fmt: skip
        for field in fields:
            assert getattr(part, field) == getattr(config, field), field


def test_an_override_that_makes_two_equal_leaves_one():
    config = PermutationStudyConfig(configurations=("d16/1 repeats", "d32/1 repeats"), width=24)
    assert [c.name for c in config.grid()] == ["d24/1 repeats"]


SLOTS = st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(tuple)


@given(
    st.builds(
        Configuration,
        st.integers(1, 999),
        st.integers(1, 99),
        st.sampled_from(("plain", "repeats")),
        values=st.none() | st.integers(3, 12),
        repeat_ratio=st.none() | st.sampled_from((0.05, 0.3, 1.0)),
        repeat_slots=st.none() | SLOTS,
        repeat_sources=st.none() | SLOTS,
        positions=st.sampled_from((None, "learned", "pair", "none")),
        batch_size=st.none() | st.integers(1, 4096),
        epochs=st.none() | st.sampled_from((20.0, 0.5)),
        split_seed=st.none() | st.integers(0, 99),
    )
)
def test_names_are_read_as_written(configuration):
    assert Configuration.parse(configuration.name) == configuration
    assert Configuration(**configuration.overrides()) == configuration


@pytest.mark.parametrize(
    "name", ["", "d32", "32/2 plain", "d32/2", "d32/2 both", "d32/2 plain ", "d-3/1 plain"]
)
def test_other_names_are_refused(name):
    with pytest.raises(ValidationError, match=r"expected names such as 'd32/2 repeats' or .*, found"):
        PermutationStudyConfig(configurations=(name,))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("d32/2 repeats W=4", "each of V, ratio, slots, sources, positions, batch, epochs, split .*, found 'W'"),
        ("d32/2 repeats V=4 V=5", "at most once, found 'V'"),
        ("d32/2 repeats V=four", "repeats V=four': values: expected a valid integer, .*, found 'four'"),
        ("d32/2 repeats slots=2+", "slots=2[+]': repeat_slots.1: expected a valid integer, .*, found ''"),
        ("d32/2 repeats epochs=0", "epochs=0': epochs: expected greater than 0, found '0'"),
        ("d32/2 repeats positions=rotary", "positions: expected 'learned', 'pair' or 'none', found 'rotary'"),
    ],
)  # fmt: skip
def test_other_changes_are_refused(name, found):
    with pytest.raises(ValidationError, match=found):
        PermutationStudyConfig(configurations=(name,))


@pytest.mark.parametrize("name", ["d32/2 repeats V=2", "d32/2 repeats slots=6", "d32/2 repeats ratio=1.5"])
def test_changes_that_do_not_fit_the_task_are_refused(name):
    with pytest.raises(ValidationError):
        PermutationStudyConfig(configurations=(name,))


def test_changes_reach_the_units():
    config = PermutationStudyConfig(
        seeds=1,
        configurations=("d32/2 repeats V=6 ratio=0.5 slots=3+4 sources=1 positions=pair batch=64",),
    )
    (unit,) = config.jobs()
    assert (unit.task.values, unit.task.repeat_ratio) == (6, 0.5)
    assert unit.task.repeat_pairs() == [(3, 1), (4, 1)]
    assert (unit.model.positions, unit.model.length, unit.training.batch_size) == ("pair", 11, 64)
    assert unit.training.steps == -(-50 * 100_000 // 64)


def test_sweeps_come_last_and_have_seeds_of_their_own():
    config = PermutationStudyConfig(seeds=5, sweep_seeds=2, sweeps=tuple(SWEEPS))
    names = [configuration.name for configuration in config.grid()]
    assert names[:2] == list(PUBLISHED) and len(set(names)) == len(names)
    for sweep in SWEEPS.values():
        for name in sweep.configurations:
            configuration = Configuration.parse(name)
            assert config.seeds_of(configuration) == (5 if sweep.all_seeds else 2)
            assert config.is_whole(configuration) == (sweep.whole or name in SWEEPS["batch"].configurations)
    with pytest.raises(ValidationError, match=r"sweeps: expected some of batch, .*, found 'width'"):
        PermutationStudyConfig(sweeps=("width",))


def test_what_is_measured():
    config = PermutationStudyConfig(seeds=1, sweep_seeds=1, sweeps=("values", "memorisation"))
    found = {unit.label: set(analyses(config, unit)) for unit in config.jobs()}
    everywhere = {"probes", "patterns", "posteriors"}
    whole = everywhere | {"battery", "roles", "decoding", "worked"}
    assert found["d16/1 plain"] == found["d32/2 plain V=4"] == whole
    assert found["d32/2 repeats"] == whole | {"slots", "formation"}
    assert found["d32/2 repeats V=7"] == everywhere | {"slots"}
    assert found["d32/2 plain V=7"] == everywhere
    basic = config.model_copy(update={"measurements": "basic"})
    for unit in basic.jobs():
        repeats = Configuration.parse(unit.label).data == "repeats"
        assert set(analyses(basic, unit)) == (everywhere | {"slots"} if repeats else everywhere)


def test_presets():
    assert set(PRESETS) == set(COSTS) == {"smoke", "laptop", "paper", "readings"}
    for config in PRESETS.values():
        assert type(config).model_validate(config.model_dump(mode="json")) == config
        assert config.jobs()
    laptop, paper = PRESETS["laptop"], PRESETS["paper"]
    assert [c.name for c in laptop.grid()] == list(PUBLISHED)
    assert [c.name for c in paper.grid()][:5] == list(ALL)
    assert set(paper.sweeps) | set(PRESETS["readings"].sweeps) == set(SWEEPS)
    # At the source's scale in all they train, and "paper" with the seeds that a sentence about all seeds needs.
    for config in (laptop, paper):
        base = [c for c in config.grid() if not c.changes]
        assert base and [config.protocol_deviations(c) for c in base] == [[]] * len(base)
    assert paper.seeds >= 10 and laptop.seeds >= 10
    assert all(PRESETS["smoke"].protocol_deviations(c) for c in PRESETS["smoke"].grid())


DEPARTURES = {
    "values": (6, "V 6 instead of 5"),
    "held_out_share": (0.3, "held-out share 0.3 instead of 0.2"),
    "learning_rate": (0.01, "learning rate 0.01 instead of 0.001"),
    "optimizer": ("adamw", "optimiser adamw instead of adam"),
    "mlp_ratio": (4.0, "MLP ratio 4.0 instead of 2.0"),
    "activation": ("gelu", "activation gelu instead of relu"),
    "norm": ("pre", "norm pre instead of post"),
    "positions": ("none", "positions none instead of learned"),
}
ON_REPEATS_ONLY = {
    "repeat_ratio": (0.2, "repeat ratio 0.2 instead of 0.3"),
    "repeat_slots": ((3, 5), "repeat slots (3, 5) instead of ()"),
    "repeat_sources": ((1,), "repeat sources (1,) instead of ()"),
}


@pytest.mark.parametrize("field", [*DEPARTURES, *ON_REPEATS_ONLY])
def test_departures(field):
    value, words = (DEPARTURES | ON_REPEATS_ONLY)[field]
    config = PermutationStudyConfig.model_validate({field: value})
    plain, repeats = (config.protocol_deviations(configuration) for configuration in config.grid())
    assert repeats == [words]
    assert plain == ([words] if field in DEPARTURES else [])


@pytest.mark.parametrize(
    "fields", [{"batch_size": 64}, {"betas": (0.9, 0.95)}, {"init": "gpt2"}, {"seeds": 1}]
)
def test_what_the_source_leaves_open_is_no_departure(fields):
    config = PermutationStudyConfig.model_validate(fields)
    assert [config.protocol_deviations(c) for c in config.grid()] == [[], []]


def test_length_is_measured_in_samples():
    half = PermutationStudyConfig(samples_per_epoch=50_000)
    assert [half.protocol_deviations(c) for c in half.grid()] == [["10 of 20 epochs"], ["25 of 50 epochs"]]
    same = PermutationStudyConfig(samples_per_epoch=50_000, epochs_plain=40, epochs_repeats=100)
    assert [same.protocol_deviations(c) for c in same.grid()] == [[], []]


def test_finding_a_study():
    names = list(BUILT_IN)
    assert study_names()[: len(names)] == names  # those of installed packages follow
    assert [find_study(name).name for name in names] == names
    with pytest.raises(UserError, match=r"study: expected one of permutation, .*, found 'retrieval'"):
        find_study("retrieval")


def test_readings_are_what_the_grid_has():
    config = PermutationStudyConfig(
        configurations=("d16/1 plain", "d32/2 repeats", "d32/2 repeats batch=64", "d32/2 repeats epochs=20",
                        "d32/2 repeats split=3", "d16/1 plain epochs=50"),
    )  # fmt: skip
    names = [reading.name for reading in config.readings()]
    assert names == ["batch 256", "batch 64", "batch 256, 20 epochs", "batch 256, 50 epochs"]
    stated, small, short, long = (
        {
            name: [each.name for each in config.trained(name, reading)]
            for name in ("d16/1 plain", "d32/2 repeats")
        }
        for reading in config.readings()
    )
    assert stated == {
        "d16/1 plain": ["d16/1 plain"],
        "d32/2 repeats": ["d32/2 repeats", "d32/2 repeats split=3"],
    }
    assert small == {"d16/1 plain": [], "d32/2 repeats": ["d32/2 repeats batch=64"]}
    # A length that a model's data have by themselves is that length, too.
    assert short == {"d16/1 plain": ["d16/1 plain"], "d32/2 repeats": ["d32/2 repeats epochs=20"]}
    assert long == {
        "d16/1 plain": ["d16/1 plain epochs=50"],
        "d32/2 repeats": ["d32/2 repeats", "d32/2 repeats split=3"],
    }


def test_a_split_or_a_length_of_its_own_reaches_the_training():
    config = PermutationStudyConfig(configurations=("d32/2 repeats epochs=3 split=7", "d32/2 repeats"))
    other, own = config.grid()
    assert (config.task(other).split_seed, config.task(own).split_seed) == (7, 0)
    assert config.training(other).steps * 256 == pytest.approx(3 * 100_000, abs=256)
    assert config.training(own).steps * 256 == pytest.approx(50 * 100_000, abs=256)
    # Three epochs are less than any length that the page states; twenty are one of the two.
    assert config.protocol_deviations(other) == ["3 of 20 epochs"]
    (twenty,) = PermutationStudyConfig(configurations=("d32/2 repeats epochs=20",)).grid()
    assert config.protocol_deviations(twenty) == []
