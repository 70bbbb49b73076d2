"""The smallest run: two units, trained, measured and sealed.

As a program, `python tiny.py ROOT STRIDE`: in forks of one process it makes the run undisturbed, and then again and
again, killed (SIGKILL) at every so many of its operations on files and evaluations, what is being written cut in half,
and made to go on; it prints what differs.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch

from hopscope.models.config import Model
from hopscope.runs import Evidence, RunFolder
from hopscope.tasks import Batch, Shape, Task
from hopscope.training.config import Training
from hopscope.training.train import train

IDENTITY = {"model": {"layers": 1}}
UNITS = {"zwölf a": [11, 13, 17], "b": [19, 23]}
SEEDS = [(unit, seed) for unit, seeds in UNITS.items() for seed in seeds]
MEMBERS = [
    {"member": n, "seed": seed, "configuration": unit, "unit": unit, "overrides": {"model.width": len(unit)}}
    for n, (unit, seed) in enumerate(SEEDS)
]
JOBS = [{"name": unit} for unit in UNITS]
CONFIG = {"study": "tiny", "identity": IDENTITY, "members": MEMBERS, "units": JOBS}
TRAINING = Training(steps=7, batch_size=3, checkpoint_every=3, evaluate_every=1)
MODEL = Model(layers=1, heads=1, width=5)


class Tokens(Task):
    """The token three places before."""

    def shape(self):
        return Shape(inputs="tokens", input_size=5, positions=7, readout=(3, 6), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (7,))
        return Batch(tokens, tokens[..., [0, 3]])


def evaluate(ensemble):
    squares = [weight.square().flatten(1).sum(1) for weight in ensemble.weights().values()]
    yield {"split": "held-out", "metric": "norm", "value": torch.stack(squares).sum(0)}


def measured(unit, step):
    if (rows := unit.measured("largest", "source", step)) is not None:
        return rows
    values = np.max([abs(each).reshape(len(each), -1).max(1) for each in unit.weights(step).values()], 0)
    row = {"metric": "largest", "step": step, "value": values, "file": "maps"}
    return unit.keep_measure("largest", "source", step, [row], {"maps": values})


def make(root, evaluate=evaluate):
    """The run under a root, made from wherever it stands."""
    run = RunFolder.named(root, "tiny", IDENTITY).create(CONFIG)
    with run.locked():
        rows = []
        for unit in run.units:
            if not (whole := unit.is_whole):
                latest, seeds = unit.latest(), [member.seed for member in unit.members]
                options = {"engine": "autograd", "evaluate": evaluate, "after": latest and latest[1]}
                train(Tokens(), MODEL, TRAINING, seeds, keep=unit.keep, **options)
            rows += [*unit.rows(), *(row for step in unit.steps[-2:] for row in measured(unit, step))]
            if not whole:
                unit.seal(engine="autograd")
        if not run.is_done:
            Evidence.of(rows, run.members, run.config, run.path).write(run.path / "evidence.parquet")
            run.write("claims.json", "[]\n")
            run.finish()
    return run


def content(run):
    """Every file of a run: path → bytes; but what is hidden beside them, such as the lock."""
    files = [path for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}


class Killer:
    """Counts operations; at one of them, the process ends."""

    def __init__(self, at):
        self.at, self.count, opened = at, 0, Path.open
        for place, names in ((os, ["fsync"]), (shutil, ["rmtree"]), (Path, ["unlink", "replace", "mkdir"])):
            for name in names:
                setattr(place, name, self.around(getattr(place, name)))
        Path.open = lambda path, mode="r", *more, **options: (
            self.torn(opened(path, mode)) if mode == "wb" else opened(path, mode, *more, **options)
        )

    def operation(self, before=lambda: None):
        if self.count == self.at:
            before()
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, function):
        return lambda *given, **options: (self.operation(), function(*given, **options))[1]

    def torn(self, file):
        torn, write = MagicMock(wraps=file), file.write
        half = lambda data: (write(data[: len(data) // 2]), file.flush())  # noqa: E731
        torn.write = lambda data: (self.operation(lambda: half(data)), write(data))[1]
        torn.__enter__.return_value, torn.__exit__.side_effect = torn, lambda *error: file.close()
        return torn

    def evaluate(self, ensemble):
        self.operation()
        return evaluate(ensemble)


def forked(work):
    """Status of a function as a process of its own."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(root, stride):
    def count():
        killer = Killer(-1)
        make(root / "first", killer.evaluate)
        print(killer.count, file=(root / "counted").open("w"))

    torch.set_num_threads(1)
    root.mkdir(exist_ok=True)
    assert forked(count) == 0 and forked(lambda: make(root / "whole")) == 0
    expected, at = content(RunFolder.opened(root / "whole")), 0
    differs = [] if content(RunFolder.opened(root / "first")) == expected else ["two undisturbed runs"]
    for at in range(0, int((root / "counted").read_text()), stride):
        place = root / f"killed {at}"
        if forked(lambda at=at, place=place: make(place, Killer(at).evaluate)) != -signal.SIGKILL:
            differs.append(f"operation {at}: not killed")
        if forked(lambda place=place: make(place)) != 0:
            differs.append(f"operation {at}: does not go on")
        elif content(RunFolder.opened(place)) != expected:
            differs.append(f"operation {at}: other bytes")
    print(json.dumps({"last": at, "differs": differs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
