"""Interventions as values: what to change in a forward pass, said in layers, heads and roles.

`functions(model, batch)` of each gives functions of named sites, which `model.intervene` calls in the order of its
list: of two that change the same rows the later one wins.  What no value says, a function of one's own can do.
"""

from functools import partial
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Int
from pydantic import Field, ValidationError, model_validator
from torch import Tensor

from hopscope_next.circuits import rules
from hopscope_next.circuits.rules import Roles, Rule, patterns, related, selected, visible
from hopscope_next.config import Config, validation_line
from hopscope_next.errors import UserError
from hopscope_next.models.layers import Layer
from hopscope_next.models.sites import SiteFunction
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Batch

Functions = dict[str, SiteFunction]

_PATTERN = "attn.hook_pattern"


class Site(Config):
    """One position per sample.

    Attributes:
        roles: roles that exactly one position of every sample must have.
        relation: name of a relation to follow from that position; samples without a partner are left alone.
    """

    roles: Roles
    relation: str | None = None

    def on(self, batch: Batch) -> Int[Tensor, "member batch"]:
        """The position in every sample, -1 where the relation leads nowhere."""
        rows = selected(batch, self.roles)
        if not (rows.sum(-1) == 1).all():
            raise UserError(
                f"site: expected roles that exactly one position of every sample has, found {self.roles}"
            )
        position = rows.int().argmax(-1, keepdim=True)
        found = position if self.relation is None else related(batch, self.relation).gather(-1, position)
        return found[..., 0]


