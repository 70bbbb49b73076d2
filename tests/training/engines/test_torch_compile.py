"""Compiled steps: equal to plain ones, in fewer programs; on CUDA recorded once and replayed."""

import contextlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from hopscope.errors import UserError
from hopscope.training import engines
from hopscope.training.engines import ENGINES
from hopscope.training.engines.torch_compile import WARM_UP, Replayed

SOURCE = Path(__file__).resolve().parents[3] / "src"
SCRIPT = Path(__file__).with_name("torch_compile_checks.py")


def checked(backend, cache):
    """What the checks found."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, str(SCRIPT), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


pytestmark = [pytest.mark.extras, pytest.mark.long]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return checked("aot_eager", tmp_path_factory.mktemp("cache"))


def assert_right(found):
    assert found["retrieval"] == {
        "losses": pytest.approx(0.0, abs=1e-5),
        "gradient": pytest.approx(0.0, abs=1e-5),
        "alike": True,
    }
    assert found["updates"] == {
        "apart": pytest.approx(0.0, abs=1e-6),
        "alive": [True, False, True],
        "moved": [True, False, True],
    }
    # Products of other shapes may round elsewhere, and a rounded number is off by up to 1/256.
    assert found["in_parts"] == {
        "losses": pytest.approx(0.0, abs=1e-2),
        "gradient": pytest.approx(0.0, abs=1e-2),
        "at_a_time": 1,
    }
    assert found["kept"] and found["resumed"]
    assert found["broken"] == {"others": True, "alive": [True, False, True], "finite": True}


def test_compiled_steps_are_the_plain_ones(found):
    assert_right(found)


def test_every_depth_has_the_same_programs(found):
    # The beginning, a layer, the last layer, the end.
    assert found["programs"] == 4


def test_a_failure_to_compile_is_one_clear_line(found):
    for fact in ("engine: expected", "found: no space left on device", "--engine general"):
        assert fact in found["refused"]
    assert "\n" not in found["refused"]


@pytest.mark.soak
def test_kernels_compute_what_plain_steps_do(tmp_path):
    """The same with the kernels that run in earnest; compiling them for a CPU takes minutes."""
    assert_right(checked("inductor", tmp_path))


@pytest.mark.parametrize(("device", "variable"), [("cpu", "CXX"), ("cuda", "CC")])
def test_a_missing_compiler_is_one_clear_line(monkeypatch, device, variable):
    monkeypatch.setattr(engines, "find_spec", lambda name: name)
    monkeypatch.setenv(variable, "no-such-compiler")
    with pytest.raises(UserError) as raised:
        ENGINES["compiled"].check(device)
    for fact in ("engine: expected a compiler", "no-such-compiler", f"in {variable}", "--engine general"):
        assert fact in str(raised.value)
    monkeypatch.setenv(variable, sys.executable)
    ENGINES["compiled"].check(device)


def test_cuda_needs_triton(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="expected triton"):
        ENGINES["compiled"].check("cuda")


# Recording.


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
        assert (replayed.graph is not None) == (call >= WARM_UP)
    assert graphs.log == ["side waits for main", "main waits for side"] * WARM_UP + ["replay"] * 4


def test_on_a_cpu_nothing_is_recorded():
    calls = []
    replayed = Replayed(lambda: calls.append(1), torch.device("cpu"))
    for _ in range(WARM_UP + 2):
        replayed()
    assert len(calls) == WARM_UP + 2 and replayed.graph is None


def test_torchs_warnings_while_it_compiles_are_not_the_users():
    def work():
        warnings.warn("TensorFloat32 tensor cores are available", stacklevel=1)

    replayed = Replayed(work, torch.device("cpu"))
    replayed()
    with pytest.raises(UserWarning, match="TensorFloat32"):
        replayed()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: compares its steps with the CPU's")
def test_a_gpu_takes_the_same_steps(tmp_path):
    found = checked("cuda", tmp_path)
    assert found == {"losses": pytest.approx(0.0, abs=1e-4), "initial": 0.0}
