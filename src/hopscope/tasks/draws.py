"""Named random draws: what a task's `sample` is given instead of addresses.

A draw is a pure function of (the member's data seed, use, step, sample, name).  The name goes into the key of the
generator, so that draws under different names are independent, and none is equal to the raw words of `Draws.bits`.
"""

import hashlib
import math
import operator
from collections.abc import Sequence
from copy import copy

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope import rng
from hopscope.errors import UserError

Seeds = Int64[Tensor, " member"]
Step = int | range | Int64[Tensor, ""]

USES = {"train": "train", "held-out": "evaluate", "probe": "probe"}
"""Use of samples → stream of `rng` that they are drawn from."""

_LARGEST_RANKED = 12
"""Most things whose permutation is drawn as one number; more are sorted by a random word each."""

_PICKS = 2
"""Block of random words that says which example a training sample is."""


class Draws:
    """Random numbers for the samples of one batch, all members side by side; a name given twice is a `UserError`.

    Attributes:
        seeds: data seed of each member; `device`: where they are, and all numbers.
        stream: a name in `rng.STREAMS`; `use` is what it is for: `"train"`, `"held-out"` or `"probe"`.
        size: numbers of members and of samples: the first axes of every draw.
        step: training step of every sample, `[batch]`.
        index: number of every sample within its step, `[batch]`; with a finite pool the number of its example, drawn
            uniformly, `[member, batch]`.
    """

    def __init__(
        self, seeds: Seeds, use: str, step: Step, batch: int, *, start: int = 0, examples: int | None = None
    ):
        """Samples `start … start + batch - 1` of a step, or of each of a range of steps, one step after another.

        `use` may be the name of a stream, which is a probe; any other is a `UserError`.  A tensor `step` holds one that
        is known on the device only.  `examples` is the number of different training samples; `None`: fresh ones always.
        """
        if use not in USES and use not in rng.STREAMS:
            own = ", ".join(map(repr, USES))
            raise UserError(f"draws: expected samples for a use ({own}) or a stream of rng, found {use!r}")
        self.seeds, self.device, self.stream = seeds, seeds.device, USES.get(use, use)
        self.use = {stream: use for use, stream in USES.items()}.get(self.stream, "probe")
        index = torch.arange(start, start + batch, device=self.device)
        if isinstance(step, range):
            steps = torch.arange(step.start, step.stop, step.step, device=self.device)
            step, index = steps.repeat_interleave(batch), index.repeat(len(steps))
        self.step, self.index, self.size = torch.zeros_like(index) + step, index, (len(seeds), len(index))
        self._origin = self.stream, self.step
        self._names = set[str]()
        self._fresh: Draws | None = None
        if examples is not None and self.stream == "train":
            picks, self._fresh = self.bits(_PICKS), copy(self)
            self.index = rng.integers(picks[..., 0], picks[..., 1], examples)
            self._origin = "pool", torch.zeros_like(index)

    @property
    def fresh(self) -> "Draws":
        """Draws that are new whenever an example of a finite pool comes again; the same where there is no pool."""
        return self._fresh or self

    def bits(self, block: int = 0) -> Int64[Tensor, "member sample 4"]:
        """Four raw words for every sample, at the address that has no name; see `rng.bits`."""
        return self._bits(self.seeds, self.index[..., None], block).squeeze(-2)

    def quads(self, count: int, block: int) -> Int64[Tensor, "member sample quad 4"]:
        """At least `count` raw words for every sample: sample i has those of the indices from i · quads on."""
        quads = torch.arange(math.ceil(count / 4), device=self.device)
        return self._bits(self.seeds, self.index[..., None] * len(quads) + quads, block)

    def integers(
        self, name: str, high: int | Int64[Tensor, "..."], shape: tuple[int, ...] = ()
    ) -> Int64[Tensor, "member sample ..."]:
        """Integers from 0 to high - 1, `[member, batch, *shape]`; `high` is below 2**31.

        A tensor `high` is broadcast to that shape, and its values are not checked.
        """
        if not isinstance(high, Tensor) and not 1 <= (high := operator.index(high)) < 1 << 31:
            raise UserError(f"draws.integers({name!r}): expected 1 <= high < 2**31, found {high}")
        upper, lower = self._named(name, (*shape, 2)).unbind(-1)
        if isinstance(high, Tensor):
            high = high.expand(upper.shape)
        return rng.integers(upper, lower, high)

    def uniform(self, name: str, shape: tuple[int, ...] = ()) -> Float32[Tensor, "member sample ..."]:
        """Numbers in [0, 1), `[member, batch, *shape]`."""
        return self._named(name, shape, rng.uniform)

    def normal(self, name: str, shape: tuple[int, ...] = ()) -> Float32[Tensor, "member sample ..."]:
        """Standard normal numbers, `[member, batch, *shape]`."""
        return self._named(name, shape, rng.normal)

    def permutation(self, name: str, n: int) -> Int64[Tensor, "member sample n"]:
        """The things 0 … n - 1 in random order, `[member, batch, n]`."""
        if n < 1:
            raise UserError(f"draws.permutation({name!r}): expected at least one thing, found n = {n}")
        if n <= _LARGEST_RANKED:
            return rng.permutation_from_index(self.integers(name, math.factorial(n)), n)
        # Equal words, which hardly ever come, are told apart by their place.
        return self._named(name, (n,)).argsort(dim=-1, stable=True)

    def constant(
        self, value: int | float | Sequence[int | float] | Tensor, shape: tuple[int, ...] = ()
    ) -> Tensor:
        """One value everywhere, `[member, batch, *shape]`: int64, float32 or bool; lists and tensors are broadcast."""
        found = torch.as_tensor(value, device=self.device)
        if found.dtype != torch.bool:
            found = found.float() if found.is_floating_point() else found.long()
        return found.expand(*self.size, *shape).clone()

    def _named(self, name: str, shape: tuple[int, ...], numbers: rng.Numbers = lambda words: words) -> Tensor:
        if name in self._names:
            wanted = "a different name for every draw"
            raise UserError(f"draws: expected {wanted}, found {name!r} twice; these would be equal")
        self._names.add(name)
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
        count = math.prod(shape)
        blocks = torch.arange(math.ceil(count / 4), device=self.device)
        found = numbers(self._bits(self.seeds ^ key, self.index[..., None], blocks))
        return found.flatten(-2)[..., :count].reshape(*self.size, *shape)

    def _bits(self, seeds: Tensor, index: Tensor, block: int | Tensor) -> Tensor:
        stream, step = self._origin
        return rng.bits(seeds[:, None, None], stream, step[:, None], index, block)
