"""Which engine a unit begins with, and what a worker says when the device's memory runs out."""

import json
from pathlib import Path

import pytest
import torch

from hopscope.errors import UserError
from hopscope.executors import local, processes, worker
from hopscope.runs import RunFolder, save_checkpoint
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PRESETS

STUDY = find_study("permutation")


@pytest.fixture
def unit(tmp_path):
    """A unit on record that has not been trained."""
    members = [{"member": 0, "unit": "aaaaaaaaaaaa", "index": 0, "seed": 3, "overrides": {}}]
    run = RunFolder.create(tmp_path, "permutation", {"seeds": 1}, members, None)
    layout = {"device": "cpu", "threads": 2, "engine": "compiled"}
    return run.unit("aaaaaaaaaaaa").create({"label": "small", "layout": layout})


def checkpoint(unit, step):
    save_checkpoint(unit.checkpoint_path(step), {"weights/x": torch.zeros(2).numpy()}, {"step": step})


def test_a_unit_may_begin_with_another_engine_until_it_is_trained(unit):
    checkpoint(unit, 0)
    local._take_engine(unit, "general")
    assert unit.record["layout"] == {"device": "cpu", "threads": 2, "engine": "general"}
    assert unit.record["label"] == "small"
    checkpoint(unit, 5)
    local._take_engine(unit, "general")
    with pytest.raises(UserError, match="expected general, with which unit aaaaaaaaaaaa began, found comp"):
        local._take_engine(unit, "compiled")
    unit.mark_done()
    local._take_engine(unit, "compiled")
    assert unit.record["layout"]["engine"] == "general"


def test_the_engine_that_was_asked_for():
    (job, *_) = STUDY.jobs(PRESETS["smoke"])
    assert local.unit_engine(job, "cpu", "general") == "general"
    assert local.unit_engine(job, "cpu", "compiled") == "compiled"
    assert local.unit_engine(job, "cuda", "auto") == "compiled"
    assert local.unit_layout("stacked", "cpu", 7)["threads"] == 1
    assert local.unit_layout("compiled", "cuda", 7) == {"device": "cuda", "threads": 7, "engine": "compiled"}


def test_units_that_share_a_gpu():
    layouts = [{"device": "cuda", "threads": 7, "engine": "compiled"}] * 5
    assert processes.workers_at_a_time(layouts, 7) == 1
    assert processes.workers_at_a_time(layouts, 7, 2) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "fused"}, "engine: expected one of auto, general, compiled, found 'fused'"),
        ({"gpu_workers": 0}, "gpu-workers: expected at least 1, found 0"),
    ],
)
def test_refused_options_leave_nothing_behind(tmp_path, options, words):
    with pytest.raises(UserError, match=words):
        local.run_study(STUDY, PRESETS["smoke"], out=tmp_path / "runs", device="cpu", **options)
    assert not (tmp_path / "runs").exists()


def test_a_compiler_is_missed_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match="found no no-such-compiler; install one"):
        local.run_study(STUDY, PRESETS["smoke"], out=tmp_path, device="cpu", engine="compiled")
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried\nto"), ValueError("x")])
def test_memory_that_runs_out_elsewhere_is_one_clear_line(monkeypatch, capsys, error):
    def run_unit(*arguments):
        raise error

    monkeypatch.setattr(worker, "run_unit", run_unit)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="x"):
            worker.main([str(Path("run")), "aaaaaaaaaaaa"])
        return
    assert worker.main([str(Path("run")), "aaaaaaaaaaaa"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["status"]) == ("error", 2)
    for fact in (
        "unit aaaaaaaaaaaa: expected",
        "found CUDA out of memory. Tried",
        "fewer members",
        "--gpu-workers 1",
    ):
        assert fact in said["message"]
