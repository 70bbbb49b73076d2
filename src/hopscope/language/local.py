"""Language models of this machine, as the library transformers opens them, and what they find likely."""

import copy
import importlib.util
import inspect
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.text import END, PADDING
from hopscope.models.export import to_gpt2
from hopscope.models.transformer import Transformer

CACHE = Path("~/.cache/hopscope/models")
"""Where the weights of GGUF files are expanded to."""

_PATIENCE = 10.0  # seconds within which the hub must answer

Tokens = tuple[int, ...]


def load(name: str, device: str = "cpu", **loading: Any) -> tuple[Any, Any]:
    """Open a causal language model (see `source`) and its tokenizer; `loading` is for `from_pretrained`."""
    where = source(name)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(where, **{"dtype": "float32", **loading})
        return model.to(device).eval(), AutoTokenizer.from_pretrained(where)
    except Exception as error:  # of files and configurations: as many kinds as there are models
        raise _no_model(name, error) from None


def source(name: str) -> str:
    """What transformers opens: a folder that `save_pretrained` wrote, or a model's name on the hub or in its cache.

    The quantised weights of a GGUF file are expanded to float32 once, into a folder of `CACHE`.  `UserError`: the extra
    is missing, there is no such file or folder, or the hub does not know the name.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"{name}: expected the package transformers, found none; pip install 'hopscope[hf]'")
    from huggingface_hub import HfApi, snapshot_download
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    path = Path(name).expanduser()
    try:
        if name.endswith(".gguf"):
            return str(_expanded(path))
        if path.is_dir() or name.startswith((".", "/", "~")):
            return str((path / "config.json").resolve(strict=True).parent)
        try:
            HfApi().model_info(name, timeout=_PATIENCE)  # one request: loading would repeat it for minutes
            return name
        except Exception:
            return snapshot_download(name, local_files_only=True)
    except Exception as error:
        raise _no_model(name, error) from None


def _no_model(name: str, error: Exception) -> UserError:
    found = shorten(str(error), 200, placeholder=" …") or type(error).__name__
    wanted = f"a causal language model with its tokenizer, found: {found}"
    advice = "name a folder that save_pretrained wrote, a GGUF file, or check the name and the network"
    return UserError(f"{name}: expected {wanted}; {advice}")


def _expanded(file: Path) -> Path:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    stat, models = file.stat(), CACHE.expanduser()
    to = models / f"{file.stem}-{stat.st_size}-{stat.st_mtime_ns}"
    if not (to / "config.json").is_file():
        where = {"gguf_file": file.name, "local_files_only": True}
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
        # A model that was read from such a file refuses to be saved; one with its weights does not.
        config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
        fresh = type(model)(type(model.config).from_dict(config))
        fresh.load_state_dict(model.state_dict())
        models.mkdir(parents=True, exist_ok=True)
        # Beside its place: a conversion that is cut short leaves no half of a folder under the model's name.
        with TemporaryDirectory(dir=models) as scratch:
            plain = Path(scratch) / "plain"
            fresh.save_pretrained(plain)
            AutoTokenizer.from_pretrained(file.parent, **where).save_pretrained(plain)
            plain.rename(to)
    return to


def context_of(model: Any) -> int:
    """Tokens that a model can read, if its configuration says so."""
    config, names = model.config.get_text_config(), ("max_position_embeddings", "n_positions", "max_seq_len")
    return next((int(n) for name in names if (n := getattr(config, name, None))), 1 << 30)


def export(model: Transformer, vocabulary: Sequence[str], folder: Path | str) -> None:
    """Write a model that was trained on `Equations` as a folder that answers in a chat: `hf/FOLDER` in Inspect."""
    to_gpt2(model, folder)
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(vocabulary)}
    words = Tokenizer(models.WordLevel(numbers, unk_token=PADDING))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]"), "removed", invert=True)
    marks = {"unk_token": PADDING, "pad_token": PADDING, "eos_token": END}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **marks)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    ends = {"eos_token_id": numbers[END], "pad_token_id": numbers[PADDING]}
    config = AutoConfig.from_pretrained(folder)
    GenerationConfig(**ends).save_pretrained(folder)
    config.update(ends)
    config.save_pretrained(folder)


def encoded(tokenizer: Any, text: str) -> tuple[Tokens, list[tuple[int, int]]]:
    """Tokens of a text and their characters, without marks that a tokenizer puts behind a text: an answer follows."""
    found = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    length = len(found["input_ids"])
    while length and found["special_tokens_mask"][length - 1]:
        length -= 1
    return tuple(found["input_ids"][:length]), [tuple(span) for span in found["offset_mapping"][:length]]


def continuations(
    tokenizer: Any, text: str, answers: Sequence[str], joiner: str = " "
) -> list[Tokens] | None:
    """Tokens of each answer behind a text and the joiner, or directly where that leaves the text's tokens alone.

    `None`: the text's own tokens change in both cases, or some token is unknown.
    """
    ids, _ = encoded(tokenizer, text)
    for between in (joiner, ""):
        found = [encoded(tokenizer, text + between + answer)[0] for answer in answers]
        rest = [tokens[len(ids) :] for tokens in found]
        known = all(rest) and not any(tokenizer.unk_token_id in tokens for tokens in rest)
        if known and all(tokens[: len(ids)] == ids for tokens in found):
            return rest
    return None


def beginnings(answers: Sequence[Tokens]) -> list[Tokens] | None:
    """Of each answer, the shortest beginning that no other one has; `None` if one answer begins another."""
    several = [[answer[:size] for size in range(1, len(answer) + 1)] for answer in answers]
    counts = Counter(each for own in several for each in own)
    alone = [[each for each in own if counts[each] == 1] for own in several]
    return [each[0] for each in alone] if all(alone) else None


@torch.no_grad()
def log_probabilities(model: Any, ids: Tokens, answers: Sequence[Tokens]) -> Float[Tensor, " answer"]:
    """Log-probability of each answer behind some tokens, which are read once for all."""
    only = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    long = any(len(answer) > 1 for answer in answers)
    out = model(torch.tensor([ids], device=model.device), use_cache=long, **only)
    if long and getattr(out, "past_key_values", None) is None:
        wanted = "a model that keeps what it has read, for answers of several tokens"
        raise UserError(f"{type(model).__name__}: expected {wanted}, found none kept; use another model")
    first, found = out.logits[0, -1:], list[Tensor]()
    for answer in answers:
        logits = first
        if len(answer) > 1:
            more, past = torch.tensor([answer[:-1]], device=model.device), copy.deepcopy(out.past_key_values)
            logits = torch.cat([first, model(more, past_key_values=past).logits[0]])
        told = logits.float().log_softmax(-1).cpu()
        found.append(told.gather(1, torch.tensor(answer)[:, None]).sum())
    return torch.stack(found)
