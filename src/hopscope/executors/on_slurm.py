"""SLURM as a place to train units: each is a job, which submitit hands in.

Submitit keeps what it hands in, and what comes back, as pickles in a folder of its own beside the runs.  They hold the
name of a function, a list of strings, and a number; no run depends on them, and they are removed after the run.
"""

import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from hopscope.errors import UserError
from hopscope.executors import worker
from hopscope.executors.pool import End, died, failed, recorded_layout
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

CLUSTERS = ("slurm", "local", "debug")
"""Submitit's executors: SLURM itself, processes of this machine, and this very process."""

MINUTES = 60
"""Time that a job asks for; what it leaves undone a further job takes up.  `SBATCH_TIMELIMIT` says otherwise."""

ASK_SECONDS = 60.0
"""Time between two questions to SLURM how a job is; that one has ended well is seen at once, from its result."""


@contextmanager
def submitting(cluster: str | None) -> Iterator["SlurmJobs"]:
    """The place where submitit's jobs run.

    Args:
        cluster: one of `CLUSTERS`; by default SLURM.

    Raises:
        UserError: submitit is not installed, or SLURM's commands are not here.
    """
    cluster = cluster or "slurm"
    if cluster not in CLUSTERS:
        raise UserError(f"address: expected one of {', '.join(CLUSTERS)} for slurm, found {cluster!r}")
    if find_spec("submitit") is None:
        raise UserError(
            "executor: expected the package submitit, found none; run pip install 'hopscope[slurm]'"
        )
    missing = [name for name in ("sbatch", "srun", "sacct") if shutil.which(name) is None]
    if cluster == "slurm" and missing:
        raise UserError(
            f"executor: expected SLURM's command {missing[0]} on this machine, found none; run this on a machine that "
            "submits jobs, or use --executor local"
        )
    jobs = SlurmJobs(cluster)
    try:
        yield jobs
    finally:
        jobs.exchange.close()


class SlurmJobs:
    """Jobs of SLURM, as a `Place`.

    Attributes:
        cluster: one of `CLUSTERS`.
        exchange: folder for what the jobs say, their logs, and submitit's files.
    """

    here = False
    retries = 3
    poll_seconds = 0.5

    def __init__(self, cluster: str):
        self.cluster, self.exchange = cluster, Exchange()
        self._handed_in = 0

    def device(self, asked: str) -> str:
        """The CPU unless CUDA was asked for: what the nodes have is not known here."""
        return "cuda" if asked == "cuda" else "cpu"

    def at_a_time(self, layouts: Sequence[Mapping[str, Any]], cores: int | None, on_gpu: int) -> int:
        """All units, unless the user gave a number of cores: SLURM lets jobs wait until there is room.

        Raises:
            UserError: units are to share a GPU.
        """
        if on_gpu > 1:
            raise UserError(
                "gpu-workers: expected 1 with --executor slurm, where each unit has a job and a GPU"
            )
        threads = max((each["threads"] for each in layouts), default=1)
        return max(1, len(layouts) if cores is None else cores // threads)

    def start(self, unit: UnitFolder, left: float | None) -> "SlurmJob":
        """Hand in a job for a unit.

        Raises:
            UserError: SLURM does not take it.
        """
        self._handed_in += 1
        mailbox = Mailbox(self.exchange.folder(unit) / f"{unit.hash}-{self._handed_in}.jsonl")
        try:
            job = self._executor(unit).submit(worker.main, worker_arguments(unit, left, mailbox.path))
        except Exception as error:
            words = " ".join(str(error).split())[-300:]
            raise UserError(f"executor: expected SLURM to take a job, found {words}") from error
        return SlurmJob(unit, mailbox, job, self.exchange)

    def _executor(self, unit: UnitFolder) -> Any:
        import submitit

        layout = recorded_layout(unit)
        executor = submitit.AutoExecutor(folder=self.exchange.folder(unit), cluster=self.cluster)
        exported = [f"export {name}={shlex.quote(value)}" for name, value in worker_environment().items()]
        executor.update_parameters(
            name=f"hopscope-{unit.run_path.parent.name}",
            timeout_min=MINUTES,
            cpus_per_task=layout["threads"],
            gpus_per_node=1 if layout["device"] == "cuda" else 0,
            **({} if self.cluster == "debug" else {f"{self.cluster}_setup": exported}),
        )
        return executor


class SlurmJob(RemoteJob):
    """A job on one unit."""

    def __init__(self, unit: UnitFolder, mailbox: Mailbox, job: Any, exchange: Exchange):
        super().__init__(unit, mailbox)
        self.job, self.exchange = job, exchange
        self._asked = time.monotonic()

    def end(self) -> End | None:
        """How it ended, once it has."""
        ask = time.monotonic() - self._asked >= ASK_SECONDS
        if ask:
            self._asked = time.monotonic()
        if not self.job.done(force_check=ask):
            return None
        from submitit.core.utils import FailedJobError, UncompletedJobError

        log = self.job.paths.stderr
        try:
            return ended(self.unit, int(self.job.result()), self.mailbox)
        except FailedJobError as error:
            self.exchange.keep = True
            return End(1, failed(self.unit, f"{last_line(error)}; see {log}"))
        except UncompletedJobError:
            self.exchange.keep = True
            return died(self.unit, f"its job {self.job.job_id} ended in state {self.job.state} (see {log})")

    def close(self) -> None:
        """Cancel the job, whether or not it has begun."""
        with suppress(Exception):  # it may have ended, or SLURM may be gone
            self.job.cancel(check=False)
