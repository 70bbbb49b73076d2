"""Running a study on this machine: worker processes for its units, then claims, figures and the page."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeGuard, cast

from hopscope.config import Config
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors import timing
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    compact,
    content_hash,
    is_thinned,
    source_hash,
    write_json,
)
from hopscope.studies import find_study
from hopscope.studies.base import Gathering, Study
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.engines import ENGINES, Engine, check_engine, chosen_engine

Listener = Callable[[UnitFolder, Mapping[str, Any]], None]
"""Hears every message of every worker; see `hopscope.executors.worker`."""

POLL_SECONDS = 0.1

DEVICES = ("auto", "cpu", "cuda")

CHOICES = ("auto", "general", "compiled")
"""Engines to ask for: those that train any unit on any device."""

_CONCLUSIONS = ("metrics.parquet", "claims.json", "story.json", "report.html")
"""What `finish` writes and a command reads: one that was deleted is made anew."""


@dataclass
class _Worker:
    unit: UnitFolder
    process: "subprocess.Popen[str]"
    readers: list[threading.Thread] = field(default_factory=list)
    error: Mapping[str, Any] | None = None
    stderr: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Wait for the end of the process, and of what it says."""
        self.process.wait()
        for reader in self.readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def run_study(
    study: Study,
    config: Config,
    *,
    out: Path,
    preset: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    time_budget: float | None = None,
    engine: str = "auto",
    gpu_workers: int = 1,
    listen: Listener = lambda unit, message: None,
    say: Callable[[str], None] = lambda words: None,
) -> RunFolder:
    """Train, analyse and conclude, or go on where an earlier call stopped.

    Args:
        study, config: what is asked.
        out: root of the runs.
        preset: name of the preset, for the record.
        device: `"cpu"`, `"cuda"`, or `"auto"` for CUDA where there is one.
        threads: cores to use; by default all that this process may use.
        time_budget: seconds; what is done by then is kept.
        engine: how units that have not begun are trained: `"general"`, `"compiled"`, or `"auto"` for the fastest.
        gpu_workers: units that share a GPU at a time.
        listen: hears the workers.
        say: hears, in words, how work beside the units goes.

    Returns:
        The finished run.

    Raises:
        TimeBudgetReached: the same call goes on.
        UserError: something the user can mend.
    """
    deadline = None if time_budget is None else time.monotonic() + time_budget
    plans = study.plan(config)
    units = [content_hash(plan.model_dump(mode="json")) for plan in plans]
    members = [
        {
            "member": member.member,
            "unit": unit,
            "index": index,
            "seed": member.seed,
            "overrides": member.overrides,
        }
        for plan, unit in zip(plans, units, strict=True)
        for index, member in enumerate(plan.members)
    ]
    _check_options(device, threads, time_budget, engine, gpu_workers)  # before anything is written
    run = RunFolder.create(out, study.name, config.model_dump(mode="json"), members, preset)
    pending = [
        run.unit(unit)
        for unit, plan in zip(units, plans, strict=True)
        if not _whole(study, config, run.unit(unit), plan)
    ]
    if run.is_done and not pending and _concluded(study, config, run):
        return run
    device = chosen_device(device) if plans else "cpu"  # to ask for CUDA loads torch, for which no unit waits
    with run.lock():
        run.clear_done()
        cores = threads or available_cores()
        left = None if deadline is None else deadline - time.monotonic()
        by_unit = dict(zip(units, plans, strict=True))
        engines = {unit: unit_engine(plan, device, engine) for unit, plan in by_unit.items()}
        threads_each = _threads_each(run, by_unit, engines, device, cores, left)
        for plan, unit in zip(plans, units, strict=True):
            run.unit(unit).create(
                {
                    "label": plan.label,
                    "plan": plan.model_dump(mode="json"),
                    "layout": unit_layout(engines[unit], device, threads_each),
                    "versions": versions(),
                    "source_hash": source_hash(),
                }
            )
            if engine != "auto":
                _take_engine(run.unit(unit), engine)
        layouts = [_layout_of(unit_folder) for unit_folder in pending]
        workers = workers_at_a_time(layouts, cores, gpu_workers)
        costs = {unit: timing.operations(plan) for plan, unit in zip(plans, units, strict=True)}
        pending.sort(
            key=lambda unit: -costs[unit.hash]
        )  # the longest first, so that no core idles at the end
        _Pool(run, pending, workers, deadline, listen).work()
        if isinstance(study, Gathering):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            study.gather(run, config, TimeBudget(left), say)
        finish(run)
    return run


def finish(run: RunFolder) -> None:
    """Metrics, claims, figures, story and page of a run whose units are all done; then mark it done."""
    from hopscope.report.page import build_report
    from hopscope.report.pictures import render_all

    compact(run.path)
    find_study(run.study).conclude(run)
    render_all(run.path)
    build_report([run.path], run.path / "report.html")
    run.mark_done()


