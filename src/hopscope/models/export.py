"""A single model for other tools: in TransformerLens, and as a Hugging Face folder in GPT-2's layout.

Any PyTorch tool takes it as it is, and its `state_dict` is its weights by name.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.config import in_words
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import write_atomic

_LENS = {
    "embed.token": ("embed.W_E", ""), "final_norm": ("ln_final.w", "ln_final.b"),
    "readout": ("unembed.W_U", "unembed.b_U"), "attention_norm": ("ln1.w", "ln1.b"),
    "mlp_norm": ("ln2.w", "ln2.b"),
    "attention.query": ("attn.W_Q", "attn.b_Q"), "attention.key": ("attn.W_K", "attn.b_K"),
    "attention.value": ("attn.W_V", "attn.b_V"), "attention.output": ("attn.W_O", "attn.b_O"),
    "mlp.inner": ("mlp.W_in", "mlp.b_in"), "mlp.outer": ("mlp.W_out", "mlp.b_out"),
}  # fmt: skip
"""Part of a model → what TransformerLens calls its weight and its bias."""

_GPT2 = {
    "embed.token": "wte", "embed.position": "wpe", "final_norm": "ln_f", "attention_norm": "ln_1",
    "attention.query": "attn.c_attn", "attention.output": "attn.c_proj", "mlp_norm": "ln_2",
    "mlp.inner": "mlp.c_fc", "mlp.outer": "mlp.c_proj",
}  # fmt: skip
"""Part of a model → what GPT-2's layout calls it; queries, keys and values are one matrix there."""

_TITLE = "# A transformer trained by Hopscope"
_TOLERANCE = 1e-5
"""How far the bias of a readout may be off in GPT-2's layout; where it exceeds 1, this share of it."""


def to_transformer_lens(model: Transformer) -> Any:
    """The model as a `transformer_lens.HookedTransformer` with the same logits at every position, on the CPU.

    `UserError`: TransformerLens is not installed, or has no such model.
    """
    config = model.config
    if config.input_kind != "tokens" or config.norm == "post" or model.members is not None:
        wanted = "a single one on tokens without post-norm, which TransformerLens has"
        found = f"{'an ensemble' if model.members else config.input_kind} with norm {config.norm!r}"
        hint = "model.cache and model.intervene look into any model"
        raise UserError(f"model: expected {wanted}, found {found}; {hint}")
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        raise _missing("transformer_lens", "transformer-lens") from None
    theirs = HookedTransformerConfig(
        n_layers=config.layers, d_model=config.width, n_heads=config.heads, d_head=config.head_size,
        n_ctx=config.length, d_mlp=config.mlp_size or None, attn_only=not config.mlp_size, eps=1e-5,
        act_fn=config.activation, normalization_type="LN" if config.norm == "pre" else None,
        attention_dir="causal" if config.causal else "bidirectional", d_vocab=config.input_size,
        d_vocab_out=config.output_size, init_weights=False, device="cpu", default_prepend_bos=False,
    )  # fmt: skip
    hooked, heads = HookedTransformer(theirs), (config.heads, config.head_size)
    found = hooked.state_dict()  # with what is not a weight (masks), which stays as it is
    found["pos_embed.W_pos"] = torch.zeros(config.length, config.width)
    for layer, part, kind, weight in _parts(model):
        if part == "embed.position":
            found["pos_embed.W_pos"] = weight[[*config.position_codes]]
            continue
        if part in ("attention.query", "attention.key", "attention.value"):
            weight = weight.unflatten(-1, heads).movedim(-2, 0)
        elif part == "attention.output" and kind == "weight":
            weight = weight.unflatten(0, heads)
        found[(f"blocks.{layer}." if layer else "") + _LENS[part][kind == "bias"]] = weight
    hooked.load_state_dict(found)
    return hooked.eval()


