"""This machine as a place to train units: a process of one thread for each core, or one for each GPU."""

import json
import os
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hopscope.errors import UserError
from hopscope.execute.pool import End, Message, Worker, died, failed
from hopscope.execute.worker import MESSAGE
from hopscope.runs import UnitFolder

# Of glibc's allocator: arrays of a step, which are freed, stay with the process for the next one.  By default those
# above 32 MB go back to the system every time, which clears them page by page: half as much time as the training.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}

_PATIENCE = 5.0  # seconds in which a process without work must end


class ThisMachine:
    """This machine as a `Place`."""

    pause = 0.1

    def __init__(self, study: str | None = None) -> None:
        self._started, self._study = list[_Process](), study

    def device(self, asked: str) -> str:
        """See `Place`."""
        if asked not in ("auto", "cpu", "cuda"):
            raise UserError(f"device: expected one of auto, cpu, cuda, found {asked!r}")
        if asked == "cpu":
            return asked
        import torch

        found = "cuda" if torch.cuda.is_available() else "cpu"
        if asked == "cuda" and found == "cpu":
            wanted = "a CUDA device for --device cuda, found none"
            raise UserError(f"device: expected {wanted}; use --device cpu or auto")
        return found

    def at_once(self, units: Sequence[UnitFolder], cores: int | None) -> int:
        """See `Place`."""
        on_gpus = any(unit.job["device"] == "cuda" for unit in units)
        self._gpus = _visible_gpus() if on_gpus else []
        return max(1, len(self._gpus) if on_gpus else min(len(units), cores or available_cores()))

    def start(self, unit: UnitFolder, until: float | None) -> Worker:
        """See `Place`; on the GPU with the fewest workers, by a process that has finished a unit if there is one."""
        for each in [each for each in self._started if each.process.poll() is not None]:
            each.close()
            self._started.remove(each)
        busy = [each.gpu for each in self._started if not each.has_finished]
        gpu = min(self._gpus, key=busy.count) if self._gpus else None
        process = next((each for each in self._started if each.has_finished and each.gpu == gpu), None)
        if process is None:
            process = _Process(gpu)
            self._started.append(process)
        process.take(unit, self._study, until)
        return process

    def close(self) -> None:
        """See `Place`."""
        for each in self._started:  # told at once, so that they end beside each other
            each.asked.close()
        while self._started:
            self._started.pop().close()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment() -> dict[str, str]:
    """Of workers: they find this very package and whatever this process has on its path, and keep their memory."""
    package, standard = str(Path(__file__).resolve().parents[2]), sysconfig.get_path("stdlib")
    places = [str(Path(place).absolute()) for place in sys.path if Path(place).is_dir()]
    own = {*site.getsitepackages(), site.getusersitepackages()}  # which Python looks into by itself, and last
    known = [place for place in places if not place.startswith(standard) and place not in own]
    return {**KEEP_MEMORY, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([package, *known]))}


def message_of(line: bytes) -> Message | None:
    """A worker's message; `None` for a line that a kill cut short, or that is none."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict) and "kind" in message:
            return message
    return None


def _visible_gpus() -> list[str]:
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = torch.cuda.device_count()
    return (named.split(",") if named else [str(number) for number in range(count)])[:count]


class _Process:
    """A process for one unit after another (packages load once); its one pipe has all that is printed."""

    unit: UnitFolder
    has_finished: bool

    def __init__(self, gpu: str | None):
        own = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        command, pipe = [sys.executable, "-P", "-m", "hopscope.execute.worker"], subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0, env=environment() | own
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.gpu, self.asked, self._pipe = gpu, self.process.stdin, self.process.stdout
        self._begun, self._last, self._said = b"", b"", list[Message]()
        # Read without waiting, and not by a thread: its start waits for ever in a process that has no memory for it.
        os.set_blocking(self._pipe.fileno(), False)

    def take(self, unit: UnitFolder, study: str | None, until: float | None) -> None:
        self.unit, self.has_finished, self._last = unit, False, b""
        run, parent = str(unit.run_path), os.getpid()
        given = {"run": run, "unit": unit.name, "study": study, "until": until, "parent": parent}
        with suppress(BrokenPipeError):  # it has just died, and its end will say so
            self.asked.write(json.dumps(given).encode() + b"\n")

    def messages(self) -> list[Message]:
        self._listen()
        said, self._said = self._said, []
        if self.process.returncode is not None:
            self._pipe.close()
        return said

    def end(self) -> End | None:
        status = self.process.poll()
        self._listen()
        if self.has_finished:
            return End(0)
        if status is None:
            return None
        if status < 0:
            likely = " (out of memory?)" if status == -signal.SIGKILL else ""
            return died(self.unit, f"it killed by signal {-status}{likely}")
        return failed(self.unit, self._last.decode(errors="replace") or "no message")._replace(status=status)

    def close(self) -> None:
        self.asked.close()
        if self.has_finished:  # it ends by itself now, and what a study does at the end of a process is done
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
        self.process.kill()
        self.process.wait()
        self._pipe.close()

    def _listen(self) -> None:
        while not self._pipe.closed and (chunk := self._pipe.read(2**16)):
            self._begun += chunk
        *lines, self._begun = self._begun.split(b"\n")
        if self.process.returncode is not None:  # what was begun is not ended any more
            lines, self._begun = [*lines, self._begun], b""
        for line in lines:
            words, _, said = line.partition(MESSAGE)
            self._last = words.strip() or self._last
            if (message := message_of(said)) is not None:
                self._said.append(message)
                self.has_finished = self.has_finished or message["kind"] == "finished"
