"""The trainer of a campaign: a worker process for each core, the next model when one is done, at the lowest priority.

`background.py start` begins it, in the campaign's own environment; it ends when every model is trained
and read, or on SIGTERM.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent))

from background import Home, last_step

from hopscope.executors.local import prepare
from hopscope.runs import RunFolder
from hopscope.studies import find_study

POLL_SECONDS = 0.25
ATTEMPTS = 3
"""Times that a worker of a model may fail in a row before the model is left for later."""


@dataclass(frozen=True)
class Model:
    """A model of the queue: one member, which is a unit of its own.

    Attributes:
        reading: which reading of the recipe it is of.
        member: its number in the run, and its seed.
        run: the run that it is a member of.
        unit: hash of its unit.
        steps: of its training.
        batch: samples of a step.
    """

    reading: str
    member: int
    run: RunFolder
    unit: str
    steps: int
    batch: int

    @property
    def step(self) -> int:
        """Step of its newest checkpoint."""
        return last_step(self.run.unit(self.unit).path) or 0

    def finished(self, results: Path) -> bool:
        """Whether it is trained and read, or its record is among the results and its weights are gone."""
        collected = results / self.reading / "units" / self.unit / "collected.json"
        return self.run.unit(self.unit).is_done or (collected.is_file() and self.step != self.steps)


@dataclass
class Worker:
    """A process that trains a model."""

    model: Model
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]


@dataclass
class Trainer:
    """What is at work.

    Attributes:
        home: the campaign.
        cores: models that are trained at a time.
        waiting: models that nobody trains yet, in the order of the queue.
        workers: processes at work.
        failures: of a unit, in a row.
        failed: last complaint of the units that were given up.
    """

    home: Home
    cores: int
    waiting: list[Model]
    workers: list[Worker] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    def work(self) -> None:
        """Train and read everything."""
        try:
            self.say()
            while self.waiting or self.workers:
                self._obey()
                self._reap()
                while self.waiting and len(self.workers) < self.cores and not self.stopped:
                    self._begin(self.waiting.pop(0))
                time.sleep(POLL_SECONDS)
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.wait()

    def say(self) -> None:
        """Write down what is at work."""
        workers = [{"unit": worker.model.unit, "pid": worker.process.pid} for worker in self.workers]
        state = {"pid": os.getpid(), "paused": self.stopped, "workers": workers, "failed": self.failed}
        self.home.write("state.json", state)

    def _obey(self) -> None:
        """Stop the workers while the campaign is paused."""
        wanted = self.home.paused.exists()
        if wanted != self.stopped:
            for worker in self.workers:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(signal.SIGSTOP if wanted else signal.SIGCONT)
            self.stopped = wanted
            self.home.log("paused" if wanted else "resumed")
            self.say()

    def _begin(self, model: Model) -> None:
        folder = self.home.path / "logs"
        folder.mkdir(exist_ok=True)
        log = (folder / f"{model.unit}.jsonl").open("ab")
        command = [sys.executable, "-m", "hopscope.executors.worker", str(model.run.path), model.unit]
        command += ["--parent", str(os.getpid())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.workers.append(Worker(model, process, log))
        self.home.log(f"begins {model.reading} seed {model.member}, at step {model.step}")
        self.say()

    def _reap(self) -> None:
        for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
            model = worker.model
            worker.log.close()
            self.workers.remove(worker)
            if worker.process.returncode == 0 and model.run.unit(model.unit).is_done:
                self.failures.pop(model.unit, None)
                self.home.log(f"trained and read {model.reading} seed {model.member}")
            else:
                self._note_failure(model, worker.process.returncode)
            self.say()

    def _note_failure(self, model: Model, status: int) -> None:
        complaint = _last_words(self.home.path / "logs" / f"{model.unit}.jsonl") or f"status {status}"
        self.failures[model.unit] = self.failures.get(model.unit, 0) + 1
        self.home.log(f"failed {model.reading} seed {model.member}: {complaint}")
        if self.failures[model.unit] < ATTEMPTS:
            self.waiting.insert(0, model)
        else:
            self.failed[model.unit] = complaint


def _last_words(log: Path) -> str:
    """The last thing that a worker said beside its progress."""
    for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]):
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return line.strip()
        if isinstance(message, dict) and message.get("kind") in ("error", "warning"):
            return str(message.get("message", ""))
    return ""


def models_of(home: Home) -> list[Model]:
    """The queue's models in its order; runs and units that are not there yet are made.

    Raises:
        UserError: a study, preset or field of the queue does not exist.
    """
    queue = json.loads((home.source / home.record()["queue"]).read_text(encoding="utf-8"))
    runs, found = {}, []
    for name, reading in queue["readings"].items():
        study = find_study(reading["study"])
        config = study.configured(reading["preset"], reading["fields"])
        run = prepare(study, config, out=home.path / "runs", preset=reading["preset"])
        campaign = {
            "reading": name,
            **{key: home.record().get(key) for key in ("commit", "commits", "protocols")},
        }
        run.write_json("campaign.json", campaign)
        runs[name] = (
            run,
            {job.members[0].member: job for job in study.jobs(config) if len(job.members) == 1},
        )
    for name, members in queue["order"]:
        run, jobs = runs[name]
        units = {record.member: record.unit for record in run.members}
        for member in members:
            training = jobs[member].training
            found.append(Model(name, member, run, units[member], training.steps, training.batch_size))
    return found


def main(path: str) -> int:
    """Train and read until everything is done; at most one trainer works on a campaign."""
    home = Home(Path(path))
    with (home.path / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"{home.path}: another trainer is at work", file=sys.stderr)
            return 2
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        _give_way()
        models = models_of(home)
        told = [
            {"reading": each.reading, "member": each.member, "unit": each.unit, "steps": each.steps,
             "batch": each.batch, "folder": str(each.run.unit(each.unit).path.relative_to(home.path))}
            for each in models
        ]  # fmt: skip
        home.write("models.json", {"models": told})
        waiting = [each for each in models if not each.finished(home.results)]
        Trainer(home, home.record()["cores"], waiting).work()
        home.log("every model is trained and read, or given up")
    return 0


def _give_way() -> None:
    """Use only what nobody else wants of the cores."""
    os.nice(19)
    if hasattr(os, "sched_setscheduler"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # The trainer leads a session of its own, and Linux shares the cores among sessions before it asks how nice
    # their processes are: without this, the campaign takes half of them from everybody else.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
