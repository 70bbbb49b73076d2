"""Interventions as values: what to change in a forward pass, said in layers, heads and roles.

`functions(model, batch)` of each gives functions of named sites, which `model.intervene` calls in the order of its list:
of two that change the same rows the later one wins.  What no value says, a function of one's own can do.
"""

from functools import partial
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Int
from pydantic import Field, ValidationError, model_validator
from torch import Tensor

from hopscope_next.circuits.rules import (
    History,
    Identity,
    Learned,
    MeanMap,
    OverRole,
    Related,
    Roles,
    Rule,
    Uniform,
    patterns,
    related,
    selected,
    visible,
)
from hopscope_next.config import Config, validation_line
from hopscope_next.errors import UserError
from hopscope_next.models.sites import SiteFunction
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Batch

Functions = dict[str, SiteFunction]


class Site(Config):
    """One position per sample: the only one with these roles, or its partner under a relation.

    Attributes:
        roles: roles that exactly one position of every sample must have.
        relation: name of a relation to follow from that position; samples without a partner are left alone.
    """

    roles: Roles
    relation: str | None = None

    def on(self, batch: Batch) -> Int[Tensor, "member batch"]:
        """Its position in every sample, -1 where the relation leads nowhere."""
        rows = selected(batch, self.roles)
        if not (rows.sum(-1) == 1).all():
            raise UserError(
                f"site: expected roles that exactly one position of every sample has, found {self.roles}"
            )
        position = rows.int().argmax(-1)
        if self.relation is None:
            return position
        return related(batch, self.relation).gather(-1, position[..., None])[..., 0]


class Intervention(Config):
    """What all have in common: a layer, from 0, and rows by role.

    Raises:
        UserError: a field is missing, unknown, or has no such value.
    """

    layer: int = Field(ge=0)
    rows: Roles = {}

    def __init__(self, **fields: Any):
        try:
            super().__init__(**fields)
        except ValidationError as error:
            line = validation_line(error, type(self).model_fields)
            raise UserError(f"{type(self).__name__}: {line}") from None

    def functions(self, model: Transformer, batch: Batch) -> Functions:
        """Functions of named sites that do it on this batch.

        Raises:
            UserError: a layer, head, role or relation does not exist, or a site is not one position.
        """
        if self.layer >= model.config.layers:
            raise UserError(f"layer: expected 0 to {model.config.layers - 1}, found {self.layer}")
        found = self._functions(model, _with_members(batch))
        if model.members is None:
            return {
                name: lambda tensor, function=function: function(tensor[None])[0]
                for name, function in found.items()
            }
        return found

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        """The same for tensors with a member axis."""
        raise NotImplementedError

    def _here(self, site: str) -> str:
        return f"blocks.{self.layer}.{site}"

    def _clean(self, model: Transformer, batch: Batch, site: str) -> Tensor:
        """A site of the unedited model, with a member axis."""
        name = self._here(site)
        if model.members is None:
            return model.cache(batch.inputs[0], [name])[name][None]
        return model.cache(batch.inputs, [name])[name]

    def _mean(self, model: Transformer, batch: Batch, means: Any, site: str) -> Tensor:
        """The mean of a site over other samples, or those that are changed."""
        samples = batch if means is None else _with_members(means)
        expected, found = batch.inputs.shape[2], samples.inputs.shape[2]
        if expected != found:
            raise UserError(
                f"means: expected samples of {expected} positions, as the batch has, found {found}"
            )
        return self._clean(model, samples, site).mean(1, keepdim=True)


def _with_members(batch: Batch) -> Batch:
    return batch if batch.batch_axis else batch.changed(lambda tensor: tensor[None])


class _OfHeads(Intervention):
    heads: tuple[int, ...] | None = None

    def _chosen(self, model: Transformer, batch: Batch) -> Bool[Tensor, " head"]:
        count = model.config.heads
        chosen = list(range(count)) if self.heads is None else list(self.heads)
        if not chosen or not all(0 <= head < count for head in chosen):
            raise UserError(f"heads: expected some of 0 to {count - 1}, found {self.heads}")
        found = torch.zeros(count, dtype=torch.bool, device=batch.inputs.device)
        found[chosen] = True
        return found


