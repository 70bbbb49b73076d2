"""A pretrained decoder whose attention can be read and whose heads can be taken out, whatever its layout.

Nothing is known of a model but what a pass through it shows: which modules return attention weights, and which linear
map each of them calls last.  That map takes all heads' outputs side by side, so a head is a slice of its input.
Attention weights are only computed by transformers' eager implementation.  Foreign models are no modules of ours, so
hooks are the only way in; they are removed at the end of the block that set them.
"""

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from hopscope.errors import UserError

INSTALL = "pip install 'hopscope[hf]'"

FLOATS = 1 << 25
"""Attention weights, or logits, of one layer in one batch, at most; a batch has at least one prompt."""

_PROBE = 5
_LARGEST_BATCH = 32


@dataclass(frozen=True)
class Layer:
    """One layer's attention.

    Attributes:
        attention: returns its weights, [batch, head, query, key], as one of several values.
        projection: its output map; head h is the h-th slice of its input.
        head_dim: width of a slice.
    """

    attention: nn.Module
    projection: nn.Module
    head_dim: int


@dataclass(frozen=True)
class Attentive:
    """A decoder with its tokenizer.

    Attributes:
        name: as it was given.
        model: a causal language model of transformers, in evaluation mode.
        tokenizer: its tokenizer.
        layers: those with attention, first to last.
        heads: in each layer.
    """

    name: str
    model: Any
    tokenizer: Any
    layers: tuple[Layer, ...]
    heads: int

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def context(self) -> int | None:
        """Tokens that it can take in, if its configuration says so."""
        config = self.model.config
        names = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((int(n) for name in names if (n := getattr(config, name, None))), None)


