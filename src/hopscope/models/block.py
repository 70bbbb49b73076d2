"""One layer of an ensemble: attention, then the MLP if there is one.

A layer is an object that holds its weights by short names and knows nothing of the other layers, so that compiled once
it serves them all.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.linear import affine, linear, linears, norm
from hopscope.models.sites import Visit, unchanged, visit_heads

Stream = Float[Tensor, "member batch position model"]
Rows = Float[Tensor, "member batch row model"]

AttentionKind = Literal["fused", "explicit"]
"""`fused` leaves attention to torch's kernels, which never write patterns to memory; `explicit` is a softmax between
two products, as it must be where patterns are asked for or edited."""


class Block:
    """One layer.

    Attributes:
        config: of the whole model.
        weights: short name, such as `attention.query.weight`, to tensor.
        mask: added to the scores: 0 where a query may see a key, -∞ elsewhere `[query, key]`.
        dtype: to which the factors of products, and their results, are rounded.
        attention: how attention is done where nothing else decides it.
    """

    def __init__(
        self,
        config: TransformerConfig,
        weights: Mapping[str, Tensor],
        mask: Float[Tensor, "query key"],
        dtype: torch.dtype,
        attention: AttentionKind,
    ):
        self.config, self.weights, self.mask = config, weights, mask
        self.dtype, self.attention = dtype, attention

    def __call__(
        self,
        stream: Stream,
        rows: slice | Tensor | None = None,
        visit: Visit = unchanged,
    ) -> Rows:
        """The stream after this layer.

        Args:
            stream: the stream before it.
            rows: positions that are wanted; `None` means all.
            visit: called at every site of this layer, with its short name (see `sites`).
        """
        stream = visit("hook_resid_pre", stream)
        attended = self._attended(stream, rows, visit)
        return self.after_attention(stream if rows is None else stream[:, :, rows], attended, visit)

    def pattern(
        self,
        queries: Stream,
        keys: Stream | None = None,
        rows: slice | Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "member batch head row key"]:
        """Attention patterns.

        Args:
            queries: stream that queries come from.
            keys: stream that keys come from; by default the same.
            rows: positions of the queries that are wanted; `None` means all.
            heads: those that are wanted, in this order; `None` means all.
        """
        normed = self._normed(queries)
        return self._pattern(normed, normed if keys is None else self._normed(keys), rows, heads)

    def under(
        self,
        stream: Stream,
        pattern: Float[Tensor, "member batch head row key"],
        rows: slice | Tensor | None = None,
    ) -> Rows:
        """The stream after this layer under given attention patterns; no query or key is computed.

        Args:
            stream: the stream before it.
            pattern: of the wanted rows.
            rows: positions that are wanted; `None` means all.
        """
        return self.after_heads(stream, self.heads_under(stream, pattern), rows)

    def heads_under(
        self,
        stream: Stream,
        pattern: Float[Tensor, "member batch head row key"],
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "member batch head row head_dim"]:
        """Outputs of all heads, or of some, under their attention patterns, with values from `stream`."""
        return self._product(pattern, self._of_heads("attention.value", self._normed(stream), heads))

    def after_heads(
        self,
        stream: Stream,
        heads: Float[Tensor, "member batch head row head_dim"],
        rows: slice | Tensor | None = None,
    ) -> Rows:
        """The stream after this layer, from the stream before it and the heads' outputs.

        Args:
            stream: the stream before it.
            heads: outputs of the wanted rows.
            rows: positions that are wanted; `None` means all.
        """
        return self.after_attention(stream if rows is None else stream[:, :, rows], self.projected(heads))

    def values(self, stream: Stream) -> Float[Tensor, "member batch head position head_dim"]:
        """Values of all heads, made of a stream."""
        return self._heads(self._linear("attention.value", self._normed(stream)))

    def projected(self, heads: Float[Tensor, "member batch head query head_dim"]) -> Stream:
        """The output of attention, made of the heads' outputs."""
        return self._linear("attention.output", heads.transpose(2, 3).flatten(-2))

    def after_attention(
        self,
        stream: Stream,
        attended: Stream,
        visit: Visit = unchanged,
    ) -> Stream:
        """The stream after this layer, from the stream before it and what attention adds."""
        attended = visit("hook_attn_out", attended)
        stream = stream + attended
        if self.config.norm == "post":
            stream = norm(self.weights, "attention_norm", stream)
        if self.config.mlp_size:
            stream = self._after_mlp(stream, visit)
        return visit("hook_resid_post", stream)

    def _after_mlp(self, stream: Stream, visit: Visit) -> Stream:
        """The stream after the MLP, from the stream before it."""
        place = self.config.norm
        stream = visit("hook_resid_mid", stream)
        inside = norm(self.weights, "mlp_norm", stream) if place == "pre" else stream
        hidden = self._linear("mlp.inner", inside)
        hidden = visit("mlp.hook_pre", hidden)
        hidden = functional.relu(hidden) if self.config.activation == "relu" else functional.gelu(hidden)
        hidden = visit("mlp.hook_post", hidden)
        out = self._linear("mlp.outer", hidden)
        out = visit("hook_mlp_out", out)
        stream = stream + out
        return norm(self.weights, "mlp_norm", stream) if place == "post" else stream

    def _attended(
        self,
        stream: Stream,
        rows: slice | Tensor | None,
        visit: Visit,
    ) -> Rows:
        keys = self._normed(stream)
        if self.attention == "fused" and visit is unchanged:
            out = self._fused(keys, rows)
        else:
            out = self._explicit(keys, rows, visit)
        return self.projected(out)

    def _normed(self, stream: Stream) -> Stream:
        return norm(self.weights, "attention_norm", stream) if self.config.norm == "pre" else stream

    def _explicit(
        self, keys: Stream, rows: slice | Tensor | None, visit: Visit
    ) -> Float[Tensor, "member batch head row head_dim"]:
        """Head outputs, by a softmax between two products."""
        pattern = self._pattern(keys, keys, rows, visit=visit)
        value = self._heads(self._linear("attention.value", keys))
        value = visit_heads(visit, "attn.hook_v", value)
        out = self._product(visit("attn.hook_pattern", pattern), value)
        return visit_heads(visit, "attn.hook_z", out)

    def _pattern(
        self,
        queries: Stream,
        keys: Stream,
        rows: slice | Tensor | None,
        heads: Sequence[int] | None = None,
        visit: Visit = unchanged,
    ) -> Float[Tensor, "member batch head row key"]:
        """A softmax over products of queries and keys, both after the layer norm."""
        query = self._of_heads("attention.query", queries if rows is None else queries[:, :, rows], heads)
        key = self._of_heads("attention.key", keys, heads)
        query, key = visit_heads(visit, "attn.hook_q", query), visit_heads(visit, "attn.hook_k", key)
        mask = self.mask[: keys.shape[2], : keys.shape[2]]
        scores = self._product(query, key.transpose(-1, -2)) * self.config.head_size**-0.5
        scores = scores + (mask if rows is None else mask[rows])
        return visit("attn.hook_attn_scores", scores).softmax(-1)

    def _fused(
        self, keys: Stream, rows: slice | Tensor | None
    ) -> Float[Tensor, "member batch head row head_dim"]:
        """Head outputs, by torch's attention."""
        names = [f"attention.{part}" for part in ("query", "key", "value")]
        if rows is None:
            query, key, value = linears(self.weights, names, keys, self.dtype)
        else:
            query = self._linear(names[0], keys[:, :, rows])
            key, value = linears(self.weights, names[1:], keys, self.dtype)
        # torch's kernels take one batch axis: the members' batches follow each other.
        query, key, value = (self._heads(x).flatten(0, 1).to(self.dtype) for x in (query, key, value))
        masked = self.config.causal and rows is not None
        out = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self.mask[rows].to(self.dtype) if masked else None,
            is_causal=self.config.causal and not masked,
        )
        return out.unflatten(0, keys.shape[:2]).float()

    def _linear(
        self, name: str, x: Float[Tensor, "member batch position a"]
    ) -> Float[Tensor, "member batch position b"]:
        return linear(self.weights, name, x, self.dtype)

    def _of_heads(
        self, name: str, x: Float[Tensor, "member batch position model"], heads: Sequence[int] | None
    ) -> Float[Tensor, "member batch head position head_dim"]:
        """Queries, keys or values of all heads, or of some: what others would need is not computed."""
        if heads is None:
            return self._heads(self._linear(name, x))
        size = self.config.head_size
        columns = [column for head in heads for column in range(head * size, (head + 1) * size)]
        weight, bias = (self.weights[f"{name}.{part}"][..., columns] for part in ("weight", "bias"))
        return affine(x, weight, bias, self.dtype).unflatten(-1, (len(heads), size)).transpose(2, 3)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        return (a.to(self.dtype) @ b.to(self.dtype)).float()

    def _heads(self, x: Stream) -> Float[Tensor, "member batch head position head_dim"]:
        return x.unflatten(-1, (self.config.heads, self.config.head_size)).transpose(2, 3)
