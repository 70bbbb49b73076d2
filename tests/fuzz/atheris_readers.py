"""Fuzz the readers that are written in Python, guided by what their code was led to do: needs the package atheris.

`python tests/fuzz/atheris_readers.py [--minutes N] [--only NAME …] [--run FOLDER] [--out FILE]`

Each reader of `fuzz_readers.py` works in a process of its own, whose code of Hopscope counts its branches.  An input
that takes a new one is kept, and damaged further: as JSON where it is JSON, else as bytes.  Readers whose work is done
by compiled code (Parquet, safetensors, archives of arrays) are left to `soak.py`.  Exit status 1 if an input did
anything but what is documented.
"""

import argparse
import contextlib
import inspect
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import atheris

if TYPE_CHECKING:
    from fuzz_readers import Reader

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]

COMPILED = {
    "npz archive", "metrics part", "metrics.parquet", "evidence.parquet", "checkpoint", "checkpoint on resume",
    "analysis (npz)", "weights of an export", "weights, sealed again", "language model's weights",
    "command lines", "fields of `run`", "commands on a damaged run",
}  # fmt: skip
"""Readers that atheris would see little of, and those that read words or several files."""

BEGINNINGS, TRIED = 40, 400
"""Inputs that a reader begins with: half of them can be read, if there are so many among those that are tried."""

LONGEST = 16_384
"""Bytes of an input that is made anew."""


def main() -> int:
    """Fuzz, print the table, and write it where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of a core, for all readers together")
    parser.add_argument("--only", nargs="*", help="names of readers")
    parser.add_argument("--run", type=Path, help="a finished run to damage copies of; by default one is made")
    parser.add_argument("--seed", type=int, default=13, help="another seed gives other inputs")
    parser.add_argument("--out", type=Path, help="file for the result, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        found = fuzzed(Path(scratch), options)
    return 1 if any(row["faults"] for row in found) else 0


def version() -> str:
    """Of atheris."""
    from importlib.metadata import version as installed

    return installed("atheris")


def fuzzed(scratch: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What came of each reader."""
    from soak import small_run

    run = options.run or small_run(scratch)
    # Everything that a reader calls must be imported under the hook, which adds the counters.
    quiet, hook = (
        contextlib.redirect_stderr(io.StringIO()),
        {"include": ["hopscope"], "exclude": ["hopscope.training.engines"]},
    )
    with quiet, atheris.instrument_imports(**hook):
        from fuzz_readers import World

        (scratch / "world").mkdir()
        readers = {reader.name: reader for reader in World(run, scratch / "world").readers()}
        names = options.only or [name for name in readers if name not in COMPILED]
        # What readers import when they are first called is under the hook then, too.
        beginnings = {name: _beginnings(readers[name], options.seed) for name in names}
    for name in ("background", "packing"):
        _count(sys.modules[name])
    seconds = max(1, round(60 * options.minutes / len(names)))
    print(
        f"{'reader':28}{'inputs':>9}{'branches':>10}{'at first':>10}{'kept':>7}{'faults':>8}{'memory':>9}",
        flush=True,
    )
    rows = []
    for name in names:
        folder = scratch / f"{len(rows)}"
        rows.append(row := in_its_process(readers[name], beginnings[name], folder, seconds, options.seed))
        print(
            f"{name:28}{row['inputs']:>9,}{row['branches']:>10,}{row['branches_at_first']:>10,}{row['kept']:>7,}"
            f"{len(row['faults']):>8}{row['growth_mib']:>5,} MiB", flush=True,
        )  # fmt: skip
        if options.out is not None:
            told = {"atheris": version(), "minutes": options.minutes, "seed": options.seed, "rows": rows}
            options.out.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for fault, content in row["faults"].items():
            print(f"FAULT {fault}: {content[:300]}", flush=True)
    return rows


