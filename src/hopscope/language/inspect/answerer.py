"""A small language model in a folder, as something that can be asked.

`load_answerer` looks at the folder and says who reads it.  The models are tiny and answer with one word or
a few, so nothing here is made for long texts: prompts of equal length are one batch, and a word is drawn from a
random number that belongs to the question, not to the batch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from hopscope.errors import UserError
from hopscope.runs import read_json

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
MAX_TOKENS = 8
"""Tokens of an answer, at most: enough for a word that is spelled in pieces."""


class Answerer(Protocol):
    """A model that continues prompts."""

    def answer(
        self, prompts: Sequence[str], temperature: float, seeds: Sequence[int], max_tokens: int = MAX_TOKENS
    ) -> list[str]:
        """Answer each prompt.

        Args:
            prompts: what is asked.
            temperature: 0 takes the likeliest token, and seeds do not matter.
            seeds: one for each prompt; the same prompt with the same seed is answered the same, whatever else is
                asked with it.
            max_tokens: length of an answer, at most.

        Raises:
            UserError: a prompt does not fit into the model's context.
        """


def load_answerer(path: Path | str) -> Answerer:
    """Load the model in a folder.

    Raises:
        UserError: there is no such folder, no language model in it, or what reads it is not installed.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"{folder}: expected the folder of a language model, found none; check the path")
    missing = [name for name in (CONFIG, TOKENIZER) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: expected a language model ({CONFIG}, {TOKENIZER} and weights), found no "
            f"{' and no '.join(missing)}; name the folder that save_pretrained wrote"
        )
    if "model_type" not in _mapping(folder / CONFIG):
        raise UserError(
            f"{folder / CONFIG}: expected the configuration of a Hugging Face model, found no model_type; "
            "name the folder that save_pretrained wrote"
        )
    from hopscope.language.gpt2_folder import is_folder

    if is_folder(folder):
        from hopscope.language.inspect.own_answerer import load_own

        return load_own(folder)
    from hopscope.language.inspect.transformers_answerer import load_transformers

    return load_transformers(folder)


def _mapping(path: Path) -> dict[str, Any]:
    found = read_json(path, "write the model again")
    if not isinstance(found, dict):
        raise UserError(
            f"{path}: expected a JSON object, found {type(found).__name__}; write the model again"
        )
    return found
