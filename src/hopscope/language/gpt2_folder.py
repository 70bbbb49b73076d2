"""A small language model of ours as a Hugging Face folder in GPT-2's layout, and back.

What GPT-2 lacks, it is given by other means that leave the logits as they are: a readout with a bias becomes one
without, its bias moved into the last norm; a model without MLPs gets MLPs that add zero.  Written as plain JSON and
safetensors: nothing but `hopscope` is needed for it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from jaxtyping import Float
from pydantic import TypeAdapter
from safetensors.torch import load_file, save
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.export import UNFINISHED, check_finished
from hopscope.models.member import MemberTransformer
from hopscope.runs import read_json, write_atomic, write_json
from hopscope.runs.files import remove
from hopscope.tasks.text.tokens import END, PADDING, TOKEN_PATTERN, numbered

ORIGIN: Final = "hopscope.json"
"""Says that a folder is ours, and where its model comes from."""

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TOLERANCE = 1e-4
"""How far a logit may move; where the bias of the readout exceeds 1, this share of it."""

_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_folder(
    module: MemberTransformer,
    vocabulary: Sequence[str],
    to: Path,
    origin: dict[str, Any],
    *,
    exact: bool = False,
) -> None:
    """Write a model, its word-level tokenizer, and how it is asked.

    Args:
        module: a causal pre-norm model on tokens.
        vocabulary: tokens by number; empty for a model whose tokens are numbers, which gets no tokenizer.
        to: folder; made if absent, an earlier one of ours is replaced.
        origin: where the member comes from, for the record.
        exact: keep beside the weights what GPT-2's layout must move, so that `read_folder` gives the model back to
            the last bit.

    Raises:
        UserError: the model cannot be told in GPT-2's layout, or the folder holds something else.
    """
    _check(module.config)
    tensors = _tensors(module)
    if to.exists() and (not to.is_dir() or (any(to.iterdir()) and not (to / ORIGIN).is_file())):
        raise UserError(
            f"{to}: expected an empty folder or an earlier export, found other files; choose another"
        )
    write_json(to / ORIGIN, {"schema_version": 1, **UNFINISHED})
    remove(to / CONFIG)  # without which no other tool opens the folder
    write_atomic(to / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    if vocabulary:
        _write_tokenizer(module.config, vocabulary, to)
    write_json(to / CONFIG, _config(module.config) | (_ENDS if vocabulary else _NO_ENDS))
    model, state = module.config.model_dump(mode="json"), module.state_dict()
    record = {"schema_version": 1, "model": model, "vocabulary": list(vocabulary), "origin": origin}
    moved = {name: [float(value) for value in state[name]] for name in _MOVED}
    # Last: until then the folder is not whole.
    write_json(to / ORIGIN, record | ({"moved": moved} if exact else {}))


def _write_tokenizer(config: TransformerConfig, vocabulary: Sequence[str], to: Path) -> None:
    write_json(to / "generation_config.json", {**_ENDS, "max_new_tokens": 4, "do_sample": False})
    write_json(to / "tokenizer.json", _tokenizer(vocabulary))
    write_json(
        to / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.length,
            "pad_token": PADDING,
            "unk_token": PADDING,
            "eos_token": END,
            "bos_token": END,
            "chat_template": _TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
    )


def why_not(module: MemberTransformer) -> str:
    """Why a model cannot be told in GPT-2's layout, in words; empty where it can."""
    try:
        _check(module.config)
        _tensors(module)
    except UserError as error:
        return str(error).removeprefix("model: ").partition(";")[0]
    return ""


def _check(config: TransformerConfig) -> None:
    fits = (
        config.input_kind == "tokens"
        and config.norm == "pre"
        and config.causal
        and config.positions == "learned"
        and config.heads * config.head_size == config.width
    )
    if not fits:
        raise UserError(
            "model: expected a causal pre-norm model on tokens with learned positions whose heads fill its width, "
            "found another; only such a model can be told in GPT-2's layout"
        )
    if config.input_size != config.output_size:
        raise UserError(
            f"model: expected a model that answers with the tokens that it reads, found {config.input_size} tokens and "
            f"{config.output_size} answers; GPT-2's layout has one vocabulary"
        )
    if config.output_size > config.width:
        raise UserError(
            f"width: expected at least the {config.output_size} tokens of the vocabulary, found {config.width}; "
            "train a wider model"
        )


def _config(config: TransformerConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.input_size,
        "n_positions": config.length,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": max(1, config.mlp_size),
        "activation_function": config.activation,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }


_ENDS: Final = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
_NO_ENDS: Final = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_MOVED: Final = ("readout.bias", "final_norm.bias")
"""GPT-2 has no place for the first; the second carries it."""


def _tokenizer(vocabulary: Sequence[str]) -> dict[str, Any]:
    """What the tokenizers library calls a word-level model; an unknown word is read as padding."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": vocabulary[number], **special} for number in (0, 1)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": TOKEN_PATTERN},
            "behavior": "Removed",
            "invert": True,
        },
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": numbered(vocabulary), "unk_token": PADDING},
    }


# Weights.

_SAME: Final = {
    "embed.token.weight": "transformer.wte.weight",
    "embed.position.weight": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
    "readout.weight": "lm_head.weight",
}
"""Our name → GPT-2's, of what is outside of layers; a layer's follow."""
_NORMS: Final = {"attention_norm": "ln_1", "mlp_norm": "ln_2"}
_MAPS: Final = {"attention.output": "attn.c_proj", "mlp.inner": "mlp.c_fc", "mlp.outer": "mlp.c_proj"}
"""GPT-2's Conv1D keeps maps as [in, out]."""


