"""The arithmetic of a worker: how many threads, and no subnormal numbers.

Weights of heads without a gradient decay into subnormals, on which CPUs are many times slower.  The flag that flushes
them to zero belongs to a thread and is inherited by threads that it starts, so it must be set before torch starts its
pool, and it is worth checking that it took.
"""

import torch


def prepare(threads: int) -> bool:
    """Use this many threads and flush subnormals; returns whether every thread was seen to flush.

    Call once, before anything else is computed in the process.
    """
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    return flushes_subnormals()


def flushes_subnormals() -> bool:
    """Whether a product that is subnormal comes out as zero, in a tensor large enough to occupy all threads."""
    tiny = torch.full((1 << 18,), 1e-30)
    return bool((tiny * 1e-10 == 0.0).all())