def load(name: str, device: str = "cpu", precision: str = "float32") -> Attentive:
    """Load a model from a folder, or by its name from the hub (or its cache, where HF_HUB_OFFLINE is set).

    Raises:
        UserError: the extra is missing, there is no such model, it cannot be fetched, or gives no attention weights.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"transformers: expected it for models of others, found it not installed; {INSTALL}")
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    if (Path(name).exists() or name.startswith((".", "/", "~"))) and not (
        Path(name) / "config.json"
    ).is_file():
        raise UserError(
            f"{name}: expected a folder with config.json as save_pretrained writes it, found none; name a model's "
            "folder, or a model on the hub"
        )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            name, attn_implementation="eager", dtype=getattr(torch, precision), trust_remote_code=False
        )
    except (
        Exception
    ) as error:  # of the network, the hub, files and configurations: as many kinds as there are models
        raise UserError(
            f"{name}: expected a causal language model with its tokenizer, found {_first_line(error)}; name a "
            "folder that save_pretrained wrote, or check the name and the network"
        ) from None
    return attentive(name, model.to(device), tokenizer)


def attentive(name: str, model: Any, tokenizer: Any) -> Attentive:
    """Find the layers of a model that was loaded with eager attention.

    Raises:
        UserError: it gives no attention weights, sees what comes later, or its heads cannot be told apart.
    """
    model.eval()
    found = _Probe(name, model).layers()
    heads = {count for _, count in found}
    if len(heads) > 1:
        raise UserError(
            f"{name}: expected as many heads in every layer, found {sorted(heads)}; use another model"
        )
    return Attentive(name, model, tokenizer, tuple(layer for layer, _ in found), heads.pop())


class _Probe:
    """What a pass of a few tokens shows of a model."""

    def __init__(self, name: str, model: Any) -> None:
        self._name, self._model = name, model
        self._weights: dict[int, tuple[nn.Module, Tensor]] = {}
        self._widths: dict[nn.Module, int] = {}

    def layers(self) -> list[tuple[Layer, int]]:
        """Layers and how many heads they have, in the order in which they are run."""
        handles = [module.register_forward_hook(self._see) for module in self._model.modules()]
        tokens = torch.arange(_PROBE, device=next(self._model.parameters()).device)[None]
        try:
            with torch.no_grad():
                self._model(tokens % self._model.config.get_text_config().vocab_size, use_cache=False)
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            raise UserError(
                f"{self._name}: expected a decoder that takes tokens, found {_first_line(error)}; use another model"
            ) from None
        finally:
            for handle in handles:
                handle.remove()
        if not self._weights:
            raise UserError(
                f"{self._name}: expected attention weights in eager mode, found a model that gives none; use a "
                "decoder with attention (GPT-2, Llama, Qwen and alike)"
            )
        return [self._layer(module, weights) for module, weights in self._weights.values()]

    def _see(self, module: nn.Module, given: Any, output: Any) -> None:
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and given and given[0].is_floating_point():
            self._widths.pop(module, None)  # so that the order is that of the last call
            self._widths[module] = given[0].shape[-1]
        weights = _weights_of(output)
        if weights is not None and tuple(weights.shape[2:]) == (_PROBE, _PROBE):
            # Inner modules end first: what an outer one hands on is already known.
            self._weights.setdefault(weights.data_ptr(), (module, weights))

    def _layer(self, module: nn.Module, weights: Tensor) -> tuple[Layer, int]:
        if weights[0].triu(diagonal=1).any():
            raise UserError(
                f"{self._name}: expected causal attention, found one that sees later tokens; use a decoder"
            )
        inside = set(module.modules())
        maps = [linear for linear in self._widths if linear in inside]
        heads = weights.shape[1]
        if not maps:
            raise UserError(
                f"{self._name}: expected a linear output map in {type(module).__name__}, found none; use another model"
            )
        width = self._widths[maps[-1]]
        named = [getattr(module, name, None) for name in ("v_head_dim", "head_dim")]
        head_dim = next((int(n) for n in named if n), width // heads)
        if heads * head_dim != width:
            raise UserError(
                f"{self._name}: expected an output map that takes heads × head_dim = {heads} × {head_dim} numbers, "
                f"found {width} in {type(module).__name__}; use another model"
            )
        return Layer(module, maps[-1], head_dim), heads


def _weights_of(output: Any) -> Tensor | None:
    if not isinstance(output, tuple):
        return None
    return next((each for each in output if isinstance(each, Tensor) and each.ndim == 4), None)


Watch = Callable[[int, Float[Tensor, "batch head query key"]], None]
Change = Callable[[int, Float[Tensor, "batch position width"]], Tensor | None]


@contextmanager
def watched(model: Attentive, watch: Watch) -> Iterator[None]:
    """Within the block, `watch(layer, weights)` is called with the attention weights of every layer at once."""

    def hook(layer: int) -> Callable[..., None]:
        def see(module: nn.Module, given: Any, output: Any) -> None:
            weights = _weights_of(output)
            assert weights is not None, "attention weights were there when the model was probed"
            watch(layer, weights)

        return see

    handles = [one.attention.register_forward_hook(hook(n)) for n, one in enumerate(model.layers)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def changed(model: Attentive, change: Change) -> Iterator[None]:
    """Within the block, `change(layer, outputs)` sees the heads' outputs side by side, and may return others."""

    def hook(layer: int) -> Callable[..., Any]:
        def replace(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            other = change(layer, given[0])
            return None if other is None else (other, *given[1:])

        return replace

    handles = [one.projection.register_forward_pre_hook(hook(n)) for n, one in enumerate(model.layers)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Padded:
    """Rows of tokens, filled up at the end: with causal attention no token sees what was filled in.

    Attributes:
        rows: which of the sequences these are.
        ids: their tokens.
        mask: which tokens are theirs.
    """

    rows: tuple[int, ...]
    ids: Int64[Tensor, "batch position"]
    mask: Bool[Tensor, "batch position"]


def batches(
    model: Attentive, sequences: Sequence[Sequence[int]], largest: int | None = None
) -> Iterator[Padded]:
    """Sequences of about equal length together, as many as `FLOATS` allows (or `largest`).

    Raises:
        UserError: a sequence is longer than the model's context.
    """
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    longest = len(sequences[order[-1]]) if order else 0
    if model.context is not None and longest > model.context:
        raise UserError(
            f"{model.name}: expected at most {model.context} tokens, found a prompt of {longest}; ask shorter "
            "questions (--depth, --chains)"
        )
    while order:
        most = largest or _LARGEST_BATCH
        # The last of the first `count` is the longest of them.
        fits = (
            count
            for count in range(min(most, len(order)), 1, -1)
            if count * model.heads * len(sequences[order[count - 1]]) ** 2 <= FLOATS
        )
        count = next(fits, 1)
        yield _padded(sequences, order[:count], model.device)
        del order[:count]


def _padded(sequences: Sequence[Sequence[int]], rows: Sequence[int], device: torch.device) -> Padded:
    length = max(len(sequences[row]) for row in rows)
    ids = torch.tensor([[*sequences[row], *([0] * (length - len(sequences[row])))] for row in rows])
    lengths = torch.tensor([len(sequences[row]) for row in rows])
    mask = torch.arange(length)[None] < lengths[:, None]
    return Padded(tuple(rows), ids.to(device), mask.to(device))


def hidden_pass(model: Attentive, batch: Padded) -> None:
    """Run the layers, for those who watch; logits are not computed."""
    with torch.no_grad():
        model.model.base_model(input_ids=batch.ids, attention_mask=batch.mask.long(), use_cache=False)


def last_logits(model: Attentive, batch: Padded) -> Float[Tensor, "batch vocabulary"]:
    """Logits after the last token of each row, in float32."""
    last = batch.mask.sum(dim=1) - 1
    kept = batch.ids.shape[1] - int(last.min())
    rows = torch.arange(len(last), device=last.device)
    # A layout without the option gives the logits of all positions.
    option = "logits_to_keep" in inspect.signature(model.model.forward).parameters
    only: dict[str, int] = {"logits_to_keep": kept} if option else {}
    with torch.no_grad():
        logits = model.model(
            input_ids=batch.ids, attention_mask=batch.mask.long(), use_cache=False, **only
        ).logits
    return logits[rows, last - (batch.ids.shape[1] - logits.shape[1])].float()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".;")
