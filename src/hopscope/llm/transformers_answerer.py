"""Answers of a Hugging Face model, read from a folder by transformers; nothing is ever downloaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope.errors import UserError
from hopscope.llm.answerer import MAX_TOKENS
from hopscope.rng import bits, uniform

BATCH = 64
"""Prompts in one pass, at most."""


class TransformersAnswerer:
    """A causal language model of transformers on the CPU, with its tokenizer.

    A tokenizer that has a chat template is asked through it, as servers do; any other is given the bare prompt.

    Attributes:
        model: maps token ids to logits.
        tokenizer: turns texts into token ids and back.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer

    def answer(
        self, prompts: Sequence[str], temperature: float, seeds: Sequence[int], max_tokens: int = MAX_TOKENS
    ) -> list[str]:
        """See `hopscope.llm.answerer.Answerer`."""
        tokens = [self._tokens(prompt) for prompt in prompts]
        self._check_length(max((len(one) for one in tokens), default=0) + max_tokens)
        answers = [""] * len(prompts)
        for rows in equal_lengths(tokens):
            given = torch.tensor([tokens[row] for row in rows])
            words = self._continue(given, temperature, torch.tensor([seeds[row] for row in rows]), max_tokens)
            for row, found in zip(rows, words.tolist(), strict=True):
                answers[row] = self._text(found)
        return answers

    def _tokens(self, prompt: str) -> list[int]:
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(prompt)["input_ids"])
        chat = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _check_length(self, length: int) -> None:
        context = getattr(self.model.config, "max_position_embeddings", None)
        if context is not None and length > context:
            raise UserError(
                f"prompt too long: expected at most {context} tokens with the answer, found {length}; "
                "ask shorter questions or fewer tokens of an answer"
            )

    @torch.no_grad()
    def _continue(
        self,
        given: Int64[Tensor, "batch position"],
        temperature: float,
        seeds: Int64[Tensor, " batch"],
        max_tokens: int,
    ) -> Int64[Tensor, "batch token"]:
        """Tokens after each prompt; what follows an end token is not part of the answer."""
        found: list[Tensor] = []
        step, past = given, None
        ended = torch.zeros(len(given), dtype=torch.bool)
        for place in range(max_tokens):
            out = self.model(input_ids=step, past_key_values=past, use_cache=True)
            past = out.past_key_values
            chosen = choose(out.logits[:, -1].float(), temperature, seeds, place)
            found.append(chosen)
            ended |= torch.isin(chosen, torch.tensor(self._ends()))
            if ended.all():
                break
            step = chosen[:, None]
        return torch.stack(found, dim=1)

    def _ends(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        known = [] if ends is None else ends if isinstance(ends, list) else [ends]
        return [*known, *([] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id])]

    def _text(self, tokens: list[int]) -> str:
        ends = self._ends()
        length = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
        return str(self.tokenizer.decode(tokens[:length], skip_special_tokens=True)).strip()


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


def load_transformers(folder: Path) -> TransformersAnswerer:
    """Load a folder that `save_pretrained` wrote.

    Raises:
        UserError: transformers is not installed, or cannot read the folder.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging
    except ImportError:
        raise UserError(
            f"{folder}: expected transformers, to read a Hugging Face model, found none; "
            "install it with: pip install 'hopscope[hf]'"
        ) from None
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # damaged files end in errors of many libraries
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"{folder}: expected a causal language model that transformers can read, found: {first}; "
            "name the folder that save_pretrained wrote"
        ) from None
    finally:
        if shown:
            logging.enable_progress_bar()
    return TransformersAnswerer(model.eval(), tokenizer)
