"""What presets cost on this machine, as short trainings have told, kept in the user's cache folder.  Loads no torch.

The file is `hopscope/costs.json` below `XDG_CACHE_HOME`, or below `~/.cache`.  A figure holds for one machine (model of
its CPU, cores, versions of torch and Hopscope) and for one configuration: any other has none.
"""

import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.executors.processes import available_cores
from hopscope.runs import content_hash
from hopscope.runs.files import is_file, read_json, user_caches, write_json
from hopscope.studies.program import Program

_SCHEMA = 1


class Machine(Config):
    """What a figure hangs on beside the configuration.

    Attributes:
        cpu: model of the processor, as the system names it.
        cores: cores that this process may use.
        torch, hopscope: their versions; empty where one is not installed as a package.
    """

    cpu: str
    cores: int
    torch: str
    hopscope: str


class Cost(Config):
    """What training a configuration costs on a machine.

    Attributes:
        study, preset: names, for readers of the file.
        seconds: of all its training, on all cores; `None` where nothing was told.
        reason: why nothing was told.
        training_only: whether there is work after training, of which `seconds` says nothing.
        date: day of the measurement, as 2026-11-24.
    """

    study: str
    preset: str
    seconds: float | None = Field(None, ge=0.0)
    reason: str = ""
    training_only: bool = False
    date: str


class _Known(Config):
    """The figures of one machine, by the configurations' hashes."""

    machine: Machine
    costs: dict[str, Cost]


class _File(Config):
    """Everything that the file holds, by the machines' hashes."""

    schema_version: int
    machines: dict[str, _Known]


def costs_file() -> Path:
    """Where the figures are kept."""
    return user_caches() / "costs.json"


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(
        cpu=_processor(), cores=available_cores(), torch=_version("torch"), hopscope=_version("hopscope")
    )


def _processor() -> str:
    """Model of the processor: Linux keeps it in a file, other systems tell Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Costs:
    """The figures of this machine.

    Attributes:
        machine: this one.
        damage: why the file could not be read, in one line; empty where it could, or where there is none.
    """

    def __init__(self) -> None:
        self.machine = this_machine()
        self._key = content_hash(self.machine.model_dump(mode="json"))
        self._kept, self.damage = _read()

    def of(self, program: Program, config: Any) -> Cost | None:
        """What is known of a configuration, if anything is."""
        here = self._kept.machines.get(self._key)
        return None if here is None else here.costs.get(program.run_hash(config))

    def know(self, study: str, preset: str) -> bool:
        """Whether something was told of a preset on this machine, of its configuration as it is now or as it was."""
        here = self._kept.machines.get(self._key)
        return here is not None and any(
            (cost.study, cost.preset) == (study, preset) for cost in here.costs.values()
        )

    def keep(
        self, program: Program, preset: str, config: Any, seconds: float | None, reason: str = ""
    ) -> Cost:
        """Write down what was told of a configuration today; a damaged file is replaced.

        Raises:
            UserError: the file cannot be written.
        """
        cost = Cost(
            study=program.name,
            preset=preset,
            seconds=seconds,
            reason=reason,
            training_only=works_after_training(program, config),
            date=date.today().isoformat(),
        )
        before = self._kept.machines.get(self._key)
        known = {**(before.costs if before else {}), program.run_hash(config): cost}
        machines = {**self._kept.machines, self._key: _Known(machine=self.machine, costs=known)}
        self._kept = _File(schema_version=_SCHEMA, machines=machines)
        write_json(costs_file(), self._kept.model_dump(mode="json"))
        return cost


def _read() -> tuple[_File, str]:
    """What the file holds, and why it cannot be read, if so."""
    path, nothing = costs_file(), _File(schema_version=_SCHEMA, machines={})
    if not is_file(path):
        return nothing, ""
    try:
        found = _File.model_validate(read_json(path))
    except (UserError, ValidationError):
        return nothing, f"{path}: damaged, and ignored; hopscope studies --probe makes it anew"
    return (
        (found, "")
        if found.schema_version == _SCHEMA
        else (nothing, f"{path}: of another version, and ignored")
    )


# In words.


def in_words(cost: Cost, cores: int) -> str:
    """A figure in words, such as `about 8 min on this machine (2 cores), probed 2026-11-24`.

    Args:
        cost: with seconds.
        cores: of the machine.
    """
    assert cost.seconds is not None
    what = " of training" if cost.training_only else ""
    several = "core" if cores == 1 else "cores"
    return f"about {duration(cost.seconds)}{what} on this machine ({cores} {several}), probed {cost.date}"


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Seconds in words, rounded: `20 s`, `8 min`, `1.5 h`, `3 days`."""
    if seconds < 1.5 * _MINUTE:
        return f"{max(5, 5 * round(seconds / 5))} s"
    if seconds < 1.5 * _HOUR:
        return f"{round(seconds / _MINUTE)} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.2g} h"
    return f"{round(seconds / _DAY)} days"


def works_after_training(program: Program, config: Any) -> bool:
    """Whether a configuration has something to measure once it is trained; plans it, which may take a while."""
    jobs = program.jobs(config)
    return bool(program.gathered) or any(program.analyses(config, job) for job in jobs)
