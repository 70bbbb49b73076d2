"""How long commands take on a root with many runs, beside what they may take.

One run of the permutation study is copied under other names: the same records with another configuration, so another
hash, and seals of their own.  The copies have no units: no command that is timed here reads them.  Each command is a
process of its own, as a user starts it.  Give --run to copy a finished run; without it the smoke preset is run first.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hopscope.errors import UserError
from hopscope.runs import RunFolder, config_hash, find_run, slim_copy
from hopscope.runs.seals import SEALS

FIELD = "split_seed"
"""Field of the configuration in which the copies differ."""

ON_ONE_PAGE = 10
"""Runs of the report that is timed."""

QUERY = """
import duckdb
print(duckdb.sql('''
    select filename, configuration, member, arg_max_null(value, step) as loss
    from read_parquet('*/*/evidence.parquet', union_by_name = true, filename = true)
    where metric = 'loss' and split = 'held_out' and part is null and layer is null and head is null
    group by all order by all
'''))
"""
"""The query of docs/evidence.md."""


@dataclass(frozen=True)
class Timed:
    """One command.

    Attributes:
        what: in words.
        allowed: seconds that it may take on a quiet machine; `None`: no aim is set.
        seconds: it took, on the wall's clock.
        cpu: seconds of all cores, by the program and by the system for it.
    """

    what: str
    allowed: float | None
    seconds: float
    cpu: float


def copies(run: RunFolder, root: Path, count: int) -> list[Path]:
    """Copy the conclusions of a run `count` times below a root, as runs of different configurations.

    Args:
        run: a finished run of the permutation study.
        root: an empty folder, or one that is not there yet.
        count: how many.

    Returns:
        The run folders.

    Raises:
        UserError: the run is of another study, or not finished.
    """
    if run.study != "permutation":
        raise UserError(f"{run.path}: expected a run of the permutation study, found one of {run.study}")
    with tempfile.TemporaryDirectory() as folder:
        slim_copy(run, Path(folder) / "run")
        whole = Path(folder) / "run"
        files = {path.relative_to(whole): path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    files.pop(Path(SEALS))
    record = json.loads(files.pop(Path("config.json")))
    made = []
    for number in range(count):
        config = {**record["config"], FIELD: number}
        name = config_hash(run.study, config, record["results_version"])
        told = json.dumps({**record, "hash": name, "config": config}, indent=1) + "\n"
        made.append(root / run.study / name)
        _write(made[-1], {**files, Path("config.json"): told.encode()})
    return made


def _write(folder: Path, files: dict[Path, bytes]) -> None:
    """Write and seal files, without waiting for the disk as `write_atomic` does: that would take minutes."""
    seals = []
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        seals.append(json.dumps({"file": name.as_posix(), "sha256": hashlib.sha256(content).hexdigest()}))
    (folder / SEALS).write_text("\n".join(seals) + "\n")


def timed(what: str, allowed: float | None, command: Sequence[object], root: Path) -> Timed:
    """Time one command in a process of its own."""
    before, began = _cpu(), time.perf_counter()
    subprocess.run([sys.executable, *map(str, command)], cwd=root, check=True, stdout=subprocess.DEVNULL)
    return Timed(what, allowed, time.perf_counter() - began, _cpu() - before)


def _cpu() -> float:
    """Seconds of all cores that processes of ours took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(root: Path, runs: Sequence[Path]) -> list[Timed]:
    """Time every command on the runs below a root."""
    hopscope = ["-m", "hopscope"]
    few = [run.relative_to(root) for run in runs[:ON_ONE_PAGE]]
    report = [*hopscope, "report", *few, "--to", "few.html"]
    found = [
        timed(f"list of {len(runs)} runs: hopscope claims", 2.0, [*hopscope, "claims", "."], root),
        timed("index page: hopscope report --index", 2.0, [*hopscope, "report", "--index", "."], root),
    ]
    if find_spec("duckdb"):
        found.append(timed("query of all evidence: DuckDB", 2.0, ["-c", QUERY], root))
    return [
        *found,
        timed(f"page of {len(few)} runs, nothing drawn", None, report, root),
        timed(f"page of {len(few)} runs, drawn before", 5.0, report, root),
    ]


def table(found: Sequence[Timed]) -> Table:
    """The timings for people."""
    shown = Table("command", "may take s", "took s", "of cores s", title="Many runs", title_justify="left")
    for each in found:
        allowed = "" if each.allowed is None else f"{each.allowed:g}"
        shown.add_row(each.what, allowed, f"{each.seconds:.2f}", f"{each.cpu:.2f}")
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    """Make the runs, time the commands, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--run", type=Path, help="a finished run of the permutation study to copy")
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error(f"--runs: expected at least 1, found {options.runs}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        try:
            made = copies(find_run(options.run or _smoke(Path(folder))), root, options.runs)
        except UserError as error:
            parser.error(str(error))
        found = measure(root, made)
    Console().print(table(found))
    if not find_spec("duckdb"):
        print("DuckDB is not installed: pip install duckdb")
    return 0


def _smoke(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "hopscope",
        "run",
        "permutation",
        "--preset",
        "smoke",
        "--out",
        folder / "smoke",
    ]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return folder / "smoke"


if __name__ == "__main__":
    sys.exit(main())
