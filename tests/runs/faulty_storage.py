"""A storage that fails, hangs or kills its process when a test says so; it keeps its files in a folder of this machine.

As a script it kills whoever makes or fetches a copy at every operation, one after the other, and looks what is there
then: `python tests/runs/faulty_storage.py FOLDER`.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

OPERATIONS = ("cp_file", "find", "cat_file", "rm", "makedirs", "_open")


class Faulty(LocalFileSystem):
    """`faulty:///FOLDER`; `strike` hears each operation with its arguments, before it is done."""

    protocol = "faulty"
    cachable = False
    strike = staticmethod(lambda operation, *arguments: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> Any:
        return LocalFileSystem._strip_protocol("/" + path.removeprefix("faulty:").lstrip("/"))


def _struck(name: str) -> Any:
    original = getattr(LocalFileSystem, name)

    def operation(self: Faulty, *arguments: Any, **options: Any) -> Any:
        Faulty.strike(name, *arguments, *options.values())
        return original(self, *arguments, **options)

    return operation


for _name in OPERATIONS:
    setattr(Faulty, _name, _struck(_name))
fsspec.register_implementation("faulty", Faulty, clobber=True)


# As a script.


def write(folder: Path, files: dict[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in files}
    return {name: text for name, text in found.items() if not name.startswith(".copy/")}


def killed_at(number: int) -> Any:
    """Kills this process at an operation of that number; what is written then is written by half."""
    left = itertools.count(number, -1)

    def strike(operation: str, *arguments: Any) -> None:
        if next(left) != 1:
            return
        if operation == "cp_file":
            content = Path(arguments[0]).read_bytes()
            Path(arguments[1]).write_bytes(content[: len(content) // 2])
        if operation == "_open" and "xb" in arguments:
            Path(arguments[0]).write_bytes(b'{"number": 2, "id"')
        os.kill(os.getpid(), signal.SIGKILL)

    return strike


BEFORE = {"seals.jsonl": "1", "claims.json": "one", "gone.json": "one", "units/u/DONE": ""}
AFTER = {
    "seals.jsonl": "1 and 2",
    "claims.json": "another",
    "new.json": "new",
    "units/u/DONE": "",
    "units/v/DONE": ".",
}


_rename = Path.rename


def sweep(home: Path, what: str) -> list[str]:
    """What each kill left behind: `before`, `after`, or in words what is wrong."""
    from hopscope.runs.copies import RunCopy

    url = f"faulty://{home}/store"

    def on(machine: str) -> RunCopy:
        os.environ["XDG_CACHE_HOME"] = str(home / machine)
        return RunCopy(url, "study", "abc")

    def seen(machine: str) -> dict[str, str]:
        copy = on(machine)
        copy.fetch()
        return contents(copy.path)

    def work(copy: RunCopy) -> None:
        """What a command does, deletions among it."""
        with copy.kept():
            copy.begin()
            write(copy.path, AFTER)

    write(on("one").path, BEFORE)
    with on("one").kept() as copy:
        copy.begin()
    assert seen("two") == BEFORE
    if what == "fetch":
        work(on("one"))
    shutil.copytree(home, home.with_name("base"))
    came = []
    for number in itertools.count(1):
        shutil.rmtree(home)
        shutil.copytree(home.with_name("base"), home)
        child = os.fork()
        if child == 0:
            Faulty.strike = killed_at(number)
            Path.rename = lambda *paths: (Faulty.strike("rename"), _rename(*paths))[1]
            if what == "push":
                work(on("one"))
            else:
                on("two").fetch()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status not in (0, signal.SIGKILL):
            return [*came, f"operation {number}: status {status}"]
        if what == "push":
            found = seen("three")
            work(on("one"))
            there = contents(home / "store" / "study" / "abc")
            left = [
                path for path in (home / "store" / "study" / "abc" / ".copy").rglob("*") if path.is_file()
            ]
            right = there == AFTER == seen("three") and len(left) == 1
        else:
            found = AFTER if status == 0 else contents(on("two").path)
            found, right = found or BEFORE, seen("two") == AFTER
        words = "before" if found == BEFORE else "after" if found == AFTER else f"mixture {found}"
        came.append(words if right else f"not mended: {words}")
        if status == 0:
            return came
    raise AssertionError


if __name__ == "__main__":
    print(json.dumps({what: sweep(Path(sys.argv[1]) / what / "home", what) for what in ("push", "fetch")}))