def to_gpt2(model: Transformer, folder: Path | str) -> None:
    """Write the model as a Hugging Face folder in GPT-2's layout, which `transformers` opens.

    What GPT-2 lacks it is given by other means that leave the logits as they are: the bias of the readout is moved into
    the last norm, and a model without MLPs gets MLPs that add zero.  `UserError`: transformers is not installed, or
    GPT-2's layout has no such model.
    """
    config = model.config
    config.check_gpt2(model.members)
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
        from transformers.utils import logging
    except ImportError:
        raise _missing("transformers", "hf") from None
    theirs = GPT2Config(
        vocab_size=config.input_size, n_positions=config.length, n_embd=config.width, n_layer=config.layers,
        n_head=config.heads, n_inner=max(1, config.mlp_size), activation_function=config.activation,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    gpt2, weights = GPT2LMHeadModel(theirs), model.weights()
    every = {name: torch.zeros_like(weight) for name, weight in gpt2.state_dict().items()}
    for layer, part, kind, weight in _parts(model):
        if part == "attention.query":
            own = (f"layers.{layer}.attention.{each}.{kind}" for each in ("query", "key", "value"))
            weight = torch.cat([weights[name] for name in own], -1)
        if part in _GPT2:
            every[f"transformer.{f'h.{layer}.' if layer else ''}{_GPT2[part]}.{kind}"] = weight.contiguous()
    every["lm_head.weight"] = weights["readout.weight"].T.contiguous()
    every["transformer.ln_f.bias"] = _final_bias(weights)
    gpt2.load_state_dict(every)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # of one file, also where nobody looks
    gpt2.save_pretrained(folder)
    if shown:
        logging.enable_progress_bar()


def save(model: Transformer, folder: Path | str, about: Mapping[str, object]) -> None:
    """Write a single model as a folder: in GPT-2's layout where that has it, else its state dict and `config.json`.

    An earlier export in the folder is replaced; anything else there, or an ensemble, is a `UserError`.  README.md tells
    what is known `about` the model.
    """
    from safetensors.torch import save as packed

    if model.members is not None:
        raise UserError(f"model: expected a single one, found {len(model)} members; take .member(0)")
    to, files = Path(folder), ("README.md", "config.json", "generation_config.json", "model.safetensors")
    readme = to / "README.md"  # by which an export is known
    own = readme.is_file() and readme.read_bytes().startswith(_TITLE.encode())
    strange = [path.name for path in to.iterdir() if not own or path.name not in files] if to.is_dir() else []
    if strange or to.is_file():
        found = f"found {strange[0] if strange else 'a file'}; choose another folder"
        raise UserError(f"{to}: expected a new folder, or an earlier export, {found}")
    write_atomic(readme, _TITLE.encode())  # first: so an export that was killed is known as one
    try:
        to_gpt2(model, to)
        how = f"transformers.GPT2LMHeadModel.from_pretrained({str(to)!r})"
    except UserError:  # that layout has no such model, or transformers is not here
        weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
        write_atomic(to / "model.safetensors", packed(weights))
        write_atomic(to / "config.json", model.config.model_dump_json(indent=1).encode())
        how = f"hopscope.models.export.load({str(to)!r})"
    facts = "\n".join(f"* {name}: {value}" for name, value in {**about, "model": model}.items())
    text = f"{_TITLE}\n\n{facts}\n\nOpen it: `{how}`\n"
    write_atomic(readme, text.encode())


def load(folder: Path | str) -> Transformer:
    """The model of a folder that `save` wrote as a state dict; a `UserError` if it holds none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    at = Path(folder)
    try:
        config = TransformerConfig.model_validate_json((at / "config.json").read_bytes())
        return Transformer(config).load(load_file(at / "model.safetensors"))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        words = f"expected a model that Hopscope wrote, found {in_words(error)}; check the folder"
        raise UserError(f"{at}: {words}") from error


def _parts(model: Transformer) -> Iterator[tuple[str, str, str, Tensor]]:
    # Every weight: its layer (or nothing), the part that it is of, `weight` or `bias`, and itself.
    for name, weight in model.weights().items():
        part, _, kind = name.rpartition(".")
        layer = part.split(".")[1] if part.startswith("layers.") else ""
        yield layer, part.removeprefix(f"layers.{layer}."), kind, weight


def _missing(package: str, extra: str) -> UserError:
    return UserError(f"{package}: expected it to be installed, found none; pip install 'hopscope[{extra}]'")


def _final_bias(weights: dict[str, Tensor]) -> Float[Tensor, " model"]:
    # The last norm's bias, so changed that the readout needs none: the least change that gives the same logits.
    readout, bias = weights["readout.weight"].double(), weights["readout.bias"].double()
    moved = (torch.linalg.pinv(readout.T) @ bias).float().double()  # as it is written
    off = float((readout.T @ moved - bias).abs().max())
    if not off <= _TOLERANCE * max(1.0, float(bias.abs().max())):
        wanted, found = "a readout whose bias the last norm can carry", f"one that is off by {off:.1e}"
        raise UserError(f"model: expected {wanted}, found {found}; train a wider model")
    return weights["final_norm.bias"] + moved.float()
