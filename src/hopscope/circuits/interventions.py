"""Interventions as values: what to change in a forward pass, said in layers, heads and roles.

`functions(model, batch)` of each gives functions of named sites, which `model.intervene` calls in the order of its
list: of two that change the same rows the later one wins.  For other changes write a function of a site.
"""

from functools import partial
from typing import Annotated, Literal, cast

import torch
from jaxtyping import Bool, Int
from pydantic import BeforeValidator, Field
from torch import Tensor

from hopscope.circuits.rules import History, Learned, Roles, Rule, patterns, related, selected, visible
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.layers import Layer
from hopscope.models.sites import Cache, SiteFunction
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch

Functions = dict[str, SiteFunction]


class Site(Config):
    """One position per sample.

    Attributes:
        roles: roles that exactly one position of every sample must have.
        relation: name of a relation to follow from that position; samples without a partner are left alone.
    """

    roles: Roles
    relation: str | None = None

    def on(self, batch: Batch) -> Int[Tensor, "member batch 1"]:
        """The position in every sample, -1 where the relation leads nowhere."""
        rows = selected(batch, self.roles)
        if not (rows.sum(-1) == 1).all():
            wanted = "roles that exactly one position of every sample has"
            raise UserError(f"site: expected {wanted}, found {self.roles}")
        position = rows.int().argmax(-1, keepdim=True)
        return position if self.relation is None else related(batch, self.relation).gather(-1, position)


class Intervention(Config):
    """What all have in common: a `layer`, from 0, and `rows` (of attention: queries) by role, all by default."""

    layer: int = Field(ge=0)
    rows: Roles = {}

    def functions(self, model: Transformer, batch: Batch) -> Functions:
        """Functions of named sites that do it on this batch; a `UserError` if model or batch lack what it names."""
        if self.layer >= model.config.layers:
            raise UserError(f"layer: expected 0 to {model.config.layers - 1}, found {self.layer}")
        found = self._functions(model, batch if batch.batch_axis else batch.changed(lambda each: each[None]))
        if model.members is None:
            found = {name: partial(_on_single, function) for name, function in found.items()}
        return found

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        raise NotImplementedError

    def _at(self, site: str) -> str:
        return f"blocks.{self.layer}.{site}"


def _on_single(function: SiteFunction, tensor: Tensor) -> Tensor:
    return function(tensor[None])[0]


class _OfHeads(Intervention):
    """What those of heads have in common: `heads`; `None` means all heads of the layer."""

    heads: tuple[int, ...] | None = None

    def _here(self, model: Transformer, batch: Batch) -> Bool[Tensor, "member batch position head"]:
        # The rows and heads that are changed.
        count = model.config.heads
        chosen = [*range(count)] if self.heads is None else [*self.heads]
        if not chosen or not all(0 <= head < count for head in chosen):
            raise UserError(f"heads: expected some of 0 to {count - 1}, found {self.heads}")
        rows = selected(batch, self.rows)
        heads = torch.isin(torch.arange(count, device=rows.device), torch.tensor(chosen, device=rows.device))
        return rows[..., None] & heads


class ReplacePattern(_OfHeads):
    """Replace attention patterns (rows of the attention matrix) of some heads of one layer.

    Attributes:
        by: a rule, or the name of one that needs nothing else, such as `"uniform"`, `"identity"`, or `"history"` (the
            head's mean pattern at these rows).  Rows for which it has no key stay as they are.
    """

    by: Annotated[Rule, BeforeValidator(lambda by: {"kind": by} if isinstance(by, str) else by)]

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        here, causal = self._here(model, batch).transpose(-1, -2), model.config.causal
        site = self._at("attn.hook_pattern")
        if isinstance(self.by, Learned | History):  # which rest on patterns of the unedited model
            own = model.cache(batch.inputs if model.members else batch.inputs[0], [site])[site]
            own = own if model.members else own[None]
            rows = selected(batch, self.rows).expand(len(own), -1, -1)
            found = [patterns(self.by, batch, causal, each, rows) for each in own.unbind(2)]
        else:
            found = [patterns(self.by, batch, causal)]
        new, exists = (torch.stack(each, 2) for each in zip(*found, strict=True))
        here = (here & exists)[..., None]
        return {site: lambda pattern: torch.where(here, new.to(pattern.dtype), pattern)}


