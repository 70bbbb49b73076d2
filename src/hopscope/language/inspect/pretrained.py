"""Answers of a pretrained decoder in this process: requests that wait are answered together."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Generic, NamedTuple, TypeVar, get_args

import anyio
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.choices import beginnings
from hopscope.language.decoder import ROWS, Decoder
from hopscope.language.gpt2_folder import ORIGIN
from hopscope.language.inspect.sampling import choose
from hopscope.language.pretrained import PACKAGES, load_pretrained
from hopscope.language.questions.sets import Precision
from hopscope.language.tokenizing import Tokens, continuations, encoded

SENTENCE = 16
"""Tokens of an answer, at most, unless a number is asked for: a short sentence, which is no answer any more."""

_GATHER = 0.01
"""Seconds in which requests that are made at the same time come together."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class Batcher(Generic[Request, Reply]):
    """Answers the requests that wait in batches, in a thread, so that the one who asks may wait for others.

    Args:
        answer: many requests at once.
    """

    def __init__(self, answer: Callable[[Sequence[Request]], Sequence[Reply]]) -> None:
        self._answer = answer
        self._waiting: list[_Slot[Request, Reply]] = []
        self._lock = anyio.Lock()

    async def ask(self, request: Request) -> Reply:
        """Answer a request together with those that wait."""
        slot = _Slot[Request, Reply](request)
        self._waiting.append(slot)
        await anyio.sleep(_GATHER)
        # Who comes first through the lock answers all; slots are answered in their order, so its own is among them.
        async with self._lock:
            if not slot.done:
                batch, self._waiting = self._waiting[:ROWS], self._waiting[ROWS:]
                try:
                    found = await anyio.to_thread.run_sync(self._answer, [one.request for one in batch])
                except Exception as error:
                    for one in batch:
                        one.done, one.error = True, error
                else:
                    for one, reply in zip(batch, found, strict=True):
                        one.done, one.reply = True, reply
        if slot.error is not None:
            raise slot.error
        assert slot.reply is not None, "every request of a batch is answered"
        return slot.reply


class _Slot(Generic[Request, Reply]):
    def __init__(self, request: Request) -> None:
        self.request, self.done = request, False
        self.reply: Reply | None = None
        self.error: Exception | None = None


class Wanted(NamedTuple):
    """An answer that is asked for: a chat's only message, and how tokens are drawn."""

    prompt: str
    temperature: float
    seed: int
    max_tokens: int


class Chosen(NamedTuple):
    """Log-probabilities of what could follow a text, in the order of the candidates.

    Attributes:
        acceptable: of each acceptable answer, up to the token that tells it from the others.
        symbols: likewise of each symbol of the question, told from all other symbols.
    """

    acceptable: list[float]
    symbols: list[float]


class Choice(NamedTuple):
    """A text, what its answer can be, and all symbols that could be said instead."""

    text: str
    acceptable: tuple[str, ...]
    symbols: tuple[str, ...]


