"""Which place trains a run's units: this machine, a Ray cluster, or SLURM."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from hopscope.errors import UserError
from hopscope.execute.local import ThisMachine
from hopscope.execute.pool import Place
from hopscope.study.load import Loaded

EXECUTORS = ("local", "ray", "slurm")


def place_of(
    executor: str, address: str | None, loaded: Loaded, say: Callable[[str], object] = lambda words: None
) -> AbstractContextManager[Place]:
    """The place where a study's units are trained, for the time of a run.

    `address` is that of the Ray cluster; of SLURM it is `slurm`, or `local` and `debug` to try it without one.
    `UserError`: the place does not exist, cannot be reached, or lacks a package.
    """
    if executor not in EXECUTORS:
        raise UserError(f"executor: expected one of {', '.join(EXECUTORS)}, found {executor!r}")
    if executor == "local":
        if address is not None:
            raise UserError(f"address: expected one with --executor ray or slurm, found {address!r} without")
        return closing(ThisMachine(loaded.reference))
    if loaded.reference is None:
        wanted = f"a study of a file or a package for {executor}, because other machines must load it"
        found = "found one that was made in a notebook or a function; save it in a file"
        raise UserError(f"executor: expected {wanted}, {found}")
    if executor == "ray":
        from hopscope.execute.ray import RayCluster

        return closing(RayCluster(loaded.reference, address, say))
    from hopscope.execute.slurm import SlurmJobs

    return closing(SlurmJobs(loaded.reference, address))
