"""Tokens that are drawn again alike: each from (seed, place)."""

import hashlib

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.rng import bits, uniform


def choose(logits: Float[Tensor, " vocabulary"], temperature: float, seed: int, place: int) -> int:
    """Choose the token at a place of an answer: the likeliest at temperature 0, else drawn.

    Drawn by inverting the cumulative distribution at a uniform number of (seed, place).
    """
    if temperature == 0:
        return int(logits.argmax())
    cumulative = (logits.double() / temperature).softmax(-1).cumsum(-1)
    drawn = uniform(bits(seed, "text", place, 0)[..., :1]).double() * cumulative[-1:]
    # Of equal sums the last is meant: a token of probability 0 is never drawn.
    return min(int(torch.searchsorted(cumulative, drawn, right=True)), len(logits) - 1)


def seed_of(seed: int, prompt: str, time: int) -> int:
    """A seed of its own for each time that a prompt is asked."""
    drawn = hashlib.sha256(f"{seed}\n{prompt}\n{time}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") >> 1
