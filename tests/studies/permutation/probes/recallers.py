"""Models of V = 4 whose weights are set by hand, so that what their last row knows is known beforehand.

The residual stream has five parts: the token as a one-hot vector, the position as one, three slots for values, a
pointer, and an answer.  There are no norms.  Heads 0 to 2 read y₁ to y₃, head 3 finds the earlier copy of the last x.
"""

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer

VALUES, TOKENS, POSITIONS, HEADS, HEAD_DIM, WIDTH, HIDDEN = 4, 5, 7, 4, 7, 41, 17
TOKEN, POSITION, POINTER, ANSWER = slice(0, 5), slice(5, 12), slice(27, 34), slice(34, 39)
SLOTS = (slice(12, 17), slice(17, 22), slice(22, 27))
"""Parts of the residual stream."""

ORDERED, UNORDERED, BY_CONTENT = range(3)
"""Members of `recallers`."""

MATCH_HEAD = 3
_SHARP = 40.0 * HEAD_DIM**0.5


def recallers() -> Transformer:
    """Three members.

    * `ORDERED` keeps every value in a part of its own, points at the copy, and its MLP selects: it recalls.
    * `UNORDERED` adds the values up, which leaves nothing but their set, and points at the copy: it eliminates.
    * `BY_CONTENT` reads the values with weights that depend on the value and not on where it stands: it also keeps
      nothing but the set, and it does not point.
    """
    shape = TransformerConfig(
        layers=1,
        heads=HEADS,
        head_dim=HEAD_DIM,
        width=WIDTH,
        mlp_ratio=HIDDEN / WIDTH,
        activation="relu",
        norm="none",
        length=POSITIONS,
        input_size=TOKENS,
        output_size=TOKENS,
        readout=(0, 2, 4, 6),
    )
    model = Transformer(shape, Parameters(parameter_specs(shape), 3))
    model.weights["embed.token.weight"][:, :, TOKEN] = torch.eye(TOKENS)
    model.weights["embed.position.weight"][:, :, POSITION] = torch.eye(POSITIONS)
    for member in (ORDERED, UNORDERED):
        for slot in range(3):
            _read_position(model, member, slot, 2 * slot + 1)
            _copy(model, member, slot, TOKEN, SLOTS[slot if member == ORDERED else 0])
        _match(model, member)
        _copy(model, member, MATCH_HEAD, POSITION, POINTER)
    _read_by_content(model)
    _copy(model, BY_CONTENT, 0, TOKEN, SLOTS[0])
    _select(model)
    for member in range(3):
        _answer(model, member)
    return model


def _head(model: Transformer, member: int, head: int, part: str) -> torch.Tensor:
    """One head's columns of a projection, `[model, head_dim]`."""
    weight = model.weights[f"layers.0.attention.{part}.weight"][member]
    return weight[:, head * HEAD_DIM : (head + 1) * HEAD_DIM]


def _read_position(model: Transformer, member: int, head: int, position: int) -> None:
    _head(model, member, head, "query")[POSITION, 0] = _SHARP
    _head(model, member, head, "key")[POSITION.start + position, 0] = 1.0


def _match(model: Transformer, member: int) -> None:
    """Attend to the x before the last that has the same token; to all three of them where none has."""
    query, key = (_head(model, member, MATCH_HEAD, part) for part in ("query", "key"))
    query[TOKEN, :TOKENS] = key[TOKEN, :TOKENS] = _SHARP**0.5 * torch.eye(TOKENS)
    query[POSITION, 5] = 2.0 * _SHARP
    key[[POSITION.start + x for x in (0, 2, 4)], 5] = 1.0


def _read_by_content(model: Transformer) -> None:
    """Attend to the y, the more the larger their value."""
    query, key = (_head(model, BY_CONTENT, 0, part) for part in ("query", "key"))
    query[POSITION, 0] = _SHARP
    query[POSITION, 1] = HEAD_DIM**0.5
    key[[POSITION.start + y for y in (1, 3, 5)], 0] = 1.0
    key[TOKEN, 1] = 0.5 * torch.arange(TOKENS)


def _copy(model: Transformer, member: int, head: int, source: slice, target: slice) -> None:
    size = source.stop - source.start
    _head(model, member, head, "value")[source, :size] = torch.eye(size)
    output = model.weights["layers.0.attention.output.weight"][member]
    output[head * HEAD_DIM : head * HEAD_DIM + size, target] = torch.eye(size)


def _select(model: Transformer) -> None:
    """One hidden unit for each slot and value: on where the pointer and the value are both there."""
    inner, bias, outer = (
        model.weights[f"layers.0.mlp.{name}"][ORDERED]
        for name in ("inner.weight", "inner.bias", "outer.weight")
    )
    for slot in range(3):
        for token in range(TOKENS):
            unit = slot * TOKENS + token
            inner[SLOTS[slot].start + token, unit] = inner[POINTER.start + 2 * slot, unit] = 1.0
            bias[unit] = -1.0
            outer[unit, ANSWER.start + token] = 1.0


def _answer(model: Transformer, member: int) -> None:
    """The recalled value if there is one, else a value that was not read; never token 0."""
    readout, bias = model.weights["readout.weight"][member], model.weights["readout.bias"][member]
    for slot in SLOTS:
        readout[slot] = -20.0 * torch.eye(TOKENS)
    readout[ANSWER] = 50.0 * torch.eye(TOKENS)
    bias[0] = -100.0


def by_module(module, inputs):
    """What the MLP reads and what the readout reads, from the plain module's own parts."""
    pre = module.config.norm == "pre"
    block = module.layers[0]
    symbol, position = module.embed(inputs)
    x = symbol + position
    read = block.attention_norm(x) if pre else x
    heads = block.attention.pattern(read) @ block.attention.split(block.attention.value(read))
    x = x + block.attention.output(heads.transpose(1, 2).flatten(-2))
    x = before = x if pre else block.attention_norm(x)
    if module.config.mlp_size:
        before = block.mlp_norm(x) if pre else x
        x = x + block.mlp(before)
        x = x if pre else block.mlp_norm(x)
    return before, module.final_norm(x)
