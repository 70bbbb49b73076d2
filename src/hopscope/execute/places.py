"""Which place trains a run's units: this machine, a Ray cluster, or SLURM."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from hopscope.errors import UserError
from hopscope.execute.local import ThisMachine
from hopscope.execute.pool import Place
from hopscope.study.load import Loaded

EXECUTORS = ("local", "ray", "slurm")


@contextmanager
def place_of(
    executor: str, address: str | None, loaded: Loaded, say: Callable[[str], object] = lambda words: None
) -> Iterator[Place]:
    """The place where a study's units are trained, for the time of a run.

    `address` is that of the Ray cluster; of SLURM it is `slurm`, or `local` and `debug` to try it without one.
    `UserError`: the place does not exist, cannot be reached, or lacks a package.
    """
    if executor not in EXECUTORS:
        raise UserError(f"executor: expected one of {', '.join(EXECUTORS)}, found {executor!r}")
    if executor == "local":
        if address is not None:
            raise UserError(f"address: expected one with --executor ray or slurm, found {address!r} without")
        with closing(ThisMachine(loaded.reference)) as place:
            yield place
        return
    if loaded.reference is None:
        wanted = f"a study of a file or a package for {executor}, because other machines must load it"
        found = "found one that was made in a notebook or a function; save it in a file"
        raise UserError(f"executor: expected {wanted}, {found}")
    if executor == "ray":
        from hopscope.execute.ray import connected

        opened: Any = connected(address, say)
    else:
        from hopscope.execute.slurm import submitting

        opened = submitting(address)
    with opened as cluster:
        cluster.study = loaded.reference
        yield cluster