class ReplacePattern(_OfHeads):
    """Replace attention patterns (rows of the attention matrix) of some heads of one layer.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.
        by: a rule; a row on which it leads nowhere is left alone.  Some have short names: `"uniform"` over the keys that
            the row may see (only those with the roles `keys`, if given), `"identity"` (the row itself), `"one_hot"` (its
            partner under `relation`, if the row has one that is not masked).  Or numbers: `"mean"` (the head's mean
            pattern over `means`), or `"matrix"` (rows of `matrix` `[query][key]`).
        means: samples over which a mean is taken; by default those that are changed.
    """

    kind: Literal["replace_pattern"] = "replace_pattern"
    by: Literal["uniform", "identity", "one_hot", "mean", "matrix"] | Rule
    keys: Roles = {}
    relation: str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    means: Any = Field(None, exclude=True, repr=False)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.by == "one_hot") != (self.relation is not None):
            raise ValueError(f"relation: expected with by = 'one_hot' and only there, found by = {self.by!r}")
        if (self.by == "matrix") != (self.matrix is not None):
            raise ValueError(f"matrix: expected with by = 'matrix' and only there, found by = {self.by!r}")
        if self.keys and self.by != "uniform":
            raise ValueError(f"keys: expected with by = 'uniform' only, found by = {self.by!r}")
        return self

    @property
    def rule(self) -> Rule:
        """The rule that stands in; for `"mean"` and `"matrix"`, which are numbers, the lack of one."""
        if not isinstance(self.by, str):
            return self.by
        if self.by == "uniform":
            return OverRole(keys=self.keys) if self.keys else Uniform()
        if self.by == "one_hot":
            return Related(relation=self.relation or "")
        return Identity() if self.by == "identity" else Learned()

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        rows, (new, exists) = selected(batch, self.rows), self._stand_in(model, batch)
        here = self._chosen(model, batch)[:, None] & rows[:, :, None] & exists

        def replaced(pattern: Tensor) -> Tensor:
            return torch.where(here[..., None], new, pattern)

        return {self._here("attn.hook_pattern"): replaced}

    def _stand_in(self, model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
        """Patterns `[member, batch, head, query, key]`, and the rows for which there is one."""
        every, length = torch.ones_like(self._chosen(model, batch))[:, None], batch.inputs.shape[2]
        if self.by == "mean":
            return self._mean(model, batch, self.means, "attn.hook_pattern"), every
        if self.matrix is not None:
            matrix = torch.tensor(self.matrix, device=batch.inputs.device)
            if matrix.shape != (length, length):
                raise UserError(f"matrix: expected shape {(length, length)}, found {tuple(matrix.shape)}")
            return matrix, every
        if not isinstance(self.rule, Learned | MeanMap | History):
            pattern, exists = patterns(self.rule, batch, model.config.causal)
            return pattern[:, :, None], exists[:, :, None]
        own = self._clean(model, batch, "attn.hook_pattern")
        rows = selected(batch, self.rows).expand(len(own), -1, -1)
        of_heads = [patterns(self.rule, batch, model.config.causal, each, rows) for each in own.unbind(2)]
        return torch.stack([each[0] for each in of_heads], 2), torch.stack([each[1] for each in of_heads], 2)


class SwapAttention(_OfHeads):
    """Exchange the attention weights of two keys; all other weights of the row stay.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.  Rows that may not see both keys are left alone.
        first, second: the two keys.
    """

    kind: Literal["swap_attention"] = "swap_attention"
    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        one, other = self.first.on(batch), self.second.on(batch)
        seen = visible(batch, model.config.causal).t()
        rows = selected(batch, self.rows) & seen[one.clamp(min=0)] & seen[other.clamp(min=0)]
        rows = rows & ((one >= 0) & (other >= 0))[..., None]
        here = self._chosen(model, batch)[:, None] & rows[:, :, None]
        source = _exchanged(one, other, batch.inputs.shape[2])

        def swapped(pattern: Tensor) -> Tensor:
            taken = torch.take_along_dim(pattern, source[:, :, None, None], dim=-1)
            return torch.where(here[..., None], taken, pattern)

        return {self._here("attn.hook_pattern"): swapped}


def _exchanged(
    one: Int[Tensor, "member batch"], other: Int[Tensor, "member batch"], length: int
) -> Int[Tensor, "member batch position"]:
    """For each position the one that stands in for it; none is exchanged where there are not both."""
    both = ((one >= 0) & (other >= 0))[..., None]
    here = torch.arange(length, device=one.device).expand(*one.shape, length)
    first, second = one.clamp(min=0)[..., None], other.clamp(min=0)[..., None]
    return torch.where(both, here.scatter(-1, first, second).scatter(-1, second, first), here)


class EqualizeAttention(_OfHeads):
    """Set the attention weights of some keys to their mean, so that together they keep their mass.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.
        keys: keys by role, of which only those count that the row may see; a row that sees none is left alone.
    """

    kind: Literal["equalize_attention"] = "equalize_attention"
    keys: Roles

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        keys = visible(batch, model.config.causal) & selected(batch, self.keys)[:, :, None]
        here = (
            self._chosen(model, batch)[:, None, None]
            & (keys & selected(batch, self.rows)[..., None])[:, :, None]
        )

        def equal(pattern: Tensor) -> Tensor:
            mean = torch.where(here, pattern, 0.0).sum(-1, keepdim=True) / here.sum(-1, keepdim=True).clamp(
                min=1
            )
            return torch.where(here, mean, pattern)

        return {self._here("attn.hook_pattern"): equal}


class SwapValues(_OfHeads):
    """Exchange what two positions hand on as *values*, while queries and keys stay as they are.

    Attributes:
        layer, heads: which heads read the exchanged values; `None` means all heads of the layer.
        what: the token's (or vector's) own embedding (`"symbol"`), its position code (`"position"`), or the whole
            residual stream that enters the layer (`"stream"`).
        first, second: the two positions.
    """

    kind: Literal["swap_values"] = "swap_values"
    what: Literal["symbol", "position", "stream"]
    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        heads, layer, single = self._chosen(model, batch), model.layers[self.layer], model.members is None
        source = _exchanged(self.first.on(batch), self.second.on(batch), batch.inputs.shape[2])
        moved = (source != torch.arange(source.shape[-1], device=source.device))[..., None, None]
        entering = self._here("hook_resid_pre")
        part = {"symbol": "hook_embed", "position": "hook_pos_embed", "stream": entering}[self.what]
        seen: dict[str, Tensor] = {}

        def remember(name: str, tensor: Tensor) -> Tensor:
            seen[name] = tensor
            return tensor

        def swapped(value: Tensor) -> Tensor:
            edited = seen[entering] + torch.take_along_dim(seen[part], source[..., None], dim=2) - seen[part]
            made = layer.attention.values(layer.read(edited[0] if single else edited)).transpose(-3, -2)
            return torch.where(heads[:, None] & moved, made, value)

        return {
            **{name: partial(remember, name) for name in (part, entering)},
            self._here("attn.hook_v"): swapped,
        }


class AblateHead(_OfHeads):
    """Replace the output of heads (before the output projection) at some rows.

    Attributes:
        by: `"zero"`; `"mean"` (over `means`, per position); `"resample"` (the same head and position in the next sample).
        means: samples over which a mean is taken; by default those that are changed.
    """

    kind: Literal["ablate_head"] = "ablate_head"
    by: Literal["zero", "mean", "resample"]
    means: Any = Field(None, exclude=True, repr=False)

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        rows = selected(batch, self.rows)[..., None] & self._chosen(model, batch)
        return _ablated(self, model, batch, rows[..., None], "attn.hook_z")


class AblateMLP(Intervention):
    """Replace the output of a layer's MLP at some rows; `by` and `means` as for `AblateHead`."""

    kind: Literal["ablate_mlp"] = "ablate_mlp"
    by: Literal["zero", "mean", "resample"]
    means: Any = Field(None, exclude=True, repr=False)

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        if not model.config.mlp_size:
            raise UserError("ablate_mlp: expected a model with an MLP, found mlp_ratio = 0")
        return _ablated(self, model, batch, selected(batch, self.rows)[..., None], "hook_mlp_out")


def _ablated(
    by: AblateHead | AblateMLP, model: Transformer, batch: Batch, here: Tensor, site: str
) -> Functions:
    mean = by._mean(model, batch, by.means, site) if by.by == "mean" else torch.zeros(())

    def ablated(out: Tensor) -> Tensor:
        return torch.where(here, out.roll(-1, 1) if by.by == "resample" else mean.to(out), out)

    return {by._here(site): ablated}
