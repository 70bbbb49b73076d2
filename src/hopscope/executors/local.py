"""Running a study: workers for its units, here or on a cluster, then claims, figures and the page."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.executors import timing
from hopscope.executors.finish import concluded, finish, register_claims
from hopscope.executors.healing import check_can_be_made, remove_altered, tell_lost_checkpoints
from hopscope.executors.places import check_root, opened_place
from hopscope.executors.pool import (
    DEVICES,
    Listener,
    Message,
    Place,
    Pool,
    chosen_device,
    is_count,
    layout_of,
    recorded_layout,
)
from hopscope.executors.processes import Processes, available_cores, environment
from hopscope.executors.programs import tell_other_programs
from hopscope.executors.tracking import check_trackers, followed
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    content_hash,
    is_thinned,
    seals,
    source_hash,
    write_json,
)
from hopscope.runs.copies import RunCopy
from hopscope.runs.files import is_file
from hopscope.runs.metrics import check_parts
from hopscope.runs.storage import url_of
from hopscope.studies import study_names
from hopscope.studies.loading import naming
from hopscope.studies.program import Program
from hopscope.studies.record import check_source, note_origin, program_of
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob
from hopscope.training.engines import ENGINES, EngineName, chosen_engine

CHOICES = ("auto", "general", "compiled")
"""Engines to ask for: those that train any unit on any device."""


class How(TypedDict, total=False):
    """Where and how a study runs; none of it changes the results.

    Attributes:
        device: `"cpu"`, `"cuda"`, or `"auto"` (default) for CUDA where there is one.
        threads: cores to use; by default all that this process may use.
        time_budget: seconds; what is done by then is kept.
        engine: how units that have not begun are trained: `"general"`, `"compiled"`, or `"auto"` (default) for the
            fastest.
        gpu_workers: units that share a GPU at a time, by default 1.
        executor: where units are trained: `"local"` (default), `"ray"` or `"slurm"`.
        address: of the Ray cluster; of SLURM: `"slurm"` (default), or `"local"` and `"debug"` to try it without one.
        tracker: names of trackers that follow the run (`hopscope.executors.tracking`).
        listen: hears the workers.
        say: hears, in words, how work beside the units goes.
    """

    device: str
    threads: int | None
    time_budget: float | None
    engine: str
    gpu_workers: int
    executor: str
    address: str | None
    tracker: Sequence[str]
    listen: Listener
    say: Callable[[str], None]


def run_study(
    study: Program,
    config: Config,
    *,
    out: Path,
    preset: str | None = None,
    **how: Unpack[How],
) -> RunFolder:
    """Train, analyse and conclude a study, or go on where an earlier call stopped.

    Args:
        study, config: the study and its configuration.
        out: root of the runs; where it is a URL, the run is made among the user's caches, and a copy is kept there
            (`hopscope.runs.copies`).
        preset: name of the preset, for the record.
        how: where and how to work, as in `How`.

    Returns:
        The finished run.

    Raises:
        TimeBudgetReached: the same call goes on.
        UserError: something the user can mend.
    """
    _check_options(how)  # before anything is written
    check_root(out, how.get("executor", "local"))
    study.check(config)
    with (
        opened_place(how.get("executor", "local"), how.get("address"), study, how.get("say")) as place,
        _copied(out, study, config, how.get("say")) as copy,
    ):
        run, listen = _folder(study, config, out if copy is None else copy.root, preset), how.get("listen")
        with followed(run, how.get("tracker", ()), how.get("say")) as look:

            def hear(unit: UnitFolder, message: Message) -> None:
                look()
                if copy is not None:
                    copy.look()
                    if message["kind"] == "done":
                        copy.send(unit.path)
                if listen is not None:
                    listen(unit, message)

            heard: How = {**how, "listen": hear}
            begin = None if copy is None else copy.begin
            return complete(run, study, config, place, begin, **heard)


@contextmanager
def _copied(
    out: Path, study: Program, config: Config, say: Callable[[str], None] | None
) -> Iterator[RunCopy | None]:
    """The copy of a run at a URL; `None` where the root is a folder."""
    url = url_of(out)
    if url is None:
        yield None
        return
    with RunCopy(url, study.name, study.run_hash(config), say).kept() as copy:
        if say is not None:
            say(f"working in {copy.path}; a copy is kept at {copy.url}")
        yield copy


def prepare(study: Program, config: Config, *, out: Path, preset: str | None = None) -> RunFolder:
    """Make the folder of a run whose units somebody else will train, each with one thread of this machine's CPU.

    Arguments as of `run_study`, which analyses and concludes such a run once its units are trained.

    Raises:
        UserError: something the user can mend.
    """
    run = _folder(study, config, out, preset)
    with run.lock():
        note_origin(run, study)
        _begin_units(run, _jobs_by_unit(study, config), "cpu", "auto", 1, None)
    return run


def prepare_unit(
    study: Program, config: Config, job: TrainJob, layout: Mapping[str, Any], *, out: Path
) -> UnitFolder:
    """Make the folder of a run, and in it one of its units, as a worker finds it.

    Args:
        study, config, out: as of `run_study`.
        job: of the unit.
        layout: device, threads and engine, as `unit_layout` gives them.

    Raises:
        UserError: a file cannot be read or written.
    """
    run = _folder(study, config, out, None)
    note_origin(run, study)
    unit = run.unit(content_hash(job.model_dump(mode="json")))
    _record_unit(unit, job, layout, _made_by())
    return unit


def _folder(study: Program, config: Config, out: Path, preset: str | None) -> RunFolder:
    """The folder of a run, found or made."""
    members = [
        {
            "member": member.member,
            "unit": unit,
            "index": index,
            "seed": member.seed,
            "overrides": member.overrides,
        }
        for unit, job in _jobs_by_unit(study, config).items()
        for index, member in enumerate(job.members)
    ]
    return RunFolder.create(out, study.name, config.model_dump(mode="json"), members, preset)


def _jobs_by_unit(study: Program, config: Config) -> dict[str, TrainJob]:
    return {content_hash(job.model_dump(mode="json")): job for job in study.jobs(config)}


def complete(
    run: RunFolder,
    study: Program,
    config: Config,
    place: Place | None = None,
    begin: Callable[[], None] | None = None,
    **how: Unpack[How],
) -> RunFolder:
    """Do the rest of a run whose folder is there; arguments, result and errors as of `run_study`.

    Units are trained at `place`, by default on this machine; `begin` is called before that.
    """
    place = Processes() if place is None else place
    device, engine, time_budget = how.get("device", "auto"), how.get("engine", "auto"), how.get("time_budget")
    listen: Listener = how.get("listen", lambda unit, message: None)
    say: Callable[[str], None] = how.get("say", lambda words: None)
    deadline = None if time_budget is None else time.monotonic() + time_budget
    from hopscope.report.page import mend_drawings

    check_source(run, study)
    by_unit = _jobs_by_unit(study, config)
    units = {unit: run.unit(unit) for unit in by_unit}
    remove_altered(run, how.get("say"))
    for unit, job in by_unit.items():
        tell_lost_checkpoints(units[unit], job.training.checkpoint_steps(), how.get("say"))
    pending = [units[unit] for unit, job in by_unit.items() if not _whole(study, config, units[unit], job)]
    if run.is_done and not pending and concluded(study, config, run):
        note_origin(run, study)  # its file may have moved
        mend_drawings(run.path, say)
        return run
    # To ask for CUDA loads torch, for which a run without units does not wait.
    device = place.device(device) if by_unit else "cpu"
    with run.lock():
        run.clear_done()
        note_origin(run, study)
        register_claims(run, study, config, how.get("say"))
        cores = how.get("threads")
        _begin_units(run, by_unit, device, engine, cores, deadline, place.here)
        if any(unit.checkpoints() for unit in pending):
            tell_other_programs(run, pending, _made_by(), how.get("say"))
        if begin is not None:
            begin()
        layouts = [(layout_of if place.here else recorded_layout)(each) for each in pending]
        for found in by_unit.keys() - {unit.hash for unit in pending}:
            listen(units[found], {"kind": "found"})
        # The longest first, so that no core idles at the end.
        pending.sort(key=lambda unit: -timing.operations(by_unit[unit.hash]))
        if study.reference is None:
            _work_here(study, pending, deadline, listen)
        else:
            size = place.at_a_time(layouts, cores, how.get("gpu_workers", 1))
            Pool(run, pending, size, deadline, listen, place).work()
        if study.gathered:
            with naming(study):
                study.gather(run, config, _budget(deadline), say)
        finish(run, study, config, say)
    return run


def _begin_units(
    run: RunFolder,
    by_unit: Mapping[str, TrainJob],
    device: str,
    engine: str,
    cores: int | None,
    deadline: float | None,
    here: bool = True,
) -> None:
    """Record what each unit is and how it is computed, unless that is on record."""
    left = None if deadline is None else deadline - time.monotonic()
    engines = {unit: unit_engine(job, device, engine) for unit, job in by_unit.items()}
    if here:
        threads_each = _threads_each(run, by_unit, engines, device, cores or available_cores(), left)
    else:  # one thread, unless more cores than units were asked for: what a machine far away has is not known
        threads_each = _threads_begun(run) or max(1, (cores or 0) // max(1, len(by_unit)))
    made_by = _made_by()
    for unit, job in by_unit.items():
        _record_unit(run.unit(unit), job, unit_layout(engines[unit], device, threads_each), made_by)
        if engine != "auto":
            _take_engine(run.unit(unit), engine)


def _record_unit(
    unit: UnitFolder, job: TrainJob, layout: Mapping[str, Any], made_by: Mapping[str, Any]
) -> None:
    unit.create(
        {"label": job.label, "plan": job.model_dump(mode="json"), "layout": dict(layout), **made_by},
    )


def _made_by() -> dict[str, Any]:
    """What a unit's record says of the programs that train it; asked once for all units, as it takes some time."""
    return {"versions": versions(), "source_hash": source_hash()}


