"""The Inspect provider `hopscope/PATH`: answers of a small language model in a folder, in this process."""

import hashlib
from collections import Counter
from typing import Any

import anyio
import anyio.to_thread
from inspect_ai._util.error import PrerequisiteError
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
from hopscope.language.inspect.answerer import MAX_TOKENS, Answerer, load_answerer

BATCH = 64
"""Questions answered in one go, at most."""


class _Request:
    """A question that waits, and then its answer."""

    def __init__(self, prompt: str, temperature: float, seed: int, max_tokens: int) -> None:
        self.prompt, self.seed = prompt, seed
        self.how = temperature, max_tokens
        self.answer: str | None = None


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
        if model_args:
            raise PrerequisiteError(
                f"hopscope/{model_name}: expected no model arguments, found {', '.join(model_args)}; leave them out"
            )
        try:
            self.answerer: Answerer = load_answerer(model_name)
        except UserError as error:
            raise PrerequisiteError(str(error)) from None
        self._asked: Counter[bytes] = Counter()
        self._waiting: list[_Request] = []
        self._lock = anyio.Lock()

    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer the last message of the user."""
        prompt = next((m.text for m in reversed(input) if isinstance(m, ChatMessageUser)), "")
        temperature = 1.0 if config.temperature is None else config.temperature
        max_tokens = MAX_TOKENS if config.max_tokens is None else config.max_tokens
        request = _Request(prompt, temperature, self._seed(prompt, config.seed or 0), max_tokens)
        output = ModelOutput.from_content(self.model_name, await self._answer(request))
        # Without it Inspect would count tokens, for which it wants a tokenizer from the network.
        output.usage = ModelUsage()
        return output

    def _seed(self, prompt: str, seed: int) -> int:
        """A seed of its own for each time that a prompt is asked."""
        key = hashlib.sha256(f"{seed}\n{prompt}".encode()).digest()
        self._asked[key] += 1
        drawn = hashlib.sha256(key + self._asked[key].to_bytes(8, "big")).digest()
        return int.from_bytes(drawn[:8], "big") >> 1

    async def _answer(self, request: _Request) -> str:
        """Wait for one's turn; whoever has it answers for all that wait, so that nobody depends on another."""
        self._waiting.append(request)
        try:
            async with self._lock:
                while request.answer is None:
                    batch = [other for other in self._waiting if other.how == request.how][:BATCH]
                    await anyio.to_thread.run_sync(self._answer_batch, batch)
                    self._waiting = [other for other in self._waiting if other.answer is None]
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
        return request.answer

    def _answer_batch(self, batch: list[_Request]) -> None:
        temperature, max_tokens = batch[0].how
        prompts, seeds = [one.prompt for one in batch], [one.seed for one in batch]
        for one, found in zip(
            batch, self.answerer.answer(prompts, temperature, seeds, max_tokens), strict=True
        ):
            one.answer = found

    def should_retry(self, ex: BaseException) -> bool:
        """Never: what fails here fails again."""
        return False

    def max_connections(self) -> int:
        """Questions that wait at a time: those of one batch."""
        return BATCH


@modelapi(name="hopscope")
def hopscope() -> type[ModelAPI]:
    """Register `hopscope/PATH`."""
    return HopscopeAPI
