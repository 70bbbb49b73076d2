"""A whole run under faults, in forks of one process: `python faults.py ROOT STRIDE SEED`.

The run is made undisturbed, and then again and again, struck once: killed (SIGKILL) at some of its operations on
files, killed at random moments, or refused an operation by the system (full disk, full quota, failing or read-only
disk).  Then the same call goes on, from the same copy or from the one at the URL, and must end with the same bytes.
What differs, or was not told in one line, is printed as JSON.
"""

import errno
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch

import hopscope as hs
from hopscope.errors import UserError

HERE = Path(__file__).parent
REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def loaded(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNITS = loaded(HERE.parent / "runs" / "tiny.py", "hopscope_tests_units")
STUDY = loaded(HERE / "tiny.py", "hopscope_tests_study")


def run(root):
    """Works under `root/xdg`, and keeps a copy in `root/far`."""
    os.environ["XDG_CACHE_HOME"] = str(root / "xdg")
    hs.run(STUDY.made(), out=f"file://{root}/far", threads=1)


def content(root):
    """Every file of the copy: path → bytes; its list of files is compared as what it says."""
    files = {
        path.relative_to(root / "far").as_posix(): path
        for path in (root / "far").rglob("*")
        if path.is_file()
    }
    return {
        name: json.loads(path.read_bytes()) if path.name == "mirror.json" else path.read_bytes()
        for name, path in files.items()
    }


class Refuser(UNITS.Killer):
    """One operation of the run is refused by the system, which must be told in one line."""

    def __init__(self, at, number):
        super().__init__(at)
        self.number = number

    def operation(self, before=lambda: None):
        if self.count == self.at:
            self.count += 1
            before()
            raise OSError(self.number, os.strerror(self.number))
        self.count += 1


def refused(root, at, number):
    Refuser(at, number)
    try:
        run(root)
    except UserError as error:
        assert "\n" not in str(error) and os.strerror(number) in str(error), error
        os._exit(2)


def killed_after(root, seconds):
    child = os.fork()
    if not child:
        with suppress(BaseException):
            run(root)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(root, stride, seed):
    torch.set_num_threads(1)
    root.mkdir(exist_ok=True)
    choose, differs, tried = random.Random(seed), [], Counter()

    def count():
        killer = UNITS.Killer(-1)
        run(root / "counted")
        (root / "count").write_text(str(killer.count))

    assert UNITS.forked(count) == 0
    began = time.monotonic()
    assert UNITS.forked(lambda: run(root / "whole")) == 0
    whole, operations = time.monotonic() - began, int((root / "count").read_text())
    expected = content(root / "whole")
    if content(root / "counted") != expected:
        differs.append("two undisturbed runs")

    def goes_on(case, place, statuses, status):
        tried[case.split()[0]] += 1
        if status not in statuses:
            differs.append(f"{case}: ended with {status}")
        if tried.total() % 2:  # on another machine, which has the copy alone
            shutil.rmtree(place / "xdg", ignore_errors=True)
        if UNITS.forked(lambda: run(place)) != 0:
            differs.append(f"{case}: does not go on")
        elif content(place) != expected:
            found = content(place)
            differs.append(
                f"{case}: other bytes: {[name for name in expected if found.get(name) != expected[name]]}"
            )
        shutil.rmtree(place, ignore_errors=True)

    for at in range(choose.randrange(stride), operations, stride):
        place = root / f"killed {at}"
        status = UNITS.forked(lambda at=at, place=place: (UNITS.Killer(at), run(place)))
        goes_on(f"killed at operation {at}", place, {-signal.SIGKILL}, status)
        number, place = choose.choice(REFUSALS), root / f"refused {at}"
        # What is tidied up may fail in silence; then the run ends.
        status = UNITS.forked(lambda at=at, place=place, number=number: refused(place, at, number))
        goes_on(f"refused {errno.errorcode[number]} at operation {at}", place, {0, 2}, status)
    for _ in range(max(2, operations // stride // 4)):
        seconds, place = choose.uniform(0, whole), root / "moment"
        killed_after(place, seconds)
        goes_on(f"moment {seconds:.2f} s", place, {0}, 0)
    print(json.dumps({"operations": operations, "tried": tried, "files": len(expected), "differs": differs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
