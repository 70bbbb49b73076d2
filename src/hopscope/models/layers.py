"""The parts of a transformer.  Every weight may have a leading member axis: then many models are one tensor program.

Shapes are written for both cases: `*member` is one axis, or none.  Everything is computed in float32, or with the
factors of matrix products rounded to bfloat16; residual stream, norms, softmax and weights are float32 always.  This is
written out rather than left to `torch.autocast`, whose list of rounded operations depends on torch's version.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from hopscope.models.config import TransformerConfig

Stream = Float[Tensor, "*member batch position model"]
Rows = Float[Tensor, "*member batch row model"]
Heads = Float[Tensor, "*member batch head position head_dim"]
Pattern = Float[Tensor, "*member batch head row key"]
SomeRows = slice | Tensor | None
SomeHeads = Sequence[int] | None
"""Those that are wanted; `None` means all."""

At = Callable[[str, Tensor], Tensor]
"""Called at a site with its name and tensor; the pass goes on with the tensor that it returns."""

Precision = Literal["float32", "bfloat16"]
"""To which the factors of a matrix product are rounded."""


def unchanged(name: str, tensor: Tensor) -> Tensor:
    """What is called at the sites of a pass that nobody looks into."""
    return tensor


def _parameter(members: int | None, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*(() if members is None else (members,)), *shape))


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    return a @ b if dtype == torch.float32 else (a.to(dtype) @ b.to(dtype)).float()


class Linear(nn.Module):
    """A linear map: weight `[*member, in, out]` and bias `[*member, out]`; factors are rounded to `dtype`."""

    dtype: torch.dtype = torch.float32

    def __init__(self, members: int | None, fan_in: int, fan_out: int):
        super().__init__()
        self.weight, self.bias = _parameter(members, fan_in, fan_out), _parameter(members, fan_out)

    def forward(
        self, x: Float[Tensor, "*member batch position a"], features: Tensor | None = None
    ) -> Float[Tensor, "*member batch position b"]:
        """Apply the map: one matrix product for all members; of its outputs only some `features`, if that is asked."""
        every = (self.weight, self.bias)
        weight, bias = every if features is None else (each[..., features] for each in every)
        rows = x.flatten(-3, -2)
        if self.dtype != torch.float32:
            found = _product(rows, weight, self.dtype) + bias[..., None, :]
        elif weight.ndim == 2:
            found = torch.addmm(bias, rows, weight)
        else:
            found = torch.baddbmm(bias[:, None], rows, weight)
        return found.unflatten(-2, x.shape[-3:-1])


class Norm(nn.Module):
    """Layer norm over the last axis, with weight and bias `[*member, model]`."""

    def __init__(self, members: int | None, width: int):
        super().__init__()
        self.weight, self.bias = _parameter(members, width), _parameter(members, width)

    def forward(self, x: Stream) -> Stream:
        """The stream, normed."""
        weight, bias = self.weight[..., None, None, :], self.bias[..., None, None, :]
        return torch.addcmul(bias, functional.layer_norm(x, x.shape[-1:]), weight)


class Table(nn.Module):
    """Vectors that are looked up by number, `[*member, number, model]`."""

    def __init__(self, members: int | None, count: int, width: int):
        super().__init__()
        self.weight = _parameter(members, count, width)


class Embedding(nn.Module):
    """Token or vector, and position code."""

    def __init__(self, config: TransformerConfig, members: int | None):
        super().__init__()
        self.config = config
        if config.input_kind == "tokens":
            self.token = Table(members, config.input_size, config.width)
        else:
            self.vector = Linear(members, config.input_size, config.width)
        if config.position_count:
            self.position = Table(members, config.position_count, config.width)

    def forward(self, inputs: Tensor, at: At = unchanged) -> Stream:
        """The stream before the first layer."""
        size = self.config.position_size
        if at is not unchanged and size:  # a code that is part of the input vector, told apart
            symbol = self.vector(functional.pad(inputs[..., :-size], (0, size)))
            code = self.vector(inputs) - symbol
        else:
            symbol = self._tokens(inputs) if self.config.input_kind == "tokens" else self.vector(inputs)
            code = self._codes(symbol.shape[-2]) if self.config.position_count else None
        symbol = at("hook_embed", symbol)
        if code is not None and at is not unchanged:
            code = at("hook_pos_embed", code.expand_as(symbol).clone())
        return symbol if code is None else symbol + code

    def _tokens(self, inputs: Tensor) -> Tensor:
        table: Tensor = self.token.weight
        if table.ndim == 3:  # one look-up for all members, whose tables follow one another
            first = self.config.input_size * torch.arange(len(table), device=table.device)
            inputs = inputs + first[:, None, None]
        return functional.embedding(inputs, table.reshape(-1, self.config.width))

    def _codes(self, length: int) -> Tensor:
        codes: Tensor = self.position.weight
        if self.config.positions == "pair":
            # Made on the device (0 0 1 1 2 …): a copy from the host could not be recorded as a CUDA graph.
            codes = codes.index_select(-2, torch.arange(self.config.length, device=codes.device) // 2)
        return codes[..., None, :length, :]


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, config: TransformerConfig, members: int | None, mask: Tensor):
        super().__init__()
        inner, width = config.heads * config.head_size, config.width
        self.config = config
        self.query, self.key, self.value = (Linear(members, width, inner) for _ in range(3))
        self.output = Linear(members, inner, width)
        self.register_buffer("mask", mask, persistent=False)
        self.mask: Tensor

    def pattern(
        self, queries: Stream, keys: Stream, rows: SomeRows = None, heads: SomeHeads = None,
        at: At = unchanged,
    ) -> Pattern:  # fmt: skip
        """Softmax of the scaled scores; of some rows or heads only, if that is asked."""
        asking, features = _chosen(queries, rows), self._features(heads)
        query, key = self._split(self.query(asking, features)), self._split(self.key(keys, features))
        query, key = _at_heads(at, "attn.hook_q", query), _at_heads(at, "attn.hook_k", key)
        scores = _product(query, key.transpose(-1, -2), self.query.dtype) * self.config.head_size**-0.5
        seen = self.mask[: keys.shape[-2], : keys.shape[-2]]
        scores = scores + (seen if rows is None else seen[rows])
        return at("attn.hook_attn_scores", scores).softmax(-1)

    def values(self, stream: Stream, heads: SomeHeads = None) -> Heads:
        """Values of all heads, or of some."""
        return self._split(self.value(stream, self._features(heads)))

    def joined(self, heads: Float[Tensor, "*member batch head row head_dim"]) -> Rows:
        """What attention adds to the stream, from the outputs of its heads."""
        return self.output(heads.transpose(-3, -2).flatten(-2))

    def forward(self, stream: Stream, rows: SomeRows, at: At) -> Rows:
        """What attention adds to the wanted rows of the stream; `at` is called at every site on the way."""
        explicit = stream.device.type == "cpu" and self.query.dtype == torch.float32
        if at is unchanged and not explicit:
            return self.joined(self._fused(stream, rows))
        pattern = self.pattern(stream, stream, rows, at=at)
        value = _at_heads(at, "attn.hook_v", self.values(stream))
        out = _product(at("attn.hook_pattern", pattern), value, self.value.dtype)
        return self.joined(_at_heads(at, "attn.hook_z", out))

    def _fused(self, stream: Tensor, rows: SomeRows) -> Tensor:
        # By torch's kernels, which never write patterns to memory; they take one axis of batches.
        dtype = self.query.dtype
        parts = (self.query(_chosen(stream, rows)), self.key(stream), self.value(stream))
        query, key, value = (self._split(part).flatten(0, -4).to(dtype) for part in parts)
        mask = self.mask[rows].to(dtype) if self.config.causal and rows is not None else None
        causal = self.config.causal and mask is None
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return out.unflatten(0, stream.shape[:-2]).float()

    def _split(self, x: Tensor) -> Heads:
        return x.unflatten(-1, (-1, self.config.head_size)).transpose(-3, -2)

    def _features(self, heads: SomeHeads) -> Tensor | None:
        if heads is None:
            return None
        every = torch.arange(self.query.bias.shape[-1], device=self.mask.device)
        return every.view(self.config.heads, -1)[[*heads]].flatten()


def _chosen(stream: Tensor, rows: SomeRows) -> Tensor:
    return stream if rows is None else stream[..., rows, :]


def _at_heads(at: At, name: str, heads: Heads) -> Heads:
    # At a site the position comes before the head.
    return heads if at is unchanged else at(name, heads.transpose(-3, -2)).transpose(-3, -2)


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them."""

    def __init__(self, config: TransformerConfig, members: int | None):
        super().__init__()
        self.inner = Linear(members, config.width, config.mlp_size)
        self.outer = Linear(members, config.mlp_size, config.width)
        self.activation = functional.relu if config.activation == "relu" else functional.gelu

    def forward(self, x: Stream, at: At) -> Stream:
        """What the MLP adds to the stream."""
        hidden = at("mlp.hook_pre", self.inner(x))
        return self.outer(at("mlp.hook_post", self.activation(hidden)))


