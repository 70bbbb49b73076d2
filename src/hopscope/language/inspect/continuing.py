"""The loop that all answers in this process come from: prompts as tokens, continued in batches, back to text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.inspect.answerer import MAX_TOKENS
from hopscope.rng import bits, uniform

BATCH = 64
"""Prompts in one pass, at most."""

Forward = Callable[[Int64[Tensor, "batch new"]], Float32[Tensor, "batch vocabulary"]]
"""Takes the tokens that are new since its last call; gives the logits of the next token."""


class TokenAnswerer(ABC):
    """Answers prompts token by token, as `hopscope.language.inspect.answerer.Answerer`; a subclass knows the model.

    Attributes:
        context: positions that the model knows, `None` for no limit.
        ends: tokens behind which nothing is part of an answer.
        cuts: whether an answer that meets the end of the context is cut there; otherwise prompts leave room for the
            longest answer.
    """

    context: int | None
    ends: tuple[int, ...]
    cuts: ClassVar[bool] = False

    @abstractmethod
    def tokens(self, prompt: str) -> list[int]:
        """A prompt as the model reads it."""

    @abstractmethod
    def text(self, tokens: Sequence[int]) -> str:
        """An answer, without its end token, in words."""

    @abstractmethod
    def forward(self) -> Forward:
        """Begin with a batch of prompts of equal length: the first tokens given are the whole prompts."""

    def answer(
        self, prompts: Sequence[str], temperature: float, seeds: Sequence[int], max_tokens: int = MAX_TOKENS
    ) -> list[str]:
        """See `hopscope.language.inspect.answerer.Answerer`.

        Raises:
            UserError: a prompt cannot be read, or is too long.
        """
        tokens = [self.tokens(prompt) for prompt in prompts]
        self._check_length(max(map(len, tokens), default=0), max_tokens)
        answers = [""] * len(prompts)
        for rows in equal_lengths(tokens):
            given = torch.tensor([tokens[row] for row in rows])
            drawn = self._continue(given, temperature, torch.tensor([seeds[row] for row in rows]), max_tokens)
            for row, found in zip(rows, drawn.tolist(), strict=True):
                answers[row] = self.text(self._until_end(found))
        return answers

    def _check_length(self, longest: int, max_tokens: int) -> None:
        """Refuse prompts that do not fit into the context.

        Raises:
            UserError: the longest does not.
        """
        found = longest if self.cuts else longest + max_tokens
        if self.context is not None and found > self.context:
            with_answer = "" if self.cuts else " with the answer"
            advice = "" if self.cuts else " or fewer tokens of an answer"
            raise UserError(
                f"prompt too long: expected at most {self.context} tokens{with_answer}, found {found}; "
                f"ask shorter questions{advice}"
            )

    @torch.no_grad()
    def _continue(
        self,
        given: Int64[Tensor, "batch position"],
        temperature: float,
        seeds: Int64[Tensor, " batch"],
        max_tokens: int,
    ) -> Int64[Tensor, "batch token"]:
        """Tokens after each prompt, until every row has come to an end."""
        # The last token of an answer is never read, so it may stand one beyond the context.
        room = max_tokens if self.context is None else self.context - given.shape[1] + 1
        ends, forward = torch.tensor(self.ends, dtype=torch.int64), self.forward()
        ended = torch.zeros(len(given), dtype=torch.bool)
        found: list[Tensor] = []
        new = given
        for place in range(min(max_tokens, room)):
            chosen = choose(forward(new), temperature, seeds, place)
            found.append(chosen)
            ended |= torch.isin(chosen, ends)
            if ended.all():
                break
            new = chosen[:, None]
        return torch.stack(found, 1)

    def _until_end(self, tokens: list[int]) -> list[int]:
        length = next((place for place, token in enumerate(tokens) if token in self.ends), len(tokens))
        return tokens[:length]


def choose(
    logits: Float32[Tensor, "batch vocabulary"],
    temperature: float,
    seeds: Int64[Tensor, " batch"],
    place: int,
) -> Int64[Tensor, " batch"]:
    """Choose the token at a place of each answer: the likeliest at temperature 0, else drawn.

    Drawn by inverting the cumulative distribution at a uniform number of (seed, place), so that a row's draw does not
    depend on its batch.
    """
    if temperature == 0:
        return logits.argmax(-1)
    cumulative = (logits.double() / temperature).softmax(-1).cumsum(-1)
    drawn = uniform(bits(seeds, "text", place, 0)[..., 0]).double()[:, None] * cumulative[:, -1:]
    # Of equal sums the last is meant: a token of probability 0 is never drawn.
    return torch.searchsorted(cumulative, drawn, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def equal_lengths(tokens: Sequence[Sequence[int]]) -> list[list[int]]:
    """Rows of equal length together, `BATCH` at most: such batches need neither padding nor a mask."""
    groups: dict[int, list[int]] = {}
    for row, one in enumerate(tokens):
        groups.setdefault(len(one), []).append(row)
    return [rows[at : at + BATCH] for rows in groups.values() for at in range(0, len(rows), BATCH)]