class SwapAttention(_OfHeads):
    """Exchange the attention weights of two keys, `first` and `second`, in rows that see both; others stay."""

    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        seen, source = visible(batch, model.config.causal).t(), _exchanged(self, batch)
        one, other = (seen[each.on(batch)[..., 0]] for each in (self.first, self.second))
        here = (self._here(model, batch).transpose(-1, -2) & (one & other)[:, :, None])[..., None]

        def swapped(pattern: Tensor) -> Tensor:
            return torch.where(here, torch.take_along_dim(pattern, source[:, :, None, None], -1), pattern)

        return {self._at("attn.hook_pattern"): swapped}


def _exchanged(swap: "SwapAttention | SwapValues", batch: Batch) -> Int[Tensor, "member batch position"]:
    # For each position the one that stands in for it; none is exchanged where there are not both.
    one, other = swap.first.on(batch), swap.second.on(batch)
    here = torch.arange(batch.inputs.shape[2], device=one.device).expand(batch.inputs.shape[:3])
    first, second = one.clamp(min=0), other.clamp(min=0)
    both = here.scatter(-1, first, second).scatter(-1, second, first)
    return torch.where((one >= 0) & (other >= 0), both, here)


class EqualizeAttention(_OfHeads):
    """Set the attention weights of the keys with the roles `keys` that a row sees to their mean."""

    keys: Roles

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        keys = visible(batch, model.config.causal) & selected(batch, self.keys)[:, :, None]
        here = keys[:, :, None] & self._here(model, batch).transpose(-1, -2)[..., None]

        def equal(pattern: Tensor) -> Tensor:
            mass = torch.where(here, pattern, 0.0).sum(-1, keepdim=True)
            return torch.where(here, mass / here.sum(-1, keepdim=True).clamp(min=1), pattern)

        return {self._at("attn.hook_pattern"): equal}


class SwapValues(_OfHeads):
    """Exchange what two positions hand on as *values*, while queries and keys stay as they are.

    Attributes:
        what: the token's (or vector's) own embedding (`"symbol"`), its position code (`"position"`), or the whole
            residual stream that enters the layer (`"stream"`).  Of a list of interventions, those that change what is
            exchanged must come before.
    """

    what: Literal["symbol", "position", "stream"]
    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        source = _exchanged(self, batch)
        moves = source != torch.arange(source.shape[-1], device=source.device)
        here, source = (self._here(model, batch) & moves[..., None])[..., None], source[..., None]
        layer = cast(Layer, model.layers[self.layer])
        entering, seen = self._at("hook_resid_pre"), Cache()
        part = {"symbol": "hook_embed", "position": "hook_pos_embed", "stream": entering}[self.what]

        def swapped(value: Tensor) -> Tensor:
            moved = torch.take_along_dim(seen[part], source, 2) - seen[part]
            edited = layer.read(seen[entering] + moved)
            made = layer.attention.values(edited if model.members else edited[0]).transpose(-3, -2)
            return torch.where(here, made, value)

        kept = {name: partial(seen, name) for name in (part, entering)}
        return {**kept, self._at("attn.hook_v"): swapped}


class _Ablation(Intervention):
    """By `"zero"`, `"mean"` (over the samples, by position) or `"resample"` (the same place in the next sample)."""

    by: Literal["zero", "mean", "resample"]

    def _ablated(self, here: Tensor, site: str) -> Functions:
        def ablated(out: Tensor) -> Tensor:
            if self.by == "resample":
                return torch.where(here, out.roll(-1, 1), out)
            return torch.where(here, out.mean(1, keepdim=True) if self.by == "mean" else 0.0, out)

        return {self._at(site): ablated}


class AblateHead(_OfHeads, _Ablation):
    """Replace the output of heads (before the output projection) at some rows."""

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        return self._ablated(self._here(model, batch)[..., None], "attn.hook_z")


class AblateMLP(_Ablation):
    """Replace the output of a layer's MLP at some rows."""

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        if not model.config.mlp_size:
            raise UserError("ablate_mlp: expected a model with an MLP, found mlp_ratio = 0")
        return self._ablated(selected(batch, self.rows)[..., None], "hook_mlp_out")
