"""SLURM as a place to train units: each is a job, which submitit hands in.

Submitit keeps what it hands in as pickles in a folder of its own beside the runs.  They hold the name of a function, a
list of strings, and a number; no run depends on them, and they are removed after the run.
"""

import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from hopscope.errors import UserError
from hopscope.execute import worker
from hopscope.execute.cluster import Cluster, RemoteWorker, last_line, worker_environment
from hopscope.execute.pool import End, died, failed
from hopscope.runs import UnitFolder

CLUSTERS = ("slurm", "local", "debug")
"""Submitit's executors: SLURM itself, processes of this machine, and this very process."""

_RETRIES = 3  # jobs that take up a unit whose job died, before the run ends
_MINUTES = 60  # that a job asks for; `SBATCH_TIMELIMIT` says otherwise
_ASK = 60.0  # seconds between two questions to SLURM; a job that ended well is seen at once, from its result


@contextmanager
def submitting(cluster: str | None) -> Iterator["SlurmJobs"]:
    """The place where submitit's jobs run: one of `CLUSTERS`, by default SLURM; `UserError`: that is not installed."""
    cluster = cluster or "slurm"
    if cluster not in CLUSTERS:
        raise UserError(f"address: expected one of {', '.join(CLUSTERS)} for slurm, found {cluster!r}")
    if find_spec("submitit") is None:
        remedy = "run pip install 'hopscope[slurm]'"
        raise UserError(f"executor: expected the package submitit, found none; {remedy}")
    missing = [name for name in ("sbatch", "srun", "sacct") if shutil.which(name) is None]
    if cluster == "slurm" and missing:
        remedy = "run this on a machine that submits jobs, or use --executor local"
        wanted = f"SLURM's command {missing[0]} on this machine"
        raise UserError(f"executor: expected {wanted}, found none; {remedy}")
    jobs = SlurmJobs()
    jobs.name = cluster
    try:
        yield jobs
    finally:
        jobs.close()


class SlurmJobs(Cluster):
    """Jobs of SLURM, as a `Place`."""

    name: str

    def device(self, asked: str) -> str:
        """The CPU unless CUDA was asked for: what the nodes have is not known here."""
        return "cuda" if asked == "cuda" else "cpu"

    def start(self, unit: UnitFolder, seconds: float | None) -> "SlurmWorker":
        """Hand in a job for a unit; a `UserError` if SLURM does not take it."""
        found = SlurmWorker(unit, self.folder(unit) / f"{unit.name}.jsonl")
        found.jobs, found.until = self, None if seconds is None else time.monotonic() + seconds
        found.hand_in()
        return found

    def executor(self, unit: UnitFolder) -> Any:
        """Submitit's executor, with what a job of the unit needs."""
        import submitit

        executor = submitit.AutoExecutor(folder=self.folder(unit), cluster=self.name)
        exported = [f"export {name}={shlex.quote(value)}" for name, value in worker_environment().items()]
        executor.update_parameters(
            name=f"hopscope-{unit.path.parents[2].name}", timeout_min=_MINUTES, cpus_per_task=1,
            gpus_per_node=1 if unit.job["device"] == "cuda" else 0,
            **({} if self.name == "debug" else {f"{self.name}_setup": exported}),
        )  # fmt: skip
        return executor


class SlurmWorker(RemoteWorker):
    """Jobs on one unit, one after another while they die and get further."""

    jobs: SlurmJobs
    until: float | None
    job: Any
    _asked, _deaths, _furthest = 0.0, 0, -1

    def hand_in(self) -> None:
        """Hand in a job; a `UserError` if SLURM does not take it."""
        seconds = None if self.until is None else max(0.0, self.until - time.monotonic())
        try:
            self.job = self.jobs.executor(self.unit).submit(worker.main, self.arguments(seconds))
        except Exception as error:
            words = " ".join(str(error).split())[-300:]
            raise UserError(f"executor: expected SLURM to take a job, found {words}") from error

    def end(self) -> End | None:
        """How it ended, once it has; a job that died is followed by another, a few times without a new checkpoint."""
        ask = time.monotonic() - self._asked > _ASK
        self._asked = time.monotonic() if ask else self._asked
        if not self.job.done(force_check=ask):
            return None
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            return self.ended(int(self.job.result()))
        except FailedJobError as error:
            self.jobs.kept = True
            return failed(self.unit, f"{last_line(error)}; see {self.job.paths.stderr}")
        except UncompletedJobError:
            step = max(self.unit.steps, default=-1)
            self._deaths = self._deaths + 1 if step <= self._furthest else 1
            self._furthest = step
            if self._deaths <= _RETRIES:
                self.hand_in()
                return None
            self.jobs.kept = True
            about = f"its job {self.job.job_id} ended in state {self.job.state} (see {self.job.paths.stderr})"
            return died(self.unit, about)

    def close(self) -> None:
        """Cancel the job, whether or not it has begun."""
        with suppress(Exception):  # it may have ended, or SLURM may be gone
            self.job.cancel(check=False)
