"""Random bits as a pure function of (seed, stream, step, index, block): no draw depends on its neighbours.

A member must see the same data and start from the same weights whether it is trained alone or among a thousand
others, in one batch or in pieces, on a CPU or a GPU.  So every word is computed from its own address, and no state is
kept anywhere.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011;
constants and test vectors of Random123).  A *word* is an unsigned 32-bit integer held in an int64 tensor.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

_NAMES = "init train evaluate split probe resample pool intervene circuit text test"
STREAMS: Final = {name: number for number, name in enumerate(_NAMES.split())}
"""Stream names and their numbers.  A number once given never changes: recorded runs are addressed by it."""

_MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)

Whole = int | Int64[Tensor, "..."]
Numbers = Callable[[Tensor], Tensor]
"""What makes numbers of words."""


def bits(
    seed: Whole, stream: str | int, step: Whole, index: Whole, block: Whole = 0
) -> Int64[Tensor, "... 4"]:
    """Return the four words at each address, of shape broadcast(seed, step, index, block) + (4,).

    They are on the device of the tensors (without any: the CPU).  The seed is the 64-bit Philox key; the counter is the
    rest.  `ValueError`: a plain integer is out of range, or the tensors are not int64 on one device.  Values *inside*
    tensors are not checked, because that would wait for the device.

    Args:
        seed: below 2**63; all others below 2**32.
        stream: one of `STREAMS`, or a number.
        step: training step or another counter.
        index: sample or element.
        block: 0, 1, 2 … where one address needs more than four words.
    """
    number = STREAMS[stream] if isinstance(stream, str) else stream
    fields = {"seed": seed, "stream": number, "step": step, "index": index, "block": block}
    for name, value in fields.items():
        size = 63 if name == "seed" else 32
        if isinstance(value, int) and not 0 <= value < 1 << size:
            raise ValueError(f"{name} out of range: expected 0 <= {name} < 2**{size}, found {value}")
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    where = next((each.device for each in tensors.values()), torch.device("cpu"))
    if any(each.dtype != torch.int64 or each.device != where for each in tensors.values()):
        found = ", ".join(f"{name}: {each.dtype} on {each.device}" for name, each in tensors.items())
        raise ValueError(f"address: expected int64 tensors on one device, found {found}")
    shape = np.broadcast_shapes(*(each.shape for each in tensors.values()))

    # Filling slices keeps plain integers on the host: no copy to the device, no wait for it.
    even = torch.empty((2, *shape), dtype=torch.int64, device=where)
    even[0], even[1] = index, number
    odd = torch.empty_like(even)
    odd[0], odd[1] = step, block
    key = torch.empty((2, *(seed.shape if isinstance(seed, Tensor) else ())), dtype=torch.int64, device=where)
    key[0], key[1] = seed & _MASK, seed >> 32
    return _rounds(even, odd, key)


def uniform(words: Int64[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
    """Turn words into numbers in [0, 1): the top 24 bits of each, all multiples of 2**-24."""
    return (words >> 8).to(torch.float32) * 2.0**-24


def normal(words: Int64[Tensor, "*shape even"]) -> Float32[Tensor, "*shape even"]:
    """Turn pairs of words into pairs of independent standard normal numbers (Box and Muller 1958).

    Computed in float64 from all 32 bits of each word and always finite (at most 6.77 in absolute value).
    Devices may differ in the last bit of the float32 result, because their logarithms and cosines do.
    """
    pairs = words.reshape(*words.shape[:-1], words.shape[-1] // 2, 2).to(torch.float64)
    # The half keeps the logarithm's argument inside (0, 1).
    radius = ((pairs[..., 0] + 0.5) * 2.0**-32).log_().mul_(-2.0).sqrt_()
    angle = pairs[..., 1] * (2.0 * math.pi * 2.0**-32)
    drawn = torch.stack((angle.cos().mul_(radius), angle.sin().mul_(radius)), dim=-1)
    return drawn.flatten(-2).to(torch.float32)


def integers(
    high: Int64[Tensor, "*shape"], low: Int64[Tensor, "*shape"], n: Whole
) -> Int64[Tensor, "*shape"]:
    """Draw integers below n from two words each: ((high·2**32 + low)·n) >> 64, exactly.

    The probability of any value differs from 1/n by less than 2**-64 (Lemire 2019, multiply-shift).  `ValueError`: a
    plain n is not between 1 and 2**31 - 1; a tensor broadcasts and is not checked.
    """
    if isinstance(n, int) and not 1 <= n < 1 << 31:
        raise ValueError(f"n out of range: expected 1 <= n < 2**31, found {n}")
    # high·n + (low·n >> 32) stays below n·2**32 < 2**63, so int64 holds every intermediate value.
    return (high * n + ((low * n) >> 32)) >> 32


def tensor(
    numbers: Numbers, seeds: Int64[Tensor, " member"], stream: str | int, step: int, shape: tuple[int, ...]
) -> Float32[Tensor, "member ..."]:
    """Draw `normal` or `uniform` numbers [member, *shape], a member's from its seed; four share an index."""
    size = math.prod(shape)
    quads = torch.arange(-(-size // 4), device=seeds.device)
    found = numbers(bits(seeds[:, None], stream, step, quads))
    return found.flatten(1)[:, :size].reshape(len(seeds), *shape)


def permutation_from_index(index: Int64[Tensor, "*shape"], n: int) -> Int64[Tensor, "*shape n"]:
    """Return the permutation of 0 … n−1 with the given lexicographic rank (decoding its Lehmer code); n ≤ 20."""
    result = index.new_empty((*index.shape, n))
    for place in range(n):
        weight = math.factorial(n - 1 - place)
        result[..., place] = torch.div(index, weight, rounding_mode="floor")
        index = index % weight
    # Digit d means "the d-th of the values still free": whoever stands further right makes room for it.
    for place in range(n - 2, -1, -1):
        tail = result[..., place + 1 :]
        tail += tail >= result[..., place : place + 1]
    return result


def _rounds(even: Tensor, odd: Tensor, key: Tensor) -> Tensor:
    # Words (0, 2) stand in `even`, (1, 3) in `odd`, both [2, *shape]; `key` is [2, ...].  A round makes words 0 and 2
    # from the high halves of two products and words 1 and 3 from the low halves, each time swapping the pair.  Here the
    # halves stay in place and the meaning of the leading axis alternates instead; the low halves stay unmasked until
    # the end.  That leaves six tensor operations a round.
    axes = even.dim() - 1
    key = key.reshape(2, *(1,) * (axes - key.dim() + 1), *key.shape[1:])
    rounds = torch.arange(_ROUNDS, device=key.device).reshape(-1, *(1,) * key.dim())
    # Unmasked: only the low 32 bits of a round's key are ever used.
    schedule = rounds * _pair(_WEYL, axes, key.device) + key
    multipliers = _pair(_MULTIPLIERS, axes, key.device)
    swapped = multipliers.flip(0), schedule.flip(1)
    for round_ in range(_ROUNDS):
        # Wrapping int64 multiplication has the same 64 bits as the unsigned product.
        product = even * (swapped[0] if round_ % 2 else multipliers)
        even = product >> 32
        even ^= odd.flip(0)
        even ^= (schedule if round_ % 2 else swapped[1])[round_]
        even &= _MASK
        odd = product
    # The four words are contiguous planes; the last axis is strided.
    return torch.stack((even, odd & _MASK), dim=1).flatten(0, 1).movedim(0, -1)


def _pair(values: tuple[int, int], axes: int, device: torch.device) -> Tensor:
    # Made on the device, because a copy from the host would wait for it; and not as arithmetic on a range, because
    # torch.compile takes that for an index, which has 32 bits with a sign on CUDA.
    made = torch.empty((2, *(1,) * axes), dtype=torch.int64, device=device)
    made[0], made[1] = values
    return made
