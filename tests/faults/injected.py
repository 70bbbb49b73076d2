"""Faults that strike a process at one of its operations on files, or at one of its training steps.

Operations are counted in each process on its own (the command is the `driver`), so that an undisturbed run tells which
there are.
"""

import io
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

_ORIGINAL = {
    name: getattr(os, name) for name in ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")
}


@dataclass(frozen=True)
class Operation:
    """Something that a process is about to do.

    Attributes:
        role: `driver` or `worker`.
        index: how many operations this process did before.
        name: of the function of `os`, or `step` for a step of training, or `create` for a file that is made by `open`.
        path: of the file or folder, relative to the folder that is watched; of a renamed file the new one.
        source: of a renamed file the path before.
        descriptor, data: of a file that is written or flushed, and what is appended.
    """

    role: str
    index: int
    name: str
    path: str = ""
    source: str = ""
    descriptor: int = -1
    data: bytes = b""


def phase_of(operation: Mapping[str, Any]) -> str:
    """What the run does at an operation of a trace: `training`, `analysis` or `writing`."""
    path = operation["path"]
    if operation["name"] == "step" or "/checkpoints" in path or "/metrics/" in path:
        return "training"
    return "analysis" if "/analysis" in path else "writing"


class Fault(Protocol):
    """What happens to a process."""

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        """Let an operation happen, or not."""
        ...


class _Install:
    """Puts a fault between this process, and those forked from it, and the system."""

    role = "driver"
    count = 0

    def __call__(self, fault: Fault, under: Path) -> None:
        self.fault, self.under, self.driver = fault, f"{under}{os.sep}", os.getpid()
        for name in _ORIGINAL:
            setattr(os, name, getattr(self, f"_{name}"))
        from hopscope.training.steps import TrainingSteps

        take = TrainingSteps.take
        TrainingSteps.take = lambda steps, step: self._met("step", lambda: take(steps, step))  # type: ignore[method-assign]

    def _met(self, name: str, perform: Callable[[], Any], **known: Any) -> Any:
        operation = Operation(self.role, self.count, name, **known)
        self.count += 1
        return self.fault.meet(operation, perform)

    def _inside(self, path: Any) -> str | None:
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")  # noqa: PTH115
            except OSError:
                return None
        text = os.fsdecode(path)
        return text[len(self.under) :] if f"{text}{os.sep}".startswith(self.under) else None

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        inside = self._inside(path)
        if inside is None or not flags & os.O_CREAT or os.path.exists(path):  # noqa: PTH110
            return _ORIGINAL["open"](path, flags, *rest, **options)
        return self._met("create", lambda: _ORIGINAL["open"](path, flags, *rest, **options), path=inside)

    def _write(self, descriptor: int, data: bytes) -> int:
        inside = self._inside(descriptor)
        if inside is None:
            return _ORIGINAL["write"](descriptor, data)
        known = {"path": inside, "descriptor": descriptor, "data": bytes(data)}
        return self._met("write", lambda: _ORIGINAL["write"](descriptor, data), **known)

    def _fsync(self, descriptor: int) -> None:
        inside = self._inside(descriptor)
        if inside is None:
            return _ORIGINAL["fsync"](descriptor)
        return self._met("fsync", lambda: _ORIGINAL["fsync"](descriptor), path=inside, descriptor=descriptor)

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        inside, before = self._inside(target), self._inside(source)
        if inside is None or before is None:
            return _ORIGINAL["replace"](source, target, **options)
        perform = lambda: _ORIGINAL["replace"](source, target, **options)  # noqa: E731
        return self._met("replace", perform, path=inside, source=before)

    def _one(self, name: str, path: Any, *rest: Any, **options: Any) -> None:
        inside = self._inside(path)
        perform = lambda: _ORIGINAL[name](path, *rest, **options)  # noqa: E731
        if inside is None or os.path.lexists(path) == (name == "mkdir"):
            return perform()
        return self._met(name, perform, path=inside)

    def _unlink(self, path: Any, **options: Any) -> None:
        return self._one("unlink", path, **options)

    def _mkdir(self, path: Any, *rest: Any, **options: Any) -> None:
        return self._one("mkdir", path, *rest, **options)

    def _rmdir(self, path: Any, **options: Any) -> None:
        return self._one("rmdir", path, **options)


