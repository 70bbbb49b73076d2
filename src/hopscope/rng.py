"""Random bits as a pure function of (seed, stream, step, index): no draw depends on its neighbours.

A member of an ensemble must see the same data and the same initial weights whether it is trained alone or
among a thousand others, in one batch or in pieces, on a CPU or a GPU.  A counter-based generator gives just
that: every word is computed from its own address, and no state is kept anywhere.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011; constants and test vectors of Random123).  A *word* is an unsigned 32-bit integer held in an int64
tensor.
"""

import math
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

STREAMS: Final = MappingProxyType(
    {
        "init": 0,
        "train": 1,
        "evaluate": 2,
        "split": 3,
        "probe": 4,
        "resample": 5,
        "pool": 6,
        "intervene": 7,
        "circuit": 8,
        "text": 9,
        "test": 10,
    }
)
"""Stream names and their numbers.  A number once given never changes: recorded runs are addressed by it."""

_MASK = 0xFFFFFFFF
_WORD = 1 << 32
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LARGEST_UNRANKED = 20


def stream_id(name: str | int) -> int:
    """Return the number of a stream; a number below 2**32 stands for itself.

    Raises:
        ValueError: the name is not in `STREAMS`, or the number is out of range.
    """
    if isinstance(name, str):
        if name not in STREAMS:
            raise ValueError(f"unknown stream: expected one of {', '.join(STREAMS)}, found {name!r}")
        return STREAMS[name]
    _check_word("stream", name)
    return name


def bits(
    seed: int | Int64[Tensor, "..."],
    stream: str | int,
    step: int | Int64[Tensor, "..."],
    index: int | Int64[Tensor, "..."],
    block: int | Int64[Tensor, "..."] = 0,
) -> Int64[Tensor, "... 4"]:
    """Return the four words at each address (seed, stream, step, index, block).

    The seed is the 64-bit Philox key; the counter is (index, step, stream, block).

    Args:
        seed: 0 ≤ seed < 2**63.
        stream: a name in `STREAMS`, or a number.
        step: training step or another counter, below 2**32.
        index: sample or element, below 2**32.
        block: 0, 1, 2 … where one address needs more than four words; below 2**32.

    Returns:
        Words of shape broadcast(seed, step, index, block) + (4,), on the device of the tensors; of plain integers alone
        on the CPU.

    Raises:
        ValueError: a plain integer is out of range, or tensors lie on different devices.  Values *inside*
            tensors are not checked, because that would wait for the device: outside their range they give
            unspecified words.
        TypeError: a tensor is not int64.
    """
    number = stream_id(stream)
    if isinstance(seed, int) and not 0 <= seed < 1 << 63:
        raise ValueError(f"seed out of range: expected 0 <= seed < 2**63, found {seed}")
    for name, value in (("step", step), ("index", index), ("block", block)):
        if isinstance(value, int):
            _check_word(name, value)
    where = _common_device({"seed": seed, "step": step, "index": index, "block": block})
    shape = np.broadcast_shapes(*(x.shape for x in (seed, step, index, block) if isinstance(x, Tensor)))

    # Filling slices keeps plain integers on the host: no copy to the device, no wait for it.
    even = torch.empty((2, *shape), dtype=torch.int64, device=where)
    even[0] = index
    even[1] = number
    odd = torch.empty_like(even)
    odd[0] = step
    odd[1] = block
    key = torch.empty((2, *(seed.shape if isinstance(seed, Tensor) else ())), dtype=torch.int64, device=where)
    key[0] = seed & _MASK
    key[1] = seed >> 32
    return _rounds(even, odd, key, shape)


