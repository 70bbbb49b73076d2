"""Estimates of training from its first steps: by a made-up clock, and once by real workers."""

import itertools
import textwrap

import pytest

from hopscope.errors import UserError
from hopscope.executors import local, probing, timing
from hopscope.executors.probing import NotMeasured, Pace, Probe, makespan, pace_of, unit_seconds
from hopscope.studies import find_study
from hopscope.training.config import TrainingConfig

CAPACITY = find_study("capacity")


def marks(startup, step, evaluation, steps=(1, 2, 4, 8, 16)):
    """What a worker without any noise would say."""
    found, now, before = [], startup + evaluation, 0
    for at in steps:
        now += (at - before) * step + evaluation
        found.append((at, now))
        before = at
    return found


# The pace of one unit.


@pytest.mark.parametrize(
    ("startup", "step", "evaluation"), [(3.0, 0.2, 0.7), (2.0, 0.5, 0.0), (5.0, 0.0, 0.3)]
)
def test_a_pace_is_found_again(startup, step, evaluation):
    found = pace_of(marks(startup, step, evaluation))
    assert found == pytest.approx((startup, step, evaluation), abs=1e-9)


def test_what_is_compiled_at_the_first_steps_is_startup():
    late = [(at, seconds + 11.0) for at, seconds in marks(2.0, 0.2, 0.3)]
    assert pace_of(late) == pytest.approx((13.0, 0.2, 0.3))


def test_noise_makes_no_step_negative():
    noisy = [(1, 5.0), (2, 6.0), (4, 9.0), (8, 9.1), (16, 9.2)]
    found = pace_of(noisy)
    assert min(found) >= 0.0
    assert found.step * 14 + found.evaluation * 3 == pytest.approx(4.2, rel=0.7)


def test_two_evaluations_are_enough_and_one_is_not():
    assert pace_of([(1, 3.0), (2, 3.5)]).step == pytest.approx(0.5)
    with pytest.raises(NotMeasured, match="expected two evaluations"):
        pace_of([(1, 3.0)])


def test_a_unit_is_steps_and_evaluations():
    job = CAPACITY.jobs(CAPACITY.presets["smoke"])[0]
    training = TrainingConfig(steps=7, evaluate_every=3, checkpoint_every=5)
    found = unit_seconds(job.model_copy(update={"training": training}), Pace(11.0, 2.0, 0.1))
    assert found == pytest.approx(11.0 + 7 * 2.0 + 0.1 * len(training.evaluation_steps()))


@pytest.mark.parametrize(
    ("seconds", "workers", "expected"),
    [([7, 5, 3, 2], 1, 17), ([7, 5, 3, 2], 2, 9), ([7, 5, 3, 2], 5, 7), ([13, 2, 2, 2], 3, 13)],
)
def test_units_go_to_the_worker_that_is_free_first(seconds, workers, expected):
    assert makespan(seconds, workers) == expected


# A whole preset, by a made-up clock.


class Clock:
    """Trains nothing: a step costs as much as its arithmetic."""

    def __init__(self, rate=1e8, startup=2.0):
        self.rate, self.startup, self.waves = rate, startup, []

    def step(self, job):
        return timing.operations(job) / job.training.steps / self.rate

    def __call__(self, units):
        self.waves.append([job for job, _ in units])
        return [marks(self.startup, self.step(job), 0.0) for job, _ in units]


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_a_preset_is_its_units_over_the_cores(cores):
    clock, config = Clock(), CAPACITY.presets["smoke"]
    found = Probe(CAPACITY, cores, clock).seconds(config)
    jobs = sorted(CAPACITY.jobs(config), key=lambda job: -timing.operations(job))
    each = [clock.startup + clock.step(job) * job.training.steps for job in jobs]
    assert found == pytest.approx(makespan(each, cores))
    assert {len(wave) for wave in clock.waves} == {cores}  # as many side by side as in a run


def test_few_shapes_are_trained_and_each_once():
    clock = Clock()
    probe = Probe(CAPACITY, 2, clock)
    for name in ("smoke", "laptop"):
        probe.seconds(CAPACITY.presets[name])
    shapes = len(probe.paces)
    assert shapes <= 2 * probing.MOST_SHAPES
    trained = len(clock.waves)
    probe.seconds(CAPACITY.presets["laptop"])
    assert len(clock.waves) == trained and len(probe.paces) == shapes


def test_what_differs_only_in_length_or_labels_has_one_shape():
    study = find_study("curriculum")
    probe, config = Probe(study, 2, Clock()), study.presets["laptop"]
    first, *others = study.jobs(config)
    again = first.model_copy(
        update={"label": "another", "training": first.training.model_copy(update={"steps": 997})}
    )
    larger = first.model_copy(update={"training": first.training.model_copy(update={"batch_size": 997})})
    assert probe._shape(config, first, 8) == probe._shape(config, again, 8)
    assert probe._shape(config, first, 8) != probe._shape(config, larger, 8)
    assert len({probe._shape(config, job, 8).key for job in (first, *others)}) == 3


def test_what_is_made_for_a_gpu_is_not_trained():
    clock, study = Clock(), find_study("depth")
    with pytest.raises(NotMeasured, match="days of arithmetic on a CPU"):
        Probe(study, 2, clock).seconds(study.presets["paper"])
    assert clock.waves == []


def test_a_worker_that_gets_nowhere_is_a_reason():
    with pytest.raises(NotMeasured, match="expected two evaluations"):
        Probe(CAPACITY, 2, lambda units: [[] for _ in units]).seconds(CAPACITY.presets["smoke"])


# Real workers.

TINY = '''
"""A tiny study."""
import hopscope as hs


class Echo(hs.Task):
    """Name the last token."""

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=3, positions=5, readout=(4,), output_size=3)

    def sample(self, draws):
        {first}
        tokens = draws.integers("tokens", 3, (5,))
        return hs.Batch(inputs=tokens, targets=tokens[..., 4:])


study = hs.Study(
    name="tiny", question="?", task=Echo(), model=hs.Model(layers=1, heads=1, width=8), seeds=2,
    training=hs.Training(steps=37, batch_size=7), presets={{"smoke": {{}}}},
)
'''


def tiny(folder, first="pass"):
    file = folder / "tiny.py"
    file.write_text(textwrap.dedent(TINY).format(first=first), encoding="utf-8")
    return find_study(str(file))


def test_real_workers_train_a_users_study(tmp_path, monkeypatch):
    monkeypatch.setattr(probing.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        probing, "PROBE_SECONDS", 120.0
    )  # all of the training, on a machine of whatever speed
    monkeypatch.setattr(probing, "LIMIT_SECONDS", 240.0)
    program = tiny(tmp_path)
    config = program.presets["smoke"]
    job = program.jobs(config)[0]
    layout = local.unit_layout(local.unit_engine(job, "cpu", "auto"), "cpu", 1)
    (found,) = probing.trained(program, config, [(job, layout)])
    assert [step for step, _ in found] == job.training.evaluation_steps()[1:]
    assert all(one < other for (_, one), (_, other) in itertools.pairwise(found))
    assert 0.0 < unit_seconds(job, pace_of(found)) < probing.LIMIT_SECONDS
    assert not list(tmp_path.glob("hopscope-probe-*"))  # nothing is left behind


def test_a_fault_of_the_users_task_is_said(tmp_path):
    program = tiny(tmp_path, 'raise ValueError("broken")')
    config = program.presets["smoke"]
    job = program.jobs(config)[0]
    layout = local.unit_layout("general", "cpu", 1)
    with pytest.raises(UserError, match="broken"):
        probing.trained(program, config, [(job, layout)])