install = _Install()


def _full_path(operation: Operation, path: str) -> str:
    return install.under + path


@dataclass(frozen=True)
class Kill:
    """SIGKILL at an operation.

    Attributes:
        role, index: of the operation.
        moment: `before` it, in the middle (`torn`, of what is written), or `after` it.
        whom: `self`, the `driver`, or `all`.
    """

    role: str
    index: int
    moment: str
    whom: str

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        if (operation.role, operation.index) != (self.role, self.index):
            return perform()
        if self.moment == "torn" and operation.name == "replace":
            source = _full_path(operation, operation.source)
            os.truncate(source, os.path.getsize(source) // 2)  # noqa: PTH202
        elif self.moment == "torn" and operation.name == "write":
            _ORIGINAL["write"](operation.descriptor, operation.data[: len(operation.data) // 2])
        result = perform() if self.moment == "after" else None
        if self.whom == "all":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(install.driver if self.whom == "driver" else os.getpid(), signal.SIGKILL)
        if self.moment == "torn" and operation.name in ("write", "replace"):
            os.kill(os.getpid(), signal.SIGKILL)  # whoever lives on finishes what it writes
        return result if self.moment == "after" else perform()  # until the system ends it with its command


@dataclass(frozen=True)
class Refused:
    """From an operation on, the system refuses whatever takes space: as a full disk does.

    Attributes:
        role, index: of the operation.
        number: of the error.
        once: whether the next operation is let through.
    """

    role: str
    index: int
    number: int
    once: bool

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        passed = operation.index - self.index
        struck = operation.role == self.role and (passed == 0 if self.once else passed >= 0)
        if not struck or operation.name in ("step", "unlink", "rmdir"):
            return perform()
        if operation.name == "write":
            _ORIGINAL["write"](operation.descriptor, operation.data[: len(operation.data) // 3])
        raise OSError(self.number, os.strerror(self.number), _full_path(operation, operation.path))


@dataclass(frozen=True)
class Clock:
    """From an operation on, the clock of the system is another: for this process, and on the files that it writes.

    Attributes:
        role, index: of the operation.
        seconds: by which it jumps.
    """

    role: str
    index: int
    seconds: float

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        if operation.role == self.role and operation.index == self.index:
            self._jump()
        result = perform()
        if operation.role == self.role and operation.index >= self.index and operation.name == "replace":
            now = time.time()
            os.utime(_full_path(operation, operation.path), (now, now))
        return result

    def _jump(self) -> None:
        import datetime

        real, now = time.time, datetime.datetime
        shift = datetime.timedelta(seconds=self.seconds)

        class Moved(now):  # type: ignore[misc, valid-type]
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return now.now(tz) + shift

        time.time = lambda: real() + self.seconds
        from hopscope.runs import events

        events.datetime = Moved  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Memory:
    """From an operation on, a process gets no more memory from the system than it has, but for a few MiB.

    Attributes:
        role, index: of the operation.
        mib: that it may still get.
    """

    role: str
    index: int
    mib: int

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        if (operation.role, operation.index) == (self.role, self.index):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + (self.mib << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return perform()


class Trace:
    """Lets everything happen and keeps an account of it, across processes.

    Args:
        journal: file that gets a line for each operation.
    """

    def __init__(self, journal: Path):
        self.file = io.open(journal, "ab", buffering=0)  # noqa: SIM115, UP020 - handed on to forks

    def meet(self, operation: Operation, perform: Callable[[], Any]) -> Any:
        known = {
            name: value for name, value in asdict(operation).items() if name not in ("data", "descriptor")
        }
        if operation.name == "write":
            known["content"] = operation.data.hex()
        if operation.name == "fsync" and not os.path.isdir(path := _full_path(operation, operation.path)):  # noqa: PTH112
            known["content"] = Path(path).read_bytes().hex()
        result = perform()
        self.file.write(json.dumps(known).encode() + b"\n")
        return result


def operations(journal: Path) -> list[dict[str, Any]]:
    """What a trace has."""
    return [json.loads(line) for line in journal.read_text().splitlines()]
