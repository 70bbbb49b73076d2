"""Hopscope's commands in forks of a process that has imported everything: a command takes a fraction of a second.

A fork is a process of its own, with workers of its own, that is killed, starved and refused by the system as any other.
Only the start of Python and the imports are left out, which take longer than the smallest run.
"""

import gc
import hashlib
import importlib
import os
import pickle
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from injected import Fault, install

HERE = Path(__file__).resolve().parent
STUDY = HERE / "tiny.py"
RUN = ["run", str(STUDY), "--device", "cpu", "--threads", "1", "--seeds", "2"]
LIMIT = 300.0
"""Seconds after which a command counts as hanging: a machine that does other work may be fifty times as slow."""


class ForkedWorker:
    """What `hopscope.executors.processes` needs of `subprocess.Popen`, for a fork of this process."""

    def __init__(self, command: list[str], env: Mapping[str, str], **_: Any):
        arguments = command[command.index("hopscope.executors.worker") + 1 :]
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.environ.update(env)
            install.role = "worker"
            install.count = 0
            _become(
                lambda: importlib.import_module("hopscope.executors.worker").main(arguments), out_end, err_end
            )
        os.close(out_end)
        os.close(err_end)
        self.stdout, self.stderr = os.fdopen(out, "rb", 0), os.fdopen(err, "rb", 0)

    def poll(self) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _become(main: Callable[[], int], out: int, err: int) -> None:
    """Go on as a process that does nothing but `main`, and writes where it is told; never returns."""
    status = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(each), "w", encoding="utf-8") for each in (1, 2))
        status = main()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def warm(root: Path) -> None:
    """Import whatever a run imports, and nothing that a fork could not go on with: no thread, no drawing."""
    names = root / "modules"
    _draw_from_memory(root / "drawn")
    for name in ("hopscope.executors.worker", "hopscope.executors.unit", "hopscope.training.steps"):
        importlib.import_module(name)

    def told() -> int:
        from hopscope.cli.main import main
        from hopscope.executors import processes

        processes.subprocess.Popen = ForkedWorker  # type: ignore[misc, assignment]
        status = main([*RUN, "--out", str(root / "first")])
        names.write_text("\n".join(name for name in sys.modules if name.startswith(_IMPORTED)))
        return status

    ended = forked(told)
    assert ended.status == 0, ended.stderr
    for name in names.read_text().split():
        if name not in sys.modules:
            with suppress(ImportError):  # the study's own file
                importlib.import_module(name)
    from hopscope.report.environment import environment

    for name in environment().list_templates(["html"]):
        environment().get_template(name)
    gc.collect()
    gc.freeze()


def _draw_from_memory(kept: Path) -> None:
    """Charts are laid out once, and their pictures kept: that library begins anew in each fork, and writes nothing."""
    import vl_convert

    def remembered(name: str) -> Callable[..., Any]:
        draw = getattr(vl_convert, name)

        def drawn(*given: Any, **options: Any) -> Any:
            place = kept / hashlib.sha256(repr((name, given, sorted(options.items()))).encode()).hexdigest()
            if not place.exists():
                place.write_bytes(pickle.dumps(draw(*given, **options)))
            return pickle.loads(place.read_bytes())  # noqa: S301 - our own

        return drawn

    kept.mkdir(exist_ok=True)
    for name in ("vegalite_to_svg", "svg_to_png"):
        setattr(vl_convert, name, remembered(name))


_IMPORTED = ("hopscope", "altair", "jinja2", "jsonschema", "markdown_it", "pandas", "pyarrow", "torch", "tyro", "rich",
             "scipy", "numpy", "safetensors", "pydantic")  # fmt: skip


def command(arguments: list[str], fault: Fault | None = None, under: Path | None = None) -> Any:
    """How a command ends, in a fork of this process.

    Args:
        arguments: the command line without `hopscope`.
        fault: what is done to it.
        under: folder in which it counts what is written.
    """

    def main() -> int:
        from hopscope.cli import main as entry
        from hopscope.executors import processes

        processes.subprocess.Popen = ForkedWorker  # type: ignore[misc, assignment]
        if fault is not None:
            assert under is not None
            install(fault, under)
        return entry.main(arguments)

    return forked(main)


def forked(main: Callable[[], int]) -> Any:
    """How a function ends as a process of its own, leader of its process group."""
    import processes as machinery

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            _become(main, out.fileno(), err.fileno())
        handle = os.pidfd_open(pid)
        try:
            if not select.select([handle], [], [], LIMIT)[0]:
                os.killpg(pid, signal.SIGKILL)
        finally:
            os.close(handle)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return machinery.Ended(status, *(each.read().decode(errors="replace") for each in (out, err)))
