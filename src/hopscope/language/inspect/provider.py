"""The Inspect provider `hopscope/MODEL`: answers of a language model in this process.

Models of ours are tiny and answer with a word or a few, so a question is answered by itself, at once.  Pretrained
models (a Hugging Face folder, a GGUF file, a package of the Python index) are asked in batches.
"""

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

from hopscope.errors import UserError
from hopscope.language.decoder import ROWS
from hopscope.language.gpt2_folder import read_folder
from hopscope.language.inspect.pretrained import (
    SENTENCE,
    Choice,
    Chosen,
    PretrainedModel,
    Wanted,
    is_pretrained,
)
from hopscope.language.inspect.sampling import choose, seed_of
from hopscope.tasks.text.tokens import END, PADDING, numbered, read_words

MAX_TOKENS = 8
"""Tokens of an answer, at most, unless a number is asked for: enough for a word that is spelled in pieces."""

_KNOWN = "words that the model was trained on"

CANDIDATES = "candidates"
"""Field of a request's extra body: what may follow the prompt, of which log-probabilities are wanted, not an answer."""


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
            foreign = is_pretrained(model_name)
            given = {
                name: value for name, value in model_args.items() if not (foreign and name == "precision")
            }
            if given:
                raise UserError(
                    f"hopscope/{model_name}: expected no model arguments, found {', '.join(given)}; leave them out"
                )
            self.pretrained = PretrainedModel(model_name, **model_args) if foreign else None
            if self.pretrained is None:
                self._module, self._vocabulary = read_folder(Path(model_name))
                self._numbers = numbered(self._vocabulary)
        except UserError as error:
            # Inspect's command prints this kind of error as one line.
            raise ClickException(str(error)) from None
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
        candidates = (config.extra_body or {}).get(CANDIDATES)
        if candidates is not None:
            return await self._choice(prompt, **candidates)
        self._asked[prompt] += 1
        temperature = 1.0 if config.temperature is None else config.temperature
        seed = seed_of(config.seed or 0, prompt, self._asked[prompt])
        if self.pretrained is None:
            most = MAX_TOKENS if config.max_tokens is None else config.max_tokens
            return self._output(self.answer(prompt, temperature, seed, most))
        most = SENTENCE if config.max_tokens is None else config.max_tokens
        # At temperature 0 the seed tells nothing apart.
        asked = Wanted(prompt, temperature, seed if temperature else 0, most)
        return self._output(await self.pretrained.answers.ask(asked))

    async def _choice(self, prompt: str, acceptable: list[str], symbols: list[str]) -> ModelOutput:
        """The log-probabilities of candidates in place of an answer, in the output's metadata."""
        if self.pretrained is None:
            found = Chosen(self.choices(prompt, acceptable), self.choices(prompt, symbols))
        else:
            found = await self.pretrained.choices.ask(Choice(prompt, tuple(acceptable), tuple(symbols)))
        output = self._output("")
        output.metadata = found._asdict()
        return output

    def _output(self, text: str) -> ModelOutput:
        output = ModelOutput.from_content(self.model_name, text)
        # Without it Inspect would count tokens, for which it wants a tokenizer from the network.
        output.usage = ModelUsage()
        return output

    def max_connections(self) -> int:
        """Requests at a time: as many as are answered together."""
        return super().max_connections() if self.pretrained is None else 2 * ROWS

    @torch.no_grad()
    def choices(self, prompt: str, words: list[str]) -> list[float]:
        """Log-probability of each word after a prompt, by a model of ours.

        Raises:
            UserError: a word that the model does not know, or a prompt longer than its context.
        """
        tokens = self._tokens(prompt)
        told = self._module(torch.tensor([tokens]))[0, -1].log_softmax(-1)
        return [float(told[token]) for word in words for token in read_words(word, self._numbers, _KNOWN)]

    def _tokens(self, prompt: str) -> list[int]:
        tokens = read_words(prompt, self._numbers, _KNOWN)
        if len(tokens) > self._module.config.length:
            raise UserError(
                f"prompt too long: expected at most {self._module.config.length} tokens, found {len(tokens)}; "
                "ask shorter questions"
            )
        return tokens

    @torch.no_grad()
    def answer(self, prompt: str, temperature: float, seed: int, max_tokens: int = MAX_TOKENS) -> str:
        """Continue a prompt up to the end token, or to `max_tokens` words.

        Raises:
            UserError: a word that the model does not know, or more of them than its context holds.
        """
        tokens = self._tokens(prompt)
        # The longest questions fill the context, behind which one word can still be said: all that an answer needs.
        room = self._module.config.length + 1 - len(tokens)
        words: list[str] = []
        for place in range(min(max_tokens, room)):
            token = choose(self._module(torch.tensor([tokens]))[0, -1], temperature, seed, place)
            if self._vocabulary[token] == END:
                break
            tokens.append(token)
            words.append(self._vocabulary[token])
        return " ".join(word for word in words if word != PADDING)


@modelapi(name="hopscope")
def hopscope() -> type[ModelAPI]:
    """Register the model provider `hopscope/FOLDER` with Inspect."""
    return HopscopeAPI
