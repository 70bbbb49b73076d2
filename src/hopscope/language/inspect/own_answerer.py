"""Answers of a small language model of ours, read from its folder; no other library is needed."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope.language.gpt2_folder import read_folder
from hopscope.language.inspect.continuing import Forward, TokenAnswerer
from hopscope.models.member import MemberTransformer
from hopscope.tasks.text.tokens import END, PADDING, numbered, read_words


class OwnAnswerer(TokenAnswerer):
    """A word-level model.

    Attributes:
        module: maps token ids to logits.
        vocabulary: tokens by number.
    """

    # The longest questions fill the context, behind which one word can still be said: all that an answer needs.
    cuts = True

    def __init__(self, module: MemberTransformer, vocabulary: Sequence[str]) -> None:
        self.module, self.vocabulary = module, tuple(vocabulary)
        self.context = module.config.length
        self._numbers = numbered(self.vocabulary)
        self.ends = (self._numbers[END],)

    def tokens(self, prompt: str) -> list[int]:
        """Words and signs by number.

        Raises:
            UserError: a word that the model does not know.
        """
        return read_words(prompt, self._numbers, "words that the model was trained on")

    def forward(self) -> Forward:
        """Whole passes: texts are short, and the model keeps nothing between two."""
        read: list[Tensor] = []

        def logits(new: Int64[Tensor, "batch new"]) -> Float32[Tensor, "batch vocabulary"]:
            read.append(new)
            return self.module(torch.cat(read, 1))[:, -1]

        return logits

    def text(self, tokens: Sequence[int]) -> str:
        """Words with spaces between them."""
        return " ".join(word for word in (self.vocabulary[token] for token in tokens) if word != PADDING)


def load_own(folder: Path) -> OwnAnswerer:
    """Load a folder that `hopscope export` or the study `tiny-lm` wrote.

    Raises:
        UserError: the folder is damaged.
    """
    return OwnAnswerer(*read_folder(folder))
