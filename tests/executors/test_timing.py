"""The layout of a run: chosen by speeds that a test makes up, by rule where nothing is measured, and once really."""

import json
import stat
import sys
from functools import partial

import pytest
import torch

from hopscope.executors import local, processes, timing
from hopscope.executors.timing import Layout, NotMeasured
from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PRESETS
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.engines import ENGINES, Engine
from hopscope.training.trainer import Trainer

STUDY = find_study("permutation")


def config_of(**changes):
    """Six members in three units that the fused way is not for."""
    few = {"values": 3, "configurations": ("d32/2 repeats",), "seeds": 6, "norm": "pre"}
    return type(PRESETS["smoke"]).model_validate({**PRESETS["smoke"].model_dump(), **few, **changes})


LONG = {"epochs_repeats": 997.0}


# What there is to choose from.


@pytest.mark.parametrize(
    ("units", "cores", "expected"),
    [
        (11, 5, [(5, 1), (1, 5)]),
        (3, 7, [(3, 2), (3, 1), (1, 7)]),
        (2, 3, [(2, 1), (1, 3)]),
        (1, 5, [(1, 5), (1, 1)]),
        (3, 1, [(1, 1)]),
    ],
)
def test_candidates(units, cores, expected):
    assert timing.candidates(local.layout(units, cores, "cpu"), cores) == expected


def test_expected_seconds_follow_the_work():
    (job, *_) = STUDY.jobs(config_of())
    alone = timing.expected_seconds([job], 1)
    assert alone > 0
    assert timing.expected_seconds([job, job, job], 7) == pytest.approx(3 * alone / 7)
    for part, change in (
        ("model", {"layers": 5 * job.model.layers}),
        ("training", {"batch_size": 5 * job.training.batch_size}),
        ("training", {"steps": 5 * job.training.steps}),
    ):
        larger = job.model_copy(update={part: getattr(job, part).model_copy(update=change)})
        assert timing.expected_seconds([larger], 1) == pytest.approx(5 * alone)


# Choosing.


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path, "permutation", {}, [], None)


CHOICES = [Layout(3, 2), Layout(3, 1), Layout(1, 7)]


@pytest.mark.parametrize(
    ("speeds", "best"), [((11.0, 13.0, 7.0), 1), ((2.0, 3.0, 5.0), 2), ((5.0, 5.0, 3.0), 0)]
)
def test_the_quickest_is_chosen_and_told(run, speeds, best):
    of = dict(zip(CHOICES, speeds, strict=True))
    assert timing.measured(run, "aaaaaaaaaaaa", CHOICES, of.__getitem__) == CHOICES[best]
    (event,) = run.events()
    assert (event["kind"], event["unit"]) == ("layout measured", "aaaaaaaaaaaa")
    assert event["chosen"] == CHOICES[best]._asdict()
    tried = [(each["workers"], each["threads"], each["samples_per_second"]) for each in event["tried"]]
    assert tried == [(*choice, speed) for choice, speed in of.items()]


def test_a_failure_leaves_the_rule(run):
    def measure(layout):
        if layout == CHOICES[1]:
            raise NotMeasured("out of memory")
        return 17.0

    assert timing.measured(run, "aaaaaaaaaaaa", CHOICES, measure) == CHOICES[0]
    (event,) = run.events()
    assert (event["kind"], event["reason"]) == ("layout not measured", "out of memory")
    assert event["chosen"] == CHOICES[0]._asdict()


