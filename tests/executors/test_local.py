import json
import subprocess
import sys
from importlib.util import find_spec

import numpy
import pytest
import torch

from hopscope.errors import UserError
from hopscope.executors import local, processes
from hopscope.runs import RunFolder
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PRESETS


@pytest.mark.parametrize(
    ("units", "threads", "device", "expected"),
    [
        (3, 2, "cpu", (2, 1)),
        (2, 7, "cpu", (2, 3)),
        (1, 7, "cpu", (1, 7)),
        (11, 5, "cpu", (5, 1)),
        (1, 1, "cpu", (1, 1)),
        (3, 7, "cuda", (1, 7)),
    ],
)
def test_layout(units, threads, device, expected):
    assert local.layout(units, threads, device) == expected


def test_cores():
    assert local.available_cores() >= 1


def test_device(monkeypatch):
    assert local.chosen_device("cpu") == "cpu"
    for present in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda present=present: present)
        assert local.chosen_device("auto") == ("cuda" if present else "cpu")
    assert local.chosen_device("cuda") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        UserError, match="expected a CUDA device for --device cuda, found none; use --device cpu"
    ):
        local.chosen_device("cuda")


def test_workers_keep_their_memory_unless_told_otherwise(monkeypatch):
    """Freed arrays are not given back to the system, which would clear them anew for every step."""
    script = """if True:
        import numpy, resource
        faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        numpy.zeros(11 << 20), numpy.ones(11 << 20)
        before = faults()
        for _ in range(7):
            numpy.ones(11 << 20)  # 88 MB of 4 KB pages
        print(faults() - before)
    """

    def page_faults() -> int:
        said = subprocess.run(
            [sys.executable, "-c", script],
            env=processes.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return int(said.stdout)

    # The system may split a huge page meanwhile, which adds 511 faults; it does not do so every time.
    assert min(page_faults() for _ in range(3)) < 1_000
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "0")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "0")
    assert processes.environment()["MALLOC_TRIM_THRESHOLD_"] == "0"
    assert page_faults() > 7 * 22_000 // 512  # pages may be as large as 2 MB


def test_versions_are_on_record():
    found = local.versions()
    assert {"python", "torch", "numpy"} <= set(found) <= {"python", "torch", "numpy", "numba"}
    assert ("numba" in found) == (find_spec("numba") is not None)
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["numpy"] == numpy.__version__


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """A run through the library, with the fewest values: its folder and what its listener heard."""
    config = PRESETS["smoke"].model_copy(
        update={"values": 3, "configurations": ("d16/1 plain", "d32/2 repeats"), "samples_per_epoch": 700,
                "batch_size": 70, "epochs_plain": 0.5, "epochs_repeats": 1.0, "checkpoint_every": 5,
                "evaluate_every": 5, "evaluation_limit": 77, "seeds": 2, "measurements": "basic"}
    )  # fmt: skip
    messages = []
    run = local.run_study(
        find_study("permutation"),
        config,
        out=tmp_path_factory.mktemp("runs"),
        preset="smoke",
        device="cpu",
        threads=2,
        listen=lambda unit, message: messages.append((unit.hash, message)),
    )
    return run, config, messages


def test_listener_hears_every_unit(heard):
    run, _, messages = heard
    assert {unit for unit, _ in messages} == {unit.hash for unit in run.units}
    for unit in run.units:
        job = unit.record["plan"]
        of_this = [message for hash, message in messages if hash == unit.hash]
        kinds = [message["kind"] for message in of_this]
        progress = [message for message in of_this if message["kind"] == "progress"]
        assert kinds == ["progress"] * len(progress) + ["phase", "done"]
        steps = [message["step"] for message in progress]
        assert steps == sorted(set(steps))
        assert steps[-1] == job["training"]["steps"]
        for message in progress:
            assert len(message["losses"]) == len(job["members"])
            assert message["frozen"] == []
            assert message["samples_per_second"] > 0


def test_what_is_the_same_for_all_units_is_asked_once(tmp_path, monkeypatch):
    asked = []
    for name in ("versions", "source_hash"):
        ask = getattr(local, name)
        monkeypatch.setattr(local, name, lambda name=name, ask=ask: asked.append(name) or ask())
    config = PRESETS["smoke"].model_copy(update={"values": 3})
    run = local.prepare(find_study("permutation"), config, out=tmp_path)
    assert len(run.units) > 1
    assert asked == ["versions", "source_hash"]


def test_records_say_how(heard):
    run, config, _ = heard
    assert run.is_done
    assert len(run.units) == 2
    assert all(unit.is_done for unit in run.units)
    for unit in run.units:
        record = unit.record
        engine = "fused" if find_spec("numba") else "general"
        assert record["layout"] == {"device": "cpu", "threads": 1, "engine": engine}
        assert record["versions"] == local.versions()
        assert len(record["source_hash"]) == 12
    assert run.config == config.model_dump(mode="json")
    started = [event for event in run.events() if event["kind"] == "unit started"]
    assert all(event["flushes_subnormals"] for event in started)
    members = json.loads((run.path / "members.json").read_text())
    assert [entry["member"] for entry in members] == list(range(4))


def test_finished_run_is_found(heard, monkeypatch):
    run, config, _ = heard
    monkeypatch.setattr(local, "Pool", None)
    again = local.run_study(
        find_study("permutation"), config, out=run.path.parents[1], threads=7, time_budget=3.0
    )
    assert again == run
    assert isinstance(again, RunFolder)
