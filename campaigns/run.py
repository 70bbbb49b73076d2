"""Slices of a long study on a machine that is lent for minutes: run, pack what was found, go on elsewhere.

`python campaigns/run.py STUDY --slice 540 --pack OUT [--from PACK] [--wheels DIR] [options of hopscope run]`

It needs Python and torch; what else Hopscope needs may be carried as wheels.  README.md beside this has the commands.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src"
NEEDED = (
    "torch", "numpy", "pydantic", "tyro", "rich", "safetensors", "pyarrow", "jinja2", "altair", "vl_convert",
    "jaxtyping", "scipy",
)  # fmt: skip
GOES_ON = 75
"""Exit status of a command that stopped at its time budget."""

GRACE_SECONDS = 5.0


class Refused(Exception):
    """What the user can mend, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a slice; the exit status is that of `hopscope run`, or 2 where nothing could be run."""
    started = time.monotonic()
    options, passed = read_options(arguments)
    try:
        add_wheels(options.wheels)
        from hopscope.errors import UserError

        sys.path.insert(0, str(Path(__file__).resolve().parent))
        import packing

        try:
            if options.start is not None:
                print(f"unpacked: {', '.join(packing.unpack(options.start, options.out))}", flush=True)
            status, complaint = run_slice(options, passed, started)
            provenance = provenance_of(status, complaint, started)
            limits = packing.Limits(options.files, options.file_mib, options.total_mib)
            packed = packing.pack(options.out, options.pack, limits, options.checkpoints, provenance)
        except UserError as error:
            raise Refused(str(error)) from None
    except Refused as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    print(
        f"packed: {len(packed.names)} files; unfinished units that can go on {len(packed.resumable)}, that begin "
        f"again {len(packed.restarting)}; finished units with weights {len(packed.weights)}"
    )
    print(options.pack)
    return status


def read_options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The campaign's options, and those that are passed on to `hopscope run`."""
    parser = argparse.ArgumentParser(
        prog="campaign", allow_abbrev=False, epilog="other options are passed on to hopscope run"
    )
    parser.add_argument("study")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="root of the runs")
    parser.add_argument("--slice", type=float, required=True, help="seconds that this command may take")
    parser.add_argument("--reserve", type=float, default=45.0, help="of them, for conclusions and packing")
    parser.add_argument("--pack", type=Path, required=True, help="folder for what was found")
    parser.add_argument("--from", dest="start", type=Path, help="folder of an earlier pack to go on from")
    parser.add_argument("--wheels", type=Path, help="folder of wheels of packages that this machine lacks")
    parser.add_argument("--files", type=int, default=8, help="most files of the pack")
    parser.add_argument("--file-mib", type=float, default=16.0, help="most MiB of one of them")
    parser.add_argument("--total-mib", type=float, default=60.0, help="most MiB of all of them")
    parser.add_argument(
        "--checkpoints", type=int, default=1, help="of each finished unit, where there is room"
    )
    return parser.parse_known_args(arguments)


def add_wheels(folder: Path | None) -> None:
    """Make wheels importable, here and in the processes that are started.

    Raises:
        Refused: they cannot be installed, or something is missing still.
    """
    places = [str(SOURCE)]
    if folder is not None:
        wheels = sorted(str(wheel) for wheel in folder.glob("*.whl"))
        if not wheels:
            raise Refused(f"wheels: expected a folder with wheels, found none in {folder}")
        target = tempfile.mkdtemp(prefix="campaign-packages-")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        done = subprocess.run(
            [*pip, "--target", target, *wheels], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Refused(f"wheels: expected pip to install those of {folder}, found: {last}")
        places.append(target)
    sys.path[:0] = places
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *([known] if known else [])])
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise Refused(
            f"packages: expected {', '.join(NEEDED)}, found no {', '.join(missing)}; install them, or carry their "
            "wheels (and those of what they need) in a folder and name it with --wheels"
        )


def run_slice(options: argparse.Namespace, passed: Sequence[str], started: float) -> tuple[int, str]:
    """Run the study for what is left of the slice; its exit status and its last complaint.

    Raises:
        Refused: nothing is left.
    """
    left = options.slice - (time.monotonic() - started)
    budget = left - options.reserve
    if budget <= 0:
        raise Refused(f"slice: expected more than {options.reserve:g} s after the start, found {left:.0f}")
    command = [sys.executable, "-m", "hopscope", "run", options.study, "--out", str(options.out)]
    command += ["--time-budget", f"{budget:.3f}", *passed]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        process = subprocess.Popen(command, stderr=complaints)
        try:
            # An interval may overrun the budget.  What is on record then is sound, and there must be time to pack it.
            status = process.wait(left - options.reserve / 2)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            status = GOES_ON
        complaints.seek(0)
        lines = complaints.read().strip().splitlines()
    if lines:
        print("\n".join(lines[-20:]), file=sys.stderr, flush=True)
    return status, lines[-1] if status not in (0, GOES_ON) and lines else ""


def provenance_of(status: int, complaint: str, started: float) -> dict[str, Any]:
    """Where and from what the runs come."""
    from hopscope.executors.local import versions
    from hopscope.runs import source_hash

    words = {0: "finished", GOES_ON: "goes on"}
    return {
        "state": words.get(status, "failed"),
        "complaint": complaint,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
        "commit": _said("git", "-C", str(REPOSITORY), "rev-parse", "HEAD"),
        "changed": bool(_said("git", "-C", str(REPOSITORY), "status", "--porcelain", "--", "src")),
        "source_hash": source_hash(),
        "versions": versions(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "devices": _said(
            "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
        ),
    }


def _said(*command: str) -> str | None:
    """What a program prints; none where it is absent or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