def conclude(run: RunFolder) -> None:
    """Finish a run that was trained: measure what is not measured, judge, draw, and write the page.

    Raises:
        UserError: its study cannot be loaded, or a claim, a figure or the page has a fault.
    """
    program = program_of(run)
    complete(run, program, program.recorded(run), device="cpu")


def _work_here(
    study: Program, pending: Sequence[UnitFolder], deadline: float | None, listen: Listener
) -> None:
    """Train units one after another in this process: another one could not load a study of a notebook."""
    from hopscope.executors.unit import train_unit
    from hopscope.training import threads as arithmetic

    for unit in pending:
        with arithmetic.kept():
            train_unit(study, unit, _budget(deadline), partial(listen, unit))
        listen(unit, {"kind": "done"})


def _budget(deadline: float | None) -> TimeBudget:
    return TimeBudget(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _check_options(how: How) -> None:
    device, engine, gpu_workers = (
        how.get("device", "auto"),
        how.get("engine", "auto"),
        how.get("gpu_workers", 1),
    )
    threads, time_budget = how.get("threads"), how.get("time_budget")
    if device not in DEVICES:
        raise UserError(f"device: expected one of {', '.join(DEVICES)}, found {device!r}")
    if threads is not None and threads < 1:
        raise UserError(f"threads: expected at least 1, found {threads}")
    if time_budget is not None and not time_budget > 0:
        raise UserError(f"time-budget: expected more than 0 seconds, found {time_budget:g}")
    if engine not in CHOICES:
        raise UserError(f"engine: expected one of {', '.join(CHOICES)}, found {engine!r}")
    check_trackers(how.get("tracker", ()))
    if gpu_workers < 1:
        raise UserError(f"gpu-workers: expected at least 1, found {gpu_workers}")
    if device == "cuda" and how.get("executor", "local") == "local":
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


def _whole(study: Program, config: Config, unit: UnitFolder, job: Any) -> bool:
    """Whether a unit needs no more work: what was deleted or damaged since it was done is made anew.

    Raises:
        UserError: an analysis is gone that nothing but training anew would give back, though the unit is done.
    """
    steps = job.training.steps
    wanted = (unit.analysis_path(name, steps, kind) for name, kind in study.analyses(config, job).items())
    lacking = [path for path in wanted if not path.is_file()]
    if lacking and unit.is_done:
        check_can_be_made(unit, lacking[0], "an analysis of a unit that is done, found none")
    if lacking or not unit.is_done:
        return False
    if is_thinned(unit):
        return True
    if _lost_analyses(unit):
        return False
    try:
        unit.checkpoint(steps)
        check_parts(unit.path, steps)
    except UserError:
        return False
    return True


def _lost_analyses(unit: UnitFolder) -> bool:
    """Whether an analysis of any checkpoint is gone that was there once; one of another kind may stand for it."""
    gone = [path for path in seals.missing(unit.path) if path.parent.name == "analysis"]
    return any(
        not is_file(path.with_suffix(kind)) for path in gone for kind in {".json", ".npz"} - {path.suffix}
    )


def layout(units: int, threads: int, device: str) -> tuple[int, int]:
    """Number of workers at a time and threads of each: one-thread workers while there are units enough."""
    if device == "cuda":
        return 1, threads
    workers = max(1, min(units, threads))
    return workers, max(1, threads // workers)


def _threads_each(
    run: RunFolder,
    jobs: Mapping[str, TrainJob],
    engines: Mapping[str, EngineName],
    device: str,
    cores: int,
    left: float | None,
) -> int:
    """Threads of the units: as those of the run that have begun, else as measured where that pays, else by rule."""
    by_rule = layout(len(jobs), cores, device)
    if set(engines.values()) != {"general"} or device != "cpu" or run.study not in study_names():
        return by_rule[1]  # loops of an engine have one thread, and a GPU one worker
    begun = _threads_begun(run)
    if begun is not None:
        return begun
    choices = timing.candidates(by_rule, cores)
    repaid = min(timing.expected_seconds(jobs.values(), cores), float("inf") if left is None else left)
    if len(choices) == 1 or repaid < timing.REPAID_SECONDS:
        return by_rule[1]
    unit, job = max(jobs.items(), key=lambda item: timing.operations(item[1]))
    measure = partial(timing.speed, run.study, job, "general", environment())
    return timing.measured(run, unit, choices, measure).threads


def _threads_begun(run: RunFolder) -> int | None:
    """Threads of the units that are on record, if there are any: one run has one layout."""
    begun = [unit.record.get("layout") for unit in run.units if (unit.path / "unit.json").is_file()]
    threads = [entry.get("threads") for entry in begun if isinstance(entry, dict)]
    return max((number for number in threads if is_count(number)), default=None)


def unit_engine(job: TrainJob, device: str, asked: str) -> EngineName:
    """The engine that was asked for, or the fastest."""
    return chosen_engine(job, device) if asked == "auto" else cast(EngineName, asked)


def unit_layout(engine: EngineName, device: str, threads: int) -> dict[str, Any]:
    """Device, threads and engine of one unit."""
    # Loops compiled by numba run on one thread; more of them would only wait, spinning, beside the matrix products.
    return {
        "device": device,
        "threads": 1 if ENGINES[engine].one_thread else threads,
        "engine": engine,
    }


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on (numba where it is installed)."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for name in ("torch", "numpy", "numba"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