def _check_options(
    device: str, threads: int | None, time_budget: float | None, engine: str, gpu_workers: int
) -> None:
    if device not in DEVICES:
        raise UserError(f"device: expected one of {', '.join(DEVICES)}, found {device!r}")
    if threads is not None and threads < 1:
        raise UserError(f"threads: expected at least 1, found {threads}")
    if time_budget is not None and not time_budget > 0:
        raise UserError(f"time-budget: expected more than 0 seconds, found {time_budget:g}")
    if engine not in CHOICES:
        raise UserError(f"engine: expected one of {', '.join(CHOICES)}, found {engine!r}")
    if gpu_workers < 1:
        raise UserError(f"gpu-workers: expected at least 1, found {gpu_workers}")
    if device == "cuda":
        chosen_device(device)


def _take_engine(unit: UnitFolder, engine: str) -> None:
    """Let a unit that has not been trained yet begin with the engine that was asked for.

    Raises:
        UserError: it has been trained with another.
    """
    record = unit.record
    recorded = record["layout"]["engine"]
    if recorded == engine or unit.is_done:
        return
    if any(step > 0 for step, _ in unit.checkpoints()):
        raise UserError(
            f"engine: expected {recorded}, with which unit {unit.hash} began, found {engine}; leave --engine out, "
            f"or delete the folder {unit.path}"
        )
    write_json(unit.path / "unit.json", {**record, "layout": {**record["layout"], "engine": engine}})


def _whole(study: Study, config: Config, unit: UnitFolder, plan: Any) -> bool:
    """Whether a unit needs no more work: what was deleted or damaged since it was done is made anew."""
    steps = plan.training.steps
    wanted = study.analyses(config, plan)
    analysed = all(unit.analysis_path(name, steps, kind).is_file() for name, kind in wanted.items())
    if not (unit.is_done and analysed):
        return False
    if is_thinned(unit):
        return True
    try:
        unit.checkpoint(steps)
    except UserError:
        return False
    return True


def _concluded(study: Study, config: Config, run: RunFolder) -> bool:
    """Whether everything is there that `finish` writes."""
    kinds = (".vl.json", ".csv", ".svg", ".png")
    figures = [f"figures/{name}{kind}" for name in study.figures(config) for kind in kinds]
    gathered = study.gathered if isinstance(study, Gathering) else ()
    return all((run.path / name).is_file() for name in (*_CONCLUSIONS, *gathered, *figures))


def _layout_of(unit: UnitFolder) -> dict[str, Any]:
    """Device, threads and engine that a unit began with: they hold, because others round differently.

    Raises:
        UserError: they are not on record, or the device or the engine is absent.
    """
    recorded: Any = unit.record.get("layout")
    known = isinstance(recorded, dict) and recorded.get("device") in DEVICES
    if not known or not _is_count(recorded.get("threads")) or recorded.get("engine") not in ENGINES:
        raise UserError(
            f"{unit.path / 'unit.json'}: expected device, threads and engine under layout, found {recorded!r}; "
            f"delete the folder {unit.path} and run the same command again"
        )
    if recorded["device"] == "cuda":
        chosen_device("cuda")
    check_engine(recorded["engine"], recorded["device"])
    return recorded


