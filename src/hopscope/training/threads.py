"""The arithmetic of a worker: how many threads, no subnormal numbers, and no shorter products than were asked for.

Weights of heads without a gradient decay into subnormals, on which CPUs are many times slower.  The flag that flushes
them to zero belongs to a thread and is inherited by threads that it starts, so it must be set before torch starts its
pool, and it is worth checking that it took.

On a GPU float32 means float32 (no TF32, which has the mantissa of a float16), and the sums of bfloat16 products are
float32.  Both are settings of a process, so they are set here, in the worker's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def prepare(threads: int) -> bool:
    """Use this many threads and flush subnormals; returns whether every thread was seen to flush.

    Call once, before anything else is computed in the process.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return flushes_subnormals()


def flushes_subnormals() -> bool:
    """Whether a product that is subnormal comes out as zero, in a tensor large enough to occupy all threads."""
    tiny = torch.full((1 << 18,), 1e-30)
    return bool((tiny * 1e-10 == 0.0).all())


@contextmanager
def kept() -> Iterator[None]:
    """Put back the caller's settings afterwards: for training in a process that does other things as well."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    reduced = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    flushed = flushes_subnormals()
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduced
