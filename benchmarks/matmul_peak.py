"""What one core can at most: the rate of float32 matrix products by torch on one thread, the best of a few sizes.

It is measured alone.  A machine whose cores share caches, power or arithmetic units does less on each when all work,
so that a share of this rate times the cores is, if anything, too low.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

import torch

from _common import prepare_torch, stop

SIZES = (512, 1024, 2048)


def rate(size: int, seconds: float) -> float:
    """GFLOP/s of the product of two square matrices, over at least ``seconds`` after a warm-up."""
    left, right, product = (torch.full((size, size), 0.5) for _ in range(3))
    torch.mm(left, right, out=product)
    start, count, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        torch.mm(left, right, out=product)
        count, elapsed = count + 1, time.perf_counter() - start
    return 2e-9 * size**3 * count / elapsed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="matmul_peak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=1.0, help="timed products of all sizes together")
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    options = parser.parse_args(argv)
    if not 0 < options.seconds < float("inf"):
        stop(f"--seconds: expected a positive number, found {options.seconds}; use for example --seconds 1")
    prepare_torch(1)
    rates = {size: round(rate(size, options.seconds / len(SIZES)), 2) for size in SIZES}
    if options.json:
        print(json.dumps({"name": "matmul_peak", "gflops_per_second": max(rates.values()), "sizes": rates}))
    else:
        words = ", ".join(f"{each:.1f} at {size}" for size, each in rates.items())
        print(f"matmul_peak: {max(rates.values()):.1f} GFLOP/s ({words})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
