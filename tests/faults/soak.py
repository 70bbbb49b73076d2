"""Strike runs with real faults and say what came of each: `python tests/faults/soak.py [--kills N] [--corruptions N]`.

The smallest run there is is killed, refused by the system, cut off from power and damaged, file by file
(`cases.py`).  The same command that stopped goes on where it stopped.  Exit status 1 if anything was lost or wrong.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]


def main() -> int:
    """Strike, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=200, help="processes killed; other faults follow from it"
    )
    parser.add_argument("--corruptions", type=int, default=2000, help="files damaged")
    parser.add_argument("--seed", type=int, default=13, help="another seed gives other cases")
    parser.add_argument(
        "--out", type=Path, help="file for the result, as JSON; beside it lies what was done so far"
    )
    options = parser.parse_args()
    journal = Path(tempfile.mkstemp()[1]) if options.out is None else options.out.with_suffix(".journal")
    with tempfile.TemporaryDirectory(dir=fast_folder()) as scratch:
        tempfile.tempdir = scratch
        os.environ["XDG_CACHE_HOME"] = f"{scratch}/cache"
        os.environ["OMP_NUM_THREADS"] = "1"  # a fork goes on without the threads of its parent
        done = soaked(Path(scratch), journal, options)
    result = summary(done)
    for row in result["rows"]:
        print("  ".join(f"{value:>8}" for value in list(row.values())[1:]), row["fault"])
    journal.unlink()
    return 1 if any(row["lost"] or row["wrong"] for row in result["rows"]) else 0


def fast_folder() -> str | None:
    """A file system in memory, if there is one: the copies of a soak are many, and none is worth a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def soaked(root: Path, journal: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """What came of each case; what a journal has is not done again, and the result is written every now and then."""
    from cases import Laboratory, planned

    done = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    laboratory = Laboratory(root)
    cases = planned(laboratory, asked.kills, asked.corruptions, asked.seed)
    known = {each["number"]: each for each in done}
    began = time.monotonic()
    for case in cases:
        if case["number"] in known:
            if known[case["number"]]["fault"] != case["fault"]:
                raise SystemExit(f"{journal}: it is of another soak; remove it")
            continue
        done.append(struck(laboratory, case))
        with journal.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        if done[-1]["verdict"] in ("lost", "wrong") or len(done) % 50 == 0:
            _tell(done, len(cases), time.monotonic() - began)
            _write(done, len(cases), asked)
    _write(done, len(cases), asked)
    return done


def _write(done: list[dict[str, Any]], of: int, asked: argparse.Namespace) -> None:
    if asked.out is not None:
        told = {"kills": asked.kills, "corruptions": asked.corruptions, "seed": asked.seed, "cases": of}
        asked.out.write_text(json.dumps({**told, **summary(done)}, indent=1) + "\n", encoding="utf-8")


def struck(laboratory: Any, case: dict[str, Any]) -> dict[str, Any]:
    """A case and what came of it."""
    from cases import Came

    before = time.process_time(), os.times()
    try:
        came = getattr(laboratory, case["do"])(case)
    except Exception as error:
        came = Came("wrong", f"{type(error).__name__}: {error}")
    now = os.times()
    cpu = sum(now[:4]) - sum(before[1][:4])
    return {**case, "verdict": came.verdict, "what": came.what, "words": came.words, "cpu": round(cpu, 2)}


def _tell(done: list[dict[str, Any]], of: int, seconds: float) -> None:
    counted = Counter(each["verdict"] for each in done)
    print(f"{len(done)} of {of} after {seconds:,.0f} s: {dict(counted)}", flush=True)
    if done[-1]["verdict"] in ("lost", "wrong"):
        print(json.dumps(done[-1]), flush=True)


def summary(done: list[dict[str, Any]]) -> dict[str, Any]:
    """The table, and what came of damage to each kind of file."""
    from cases import VERDICTS

    counted = [each for each in done if each["verdict"] is not None]
    by_fault: dict[str, Counter[str]] = {
        fault: Counter() for fault in sorted({each["fault"] for each in counted})
    }
    for each in counted:
        by_fault[each["fault"]][each["verdict"]] += 1
    rows = [{"fault": fault, "tried": of.total(), **{verdict: of[verdict] for verdict in VERDICTS}}
            for fault, of in by_fault.items()]  # fmt: skip
    files: dict[str, Counter[str]] = {}
    for each in counted:
        if each["what"]:
            files.setdefault(each["what"], Counter())[each["verdict"]] += 1
    return {"done": len(done), "cpu_minutes": round(sum(each["cpu"] for each in done) / 60, 1), "rows": rows,
            "files": {name: dict(sorted(files[name].items())) for name in sorted(files)}}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