def uniform(words: Int64[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
    """Turn words into float32 numbers in [0, 1): the top 24 bits of each, all multiples of 2**-24."""
    return (words >> 8).to(torch.float32) * 2.0**-24


def normal(words: Int64[Tensor, "*shape even"]) -> Float32[Tensor, "*shape even"]:
    """Turn pairs of words into pairs of independent standard normal numbers (Box and Muller 1958).

    Computed in float64 from all 32 bits of each word and always finite (at most 6.77 in absolute value).
    Devices may differ in the last bit of the float32 result, because their logarithms and cosines do.

    Raises:
        ValueError: the last axis has odd length.
    """
    if words.shape[-1] % 2:
        raise ValueError(
            f"normal needs word pairs: expected an even last axis, found shape {tuple(words.shape)}"
        )
    pairs = words.reshape(*words.shape[:-1], -1, 2).to(torch.float64)
    # The half keeps the logarithm's argument inside (0, 1).
    radius = ((pairs[..., 0] + 0.5) * 2.0**-32).log_().mul_(-2.0).sqrt_()
    angle = pairs[..., 1] * (2.0 * math.pi * 2.0**-32)
    drawn = torch.stack((angle.cos().mul_(radius), angle.sin().mul_(radius)), dim=-1)
    return drawn.flatten(-2).to(torch.float32)


def integers(
    high: Int64[Tensor, "*shape"], low: Int64[Tensor, "*shape"], n: int | Int64[Tensor, "..."]
) -> Int64[Tensor, "*shape"]:
    """Draw integers below n from two words each: ((high·2**32 + low)·n) >> 64, exactly.

    The probability of any value differs from 1/n by less than 2**-64 (Lemire 2019, multiply-shift).

    Args:
        high: upper words.
        low: lower words.
        n: 1 ≤ n < 2**31; a tensor broadcasts and is not checked.

    Raises:
        ValueError: a plain n is out of range.
    """
    if isinstance(n, int) and not 1 <= n < 1 << 31:
        raise ValueError(f"n out of range: expected 1 <= n < 2**31, found {n}")
    # high·n + (low·n >> 32) stays below n·2**32 < 2**63, so int64 holds every intermediate value.
    return (high * n + ((low * n) >> 32)) >> 32


def normal_tensor(
    seeds: Int64[Tensor, " member"], stream: str | int, step: int, shape: tuple[int, ...], block: int = 0
) -> Float32[Tensor, "member ..."]:
    """Draw one standard normal tensor for every member, from that member's seed alone.

    Args:
        seeds: one seed for each member.
        stream: a name in `STREAMS`, or a number.
        step: counter; one parameter tensor or one training step each.
        shape: shape of one member's tensor.
        block: as in `bits`.

    Returns:
        float32 of shape (member, *shape); four consecutive elements share one index of `bits`.
    """
    return _fill(normal(_flat_words(seeds, stream, step, shape, block)), shape)


def uniform_tensor(
    seeds: Int64[Tensor, " member"], stream: str | int, step: int, shape: tuple[int, ...], block: int = 0
) -> Float32[Tensor, "member ..."]:
    """Draw one tensor of numbers in [0, 1) for every member; arguments and layout as in `normal_tensor`."""
    return _fill(uniform(_flat_words(seeds, stream, step, shape, block)), shape)


def permutation_index(
    high: Int64[Tensor, "*shape"], low: Int64[Tensor, "*shape"], n: int
) -> Int64[Tensor, "*shape"]:
    """Draw the lexicographic rank of a permutation of n things, uniformly below n!.

    Raises:
        ValueError: n is not between 1 and 12 (13! no longer fits `integers`).
    """
    if not 1 <= n <= 12:
        raise ValueError(f"n out of range: expected 1 to 12 things to permute, found {n}")
    return integers(high, low, math.factorial(n))


def permutation_from_index(index: Int64[Tensor, "*shape"], n: int) -> Int64[Tensor, "*shape n"]:
    """Return the permutation of 0 … n−1 with the given lexicographic rank (decoding its Lehmer code).

    Args:
        index: ranks, 0 ≤ index < n!; not checked.
        n: 1 to 20, the most that int64 ranks can name.

    Raises:
        ValueError: n is out of range.
    """
    _check_unrankable(n)
    result = index.new_empty((*index.shape, n))
    remainder = index
    for place in range(n):
        weight = math.factorial(n - 1 - place)
        result[..., place] = torch.div(remainder, weight, rounding_mode="floor")
        remainder = remainder % weight
    # Digit d means "the d-th of the values still free": whoever stands further right makes room for it.
    for place in range(n - 2, -1, -1):
        tail = result[..., place + 1 :]
        tail += tail >= result[..., place : place + 1]
    return result


def index_from_permutation(permutation: Int64[Tensor, "*shape n"]) -> Int64[Tensor, "*shape"]:
    """Return the lexicographic rank of each permutation of 0 … n−1: the inverse of `permutation_from_index`.

    Raises:
        ValueError: n is not between 1 and 20.
    """
    n = permutation.shape[-1]
    _check_unrankable(n)
    rank = torch.zeros_like(permutation[..., 0])
    for place in range(n):
        smaller = permutation[..., place + 1 :] < permutation[..., place : place + 1]
        rank = rank * (n - place) + smaller.sum(-1)
    return rank


def _rounds(even: Tensor, odd: Tensor, key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Philox4x32-10 of the words (0, 2) in `even` and (1, 3) in `odd`, both [2, *shape]; `key` is [2, ...].

    The last axis of the result is strided: each of the four words is one contiguous plane.

    One round makes words 0 and 2 from the high halves of two products and words 1 and 3 from the low halves,
    each time swapping the pair.  Here the halves stay in place and the meaning of the leading axis alternates
    instead, and the low halves stay unmasked until the end, which leaves six tensor operations a round.
    """
    multipliers = _pair(_MULTIPLIERS, len(shape), key.device)
    schedule = _key_schedule(key, len(shape))
    swapped = multipliers.flip(0), schedule.flip(1)
    for round_ in range(_ROUNDS):
        # Wrapping int64 multiplication has the same 64 bits as the unsigned product.
        product = even * (swapped[0] if round_ % 2 else multipliers)
        even = product >> 32
        even ^= odd.flip(0)
        even ^= (schedule if round_ % 2 else swapped[1])[round_]
        even &= _MASK
        odd = product
    words = torch.stack((even, odd & _MASK), dim=1)
    return words.flatten(0, 1).movedim(0, -1)


def _key_schedule(key: Tensor, axes: int) -> Tensor:
    """Return the keys of all rounds, [round, 2, ...], unmasked: only their low 32 bits are ever used."""
    padded = key.reshape(2, *(1,) * (axes - key.dim() + 1), *key.shape[1:])
    rounds = torch.arange(_ROUNDS, device=key.device).reshape(-1, *(1,) * padded.dim())
    return rounds * _pair(_WEYL, axes, key.device) + padded


def _pair(values: tuple[int, int], axes: int, device: torch.device) -> Tensor:
    """Return two constants as [2, 1, …], made on the device: a copy from the host would wait for it.

    Not as arithmetic on a range: torch.compile takes that for an index, which has 32 bits with a sign on CUDA.
    """
    made = torch.empty((2, *(1,) * axes), dtype=torch.int64, device=device)
    made[0], made[1] = values
    return made


def _flat_words(seeds: Tensor, stream: str | int, step: int, shape: tuple[int, ...], block: int) -> Tensor:
    quads = -(-math.prod(shape) // 4)
    return bits(seeds[:, None], stream, step, torch.arange(quads, device=seeds.device), block)


def _fill(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    return numbers.flatten(1)[:, : math.prod(shape)].reshape(numbers.shape[0], *shape)


def _common_device(values: dict[str, int | Tensor]) -> torch.device:
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int64:
            raise TypeError(f"{name} has the wrong type: expected an int64 tensor, found {tensor.dtype}")
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) > 1:
        found = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"tensors lie on different devices: expected one device, found {found}")
    return devices.pop() if devices else torch.device("cpu")


def _check_word(name: str, value: int) -> None:
    if not 0 <= value < _WORD:
        raise ValueError(f"{name} out of range: expected 0 <= {name} < 2**32, found {value}")


def _check_unrankable(n: int) -> None:
    if not 1 <= n <= _LARGEST_UNRANKED:
        raise ValueError(f"n out of range: expected 1 to {_LARGEST_UNRANKED} things to permute, found {n}")
