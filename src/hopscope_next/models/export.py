"""A single model for other tools: in TransformerLens, and as a Hugging Face folder in GPT-2's layout.

Any PyTorch tool takes it as it is, and its `state_dict` is its weights by name.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope_next.errors import UserError
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer


def to_transformer_lens(model: Transformer) -> Any:
    """The model as a `transformer_lens.HookedTransformer` with the same logits at every position, on the CPU.

    Raises:
        UserError: TransformerLens is not installed, or has no such model.
    """
    config = model.config
    if config.input_kind != "tokens" or config.norm == "post" or model.members is not None:
        raise UserError(
            "model: expected a single one on tokens without post-norm, which TransformerLens has, found "
            f"{'an ensemble' if model.members else config.input_kind} with norm {config.norm!r}; "
            "model.cache and model.intervene look into any model"
        )
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        raise UserError(
            "transformer_lens: expected it to be installed, found none; pip install 'hopscope[transformer-lens]'"
        ) from None
    theirs = HookedTransformerConfig(
        n_layers=config.layers, d_model=config.width, n_heads=config.heads, d_head=config.head_size,
        n_ctx=config.length, d_mlp=config.mlp_size or None, attn_only=not config.mlp_size, act_fn=config.activation,
        normalization_type="LN" if config.norm == "pre" else None, d_vocab=config.input_size,
        d_vocab_out=config.output_size, attention_dir="causal" if config.causal else "bidirectional", eps=1e-5,
        init_weights=False, device="cpu", default_prepend_bos=False,
    )  # fmt: skip
    hooked = HookedTransformer(theirs)
    # What is not a weight (masks) stays as it is.
    hooked.load_state_dict(hooked.state_dict() | dict(_lens_weights(config, model.weights())))
    return hooked.eval()


_TOLERANCE = 1e-5
"""How far the bias of a readout may be off in GPT-2's layout; where it exceeds 1, this share of it."""

_LENS = {"attention_norm": ("ln1.w", "ln1.b"), "mlp_norm": ("ln2.w", "ln2.b")} | {
    "mlp.inner": ("mlp.W_in", "mlp.b_in"),
    "mlp.outer": ("mlp.W_out", "mlp.b_out"),
}


def _lens_weights(config: TransformerConfig, weights: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    heads = (config.heads, config.head_size)
    codes = torch.zeros(config.length, config.width)
    if config.position_count:
        codes = weights["embed.position.weight"][list(config.position_codes)]
    yield "embed.W_E", weights["embed.token.weight"]
    yield "pos_embed.W_pos", codes
    yield "unembed.W_U", weights["readout.weight"]
    yield "unembed.b_U", weights["readout.bias"]
    if config.norm == "pre":
        yield "ln_final.w", weights["final_norm.weight"]
        yield "ln_final.b", weights["final_norm.bias"]
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}.", f"blocks.{layer}."
        for part, letter in (("query", "Q"), ("key", "K"), ("value", "V")):
            weight, bias = (weights[f"{ours}attention.{part}.{kind}"] for kind in ("weight", "bias"))
            yield f"{theirs}attn.W_{letter}", weight.unflatten(1, heads).transpose(0, 1)
            yield f"{theirs}attn.b_{letter}", bias.unflatten(0, heads)
        yield f"{theirs}attn.W_O", weights[f"{ours}attention.output.weight"].unflatten(0, heads)
        yield f"{theirs}attn.b_O", weights[f"{ours}attention.output.bias"]
        for part, names in _LENS.items():
            if f"{ours}{part}.weight" in weights:
                yield f"{theirs}{names[0]}", weights[f"{ours}{part}.weight"]
                yield f"{theirs}{names[1]}", weights[f"{ours}{part}.bias"]


def to_gpt2(model: Transformer, folder: Path | str) -> None:
    """Write the model as a Hugging Face folder in GPT-2's layout, which `transformers` opens.

    What GPT-2 lacks it is given by other means that leave the logits as they are: the bias of the readout is moved into
    the last norm, and a model without MLPs gets MLPs that add zero.

    Raises:
        UserError: transformers is not installed, or GPT-2's layout has no such model.
    """
    config = model.config
    wanted = (config.input_kind, config.norm, config.causal, config.positions) == (
        "tokens",
        "pre",
        True,
        "learned",
    )
    fits = wanted and config.heads * config.head_size == config.width and model.members is None
    if not fits or config.input_size != config.output_size or config.output_size > config.width:
        raise UserError(
            "model: expected a single causal pre-norm model on tokens with learned positions, whose heads fill its "
            "width and which answers with the tokens that it reads, at most as many as its width; found another; "
            "only such a model can be told in GPT-2's layout"
        )
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        raise UserError(
            "transformers: expected it to be installed, found none; pip install 'hopscope[hf]'"
        ) from None
    theirs = GPT2Config(
        vocab_size=config.input_size, n_positions=config.length, n_embd=config.width, n_layer=config.layers,
        n_head=config.heads, n_inner=max(1, config.mlp_size), activation_function=config.activation,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    gpt2 = GPT2LMHeadModel(theirs)
    gpt2.load_state_dict(
        {name: weight.contiguous() for name, weight in _gpt2_weights(config, model.weights())}
    )
    gpt2.save_pretrained(folder)


_GPT2 = {
    "attention_norm": "ln_1",
    "attention.output": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.inner": "mlp.c_fc",
} | {"mlp.outer": "mlp.c_proj"}


def _gpt2_weights(config: TransformerConfig, weights: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield "transformer.wte.weight", weights["embed.token.weight"]
    yield "transformer.wpe.weight", weights["embed.position.weight"]
    yield "lm_head.weight", weights["readout.weight"].T
    yield "transformer.ln_f.weight", weights["final_norm.weight"]
    yield "transformer.ln_f.bias", _final_bias(weights)
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            parts = [weights[f"{ours}attention.{part}.{kind}"] for part in ("query", "key", "value")]
            yield f"{theirs}attn.c_attn.{kind}", torch.cat(parts, -1)
            for part, name in _GPT2.items():
                if f"{ours}{part}.{kind}" in weights:
                    yield f"{theirs}{name}.{kind}", weights[f"{ours}{part}.{kind}"]
        if not config.mlp_size:
            shapes = {"ln_2": (config.width,), "mlp.c_fc": (config.width, 1), "mlp.c_proj": (1, config.width)}
            for name, shape in shapes.items():
                yield f"{theirs}{name}.weight", torch.zeros(shape)
                yield f"{theirs}{name}.bias", torch.zeros(shape[-1])


def _final_bias(weights: dict[str, Tensor]) -> Float[Tensor, " model"]:
    """The last norm's bias, so changed that the readout needs none: the least change that gives the same logits."""
    readout, bias = weights["readout.weight"].double(), weights["readout.bias"].double()
    moved = torch.linalg.pinv(readout.T) @ bias
    off = float((readout.T @ moved - bias).abs().max())
    if not off <= _TOLERANCE * max(1.0, float(bias.abs().max())):
        raise UserError(
            f"model: expected a readout whose bias the last norm can carry, found one that is off by {off:.1e}; "
            "train a wider model"
        )
    return weights["final_norm.bias"] + moved.float()