def _names(config: TransformerConfig) -> Iterator[tuple[str, str, bool]]:
    """Our name and GPT-2's of every tensor that both have, and whether it is a map."""
    for ours, theirs in _SAME.items():
        yield ours, theirs, False
    for layer in range(config.layers):
        for names in (_NORMS, _MAPS):
            for ours, theirs in names.items():
                if config.mlp_size or not ours.startswith("mlp"):
                    for kind in ("weight", "bias"):
                        yield (
                            f"layers.{layer}.{ours}.{kind}",
                            f"transformer.h.{layer}.{theirs}.{kind}",
                            names is _MAPS,
                        )


def _tensors(module: MemberTransformer) -> dict[str, Tensor]:
    """The weights by GPT-2's names."""
    state, config = module.state_dict(), module.config
    found = {theirs: state[ours].t() if turned else state[ours] for ours, theirs, turned in _names(config)}
    found["transformer.ln_f.bias"] = found["transformer.ln_f.bias"] + _moved(
        state["readout.weight"], state["readout.bias"]
    )
    for layer in range(config.layers):
        for kind in ("weight", "bias"):
            parts = [state[f"layers.{layer}.attention.{part}.{kind}"].t() for part in _TOGETHER]
            found[f"transformer.h.{layer}.attn.c_attn.{kind}"] = torch.cat(parts, -1)
        if not config.mlp_size:
            found |= _nothing(f"transformer.h.{layer}.", config.width)
    return {name: tensor.float().contiguous().clone() for name, tensor in found.items()}


_TOGETHER: Final = ("query", "key", "value")
"""Maps that GPT-2 keeps in one."""


def _nothing(prefix: str, width: int) -> dict[str, Tensor]:
    """An MLP that adds zero."""
    return {
        f"{prefix}ln_2.weight": torch.ones(width),
        f"{prefix}ln_2.bias": torch.zeros(width),
        f"{prefix}mlp.c_fc.weight": torch.zeros(width, 1),
        f"{prefix}mlp.c_fc.bias": torch.zeros(1),
        f"{prefix}mlp.c_proj.weight": torch.zeros(1, width),
        f"{prefix}mlp.c_proj.bias": torch.zeros(width),
    }


def _moved(weight: Float[Tensor, "output model"], bias: Float[Tensor, " output"]) -> Float[Tensor, " model"]:
    """What the last norm must add for the readout to give its own bias.

    Raises:
        UserError: the readout's rows depend on each other.
    """
    # The default driver of PyTorch 2.13 starts from whatever stood in its memory, and at times solves nothing.
    found: Tensor = torch.linalg.lstsq(weight.double(), bias.double()[:, None], driver="gelsd").solution[:, 0]
    off = float((weight.double() @ found - bias.double()).abs().max())
    # Of a member that diverged, logits and their rounding may be of any size.
    if not off <= TOLERANCE / 10 * max(1.0, float(bias.abs().max())):
        raise UserError(
            f"model: expected a readout whose bias the last norm can carry, found one that is off by {off:.1e}; "
            "train a wider model"
        )
    return found.float()


def read_folder(path: Path) -> tuple[MemberTransformer, tuple[str, ...]]:
    """The model of a folder, and its vocabulary.

    Raises:
        UserError: there is no such folder, it is not one of ours, or a file is damaged or does not fit the others.
    """
    if not path.is_dir():
        raise UserError(f"{path}: expected the folder of a language model, found none; check the path")
    if not (path / ORIGIN).is_file():
        raise UserError(
            f"{path}: expected a folder that the study tiny-lm wrote, with {ORIGIN} in it, found another's; ask a "
            f"Hugging Face model as hf/{path}"
        )
    record = read_json(path / ORIGIN, "export the member again")
    check_finished(record, path)
    try:
        config = TransformerConfig.model_validate(record["model"])
        tensors = load_file(path / WEIGHTS)
        state = _state(config, tensors)
        module = MemberTransformer.with_state(config, state | _kept(state, record.get("moved")))
        return module.eval(), _VOCABULARY.validate_python(record["vocabulary"])
    except Exception as error:  # damaged files end in errors of several libraries
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path}: expected an exported language model, found: {first}; export the member again"
        ) from None


_VOCABULARY = TypeAdapter(tuple[str, ...])


def _kept(state: dict[str, Tensor], moved: Any) -> dict[str, Tensor]:
    """The two biases as they were before they were moved, if the weights are still those that they were moved in.

    Whoever trained the folder further in another tool changed the weights, and means those.
    """
    if moved is None:
        return {}
    kept = {name: torch.tensor(moved[name], dtype=torch.float32) for name in _MOVED}
    carried = kept["final_norm.bias"] + _moved(state["readout.weight"], kept["readout.bias"])
    return kept if torch.allclose(carried, state["final_norm.bias"], rtol=1e-4, atol=1e-5) else {}


def _state(config: TransformerConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {
        ours: tensors[theirs].t() if turned else tensors[theirs] for ours, theirs, turned in _names(config)
    }
    state["readout.bias"] = torch.zeros(len(state["readout.weight"]))
    for layer in range(config.layers):
        for kind in ("weight", "bias"):
            together = tensors[f"transformer.h.{layer}.attn.c_attn.{kind}"]
            for part, tensor in zip(_TOGETHER, together.chunk(3, -1), strict=True):
                state[f"layers.{layer}.attention.{part}.{kind}"] = tensor.t()
    return state