def layout(units: int, threads: int, device: str) -> tuple[int, int]:
    """How many workers at a time, and threads for each: one-thread workers while there are units enough."""
    if device == "cuda":
        return 1, threads
    workers = max(1, min(units, threads))
    return workers, max(1, threads // workers)


def _threads_each(
    run: RunFolder,
    plans: Mapping[str, UnitPlan],
    engines: Mapping[str, Engine],
    device: str,
    cores: int,
    left: float | None,
) -> int:
    """Threads of the units: as those of the run that have begun, else as measured where that pays, else by rule."""
    by_rule = layout(len(plans), cores, device)
    if set(engines.values()) != {"general"} or device != "cpu":
        return by_rule[1]  # the fused way has one thread, and a GPU one worker
    begun = _threads_begun(run)
    if begun is not None:
        return begun
    choices = timing.candidates(by_rule, cores)
    repaid = min(timing.expected_seconds(plans.values(), cores), float("inf") if left is None else left)
    if len(choices) == 1 or repaid < timing.REPAID_SECONDS:
        return by_rule[1]
    unit, plan = max(plans.items(), key=lambda item: timing.operations(item[1]))
    measure = partial(timing.speed, run.study, plan, "general", _environment())
    return timing.measured(run, unit, choices, measure).threads


def _threads_begun(run: RunFolder) -> int | None:
    """Threads of the units that are on record, if there are any: one run has one layout."""
    begun = [unit.record.get("layout") for unit in run.units if (unit.path / "unit.json").is_file()]
    threads = [entry.get("threads") for entry in begun if isinstance(entry, dict)]
    return max((number for number in threads if _is_count(number)), default=None)


def _is_count(threads: Any) -> TypeGuard[int]:
    return isinstance(threads, int) and threads >= 1


def workers_at_a_time(layouts: Sequence[Mapping[str, Any]], cores: int, on_gpu: int = 1) -> int:
    """How many units are at work together: `on_gpu`, or as many as the threads they began with leave room for."""
    if any(each["device"] == "cuda" for each in layouts):
        return on_gpu
    return max(1, min(len(layouts), cores // max((each["threads"] for each in layouts), default=1)))


def unit_engine(plan: UnitPlan, device: str, asked: str) -> Engine:
    """The engine that was asked for, or the fastest."""
    return chosen_engine(plan, device) if asked == "auto" else cast(Engine, asked)


def unit_layout(engine: Engine, device: str, threads: int) -> dict[str, Any]:
    """Device, threads and engine of one unit."""
    # Loops compiled by numba run on one thread; more of them would only wait, spinning, beside the matrix products.
    return {"device": device, "threads": 1 if engine in ("fused", "stacked") else threads, "engine": engine}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_device(device: str) -> str:
    """`"cpu"` or `"cuda"` for what the user asked.

    Raises:
        UserError: CUDA was asked for and is absent.
    """
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise UserError("device: expected a CUDA device for --device cuda, found none; use --device cpu or auto")


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on (numba where it is installed)."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for name in ("torch", "numpy", "numba"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class _Pool:
    """Worker processes over the pending units, at most `size` at a time."""

    def __init__(
        self, run: RunFolder, pending: list[UnitFolder], size: int, deadline: float | None, listen: Listener
    ):
        self.run, self.pending, self.size, self.deadline, self.listen = (
            run,
            list(pending),
            size,
            deadline,
            listen,
        )
        self.active: list[_Worker] = []
        self.messages: Queue[tuple[_Worker, Mapping[str, Any]]] = Queue()
        self.late = False

    def work(self) -> None:
        """Run everything.

        Raises:
            TimeBudgetReached, UserError: after the workers have ended.
        """
        try:
            while self.active or (self.pending and not self.late):
                while self.pending and len(self.active) < self.size and not self.late:
                    self._start(self.pending.pop(0))
                self._hear()
                for worker in [worker for worker in self.active if worker.process.poll() is not None]:
                    self._ended(worker)
        finally:
            for worker in self.active:
                worker.process.kill()
                worker.close()
        if self.late:
            raise TimeBudgetReached("time budget reached; what is done is kept, the same command goes on")

    def _start(self, unit: UnitFolder) -> None:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        recorded = _layout_of(unit)
        command = [sys.executable, "-m", "hopscope.executors.worker", str(self.run.path), unit.hash]
        command += ["--device", recorded["device"], "--threads", str(recorded["threads"])]
        command += ["--engine", recorded["engine"]]
        command += ["--parent", str(os.getpid())]
        command += [] if left is None else ["--time-budget", f"{max(left, 0.0):.3f}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
        )
        worker = _Worker(unit, process)
        self.active.append(worker)
        for reader in (self._read, _collect):
            worker.readers.append(threading.Thread(target=reader, args=(worker,), daemon=True))
            worker.readers[-1].start()

    def _read(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            with suppress(ValueError):  # a line that a kill cut short, or that a library printed
                self.messages.put((worker, json.loads(line)))

    def _hear(self) -> None:
        try:
            worker, message = self.messages.get(timeout=POLL_SECONDS)
        except Empty:
            return
        if message["kind"] == "error":
            worker.error = message
        else:
            self.listen(worker.unit, message)

    def _ended(self, worker: _Worker) -> None:
        worker.close()  # its last words are in the queue then
        while not self.messages.empty():
            self._hear()
        self.active.remove(worker)
        status = worker.process.returncode
        if status == TimeBudgetReached.exit_status:
            self.late = True
        elif worker.error is not None:
            raise UserError(str(worker.error["message"]))
        elif status != 0:
            raise UserError(_death(worker, status))
        else:
            self.listen(worker.unit, {"kind": "done"})


def _collect(worker: _Worker) -> None:
    assert worker.process.stderr is not None
    worker.stderr.extend(worker.process.stderr)


def _death(worker: _Worker, status: int) -> str:
    if status < 0:
        return (
            f"unit {worker.unit.hash}: expected its worker to finish, found it killed by signal {-status} (out of "
            "memory?); what is done is kept, the same command goes on"
        )
    last = worker.stderr[-1].strip() if worker.stderr else "no message"
    return (
        f"unit {worker.unit.hash}: its worker failed ({last}); this is a fault of Hopscope, please report it"
    )


def _environment() -> dict[str, str]:
    """The workers find this very package, also when it is used from a source tree."""
    package_root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([package_root, known] if known else [package_root])}
