"""A pretrained decoder whose attention can be read and whose heads can be taken out, whatever its layout.

Nothing is known of a model but what a pass through it shows: which modules return attention weights, and which linear
map each of them calls last.  That map takes all heads' outputs side by side, so a head is a slice of its input.
Attention weights are only computed by transformers' eager implementation.  Foreign models are no modules of ours, so
hooks are the only way in; they are removed at the end of the block that set them.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from hopscope.errors import UserError
from hopscope.language.pretrained import first_line, load_pretrained

_PROBE = 5
_LARGEST_BATCH = 32


class Layer(NamedTuple):
    """The attention of one layer of a model.

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
        layers: those with attention, first to last.
        heads: in each layer.
        blocks: the modules whose outputs are the stream after each layer; empty if they cannot be told.
        floats: attention weights, or logits, of one layer in one batch, at most; a batch has at least one prompt.
    """

    name: str
    model: Any
    tokenizer: Any
    layers: tuple[Layer, ...]
    heads: int
    blocks: tuple[nn.Module, ...] = ()
    floats: int = 1 << 25

    @property
    def device(self) -> torch.device:
        """The device that holds the model."""
        return next(self.model.parameters()).device

    @property
    def context(self) -> int | None:
        """Tokens that it can take in, if its configuration says so."""
        config = self.model.config
        names = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((int(n) for name in names if (n := getattr(config, name, None))), None)


def load(name: str, device: str = "cpu", precision: str = "float32") -> Attentive:
    """Load a model by any name that `hopscope.language.pretrained.load_pretrained` takes.

    Raises:
        UserError: as there, or the model gives no attention weights.
    """
    loading = {"attn_implementation": "eager", "dtype": getattr(torch, precision)}
    model, tokenizer = load_pretrained(name, device, **loading)
    return attentive(name, model, tokenizer)


def attentive(name: str, model: Any, tokenizer: Any) -> Attentive:
    """Find the layers of a model that was loaded with eager attention.

    Raises:
        UserError: it gives no attention weights, sees what comes later, or its heads cannot be told apart.
    """
    model.eval()
    found = _probed(name, model)
    heads = {count for _, count in found}
    if len(heads) > 1:
        raise UserError(
            f"{name}: expected as many heads in every layer, found {sorted(heads)}; use another model"
        )
    layers = tuple(layer for layer, _ in found)
    return Attentive(name, model, tokenizer, layers, heads.pop(), _blocks(model, layers))


def _blocks(model: Any, layers: Sequence[Layer]) -> tuple[nn.Module, ...]:
    """The members of the list of modules that holds one attention each, in the order of the layers."""
    for several in model.modules():
        blocks = tuple(several) if isinstance(several, nn.ModuleList) else ()
        inside = [set(block.modules()) for block in blocks]
        if len(blocks) == len(layers) and all(
            layer.attention in of for layer, of in zip(layers, inside, strict=True)
        ):
            return blocks
    return ()


def _probed(name: str, model: Any) -> list[tuple[Layer, int]]:
    """Layers and how many heads they have, in the order in which a pass of a few tokens runs them."""
    attentions: dict[int, tuple[nn.Module, Tensor]] = {}
    widths: dict[nn.Module, int] = {}

    def see(module: nn.Module, given: Any, output: Any) -> None:
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and given and given[0].is_floating_point():
            widths.pop(module, None)  # so that the order is that of the last call
            widths[module] = given[0].shape[-1]
        weights = _weights_of(output)
        if weights is not None and tuple(weights.shape[2:]) == (_PROBE, _PROBE):
            # Inner modules end first: what an outer one hands on is already known.
            attentions.setdefault(weights.data_ptr(), (module, weights))

    tokens = torch.arange(_PROBE, device=next(model.parameters()).device)[None]
    try:
        with _hooked([module.register_forward_hook(see) for module in model.modules()]), torch.no_grad():
            model(tokens % model.config.get_text_config().vocab_size, use_cache=False)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise UserError(
            f"{name}: expected a decoder that takes tokens, found {first_line(error)}; use another model"
        ) from None
    if not attentions:
        raise UserError(
            f"{name}: expected attention weights in eager mode, found a model that gives none; use a "
            "decoder with attention (GPT-2, Llama, Qwen and alike)"
        )
    return [_layer(name, module, weights, widths) for module, weights in attentions.values()]


def _layer(name: str, module: nn.Module, weights: Tensor, widths: dict[nn.Module, int]) -> tuple[Layer, int]:
    """The layer whose attention is a module, and its number of heads; `widths` are those of maps, as they were run."""
    if weights[0].triu(diagonal=1).any():
        raise UserError(f"{name}: expected causal attention, found one that sees later tokens; use a decoder")
    inside = set(module.modules())
    maps = [linear for linear in widths if linear in inside]
    heads = weights.shape[1]
    if not maps:
        raise UserError(
            f"{name}: expected a linear output map in {type(module).__name__}, found none; use another model"
        )
    width = widths[maps[-1]]
    named = [getattr(module, attribute, None) for attribute in ("v_head_dim", "head_dim")]
    head_dim = next((int(n) for n in named if n), width // heads)
    if heads * head_dim != width:
        raise UserError(
            f"{name}: expected an output map that takes heads × head_dim = {heads} × {head_dim} numbers, "
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
def _hooked(handles: Sequence[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def watched(model: Attentive, watch: Watch) -> AbstractContextManager[None]:
    """Within the block, `watch(layer, weights)` is called with the attention weights of every layer at once."""

    def see(layer: int, module: nn.Module, given: Any, output: Any) -> None:
        weights = _weights_of(output)
        assert weights is not None, "attention weights were there when the model was probed"
        watch(layer, weights)

    return _hooked(
        [one.attention.register_forward_hook(partial(see, n)) for n, one in enumerate(model.layers)]
    )


def changed(model: Attentive, change: Change) -> AbstractContextManager[None]:
    """Within the block, `change(layer, outputs)` sees the heads' outputs side by side, and may return others."""

    def replace(layer: int, module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        other = change(layer, given[0])
        return None if other is None else (other, *given[1:])

    return _hooked(
        [one.projection.register_forward_pre_hook(partial(replace, n)) for n, one in enumerate(model.layers)]
    )


def remembered(model: Attentive, outputs: dict[int, Any]) -> AbstractContextManager[None]:
    """Within the block, the output of every layer is kept in `outputs`."""

    def keep(layer: int, module: nn.Module, given: Any, output: Any) -> None:
        outputs[layer] = output

    return _hooked([one.register_forward_hook(partial(keep, n)) for n, one in enumerate(model.blocks)])


@contextmanager
def resumed(model: Attentive, outputs: Mapping[int, Any], first: int) -> Iterator[None]:
    """Within the block, layers below `first` give the outputs that `remembered` has kept, and are not run.

    Only right for the batch whose outputs these are, and only where nothing below `first` is changed.
    """
    skipped = model.blocks[:first]
    try:
        for layer, block in enumerate(skipped):
            block.forward = partial(_given, outputs[layer])
        yield
    finally:
        for block in skipped:
            del block.forward  # the method of its class again


def _given(output: Any, *given: Any, **named: Any) -> Any:
    return output


class Padded(NamedTuple):
    """Rows of tokens, filled up at the end: with causal attention no token sees what was filled in.

    Attributes:
        rows: which of the sequences these are.
        ids: their tokens.
        mask: which tokens are theirs.
    """

    rows: tuple[int, ...]
    ids: Int64[Tensor, "batch position"]
    mask: Bool[Tensor, "batch position"]


def batches(model: Attentive, sequences: Sequence[Sequence[int]]) -> Iterator[Padded]:
    """Sequences of about equal length together, as many as `model.floats` allows.

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
        # The last of the first `count` is the longest of them.
        fits = (
            count
            for count in range(min(_LARGEST_BATCH, len(order)), 1, -1)
            if count * model.heads * len(sequences[order[count - 1]]) ** 2 <= model.floats
        )
        count = next(fits, 1)
        rows, length = tuple(order[:count]), len(sequences[order[count - 1]])
        ids = torch.tensor([[*sequences[row], *([0] * (length - len(sequences[row])))] for row in rows])
        lengths = torch.tensor([len(sequences[row]) for row in rows])
        mask = torch.arange(length)[None] < lengths[:, None]
        yield Padded(rows, ids.to(model.device), mask.to(model.device))
        del order[:count]


def hidden_pass(model: Attentive, batch: Padded) -> None:
    """Run the layers, for those who watch; logits are not computed."""
    with torch.no_grad():
        model.model.base_model(input_ids=batch.ids, attention_mask=batch.mask.long(), use_cache=False)


def last_logits(
    model: Attentive, batch: Padded, counts: Sequence[int]
) -> list[Float[Tensor, "token vocabulary"]]:
    """Logits after the last so many tokens of each row, in float32."""
    last = batch.mask.sum(dim=1)
    width = batch.ids.shape[1]
    kept = max(width - end + n for end, n in zip(last.tolist(), counts, strict=True))
    # A layout without the option gives the logits of all positions.
    option = "logits_to_keep" in inspect.signature(model.model.forward).parameters
    only: dict[str, int] = {"logits_to_keep": kept} if option else {}
    with torch.no_grad():
        logits = model.model(
            input_ids=batch.ids, attention_mask=batch.mask.long(), use_cache=False, **only
        ).logits
    ends = [end - (width - logits.shape[1]) for end in last.tolist()]
    return [row[end - n : end].float().cpu() for row, end, n in zip(logits, ends, counts, strict=True)]
