"""Fuzz every reader and print what came of it: `python tests/fuzz/soak.py [--inputs N] [--only NAME …]`.

Each reader works in a process of its own, so that its peak of memory is its own too, and so that one that dies counts.
The table is that of docs/reliability.md.  Exit status 1 if an input did anything but what is documented.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz_readers import Reader, World

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]

MOST_GROWTH_MIB = 512
"""Memory that one reader may take on top of what its process had before the first input."""

MOST_SECONDS = 20.0
"""Time of a processor that one input may take; a guard against inputs that never end."""


def main() -> int:
    """Fuzz, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs in all")
    parser.add_argument("--only", nargs="*", help="names of readers")
    parser.add_argument("--run", type=Path, help="a finished run to damage copies of; by default one is made")
    parser.add_argument("--seed", type=int, default=7, help="another seed gives other inputs")
    parser.add_argument("--json", type=Path, help="file to add a line to for each reader")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = options.run or small_run(Path(scratch))
        readers = {reader.name: reader for reader in world(run, Path(scratch) / "world").readers()}
        known = {name: reader.weight for name, reader in readers.items()}
        names = options.only or list(known)
        whole = sum(known.values())
        results = []
        print(
            f"{'reader':28}{'inputs':>9}{'right':>9}{'refused':>9}{'faults':>8}{'memory':>9}{'seconds':>9}",
            flush=True,
        )
        for name in names:
            share = max(1, round(options.inputs * known[name] / whole))
            results.append(result := in_its_process(readers[name], share, options.seed))
            print(line_of(name, result), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps({"reader": name, **result}) + "\n")
        whole_result = {
            key: sum(result[key] for result in results) for key in ("inputs", "right", "refused", "seconds")
        }
        faults = sum((Counter(result["faults"]) for result in results), Counter())
        print(
            line_of(
                "all", {**whole_result, "faults": faults, "growth_mib": max(r["growth_mib"] for r in results)}
            )
        )
    for fault, count in faults.most_common():
        print(f"FAULT {count} × {fault}")
    return 1 if faults else 0


def line_of(name: str, result: dict) -> str:
    """A line of the table."""
    return (
        f"{name:28}{result['inputs']:>9,}{result['right']:>9,}{result['refused']:>9,}{sum(result['faults'].values()):>8,}"
        f"{result['growth_mib']:>5,} MiB{result['seconds']:>9,.0f}"
    )


def in_its_process(reader: "Reader", inputs: int, seed: int) -> dict:
    """What a reader makes of its inputs, in a process of its own; one that dies is a fault."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with os.fdopen(write, "w") as file:
            json.dump(fuzzed(reader, inputs, seed), file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        told = file.read()
    _, status = os.waitpid(child, 0)
    if status:
        fault = {f"{reader.name}: process ended with status {os.waitstatus_to_exitcode(status)}": 1}
        return {"inputs": 0, "right": 0, "refused": 0, "faults": fault, "growth_mib": 0, "seconds": 0}
    return json.loads(told)


def fuzzed(reader: "Reader", inputs: int, seed: int) -> dict:
    """Give a reader its inputs, in this process."""
    from fuzz_readers import outcome
    from hypothesis import HealthCheck, Phase, given, settings, strategies
    from hypothesis import seed as beginning

    counted: Counter[str] = Counter()
    signal.signal(signal.SIGVTALRM, _too_long)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()

    def check(number: int) -> None:
        # Made here, not by a strategy: what a strategy makes is kept until the end.
        content = reader.make(random.Random(number).randrange)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
        try:
            counted[outcome(reader, content)] += 1
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    while (left := inputs - counted.total()) > 0:
        how = settings(
            max_examples=left, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        beginning(seed + counted.total())(how(given(strategies.integers(0, 2**63))(check)))()
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    right, refused = counted.pop("right", 0), counted.pop("refused", 0)
    faults = {f"{reader.name}: {words}": count for words, count in counted.items()}
    if growth > MOST_GROWTH_MIB:
        faults[f"{reader.name}: took {growth} MiB of memory"] = 1
    return {
        "inputs": right + refused + sum(counted.values()), "right": right, "refused": refused, "faults": faults,
        "growth_mib": growth, "seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS} s of a processor")


def world(run: Path, folder: Path) -> "World":
    """The valid files around which inputs are made."""
    from fuzz_readers import World

    folder.mkdir(parents=True)
    return World(run, folder)


def small_run(folder: Path) -> Path:
    """A finished run of the tests' smallest size."""
    import processes

    out = folder / "small"
    command = [sys.executable, "-m", "hopscope", "run", *map(str, processes.SMALL), "--out", str(out)]
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        env=processes.Processes(folder).environment() | {"PYTHONPATH": str(HERE.parents[1] / "src")},
    )
    (found,) = (path for path in out.glob("*/*") if path.is_dir())
    return found


if __name__ == "__main__":
    sys.exit(main())