# Measuring.


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """Has a script in the place of Python; returns the folder that it may write to."""

    def put(body):
        script = tmp_path / "python"
        script.write_text(
            f"#!{sys.executable}\nimport pathlib, sys, time, os\nhere = pathlib.Path({str(tmp_path)!r})\n{body}"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(timing.sys, "executable", str(script))
        return tmp_path

    return put


def measure(**limits):
    (job, *_) = STUDY.jobs(config_of())
    return timing.speed("permutation", job, "general", local.environment(), CHOICES[0], **limits)


def test_speeds_add_up_and_no_process_starts_before_all_are_ready(pretend):
    folder = pretend(
        "time.sleep(0.05 * len(list(here.glob('*.ready'))))\n"
        "(here / f'{os.getpid()}.ready').write_text(str(time.monotonic()))\n"
        "print('\"ready\"', flush=True)\n"
        "sys.stdin.read()\n"
        "(here / f'{os.getpid()}.go').write_text(str(time.monotonic()))\n"
        "(here / 'words').write_text(' '.join(sys.argv[4:]))\n"
        'print(\'{"samples": 35, "seconds": 5.0}\')\n'
    )
    assert measure(seconds=0.5) == pytest.approx(3 * 7.0)
    ready, go = ([float(path.read_text()) for path in folder.glob(kind)] for kind in ("*.ready", "*.go"))
    assert len(ready) == len(go) == 3
    assert max(ready) <= min(go)
    words = (folder / "words").read_text()
    assert words.endswith("--threads 2 --engine general --seconds 0.5")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit('no room left')", "no room left"),
        ("sys.exit(3)", "status 3"),
        ("print('hello')", "hello"),
        ("print('\"ready\"', flush=True)", "status 0"),
        ("print('\"ready\"')\nprint('{\"samples\": 5}')", "samples and seconds"),
        ('print(\'"ready"\')\nprint(\'{"samples": 5, "seconds": 0}\')', "samples and seconds"),
        ("time.sleep(600)", "signal 9"),
    ],
)
def test_what_goes_wrong_is_a_reason(pretend, body, reason):
    pretend(body)
    with pytest.raises(NotMeasured, match=reason):
        measure(limit=0.5 if "sleep" in body else 60.0)


