"""Compiled steps: equal to plain ones, in four programs for any depth; on CUDA recorded once and replayed."""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from hopscope.training.engines.compiled import WARM_UP, Replayed

SOURCE = Path(importlib.util.find_spec("hopscope").origin).parents[1]


def checked(backend, cache):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, str(Path(__file__).with_name("compiled_checks.py")), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.soak)])
def test_compiled_steps_are_the_plain_ones(backend, tmp_path):
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("there is no compiler")
    found = checked(backend, tmp_path)
    for name, bound in (("retrieval", 1e-5), ("permutation, rounded", 1e-2)):
        alive = found[name].pop("alive")
        assert alive == [True, False, True] and max(found[name].values()) < bound, found[name]
    assert found["programs"] == 4, "the beginning, a layer, the last layer, the end"
    for fault, words in zip(
        found["refused"], ("no space left on device", "No working C++ compiler"), strict=True
    ):
        assert fault.startswith(f"engine: expected torch.compile to work, found: {words}")
        assert fault.endswith("use engine autograd") and "\n" not in fault


class Stream:
    """Notes who waited for whom."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


class Graphs:
    """Stands in for `torch.cuda`: work is done at once, or noted while a graph is recorded and done on its replay."""

    def __init__(self):
        self.log, self.recording = [], None
        self.side, self.now = Stream("side", self.log), Stream("main", self.log)
        outer = self

        class Graph:
            def __init__(self):
                self.noted = []

            def replay(self):
                outer.log.append("replay")
                for each in self.noted:
                    each()

        self.CUDAGraph = Graph

    def Stream(self, device):  # noqa: N802
        return self.side

    def current_stream(self):
        return self.now

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    @contextlib.contextmanager
    def graph(self, graph, stream):
        assert stream is self.side
        self.recording = graph
        yield
        self.recording = None

    def launch(self, work):
        """A kernel."""
        if self.recording is None:
            assert self.now is self.side, "warmed up on the stream that it is recorded on"
            work()
        else:
            self.recording.noted.append(work)


def test_each_call_does_the_work_once_recorded_or_not():
    graphs, count, done, result = Graphs(), torch.zeros(()), [], torch.zeros(())

    def work():
        def kernel():
            done.append(int(count))
            result.fill_(count * 2)

        graphs.launch(kernel)
        return result

    replayed = Replayed(work, torch.device("cuda"), graphs)
    for call in range(WARM_UP + 4):
        count.fill_(call)
        assert replayed() == 2 * call
        assert done == list(range(call + 1))
    assert graphs.log == ["side waits for main", "main waits for side"] * WARM_UP + ["replay"] * 4


def test_on_a_cpu_nothing_is_recorded_and_torchs_warnings_are_kept_while_it_compiles():
    def work():
        warnings.warn("TensorFloat32 tensor cores are available", stacklevel=1)

    replayed = Replayed(work, torch.device("cpu"))
    replayed()
    for _ in range(WARM_UP + 1):
        with pytest.raises(UserWarning, match="TensorFloat32"):
            replayed()
