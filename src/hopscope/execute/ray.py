"""A Ray cluster as a place to train units: each is a task, which Ray gives to another worker if one is lost."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from hopscope.errors import UserError
from hopscope.execute import worker
from hopscope.execute.cluster import Cluster, RemoteWorker, last_line, worker_environment
from hopscope.execute.local import available_cores
from hopscope.execute.pool import End, died, failed
from hopscope.runs import UnitFolder

_RETRIES = 3  # times that Ray starts a task again whose worker was lost
_ANSWER = 16.0  # seconds in which an address must answer as Ray does
_QUIET: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
_HELLO = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


def _fault_of(address: str) -> str:
    # A process of its own asks: Ray tries for two minutes, and then ends the process.
    hello = [sys.executable, "-c", _HELLO, address]
    try:
        asked = subprocess.run(hello, capture_output=True, text=True, timeout=_ANSWER)
    except subprocess.TimeoutExpired:
        return f"no answer in {_ANSWER:.0f} s"
    return "" if asked.returncode == 0 else last_line(asked.stderr)


class RayCluster(Cluster):
    """The cluster at an address; without one that of `RAY_ADDRESS`, one that runs here, or a new one of this machine.

    `UserError`: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, study: str, address: str | None, say: Callable[[str], object]):
        super().__init__(study)
        if find_spec("ray") is None:
            raise UserError("executor: expected the package ray, found none; run pip install 'hopscope[ray]'")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it when it is imported
        # By the caller, who may need it afterwards.
        self._joined = "ray" in sys.modules and sys.modules["ray"].is_initialized()
        address = address or os.environ.get("RAY_ADDRESS")
        fault = "" if self._joined else _fault_of(address or "auto")
        if fault and address:
            words = f"found {fault}; start one with `ray start --head`, which tells its address"
            raise UserError(f"address: expected a Ray cluster at {address}, {words}")
        import ray

        self.ray: Any = ray
        usual = signal.getsignal(signal.SIGTERM)
        if fault:
            say("hopscope: no Ray cluster is running here: one is started on this machine")
            ray.init("local", num_cpus=available_cores(), include_dashboard=False, **_QUIET)
        elif not self._joined:
            ray.init(address or "auto", **_QUIET)
        # Only a main thread may, and of Python's handlers; Ray's own would end the process in another way.
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGTERM, usual)

    def close(self) -> None:
        """See `Cluster`; and leave Ray."""
        super().close()
        if not self._joined:
            self.ray.shutdown()

    def device(self, asked: str) -> str:
        """CUDA where a node has a GPU, unless the CPU was asked for; a `UserError` if CUDA was and none has one."""
        if asked != "cpu" and self.ray.cluster_resources().get("GPU", 0):
            return "cuda"
        if asked == "cuda":
            raise UserError("device: expected a GPU in the Ray cluster for --device cuda, found none")
        return "cpu"

    def submit(self, unit: UnitFolder, given: str) -> Any:
        """See `Cluster`."""
        task = self.ray.remote(
            num_cpus=1, num_gpus=int(unit.job["device"] == "cuda"), max_retries=_RETRIES, max_calls=1,
            scheduling_strategy="SPREAD",  # two units on one machine share its memory bandwidth
            runtime_env={"env_vars": worker_environment()},
        )(worker.main)  # fmt: skip
        return task.remote(given)

    def end_of(self, worker: RemoteWorker) -> End | None:
        """See `Cluster`."""
        done, _ = self.ray.wait([worker.job], timeout=0)
        if not done:
            return None
        try:
            return worker.ended(int(self.ray.get(worker.job)))
        except self.ray.exceptions.RayTaskError as error:
            return failed(worker.unit, last_line(error))
        except self.ray.exceptions.RayError as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            return died(worker.unit, f"it lost, and every further try too ({first})")

    def cancel(self, job: Any) -> None:
        """See `Cluster`."""
        self.ray.cancel(job, force=True)