class Layer(nn.Module):
    """One layer: attention, then the MLP if there is one.  It knows nothing of the other layers."""

    def __init__(self, config: TransformerConfig, members: int | None, mask: Tensor):
        super().__init__()
        self.config = config
        self.attention = Attention(config, members, mask)
        if config.norm != "none":
            self.attention_norm = Norm(members, config.width)
        if config.mlp_size:
            self.mlp = MLP(config, members)
            if config.norm != "none":
                self.mlp_norm = Norm(members, config.width)

    def forward(self, stream: Stream, rows: SomeRows = None, at: At = unchanged) -> Rows:
        """The stream after this layer, at the wanted rows; `at` is called with names such as `attn.hook_pattern`."""
        stream = at("hook_resid_pre", stream)
        return self._after(_chosen(stream, rows), self.attention(self.read(stream), rows, at), at)

    def read(self, stream: Stream) -> Stream:
        """The stream as attention reads it."""
        return self.attention_norm(stream) if self.config.norm == "pre" else stream

    def pattern(self, queries: Stream, keys: Stream | None = None, heads: SomeHeads = None) -> Pattern:
        """Attention patterns; of some heads only, and with keys of another stream, if that is asked."""
        normed = self.read(queries)
        return self.attention.pattern(normed, normed if keys is None else self.read(keys), heads=heads)

    def heads_under(self, stream: Stream, pattern: Pattern, heads: SomeHeads = None) -> Heads:
        """Outputs of all heads, or of some, under given patterns, with values from `stream`."""
        values = self.attention.values(self.read(stream), heads)
        return _product(pattern, values, self.attention.value.dtype)

    def after_heads(self, stream: Stream, heads: Heads) -> Stream:
        """The stream after this layer, from the stream before it and the outputs of its heads."""
        return self._after(stream, self.attention.joined(heads), unchanged)

    def _after(self, stream: Tensor, attended: Tensor, at: At) -> Tensor:
        norm = self.config.norm
        stream = stream + at("hook_attn_out", attended)
        stream = self.attention_norm(stream) if norm == "post" else stream
        if self.config.mlp_size:
            stream = at("hook_resid_mid", stream)
            out = self.mlp(self.mlp_norm(stream) if norm == "pre" else stream, at)
            stream = stream + at("hook_mlp_out", out)
            stream = self.mlp_norm(stream) if norm == "post" else stream
        return at("hook_resid_post", stream)
