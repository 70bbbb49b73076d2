"""Which place trains a run's units: this machine, a Ray cluster, or SLURM.  What is wrong is said before anything is
written."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hopscope.errors import UserError
from hopscope.executors.pool import Place
from hopscope.executors.processes import Processes
from hopscope.runs.storage import shown, url_of
from hopscope.studies.program import Program

EXECUTORS = ("local", "ray", "slurm")


def check_root(out: Path, executor: str) -> None:
    """Refuse a URL as root of the runs where other machines train: they work in one folder, not in copies of it.

    Raises:
        UserError: it is a URL.
    """
    url = url_of(out)
    if url is not None and executor != "local":
        raise UserError(
            f"out: expected a folder that all machines share for {executor}, found the URL {shown(url)}; mount that "
            "storage as a file system, and give the path"
        )


@contextmanager
def opened_place(
    executor: str, address: str | None, study: Program, say: Callable[[str], None] | None = None
) -> Iterator[Place]:
    """The place where a study's units are trained, for the time of a run.

    Args:
        executor: one of `EXECUTORS`.
        address: of the cluster.
        study: the study.
        say: hears, in words, what the user may want to know.

    Raises:
        UserError: the place does not exist, cannot be reached, or lacks an optional package.
    """
    if executor not in EXECUTORS:
        raise UserError(f"executor: expected one of {', '.join(EXECUTORS)}, found {executor!r}")
    if executor == "local":
        if address is not None:
            raise UserError(f"address: expected one with --executor ray or slurm, found {address!r} without")
        yield Processes()
        return
    if study.reference is None:
        raise UserError(
            f"executor: expected a study of a file or a package for {executor}, because other machines must load it, "
            "found one that was made in a notebook or a function; save it in a file"
        )
    if executor == "ray":
        from hopscope.executors.on_ray import connected

        with connected(address, say) as cluster:
            yield cluster
        return
    from hopscope.executors.on_slurm import submitting

    with submitting(address) as jobs:
        yield jobs
