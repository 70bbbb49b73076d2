"""Answers of a Hugging Face model, read from a folder by transformers; nothing is ever downloaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float32, Int64
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.inspect.continuing import Forward, TokenAnswerer


class TransformersAnswerer(TokenAnswerer):
    """A causal language model of transformers on the CPU, with its tokenizer.

    A tokenizer that has a chat template is asked through it, as servers do; any other is given the bare prompt.

    Attributes:
        model: maps token ids to logits.
        tokenizer: turns texts into token ids and back.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.context = getattr(model.config, "max_position_embeddings", None)
        ends = model.generation_config.eos_token_id
        known = [] if ends is None else ends if isinstance(ends, list) else [ends]
        own = tokenizer.eos_token_id
        self.ends = (*known, *(() if own is None else (own,)))

    def tokens(self, prompt: str) -> list[int]:
        """As the tokenizer, or its chat template, writes them."""
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(prompt)["input_ids"])
        chat = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def forward(self) -> Forward:
        """Passes over new tokens; keys and values of earlier ones are kept."""
        past = None

        def logits(new: Int64[Tensor, "batch new"]) -> Float32[Tensor, "batch vocabulary"]:
            nonlocal past
            out = self.model(input_ids=new, past_key_values=past, use_cache=True)
            past = out.past_key_values
            found: Tensor = out.logits[:, -1].float()
            return found

        return logits

    def text(self, tokens: Sequence[int]) -> str:
        """As the tokenizer reads them, without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()


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
