"""SLURM as a place to train units: each is a job, which submitit hands in.

Submitit keeps what it hands in as pickles in a folder of its own beside the runs.  They hold the name of a function, a
string, and a number; no run depends on them, and they are removed after the run.
"""

import shlex
import shutil
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


class SlurmJobs(Cluster):
    """Jobs of submitit, of a unit one after another, while they die and get further.

    They run on one of `CLUSTERS`, by default SLURM; `UserError`: that is not installed.
    """

    def __init__(self, study: str, cluster: str | None):
        super().__init__(study)
        self.name = cluster or "slurm"
        if self.name not in CLUSTERS:
            raise UserError(f"address: expected one of {', '.join(CLUSTERS)} for slurm, found {cluster!r}")
        if find_spec("submitit") is None:
            words = "expected the package submitit, found none; run pip install 'hopscope[slurm]'"
            raise UserError(f"executor: {words}")
        missing = [name for name in ("sbatch", "srun", "sacct") if shutil.which(name) is None]
        if self.name == "slurm" and missing:
            remedy = "run this on a machine that submits jobs, or use --executor local"
            wanted = f"SLURM's command {missing[0]} on this machine"
            raise UserError(f"executor: expected {wanted}, found none; {remedy}")

    def device(self, asked: str) -> str:
        """The CPU unless CUDA was asked for: what the nodes have is not known here."""
        return "cuda" if asked == "cuda" else "cpu"

    def submit(self, unit: UnitFolder, given: str) -> Any:
        """See `Cluster`."""
        import submitit

        executor = submitit.AutoExecutor(folder=self.folder(unit), cluster=self.name)
        exported = [f"export {name}={shlex.quote(value)}" for name, value in worker_environment().items()]
        executor.update_parameters(
            name=f"hopscope-{unit.path.parents[2].name}", timeout_min=_MINUTES, cpus_per_task=1,
            gpus_per_node=1 if unit.job["device"] == "cuda" else 0,
            **({} if self.name == "debug" else {f"{self.name}_setup": exported}),
        )  # fmt: skip
        try:
            return executor.submit(worker.main, given)
        except Exception as error:
            words = " ".join(str(error).split())[-300:]
            raise UserError(f"executor: expected SLURM to take a job, found {words}") from error

    def end_of(self, worker: RemoteWorker) -> End | None:
        """See `Cluster`; a job that died is followed by another, a few times without a new checkpoint."""
        if not worker.job.done():  # which asks SLURM once a minute, and sees at once that a job ended well
            return None
        from submitit.core.utils import FailedJobError, UncompletedJobError

        job, unit = worker.job, worker.unit
        try:
            return worker.ended(int(job.result()))
        except UncompletedJobError as error:
            # A job that reaches its time limit says that it is uncompleted in the words of one that failed.
            if isinstance(error, FailedJobError) and "UncompletedJobError" not in str(error):
                self.kept = True
                return failed(unit, f"{last_line(error)}; see {job.paths.stderr}")
            step = max(unit.steps, default=-1)
            worker.deaths = worker.deaths + 1 if step <= worker.furthest else 1
            worker.furthest = step
            if worker.deaths <= _RETRIES:
                worker.submit()
                return None
            self.kept = True
            return died(unit, f"its job {job.job_id} ended in state {job.state} (see {job.paths.stderr})")

    def cancel(self, job: Any) -> None:
        """See `Cluster`."""
        job.cancel(check=False)