def _count(module: Any) -> None:
    """Let the functions of a module count their branches that was loaded past the hook."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        for function in vars(thing).values() if isinstance(thing, type) else [thing]:
            if inspect.isfunction(function):
                atheris.instrument_func(function)


def in_its_process(
    reader: "Reader", beginnings: list[bytes], folder: Path, seconds: int, seed: int
) -> dict[str, Any]:
    """What a reader makes of its inputs, in a process of its own; one that dies is a fault."""
    from soak import MOST_GROWTH_MIB

    (folder / "corpus").mkdir(parents=True)
    for number, made in enumerate(beginnings):
        (folder / "corpus" / f"{number:03}").write_bytes(made)
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            _fuzz(reader, folder, seconds, seed)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)  # what the parent made is not the child's to remove
    _, status, used = os.wait4(child, 0)
    said = (folder / "said").read_text(errors="replace")
    counts = json.loads((folder / "counts").read_text()) if (folder / "counts").exists() else {}
    faults = dict(counts.pop("faults", {}))
    if status:
        last = next(iter(sorted(folder.glob("*-[0-9a-f]*"))), None)
        content = ascii(last.read_bytes()) if last else said[-300:]
        faults[f"the process ended with status {os.waitstatus_to_exitcode(status)}"] = content
    coverage = [int(found) for found in re.findall(r"cov: (\d+)", said)] or [0]
    first = re.search(r"INITED cov: (\d+)", said)
    kept = re.findall(r"corp: (\d+)/", said) or ["0"]
    growth = max(0, used.ru_maxrss - counts.pop("before", 0)) >> 10
    if growth > MOST_GROWTH_MIB:
        faults[f"took {growth} MiB of memory"] = ""
    return {
        "reader": reader.name, "inputs": sum(counts.values()), **counts,
        "branches_at_first": int(first[1]) if first else 0, "branches": max(coverage), "kept": int(kept[-1]),
        "faults": faults, "growth_mib": growth, "seconds": round(used.ru_utime + used.ru_stime, 1),
    }  # fmt: skip


def _beginnings(reader: "Reader", seed: int) -> list[bytes]:
    """Inputs that can be read, and others."""
    from fuzz_readers import outcome

    tried = [reader.make(random.Random(f"{seed} {number}").randrange) for number in range(TRIED)]
    right = [content for content in tried if outcome(reader, content) == "right"][: BEGINNINGS // 2]
    return [*right, *[content for content in tried if content not in right][: BEGINNINGS - len(right)]]


def _fuzz(reader: "Reader", folder: Path, seconds: int, seed: int) -> None:
    """Never returns: libFuzzer ends the process."""
    from fuzz_readers import outcome

    counted: Counter[str] = Counter(right=0, refused=0)
    faults: dict[str, str] = {}
    noted = [0.0]
    before, began = _memory(), time.process_time()

    def check(content: bytes) -> None:
        came = outcome(reader, content)
        if came in counted:
            counted[came] += 1
        else:
            counted["faulty"] += 1
            faults.setdefault(came, ascii(content)[:2000])
        over = time.process_time() - began > seconds
        if over or came not in ("right", "refused") or time.monotonic() - noted[0] > 0.2:
            noted[0] = time.monotonic()
            (folder / "counts").write_text(json.dumps({**counted, "before": before, "faults": faults}))
        if over:
            os._exit(0)  # libFuzzer knows no limit but that of a clock on the wall

    settings = [
        sys.argv[0], str(folder / "corpus"), f"-seed={seed}", f"-max_len={LONGEST}",
        "-timeout=20", "-rss_limit_mb=0", "-len_control=0", f"-artifact_prefix={folder}/",
    ]  # fmt: skip
    atheris.Setup(settings, check, custom_mutator=_damaged)
    atheris.Fuzz()


def _memory() -> int:
    """KiB that this process has now; the peak that is asked for elsewhere is that of its parent too."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


def _damaged(content: bytes, most: int, seed: int) -> bytes:
    """JSON is damaged as JSON two times of three: bytes of it that are changed are mostly no JSON any more."""
    from fuzz_inputs import damaged_json

    if seed % 3:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, (dict, list)) and value:
            made = damaged_json([value])(random.Random(seed).randrange)
            if len(made) <= most:
                return made
    return bytes(atheris.Mutate(content, len(content) + 40 if len(content) + 40 < most else most))


if __name__ == "__main__":
    sys.exit(main())
