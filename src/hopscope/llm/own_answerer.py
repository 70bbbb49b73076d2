"""Answers of a small language model of ours, read from its folder; no other library is needed."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from hopscope.errors import UserError
from hopscope.llm.answerer import MAX_TOKENS
from hopscope.llm.gpt2_folder import read_folder
from hopscope.llm.transformers_answerer import choose, equal_lengths
from hopscope.models.member import MemberTransformer
from hopscope.tasks.text.tokens import END, PADDING, tokenized


class OwnAnswerer:
    """A word-level model; see `hopscope.llm.answerer.Answerer`.

    Attributes:
        module: maps token ids to logits.
        vocabulary: tokens by number.
    """

    def __init__(self, module: MemberTransformer, vocabulary: Sequence[str]) -> None:
        self.module, self.vocabulary = module, tuple(vocabulary)
        self._numbers = {token: number for number, token in enumerate(vocabulary)}

    def answer(
        self, prompts: Sequence[str], temperature: float, seeds: Sequence[int], max_tokens: int = MAX_TOKENS
    ) -> list[str]:
        """Answer each prompt, up to the end mark.

        Raises:
            UserError: a prompt has a word that the model does not know, or is too long for it.
        """
        tokens = [self._tokens(prompt) for prompt in prompts]
        answers = [""] * len(prompts)
        for rows in equal_lengths(tokens):
            given = torch.tensor([tokens[row] for row in rows])
            drawn = self._continue(given, temperature, torch.tensor([seeds[row] for row in rows]), max_tokens)
            for row, found in zip(rows, drawn.tolist(), strict=True):
                answers[row] = self._text(found)
        return answers

    def _tokens(self, prompt: str) -> list[int]:
        words = [each.token for each in tokenized(prompt)]
        unknown = sorted(set(words) - set(self._numbers))
        if unknown:
            raise UserError(
                f"prompt: expected words that the model was trained on, found {', '.join(map(repr, unknown[:5]))}; "
                "ask questions in equations of no more chains and steps than its training's"
            )
        longest = self.module.config.length
        if len(words) > longest:
            raise UserError(
                f"prompt: expected at most {longest} words and signs, found {len(words)}; ask less"
            )
        return [self._numbers[word] for word in words]

    @torch.no_grad()
    def _continue(
        self,
        given: Int64[Tensor, "batch position"],
        temperature: float,
        seeds: Int64[Tensor, " batch"],
        most: int,
    ) -> Int64[Tensor, "batch token"]:
        found: list[Tensor] = []
        # Not beyond the last position that the model knows; one answer is always possible.
        for place in range(min(most, self.module.config.length - given.shape[1] + 1)):
            chosen = choose(self.module(given)[:, -1], temperature, seeds, place)
            found.append(chosen)
            if bool((chosen == self._numbers[END]).all()):
                break
            given = torch.cat((given, chosen[:, None]), 1)
        return torch.stack(found, 1)

    def _text(self, tokens: list[int]) -> str:
        end = self._numbers[END]
        length = tokens.index(end) if end in tokens else len(tokens)
        said = [self.vocabulary[token] for token in tokens[:length]]
        return " ".join(token for token in said if token != PADDING)


def load_own(folder: Path) -> OwnAnswerer:
    """Load a folder that `hopscope export` or the study `tiny-lm` wrote.

    Raises:
        UserError: the folder is damaged.
    """
    return OwnAnswerer(*read_folder(folder))
