"""Interventions on one plain module, in plain loops over samples and rows: the slow obvious reference of `edits`."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.interventions import (
    AblateHead,
    AblateMLP,
    EqualizeAttention,
    Intervention,
    ReplacePattern,
    Roles,
    Site,
    SwapAttention,
    SwapValues,
)
from hopscope.models.member import MemberTransformer
from hopscope.tasks.batch import Batch

Kind = TypeVar("Kind", bound=Intervention)


class Edited:
    """What a list of interventions changes in a forward pass of one member: a visit.

    Attributes:
        interventions: the list.
        batch: the samples with their roles and relations (`member == 1`); needed by any intervention.
        patterns, head_means, mlp_means: means of this member, `[layer, head, query, key]`,
            `[layer, head, query, head_dim]` and `[layer, query, model]`; needed by `"mean"`.
        donor: sample that each sample resamples from; by default the next one.
        causal: whether the edited model hides later positions.
        module: the edited model; needed by a swap of values.
        layer: the layer that is running.
    """

    def __init__(
        self,
        interventions: Sequence[Intervention],
        batch: Batch | None = None,
        means: tuple[Tensor, Tensor, Tensor] | None = None,
        donor: Sequence[int] | None = None,
        *,
        causal: bool = True,
        module: MemberTransformer | None = None,
    ):
        self.interventions, self.batch, self.means, self.donor = interventions, batch, means, donor
        self.causal, self.module = causal, module
        self.layer = 0
        self.embedded: dict[str, Tensor] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor of a site after the interventions there; the embedded input and streams are remembered."""
        if not name.startswith("blocks."):
            self.embedded[name] = tensor
            return tensor
        self.layer, site = int(name.split(".")[1]), name.split(".", 2)[2]
        if site == "hook_resid_pre":
            self.entering = tensor
        elif site == "attn.hook_pattern":
            return self.pattern(tensor)
        elif site == "attn.hook_v":
            return self.values(tensor)
        elif site == "attn.hook_z":
            return self.heads(tensor.transpose(1, 2)).transpose(1, 2)
        elif site == "hook_mlp_out":
            return self.mlp(tensor)
        return tensor

    def pattern(self, pattern: Float[Tensor, "batch head query key"]) -> Tensor:
        """Attention patterns after replacement, then exchange, then equalisation."""
        pattern = pattern.clone()
        for item in self._here(ReplacePattern):
            for sample, head, query in self._rows(item, pattern):
                row = self._new_row(item, sample, head, query, pattern.shape[-1])
                if row is not None:
                    pattern[sample, head, query] = row
        for swap in self._here(SwapAttention):
            for sample, head, query in self._rows(swap, pattern):
                first, second = self._position(swap.first, sample), self._position(swap.second, sample)
                if first is None or second is None:
                    continue
                if self._sees(query, first) and self._sees(query, second):
                    weights = pattern[sample, head, query].clone()
                    pattern[sample, head, query, first] = weights[second]
                    pattern[sample, head, query, second] = weights[first]
        for place, keys in self._equal_keys(pattern).items():
            pattern[*place, keys] = pattern[*place, keys].mean()
        return pattern

    def _equal_keys(self, pattern: Tensor) -> dict[tuple[int, int, int], list[int]]:
        """(sample, head, query) → keys whose weights become equal, by the last that says so."""
        keys = {}
        for item in self._here(EqualizeAttention):
            for sample, head, query in self._rows(item, pattern):
                chosen = self._seen_keys(item.keys, sample, query, pattern.shape[-1])
                if chosen:
                    keys[sample, head, query] = chosen
        return keys

    def values(self, value: Float[Tensor, "batch position head head_dim"]) -> Tensor:
        """Values of which the heads of a value swap read an edited stream."""
        if not self._here(SwapValues):
            return value
        assert self.module is not None
        of_heads = [
            self.module.values(self.layer, self.stream(self.entering, head))[:, :, head]
            for head in range(value.shape[2])
        ]
        return torch.stack(of_heads, 2)

    def stream(self, x: Float[Tensor, "batch position model"], head: int) -> Tensor:
        """The stream from which a head takes its values."""
        swaps = [swap for swap in self._here(SwapValues) if swap.heads is None or head in swap.heads]
        if not swaps:
            return x
        out = x.clone()
        for sample in range(x.shape[0]):
            order = {what: list(range(x.shape[1])) for what in ("symbol", "position", "stream")}
            for swap in swaps:
                first, second = self._position(swap.first, sample), self._position(swap.second, sample)
                if first is not None and second is not None:
                    places = order[swap.what]
                    places[first], places[second] = places[second], places[first]
            out[sample] = x[sample][order["stream"]]
            for name, what in (("hook_embed", "symbol"), ("hook_pos_embed", "position")):
                if name in self.embedded:
                    part = self.embedded[name][sample]
                    out[sample] += part[order[what]] - part
        return out

    def heads(self, heads: Float[Tensor, "batch head query head_dim"]) -> Tensor:
        """Head outputs after ablation."""
        out = heads.clone()
        for item in self._here(AblateHead):
            for sample, head, query in self._rows(item, heads):
                mean = None if self.means is None else self.means[1][self.layer, head, query]
                out[sample, head, query] = self._ablated(
                    item.by, heads[self._donor(sample, heads), head, query], mean
                )
        return out

    def mlp(self, mlp: Float[Tensor, "batch query model"]) -> Tensor:
        """MLP outputs after ablation."""
        out = mlp.clone()
        for item in self._here(AblateMLP):
            for sample in range(mlp.shape[0]):
                for query in self._having(item.rows, sample, mlp.shape[1]):
                    mean = None if self.means is None else self.means[2][self.layer, query]
                    out[sample, query] = self._ablated(item.by, mlp[self._donor(sample, mlp), query], mean)
        return out

    def _here(self, kind: type[Kind]) -> list[Kind]:
        return [item for item in self.interventions if isinstance(item, kind) and item.layer == self.layer]

    def _rows(
        self, item: ReplacePattern | SwapAttention | EqualizeAttention | AblateHead, x: Tensor
    ) -> list[tuple[int, int, int]]:
        return [
            (sample, head, query)
            for sample in range(x.shape[0])
            for head in (range(x.shape[1]) if item.heads is None else item.heads)
            for query in self._having(item.rows, sample, x.shape[2])
        ]

    def _having(self, roles: Roles, sample: int, count: int) -> list[int]:
        """Of the first `count` positions of a sample those that have these roles."""
        assert self.batch is not None
        held = {name: self.batch.roles[name][0, sample].tolist() for name in roles}
        return [
            position
            for position in range(count)
            if all(held[name][position] == value for name, value in roles.items())
        ]

    def _position(self, site: Site, sample: int) -> int | None:
        assert self.batch is not None
        count = self.batch.inputs.shape[2]
        (position,) = self._having(site.roles, sample, count)
        if site.relation is not None:
            position = int(self.batch.relations[site.relation][0, sample, position])
        return position if position >= 0 else None

    def _new_row(self, item: ReplacePattern, sample: int, head: int, query: int, keys: int) -> Tensor | None:
        if item.by == "mean":
            assert self.means is not None
            return self.means[0][self.layer, head, query]
        if item.by == "matrix":
            assert item.matrix is not None
            return torch.tensor(item.matrix[query])
        if item.by == "uniform":
            allowed = self._seen_keys(item.keys, sample, query, keys)
        elif item.by == "identity":
            allowed = [query]
        else:
            assert self.batch is not None and item.relation is not None
            key = int(self.batch.relations[item.relation][0, sample, query])
            allowed = [key] if key >= 0 and self._sees(query, key) else []
        if not allowed:
            return None
        row = torch.zeros(keys)
        row[allowed] = 1.0 / len(allowed)
        return row

    def _seen_keys(self, roles: Roles, sample: int, query: int, keys: int) -> list[int]:
        return [key for key in self._having(roles, sample, keys) if self._sees(query, key)]

    def _sees(self, query: int, key: int) -> bool:
        return key <= query or not self.causal

    def _donor(self, sample: int, x: Tensor) -> int:
        return self.donor[sample] if self.donor is not None else (sample + 1) % x.shape[0]

    @staticmethod
    def _ablated(by: str, donated: Tensor, mean: Tensor | None) -> Tensor:
        if by == "zero":
            return torch.zeros_like(donated)
        if by == "resample":
            return donated
        assert mean is not None
        return mean
