"""A faster way to the same predictions, for one-layer models of short token sequences (optional).

At the first layer a stream is one of vocabulary × positions vectors.  So queries, keys, values and even scores are
computed once for every pair of such vectors and looked up for every sample, and attention's weighted sum of values
becomes one matrix product for the whole batch: weights laid out over (head, key, token), times values that the output
projection has already been applied to.  With the batch as the innermost axis softmax and look-ups run along contiguous
memory.  `Transformer` without this file gives the same numbers to rounding (tested); `docs/performance.md` has the
ratios.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.linear import Weights, linear, norm, position_codes

LARGEST_TABLE = 128
"""Largest vocabulary × positions for which this was measured to be the faster way."""


def fits(config: TransformerConfig) -> bool:
    """Whether a model is of the kind that this way is for."""
    small = config.input_size * config.length <= LARGEST_TABLE
    return config.layers == 1 and config.input_kind == "tokens" and small


def attended(
    config: TransformerConfig,
    weights: Weights,
    mask: Float[Tensor, "query key"],
    readout: Int[Tensor, " readout"],
    tokens: Int[Tensor, "member batch position"],
) -> tuple[Float[Tensor, "member readout batch model"], Float[Tensor, "member readout batch model"]]:
    """The stream at the readout positions before the first layer, and what attention adds to it.

    Args:
        config, weights: of a model that `fits`.
        mask: 0 where a query may see a key, −∞ elsewhere.
        readout: positions of the rows that are wanted.
        tokens: the inputs, at all positions.

    Returns:
        Stream and attention output; mind that the readout axis comes before the batch.
    """
    tokens = tokens.transpose(1, 2).contiguous()
    asking = tokens[:, readout]
    stream = weights["embed.token.weight"][:, None].expand(-1, config.length, -1, -1)
    if config.position_count:
        stream = stream + position_codes(config, weights)[:, :, None]
    patterns = _patterns(config, weights, mask[readout].T, readout, stream, tokens, asking)
    laid_out = _by_token(patterns, tokens, config.input_size)
    out = torch.bmm(laid_out.transpose(1, 2), _projected_values(config, weights, stream))
    out = out + weights["layers.0.attention.output.bias"][:, None]
    return _rows(stream[:, readout], asking), out.unflatten(1, asking.shape[1:])


def _table_heads(
    config: TransformerConfig,
    weights: Weights,
    name: str,
    stream: Float[Tensor, "member position token model"],
) -> Float[Tensor, "member head entry head_dim"]:
    """A projection of every table entry, head by head."""
    if config.norm == "pre":
        stream = norm(weights, "layers.0.attention_norm", stream)
    projected = linear(weights, f"layers.0.attention.{name}", stream).flatten(1, 2)
    return projected.unflatten(-1, (config.heads, config.head_size)).transpose(1, 2)


def _patterns(
    config: TransformerConfig,
    weights: Weights,
    mask: Float[Tensor, "key readout"],
    readout: Int[Tensor, " readout"],
    stream: Float[Tensor, "member position token model"],
    tokens: Int[Tensor, "member position batch"],
    asking: Int[Tensor, "member readout batch"],
) -> Float[Tensor, "member head key readout batch"]:
    """Attention patterns, from the scores of every pair of table entries."""
    size, keys, rows = config.input_size, config.length, len(readout)
    key = _table_heads(config, weights, "key", stream)
    query = _table_heads(config, weights, "query", stream[:, readout])
    table = key @ query.transpose(-1, -2) * config.head_size**-0.5
    # [key, token there, query, token there] → [key, query, both tokens]: the samples choose along the last axis only.
    table = table.unflatten(-1, (rows, size)).unflatten(2, (keys, size)).transpose(3, 4).flatten(4)
    pair = tokens[:, :, None] * size + asking[:, None]
    scores = table.gather(-1, pair[:, None].expand(-1, config.heads, -1, -1, -1))
    return (scores + mask[:, :, None]).softmax(2)


def _by_token(
    patterns: Float[Tensor, "member head key readout batch"],
    tokens: Int[Tensor, "member position batch"],
    size: int,
) -> Float[Tensor, "member entry row"]:
    """Attention weights at the entry (head, key, token there), zero for the tokens that are not there."""
    members, heads, keys, rows, batch = patterns.shape
    empty = patterns.new_zeros(members, heads, keys, size, rows, batch)
    there = tokens[:, None, :, None, None].expand(-1, heads, -1, -1, rows, -1)
    return empty.scatter(3, there, patterns[:, :, :, None]).reshape(
        members, heads * keys * size, rows * batch
    )


def _projected_values(
    config: TransformerConfig, weights: Weights, stream: Float[Tensor, "member position token model"]
) -> Float[Tensor, "member entry model"]:
    """Output of each head when it reads one table entry with full weight."""
    value = _table_heads(config, weights, "value", stream)
    output = weights["layers.0.attention.output.weight"].unflatten(1, (config.heads, config.head_size))
    return (value @ output).flatten(1, 2)


def _rows(
    table: Float[Tensor, "member readout token model"], asking: Int[Tensor, "member readout batch"]
) -> Float[Tensor, "member readout batch model"]:
    """The table's vectors of the tokens that ask."""
    members, rows, size, width = table.shape
    first = torch.arange(members * rows, device=table.device).view(members, rows, 1) * size
    return functional.embedding(asking + first, table.reshape(-1, width))
