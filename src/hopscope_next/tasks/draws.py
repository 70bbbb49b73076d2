"""Named random draws: what a task's `sample` is given instead of addresses.

A draw is a pure function of (the member's data seed, use, step, sample, name).  The name goes into the key of the
generator, so that draws under different names are independent, and none is equal to the raw words of `Draws.bits`.
"""

import hashlib
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, Literal

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope_next import rng
from hopscope_next.errors import UserError

Address = tuple[
    Int64[Tensor, "*#member"], str, int | Int64[Tensor, "*sample"], Int64[Tensor, "*#member sample"]
]
"""Seed, stream, step and index of samples, shaped to be broadcast over `[member, batch]`."""

STREAMS: Final = MappingProxyType({"train": "train", "held-out": "evaluate", "probe": "probe"})
"""Use of samples → stream of `rng` that they are drawn from."""

_LARGEST_RANKED = 12
"""Most things whose permutation is drawn as one number; more are sorted by a random word each."""

_PICKS = 2
"""Block of random words that says which example a training sample is."""


class Draws:
    """Random numbers for the samples of one batch, all members side by side.

    Attributes:
        seeds: data seed of each member, `[member]`.
        stream: a name in `rng.STREAMS`; `use` is what it is for: `"train"`, `"held-out"` or `"probe"`.
        address: where the raw words of `bits` come from; in a finite pool that of the example, any one of them with
            equal probability.
    """

    def __init__(
        self,
        seeds: Int64[Tensor, " member"],
        stream: str,
        step: int | range | Int64[Tensor, ""],
        batch: int,
        *,
        start: int = 0,
        examples: int | None = None,
    ):
        """Samples `start … start + batch - 1` of a step, or of each of a range of steps, one step after another.

        Args:
            seeds: data seed of each member.
            stream: a use, or the name of a stream.
            step: a tensor holds one that is known on the device only.
            batch, start: which samples of a step.
            examples: number of different training samples; `None`: fresh ones without end.
        """
        self.seeds, self.stream = seeds, STREAMS.get(stream, stream)
        index = torch.arange(start, start + batch, device=seeds.device)
        if isinstance(step, range):
            steps = torch.arange(step.start, step.stop, step.step, device=seeds.device)
            step, index = steps.repeat_interleave(batch), index.repeat(len(steps))
        self._step, self._samples = step, len(index)
        self.address: Address = (seeds[:, None], self.stream, step, index)
        if examples is not None and self.stream == "train":
            words = rng.bits(*self.address, _PICKS)
            self.address = seeds[:, None], "pool", 0, rng.integers(words[..., 0], words[..., 1], examples)
        self._names: set[str] = set()

    @property
    def device(self) -> torch.device:
        """The device of the numbers."""
        return self.seeds.device

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of members and of samples: the first axes of every draw."""
        return len(self.seeds), self._samples

    @property
    def use(self) -> Literal["train", "held-out", "probe"]:
        """The use of the samples."""
        uses: dict[str, Literal["train", "held-out"]] = {"train": "train", "evaluate": "held-out"}
        return uses.get(self.stream, "probe")

    @property
    def step(self) -> Int64[Tensor, " sample"]:
        """Training step of every sample."""
        return torch.as_tensor(self._step, device=self.device).expand(self._samples)

    @property
    def index(self) -> Int64[Tensor, "*#member sample"]:
        """Number of every sample within its step; in a finite pool `[member, batch]`, which example it is."""
        return self.address[3]

    def bits(self, block: int = 0) -> Int64[Tensor, "member sample 4"]:
        """Four raw words for every sample, at the address that has no name; see `rng.bits`."""
        return rng.bits(*self.address, block)

    def words(self, count: int, block: int) -> Int64[Tensor, "member sample word"]:
        """At least `count` raw words for every sample: sample i has those of the indices from i·quads on."""
        seeds, stream, step, index = self.address
        quads = -(-count // 4)
        places = index[..., None] * quads + torch.arange(quads, device=self.device)
        step = step[..., None] if isinstance(step, Tensor) and step.ndim else step
        return rng.bits(seeds[..., None], stream, step, places, block).flatten(-2)

    def integers(
        self, name: str, high: int | Int64[Tensor, "..."], shape: tuple[int, ...] = ()
    ) -> Int64[Tensor, "member sample ..."]:
        """Integers from 0 to high - 1, `[member, batch, *shape]`.

        Args:
            name: of this draw, used once.
            high: below 2**31; a tensor is broadcast to `[member, batch, *shape]` and its values are not checked.
            shape: of one sample's numbers.

        Raises:
            UserError: the name was used before, or high is out of range.
        """
        if isinstance(high, int) and not 1 <= high < 1 << 31:
            raise UserError(f"draws.integers({name!r}): expected 1 <= high < 2**31, found {high}")
        words = self._named(name, 2 * math.prod(shape))
        upper, lower = (self._shaped(words[..., half::2], shape) for half in range(2))
        if isinstance(high, Tensor):
            try:
                high = high.expand(upper.shape)
            except RuntimeError:
                raise UserError(
                    f"draws.integers({name!r}): expected high to broadcast to {tuple(upper.shape)}, "
                    f"found shape {tuple(high.shape)}"
                ) from None
        return rng.integers(upper, lower, high)

    def uniform(self, name: str, shape: tuple[int, ...] = ()) -> Float32[Tensor, "member sample ..."]:
        """Numbers in [0, 1), `[member, batch, *shape]`."""
        return self._shaped(rng.uniform(self._named(name, math.prod(shape))), shape)

    def normal(self, name: str, shape: tuple[int, ...] = ()) -> Float32[Tensor, "member sample ..."]:
        """Standard normal numbers, `[member, batch, *shape]`."""
        return self._shaped(rng.normal(self._named(name, math.prod(shape))), shape)

    def permutation(self, name: str, n: int) -> Int64[Tensor, "member sample n"]:
        """The things 0 … n - 1 in random order, `[member, batch, n]`."""
        if n < 1:
            raise UserError(f"draws.permutation({name!r}): expected at least one thing, found n = {n}")
        if n <= _LARGEST_RANKED:
            words = self._named(name, 2)[..., 0, :]
            return rng.permutation_from_index(rng.permutation_index(words[..., 0], words[..., 1], n), n)
        # Equal words, which hardly ever come, are told apart by their place.
        return self._shaped(self._named(name, n), (n,)).argsort(dim=-1, stable=True)

    def constant(
        self, value: int | float | Sequence[int | float] | Tensor, shape: tuple[int, ...] = ()
    ) -> Tensor:
        """One value everywhere, `[member, batch, *shape]`: int64, float32 or bool; lists and tensors are broadcast."""
        lead = (*self.size, *shape)
        if isinstance(value, Tensor | Sequence):
            return torch.as_tensor(value, device=self.device).expand(lead).clone()
        return torch.full(lead, value, device=self.device)

    def _named(self, name: str, count: int) -> Int64[Tensor, "member sample quad 4"]:
        if name in self._names:
            raise UserError(
                f"draws: expected a different name for every draw of a sample, found {name!r} twice; "
                "two draws under one name would be equal"
            )
        self._names.add(name)
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
        seeds, stream, step, index = self.address
        blocks = torch.arange(-(-count // 4), device=self.device)
        step = step[..., None] if isinstance(step, Tensor) and step.ndim else step
        return rng.bits((seeds ^ key)[..., None], stream, step, index[..., None], blocks)

    def _shaped(self, words: Tensor, shape: tuple[int, ...]) -> Tensor:
        numbers = words.flatten(-2)[..., : math.prod(shape)]
        return numbers.unflatten(-1, shape) if shape else numbers[..., 0]
