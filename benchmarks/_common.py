"""What the contestants share: the workload's numbers, arguments, the clock, peak memory, the JSON line.

The workload is permutation lookup with repeats (V = 5): sequences x1 y1 … x5 y5 under a random mapping out
of 96, in a random order of the x's, where x5 copies one of x1 … x4 with probability 0.3.  A one-layer
post-norm transformer (width 32, 2 heads, ReLU, FFN 64, learned positions, causal) reads the first nine
tokens and is trained on the five y-predictions.  The measure is member-samples per second of real training:
a sequence drawn, passed forwards and backwards through one member, and used by its optimiser, counts one.
"""

import argparse
import itertools
import json
import math
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn, Protocol

SYMBOLS = 5
TOKENS = SYMBOLS + 1  # token 0 is never used: the symbols are 1 … 5
INPUT_LENGTH = 2 * SYMBOLS - 1
TRAIN_MAPPINGS = 96
REPEAT_RATIO = 0.3
WIDTH, HEADS, FFN_WIDTH = 32, 2, 64
LEARNING_RATE = 1e-3
PARAMETERS = 9222  # of one member


class Program(Protocol):
    """A contestant, ready to train."""

    def advance(self) -> int:
        """Train for one call's worth of steps, wait for them, return the member-samples used."""
        ...

    def loss(self) -> float:
        """Mean training loss over members at the latest step, in nats per y-prediction."""
        ...


def stop(message: str) -> NoReturn:
    """End a contestant with one line on standard error and exit status 2."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def all_orders() -> list[tuple[int, ...]]:
    """The 120 orders of the symbols 1 … 5."""
    return list(itertools.permutations(range(1, SYMBOLS + 1)))


def train_mappings(seed: int) -> list[tuple[int, ...]]:
    """The 96 mappings used in training; ``mapping[x - 1]`` is the y of x."""
    mappings = all_orders()
    random.Random(seed).shuffle(mappings)
    return mappings[:TRAIN_MAPPINGS]


def arguments(name: str, members: int = 1, batch: int = 256) -> argparse.ArgumentParser:
    """The options of every contestant; ``members`` and ``batch`` are the defaults of ``--members`` and ``--batch``."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=4.0, help="timed training, after a warm-up")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--batch", type=int, default=batch, help="sequences per member and step")
    parser.add_argument("--members", type=int, default=members, help="models trained together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None, *, single: bool) -> argparse.Namespace:
    """Parse and check; ``single`` contestants train one model and refuse another ``--members``."""
    options = parser.parse_args(argv)
    if not (math.isfinite(options.seconds) and options.seconds > 0):
        stop(f"--seconds: expected a positive number, found {options.seconds}; use for example --seconds 4")
    for field in ("threads", "batch", "members"):
        if getattr(options, field) < 1:
            found = getattr(options, field)
            stop(f"--{field}: expected at least 1, found {found}; use for example --{field} 1")
    if single and options.members != 1:
        stop(f"--members: {parser.prog} trains one model, found {options.members}; leave the option out")
    return options


def prepare_torch(threads: int) -> bool:
    """Set the threads, flush subnormal numbers, and return whether every computing thread does flush.

    Subnormals in optimiser state slow a CPU several times over, in any contestant.  Threads inherit the mode
    of the thread that starts them, so it is set before the first parallel operation, and the check is wide
    enough to be shared among all threads.
    """
    import torch

    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    subnormal = torch.full((1 << 20,), 1e-39)
    return not bool((subnormal * 1.0).count_nonzero())


def peak_memory_mb() -> float:
    """Peak resident memory of this process in MiB (worker processes not included)."""
    # On Linux ru_maxrss survives exec, so that a small program started by a large one reports its parent's
    # peak; the high-water mark of the address space does not.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def timed(program: Program, seconds: float) -> float:
    """Member-samples per second over at least ``seconds``, after a quarter as long a warm-up."""
    _advance_for(program, seconds / 4)
    samples, elapsed = _advance_for(program, seconds)
    return samples / elapsed


def _advance_for(program: Program, seconds: float) -> tuple[int, float]:
    start = time.perf_counter()
    samples = 0
    while True:
        samples += program.advance()
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return samples, elapsed


def measure(
    name: str,
    options: argparse.Namespace,
    build: Callable[[argparse.Namespace], Program],
    packages: Sequence[str],
    **facts: object,
) -> int:
    """Build, warm up, time and print; the exit status (1 if the loss is not finite)."""
    program = build(options)
    speed = timed(program, options.seconds)
    loss = program.loss()
    if not math.isfinite(loss):
        print(f"{name}: expected a finite training loss, found {loss}; the speed is void", file=sys.stderr)
        return 1
    chosen = {key: value for key, value in vars(options).items() if key != "json"}
    versions = {"python": platform.python_version()} | {each: metadata.version(each) for each in packages}
    result = {
        "name": name,
        "samples_per_second": round(speed, 1),
        "settings": {**chosen, **facts, "versions": versions},
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "loss": loss,
    }
    if options.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print(f"{name}: {speed:,.0f} member-samples/s, peak {result['peak_memory_mb']} MiB, loss {loss:.3f}")
    return 0
