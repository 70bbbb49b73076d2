"""The Inspect provider `hopscope/FOLDER`: answers of a small language model of ours, in this process.

Such models are tiny and answer with a word or a few, so a question is answered by itself, at once.  Other models in
folders are asked through Inspect's own provider, `hf/FOLDER`.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from click import ClickException
from inspect_ai.model import (
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from jaxtyping import Float32
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.gpt2_folder import read_folder
from hopscope.rng import bits, uniform
from hopscope.tasks.text.tokens import END, PADDING, numbered, read_words

MAX_TOKENS = 8
"""Tokens of an answer, at most, unless a number is asked for: enough for a word that is spelled in pieces."""


class HopscopeAPI(ModelAPI):
    """Answers the last message of the user; earlier ones are not read, as such models know no conversation.

    Unless told otherwise it samples at temperature 1, as servers do.  Draws depend on `seed` (0 by default), the
    prompt and how many times this prompt was asked before, so an evaluation can be repeated exactly.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  (Inspect's own signature; never changed)
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        try:
            if model_args:
                raise UserError(
                    f"hopscope/{model_name}: expected no model arguments, found {', '.join(model_args)}; "
                    "leave them out"
                )
            self._module, self._vocabulary = read_folder(Path(model_name))
        except UserError as error:
            # Inspect's command prints this kind of error as one line.
            raise ClickException(str(error)) from None
        self._numbers = numbered(self._vocabulary)
        self._asked: Counter[str] = Counter()

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer the last message of the user."""
        prompt = next((m.text for m in reversed(input) if isinstance(m, ChatMessageUser)), "")
        self._asked[prompt] += 1
        text = self.answer(
            prompt,
            1.0 if config.temperature is None else config.temperature,
            _seed(config.seed or 0, prompt, self._asked[prompt]),
            MAX_TOKENS if config.max_tokens is None else config.max_tokens,
        )
        output = ModelOutput.from_content(self.model_name, text)
        # Without it Inspect would count tokens, for which it wants a tokenizer from the network.
        output.usage = ModelUsage()
        return output

    @torch.no_grad()
    def answer(self, prompt: str, temperature: float, seed: int, max_tokens: int = MAX_TOKENS) -> str:
        """Continue a prompt up to the end token, or to `max_tokens` words.

        Raises:
            UserError: a word that the model does not know, or more of them than its context holds.
        """
        tokens = read_words(prompt, self._numbers, "words that the model was trained on")
        # The longest questions fill the context, behind which one word can still be said: all that an answer needs.
        room = self._module.config.length + 1 - len(tokens)
        if room < 1:
            raise UserError(
                f"prompt too long: expected at most {self._module.config.length} tokens, found {len(tokens)}; "
                "ask shorter questions"
            )
        words: list[str] = []
        for place in range(min(max_tokens, room)):
            token = choose(self._module(torch.tensor([tokens]))[0, -1], temperature, seed, place)
            if self._vocabulary[token] == END:
                break
            tokens.append(token)
            words.append(self._vocabulary[token])
        return " ".join(word for word in words if word != PADDING)


def choose(logits: Float32[Tensor, " vocabulary"], temperature: float, seed: int, place: int) -> int:
    """Choose the token at a place of an answer: the likeliest at temperature 0, else drawn.

    Drawn by inverting the cumulative distribution at a uniform number of (seed, place).
    """
    if temperature == 0:
        return int(logits.argmax())
    cumulative = (logits.double() / temperature).softmax(-1).cumsum(-1)
    drawn = uniform(bits(seed, "text", place, 0)[..., :1]).double() * cumulative[-1:]
    # Of equal sums the last is meant: a token of probability 0 is never drawn.
    return min(int(torch.searchsorted(cumulative, drawn, right=True)), len(logits) - 1)


def _seed(seed: int, prompt: str, time: int) -> int:
    """A seed of its own for each time that a prompt is asked."""
    drawn = hashlib.sha256(f"{seed}\n{prompt}\n{time}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") >> 1


@modelapi(name="hopscope")
def hopscope() -> type[ModelAPI]:
    """Register the model provider `hopscope/FOLDER` with Inspect."""
    return HopscopeAPI
