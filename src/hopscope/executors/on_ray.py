"""A Ray cluster as a place to train units: each is a task, which Ray gives to another worker if one is lost."""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

from hopscope.errors import UserError
from hopscope.executors import worker
from hopscope.executors.pool import End, died, failed, recorded_layout
from hopscope.executors.processes import available_cores
from hopscope.executors.remote import (
    Exchange,
    Mailbox,
    RemoteJob,
    ended,
    last_line,
    worker_arguments,
    worker_environment,
)
from hopscope.runs import UnitFolder

MAX_RETRIES = 3
"""Times that Ray starts a task again whose worker was lost."""

PORT_SECONDS, ANSWER_SECONDS = 4.0, 16.0
"""Time in which an address must accept a connection, and then answer as a Ray cluster does."""

_QUIET: Any = {"log_to_driver": False, "logging_level": logging.ERROR}

_HELLO = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connected(address: str | None, say: Callable[[str], None] | None) -> Iterator["RayCluster"]:
    """The cluster at an address; without one that of `RAY_ADDRESS`, one that runs here, or a new one of this machine.

    Raises:
        UserError: Ray is not installed, or there is no cluster at the address.
    """
    if find_spec("ray") is None:
        raise UserError("executor: expected the package ray, found none; run pip install 'hopscope[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it when it is imported
    # By the caller, who may need it afterwards.
    joined = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    found = None if joined else _found(address or os.environ.get("RAY_ADDRESS"), say)
    import ray

    cluster = RayCluster(ray, say)
    try:
        if found == "local":
            ray.init(found, num_cpus=available_cores(), include_dashboard=False, **_QUIET)
        elif found is not None:
            ray.init(found, **_QUIET)
        yield cluster
    finally:
        cluster.exchange.close()
        if not joined:
            ray.shutdown()


def _found(address: str | None, say: Callable[[str], None] | None) -> str:
    """The address of a cluster that answers; `"local"` where none was named and none runs here.

    Raises:
        UserError: one was named, and does not answer.
    """
    if address is None:
        if not _fault_of("auto"):
            return "auto"
        if say is not None:
            say("hopscope: no Ray cluster is running here: one is started on this machine")
        return "local"
    fault = _unreachable(address) or _fault_of(address)
    if fault:
        raise UserError(
            f"address: expected a Ray cluster at {address}, found {fault}; start one with `ray start --head`, which "
            "tells its address"
        )
    return address


def _unreachable(address: str) -> str:
    """What is wrong with an address, before Ray is asked, which tries for two minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return ""
    if not host or not port.isdecimal():
        return "no HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _fault_of(address: str) -> str:
    """Why no driver can join a cluster, in a few words; empty where one could.

    A process of its own asks: Ray ends a process that waits for a cluster in vain, and writes on its standard error.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _HELLO, address], capture_output=True, text=True, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ANSWER_SECONDS:.0f} s"
    return "" if asked.returncode == 0 else last_line(asked.stderr)


class RayCluster:
    """A Ray cluster that this process has joined, as a `Place`.

    Attributes:
        exchange: folder for what its workers say.
    """

    here = False
    retries = 0  # Ray itself starts another worker
    poll_seconds = 0.5

    def __init__(self, ray: Any, say: Callable[[str], None] | None):
        self.ray, self.say, self.exchange = ray, say, Exchange()
        self._on_gpu = 1
        self._task = cache(self._made)

    def device(self, asked: str) -> str:
        """CUDA where a node has a GPU, unless the CPU was asked for.

        Raises:
            UserError: CUDA was asked for, and no node has a GPU.
        """
        if asked == "cpu":
            return asked
        if self.ray.cluster_resources().get("GPU", 0):
            return "cuda"
        if asked == "auto":
            return "cpu"
        raise UserError("device: expected a GPU in the Ray cluster for --device cuda, found none")

    def at_a_time(self, layouts: Sequence[Mapping[str, Any]], cores: int | None, on_gpu: int) -> int:
        """All units, unless the user gave a number of cores: Ray lets tasks wait until there is room."""
        self._on_gpu = on_gpu
        threads = max((each["threads"] for each in layouts), default=1)
        most = max((node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]), default=0)
        if layouts and threads > most and self.say is not None:
            self.say(
                f"hopscope: warning: expected a node with {threads} cores, found {most:g} at most: waiting for one"
            )
        return max(1, len(layouts) if cores is None else cores // threads)

    def start(self, unit: UnitFolder, left: float | None) -> "RayJob":
        """Submit a task for a unit."""
        layout = recorded_layout(unit)
        gpus = 1 / self._on_gpu if layout["device"] == "cuda" else 0
        mailbox = Mailbox(self.exchange.folder(unit) / f"{unit.hash}.jsonl")
        reference = self._task(layout["threads"], gpus).remote(worker_arguments(unit, left, mailbox.path))
        return RayJob(self.ray, unit, mailbox, reference)

    def _made(self, threads: int, gpus: float) -> Any:
        """The task: a call of the worker's `main` with a list of strings, in a process that does nothing else."""
        remote = self.ray.remote(
            num_cpus=threads,
            num_gpus=gpus,
            max_retries=MAX_RETRIES,
            max_calls=1,
            scheduling_strategy="SPREAD",  # two units on one machine share its memory bandwidth
            runtime_env={"env_vars": worker_environment()},
        )
        return remote(worker.main)


class RayJob(RemoteJob):
    """A task on one unit."""

    def __init__(self, ray: Any, unit: UnitFolder, mailbox: Mailbox, reference: Any):
        super().__init__(unit, mailbox)
        self.ray, self.reference = ray, reference

    def end(self) -> End | None:
        """How it ended, once it has."""
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        exceptions = self.ray.exceptions
        try:
            status = int(self.ray.get(self.reference))
        except exceptions.RayTaskError as error:
            return End(1, failed(self.unit, last_line(error)))
        except exceptions.RayError as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            return died(self.unit, f"it lost, and every further try too ({first})")
        return ended(self.unit, status, self.mailbox)

    def close(self) -> None:
        """End its worker, or do not let it begin."""
        with suppress(Exception):  # the cluster itself may be gone
            self.ray.cancel(self.reference, force=True)