class Intervention(Config):
    """What all have in common.

    Attributes:
        layer: number of the layer, from 0.
        rows: rows (of attention: queries) by role; all by default.

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
            found = {name: partial(_on_single, function) for name, function in found.items()}
        return found

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        raise NotImplementedError

    def _at(self, site: str) -> str:
        return f"blocks.{self.layer}.{site}"

    def _clean(self, model: Transformer, batch: Batch, site: str) -> Tensor:
        # A site of the unedited model, with a member axis.
        name = self._at(site)
        if model.members is None:
            return model.cache(batch.inputs[0], [name])[name][None]
        return model.cache(batch.inputs, [name])[name]

    def _mean(self, model: Transformer, batch: Batch, means: Any, site: str) -> Tensor:
        samples = batch if means is None else _with_members(means)
        expected, found = batch.inputs.shape[2], samples.inputs.shape[2]
        if expected != found:
            raise UserError(
                f"means: expected samples of {expected} positions, as the batch has, found {found}"
            )
        return self._clean(model, samples, site).mean(1, keepdim=True)


def _with_members(batch: Batch) -> Batch:
    return batch if batch.batch_axis else batch.changed(lambda tensor: tensor[None])


def _on_single(function: SiteFunction, tensor: Tensor) -> Tensor:
    return function(tensor[None])[0]


class OfHeads(Intervention):
    """What those of heads have in common: `heads`; `None` means all heads of the layer."""

    heads: tuple[int, ...] | None = None

    def _chosen(self, model: Transformer, batch: Batch) -> Bool[Tensor, " head"]:
        count = model.config.heads
        chosen = list(range(count)) if self.heads is None else list(self.heads)
        if not chosen or not all(0 <= head < count for head in chosen):
            raise UserError(f"heads: expected some of 0 to {count - 1}, found {self.heads}")
        found = torch.zeros(count, dtype=torch.bool, device=batch.inputs.device)
        found[chosen] = True
        return found


class ReplacePattern(OfHeads):
    """Replace attention patterns (rows of the attention matrix) of some heads of one layer.

    Attributes:
        by: a rule; a row on which it leads nowhere is left alone.  Some have short names: `"uniform"` over the keys
            that the row may see (only those with the roles `keys`, if given), `"identity"` (the row itself),
            `"one_hot"` (its partner under `relation`, if it sees it).  Or numbers: `"mean"` (the head's mean pattern
            over `means`), or `"matrix"` (rows of `matrix` `[query][key]`).
        means: samples over which a mean is taken; by default those that are changed.
    """

    kind: Literal["replace_pattern"] = "replace_pattern"
    by: Literal["uniform", "identity", "one_hot", "mean", "matrix"] | Rule
    keys: Roles = {}
    relation: str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    means: Any = Field(None, exclude=True, repr=False)

    @model_validator(mode="after")
    def _complete(self) -> "ReplacePattern":
        for name, given, needed in (
            ("relation", self.relation is not None, "one_hot"),
            ("matrix", self.matrix is not None, "matrix"),
        ):
            if given != (self.by == needed):
                raise ValueError(
                    f"{name}: expected with by = {needed!r} and only there, found by = {self.by!r}"
                )
        if self.keys and self.by != "uniform":
            raise ValueError(f"keys: expected with by = 'uniform' only, found by = {self.by!r}")
        return self

    @property
    def rule(self) -> Rule | None:
        """The rule that stands in; `None` for `"mean"` and `"matrix"`, which are numbers."""
        if not isinstance(self.by, str):
            return self.by
        uniform = rules.OverRole(keys=self.keys) if self.keys else rules.Uniform()
        one_hot, identity = rules.Related(relation=self.relation or ""), rules.Identity()
        return {"uniform": uniform, "one_hot": one_hot, "identity": identity}.get(self.by)

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        heads, (new, exists) = self._chosen(model, batch)[:, None], self._stand_in(model, batch)
        here = (heads & selected(batch, self.rows)[:, :, None] & exists)[..., None]
        return {self._at(_PATTERN): lambda pattern: torch.where(here, new, pattern)}

    def _stand_in(self, model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
        # Patterns [member, batch, head, query, key], and the rows for which there is one.
        rule, causal, length = self.rule, model.config.causal, batch.inputs.shape[2]
        every = torch.ones(length, dtype=torch.bool, device=batch.inputs.device)
        if rule is None and self.matrix is None:
            return self._mean(model, batch, self.means, _PATTERN), every
        if rule is None:
            matrix = torch.tensor(self.matrix, device=batch.inputs.device)
            if matrix.shape != (length, length):
                raise UserError(f"matrix: expected shape {(length, length)}, found {tuple(matrix.shape)}")
            return matrix, every
        if not isinstance(rule, rules.Learned | rules.MeanMap | rules.History):
            pattern, exists = patterns(rule, batch, causal)
            return pattern[:, :, None], exists[:, :, None]
        own = self._clean(model, batch, _PATTERN)
        rows = selected(batch, self.rows).expand(len(own), -1, -1)
        of_heads = [patterns(rule, batch, causal, each, rows) for each in own.unbind(2)]
        return torch.stack([each[0] for each in of_heads], 2), torch.stack([each[1] for each in of_heads], 2)


class SwapAttention(OfHeads):
    """Exchange the attention weights of two keys, `first` and `second`, in rows that see both; others stay."""

    kind: Literal["swap_attention"] = "swap_attention"
    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        seen, source = visible(batch, model.config.causal).t(), _exchanged(self, batch)
        both = (seen[each.on(batch).clamp(min=0)] for each in (self.first, self.second))
        rows = selected(batch, self.rows) & next(both) & next(both)
        here = (self._chosen(model, batch)[:, None] & rows[:, :, None])[..., None]

        def swapped(pattern: Tensor) -> Tensor:
            return torch.where(here, torch.take_along_dim(pattern, source[:, :, None, None], -1), pattern)

        return {self._at(_PATTERN): swapped}


def _exchanged(swap: "SwapAttention | SwapValues", batch: Batch) -> Int[Tensor, "member batch position"]:
    # For each position the one that stands in for it; none is exchanged where there are not both.
    one, other = (each.on(batch)[..., None] for each in (swap.first, swap.second))
    here = torch.arange(batch.inputs.shape[2], device=one.device).expand(batch.inputs.shape[:3])
    first, second = one.clamp(min=0), other.clamp(min=0)
    return torch.where(
        (one >= 0) & (other >= 0), here.scatter(-1, first, second).scatter(-1, second, first), here
    )


class EqualizeAttention(OfHeads):
    """Set the attention weights of the keys with the roles `keys` that a row sees to their mean."""

    kind: Literal["equalize_attention"] = "equalize_attention"
    keys: Roles

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        keys = visible(batch, model.config.causal) & selected(batch, self.keys)[:, :, None]
        rows = (keys & selected(batch, self.rows)[..., None])[:, :, None]
        here = rows & self._chosen(model, batch)[:, None, None]

        def equal(pattern: Tensor) -> Tensor:
            mass = torch.where(here, pattern, 0.0).sum(-1, keepdim=True)
            return torch.where(here, mass / here.sum(-1, keepdim=True).clamp(min=1), pattern)

        return {self._at(_PATTERN): equal}


class SwapValues(OfHeads):
    """Exchange what two positions hand on as *values*, while queries and keys stay as they are.

    Attributes:
        what: the token's (or vector's) own embedding (`"symbol"`), its position code (`"position"`), or the whole
            residual stream that enters the layer (`"stream"`).
        first, second: the two positions.
    """

    kind: Literal["swap_values"] = "swap_values"
    what: Literal["symbol", "position", "stream"]
    first: Site
    second: Site

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        heads, source = self._chosen(model, batch), _exchanged(self, batch)
        layer = cast(Layer, model.layers[self.layer])
        moved = (source != torch.arange(source.shape[-1], device=source.device))[..., None, None]
        entering, seen = self._at("hook_resid_pre"), dict[str, Tensor]()
        part = {"symbol": "hook_embed", "position": "hook_pos_embed", "stream": entering}[self.what]

        def remember(name: str, tensor: Tensor) -> Tensor:
            seen[name] = tensor
            return tensor

        def swapped(value: Tensor) -> Tensor:
            taken = torch.take_along_dim(seen[part], source[..., None], 2)
            edited = layer.read(seen[entering] + taken - seen[part])
            made = layer.attention.values(edited[0] if model.members is None else edited).transpose(-3, -2)
            return torch.where(heads[:, None] & moved, made, value)

        remembered: Functions = {name: partial(remember, name) for name in (part, entering)}
        return {**remembered, self._at("attn.hook_v"): swapped}


class AblateHead(OfHeads):
    """Replace the output of heads (before the output projection) at some rows.

    Attributes:
        by: `"zero"`; `"mean"` (over `means`, by position); `"resample"` (the same place in the next sample).
        means: samples over which a mean is taken; by default those that are changed.
    """

    kind: Literal["ablate_head"] = "ablate_head"
    by: Literal["zero", "mean", "resample"]
    means: Any = Field(None, exclude=True, repr=False)

    def _functions(self, model: Transformer, batch: Batch) -> Functions:
        here = selected(batch, self.rows)[..., None] & self._chosen(model, batch)
        return _ablated(self, model, batch, here[..., None], "attn.hook_z")


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
    value: AblateHead | AblateMLP, model: Transformer, batch: Batch, here: Tensor, site: str
) -> Functions:
    mean = value._mean(model, batch, value.means, site) if value.by == "mean" else None

    def ablated(out: Tensor) -> Tensor:
        new = out.roll(-1, 1) if value.by == "resample" else torch.zeros_like(out) if mean is None else mean
        return torch.where(here, new, out)

    return {value._at(site): ablated}