def test_a_process_that_cannot_start_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(timing.sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(NotMeasured, match="expected a process to start"):
        measure()


@pytest.mark.parametrize("engine", ["general", "fused"])
def test_steps_are_those_of_the_trainer(engine):
    if engine == "fused":
        pytest.importorskip("numba")
    (job, *_) = STUDY.jobs(config_of(norm="post", batch_size=17))
    task = PermutationTask(job.task)
    unit = object.__new__(UnitFolder)  # no step touches the folder
    trainer = Trainer(job, task, unit, lambda _: {}, engine=ENGINES[engine])
    steps = timing.Steps(job, task, engine)
    start = steps.model.parameters.flat.detach().clone()
    for _ in range(3):
        expected = trainer._steps.take(trainer.step)["loss"]
        trainer.step += 1
        assert torch.equal(steps.take(), expected)
    assert (steps.model.parameters.flat - start).abs().max() > 1e-3
    assert torch.equal(steps.model.parameters.flat, trainer.model.parameters.flat)


def test_time_is_taken_of_whole_steps():
    (job, *_) = STUDY.jobs(config_of(batch_size=17))
    steps = timing.Steps(job, PermutationTask(job.task), "general")
    assert steps.take_for(1e-9)[0] == 17 * 2
    samples, seconds = steps.take_for(0.05)
    assert samples == (steps.step - 1) * 17 * 2
    assert seconds >= 0.05


# In a run.


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Begins a run with seven cores, without training it; returns the run and how many workers it had."""
    sizes = []

    class Pool:
        def __init__(self, run, pending, size, deadline, listen, place):
            sizes.append(size)

        def work(self):
            pass

    monkeypatch.setattr(local, "Pool", Pool)
    monkeypatch.setattr(local, "finish", lambda run, program, config, say: None)

    def begin(config, **options):
        run = local.run_study(STUDY, config, out=tmp_path, device="cpu", **{"threads": 7, **options})
        return run, sizes.pop()

    return begin


@pytest.fixture
def speeds(monkeypatch):
    """Makes up what measuring finds; returns the layouts that were measured."""
    asked = []

    def make_up(found):
        def speed(study, job, engine, environment, layout):
            asked.append(layout)
            assert (study, engine) == ("permutation", "general")
            if found is None:
                raise NotMeasured("made up")
            return found[layout]

        monkeypatch.setattr(timing, "speed", speed)
        return asked

    return make_up


def threads_of(run):
    return [unit.record["layout"]["threads"] for unit in run.units]


@pytest.mark.parametrize(
    ("found", "threads", "workers"),
    [((3.0, 2.0, 5.0), 7, 1), ((3.0, 5.0, 2.0), 1, 3), ((5.0, 2.0, 3.0), 2, 3)],
)
def test_a_long_run_has_the_layout_that_was_quickest(start, speeds, found, threads, workers):
    asked = speeds(dict(zip(CHOICES, found, strict=True)))
    run, size = start(config_of(**LONG))
    assert (threads_of(run), size) == ([threads] * 3, workers)
    assert asked == CHOICES
    (event,) = run.events()
    assert event["kind"] == "layout measured"
    assert event["unit"] in {unit.hash for unit in run.units}
    assert all(
        unit.record["layout"] == {"device": "cpu", "threads": threads, "engine": "general"}
        for unit in run.units
    )


def test_a_run_that_goes_on_keeps_its_layout(start, speeds):
    asked = speeds({CHOICES[0]: 3.0, CHOICES[1]: 2.0, CHOICES[2]: 5.0})
    run, _ = start(config_of(**LONG))
    asked.clear()
    (run.units[1].path / "unit.json").unlink()  # as if killed before it was written
    again, size = start(config_of(**LONG))
    assert (threads_of(again), size, asked) == ([7] * 3, 1, [])
    fewer, size = start(config_of(**LONG), threads=2)
    assert (threads_of(fewer), size, asked) == ([7] * 3, 1, [])


def test_a_failed_measurement_is_no_error(start, speeds):
    speeds(None)
    run, size = start(config_of(**LONG))
    assert (threads_of(run), size) == ([2] * 3, 3)
    (event,) = run.events()
    assert (event["kind"], event["reason"]) == ("layout not measured", "made up")


@pytest.mark.parametrize(
    ("changes", "options", "threads", "workers"),
    [
        ({}, {}, 2, 3),  # too short
        (LONG, {"time_budget": 11.0}, 2, 3),
        (LONG, {"threads": 1}, 1, 1),
    ],
    ids=["short", "budget", "one core"],
)
def test_what_measuring_would_not_repay_is_not_measured(start, speeds, changes, options, threads, workers):
    asked = speeds({})
    run, size = start(config_of(**changes), **options)
    assert (threads_of(run), size, asked, run.events()) == ([threads] * 3, workers, [], [])


def test_the_fused_way_is_not_measured(start, speeds, monkeypatch):
    monkeypatch.setattr(local, "chosen_engine", lambda job, device: "fused")
    monkeypatch.setattr(Engine, "check", lambda self, device: None)
    asked = speeds({})
    run, size = start(config_of(**LONG))
    assert (threads_of(run), size, asked) == ([1] * 3, 3, [])


@pytest.mark.parametrize("threads", ["2", 0, None])
def test_a_damaged_layout_is_refused(start, threads):
    run, _ = start(config_of())
    path = run.units[0].path / "unit.json"
    record = json.loads(path.read_text())
    record["layout"]["threads"] = threads
    (path.parent / "seals.jsonl").unlink()  # a record from before there were seals
    path.write_text(json.dumps(record))
    with pytest.raises(local.UserError, match="expected device, threads and engine under layout"):
        start(config_of())


@pytest.mark.parametrize(
    ("layouts", "cores", "expected"),
    [
        ([("cpu", 1)] * 11, 5, 5),
        ([("cpu", 1)] * 2, 5, 2),
        ([("cpu", 1), ("cpu", 3)], 7, 2),
        ([("cpu", 7)] * 3, 7, 1),
        ([("cpu", 7)] * 3, 2, 1),
        ([("cuda", 1)] * 3, 7, 1),
        ([], 7, 1),
    ],
)
def test_workers_fit_the_cores(layouts, cores, expected):
    entries = [{"device": device, "threads": threads} for device, threads in layouts]
    assert processes.workers_at_a_time(entries, cores) == expected


def test_really_measured(monkeypatch, start):
    monkeypatch.setattr(timing, "speed", partial(timing.speed, seconds=0.05))
    run, size = start(config_of(**LONG), threads=2)
    (event,) = run.events()
    assert event["kind"] == "layout measured", event
    assert [(each["workers"], each["threads"]) for each in event["tried"]] == [(2, 1), (1, 2)]
    assert all(each["samples_per_second"] > 0 for each in event["tried"])
    quickest = max(event["tried"], key=lambda each: each["samples_per_second"])
    assert (threads_of(run), size) == ([quickest["threads"]] * 3, quickest["workers"])
    assert not list(run.path.glob("units/*/metrics")) and not list(run.path.glob("units/*/checkpoints"))