class PretrainedModel:
    """A pretrained decoder of this process.

    Args:
        name: as `hopscope.language.pretrained.load_pretrained` takes it.
        precision: number format of weights and activations.

    Raises:
        UserError: it cannot be loaded, or there is no such format.
    """

    def __init__(self, name: str, precision: Precision = "float32") -> None:
        import torch

        if precision not in get_args(Precision):
            raise UserError(
                f"precision: expected {' or '.join(get_args(Precision))}, found {precision!r}; take one of them"
            )
        model, self._tokenizer = load_pretrained(name, dtype=getattr(torch, precision))
        if not getattr(self._tokenizer, "is_fast", False):
            raise UserError(
                f"{name}: expected a fast tokenizer, found a slow one; convert it (tokenizer.json)"
            )
        self.name, self._decoder = name, Decoder(name, model)
        ends = model.generation_config.eos_token_id
        self._ends = {*(ends if isinstance(ends, list) else [ends]), self._tokenizer.eos_token_id}
        self._certain: dict[tuple[str, int], str] = {}
        self.answers = Batcher(self._answer)
        self.choices = Batcher(self._choose)

    def _chat(self, prompt: str) -> Tokens:
        if self._tokenizer.chat_template is None:
            raise UserError(
                f"{self.name}: expected a tokenizer with a chat template, found none: it was never taught to answer; "
                "let it choose among the answers (--measure choice)"
            )
        chat = [{"role": "user", "content": prompt}]
        text = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _answer(self, wanted: Sequence[Wanted]) -> list[str]:
        found = {one: self._certain.get(one[::3]) for one in wanted if one.temperature == 0}
        asked = [one for one in dict.fromkeys(wanted) if found.get(one) is None]
        said: list[list[int]] = [[] for _ in asked]

        def draw(row: int, place: int, logits: Tensor) -> int | None:
            one = asked[row]
            if place >= one.max_tokens:
                return None
            token = choose(logits, one.temperature, one.seed, place)
            if token in self._ends:
                return None
            said[row].append(token)
            return token

        if asked:
            prompts = self._decoder.read([self._chat(one.prompt) for one in asked])
            self._decoder.go_on(prompts, draw, max(one.max_tokens for one in asked))
        for one, tokens in zip(asked, said, strict=True):
            found[one] = self._tokenizer.decode(tokens, skip_special_tokens=True)
            if one.temperature == 0:
                # It would say the same again.
                self._certain[one.prompt, one.max_tokens] = found[one] or ""
        return [found[one] or "" for one in wanted]

    def _choose(self, asked: Sequence[Choice]) -> list[Chosen]:
        texts, tokens = [], []
        for one in asked:
            ids, _ = encoded(self._tokenizer, one.text, special=True)
            followed = continuations(self._tokenizer, one.text, ids, one.symbols, special=True)
            if followed is None:
                raise UserError(
                    f"{self.name}: expected answers such as {one.acceptable[0]!r} in tokens that follow the text's, "
                    "found others or an unknown one; use another model or formulation"
                )
            texts.append(ids)
            tokens.append(dict(zip(one.symbols, followed[1], strict=True)))
        prompts = self._decoder.read(texts)
        acceptable = []
        for one, known in zip(asked, tokens, strict=True):
            told = beginnings([known[each] for each in one.acceptable])
            if told is None:
                raise UserError(
                    f"{self.name}: expected acceptable answers none of which begins another in its tokens, found "
                    f"{', '.join(one.acceptable)}; use another model or formulation"
                )
            acceptable.append(told)
        # Where one symbol begins another, both are read to their ends.
        symbols = [beginnings([*known.values()]) or [*known.values()] for known in tokens]
        both = self._decoder.scores(
            prompts, [[*one, *all_] for one, all_ in zip(acceptable, symbols, strict=True)]
        )
        return [
            Chosen(scores[: len(one)], scores[len(one) :])
            for one, scores in zip(acceptable, both, strict=True)
        ]

    def seconds(
        self, prompts: Sequence[str], max_tokens: int, attempts: int, chosen: bool
    ) -> tuple[float, float]:
        """How long prompts take, at least and at most, by a probe of four of them.

        Args:
            prompts: all that will be asked, at least one.
            max_tokens: of an answer.
            attempts: answers to a prompt, at most.
            chosen: whether nothing is said, and only choices are weighed.
        """
        lengths = [len(prompt) for prompt in prompts]
        middle = median(lengths)
        probe = sorted(prompts, key=lambda prompt: abs(len(prompt) - middle))[:4]
        read = [
            encoded(self._tokenizer, text, special=True)[0] if chosen else self._chat(text) for text in probe
        ]
        # The first pass also fetches the weights from the disk, once for all prompts.
        self._decoder.read([read[0][:2]])
        began = time.perf_counter()
        known = self._decoder.read(read)
        reading = (time.perf_counter() - began) / sum(map(len, probe)) * sum(lengths)
        if chosen:
            return reading, 1.5 * reading
        began = time.perf_counter()
        self._decoder.go_on(known, lambda row, place, logits: 0, 4)
        # Three passes, and what many rows share is spread over four only.
        token = (time.perf_counter() - began) / (3 * len(known))
        return reading + 2 * token * len(prompts), reading + token * max_tokens * attempts * len(prompts)


def is_pretrained(name: str) -> bool:
    """Whether a name stands for a pretrained model of this machine, not for a folder that the study tiny-lm wrote."""
    folder = Path(name)
    plain = (folder / "config.json").is_file() and not (folder / ORIGIN).exists()
    return plain or name.endswith(".gguf") or (name in PACKAGES and not folder.exists())


def words_of(seconds: tuple[float, float], count: int) -> str:
    """An estimate as a person would say it."""
    low, high = (max(1, round(each / 60)) for each in seconds)
    minutes = f"about {low} min" if low == high else f"between {low} and {high} min"
    return f"{minutes} for {count:,} questions, by a probe of four"
