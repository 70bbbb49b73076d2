"""Interventions as values: what to change in a forward pass, said in layers, heads and roles.

A user writes a list of the values below; `Edits` (in `edits`) turns it, for one batch, into functions of named sites,
which a forward pass calls.  The same values serve evaluation, a clamp during training, and a circuit that was read
(`Circuit.interventions`): what a row reads is said in one language (`patterns`).  What no value says, another function
of a named site can do (`sites`; `intervene` of a member or an ensemble takes both).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.models.patterns import Identity, OverRole, Related, Rule, Uniform
from hopscope.models.patterns import Roles as Roles


class Site(Config):
    """One position per sample: the only one with these roles, or its partner under a relation.

    Attributes:
        roles: roles that exactly one position of every sample must have.
        relation: name of a relation to follow from that position; samples without a partner are left alone.
    """

    roles: Roles
    relation: str | None = None


class ReplacePattern(Config):
    """Replace attention patterns (rows of the attention matrix) of some heads of one layer.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.
        by: a rule of `hopscope.models.patterns`; a row on which it leads nowhere is left alone.  Some have short names:
            `"uniform"` over the keys that the row may see (only those with the roles `keys`, if given), `"identity"`
            (the row itself), `"one_hot"` (its partner under `relation`, if the row has one that is not masked).  Or
            numbers: `"mean"` (the head's mean pattern over a reference batch), or `"matrix"` (rows of `matrix`
            `[query][key]`).
    """

    kind: Literal["replace_pattern"] = "replace_pattern"
    layer: int = Field(ge=0)
    heads: tuple[int, ...] | None = None
    rows: Roles = {}
    by: Literal["uniform", "identity", "one_hot", "mean", "matrix"] | Rule
    keys: Roles = {}
    relation: str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None

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
    def rule(self) -> Rule | None:
        """The rule that stands in; `None` for `"mean"` and `"matrix"`, which are numbers."""
        if not isinstance(self.by, str):
            return self.by
        if self.by == "uniform":
            return OverRole(keys=self.keys) if self.keys else Uniform()
        if self.by == "one_hot":
            return Related(relation=self.relation or "")
        return Identity() if self.by == "identity" else None


class SwapAttention(Config):
    """Exchange the attention weights of two keys; all other weights of the row stay.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.  Rows that may not see both keys are left alone.
        first, second: the two keys.
    """

    kind: Literal["swap_attention"] = "swap_attention"
    layer: int = Field(ge=0)
    heads: tuple[int, ...] | None = None
    rows: Roles = {}
    first: Site
    second: Site


class EqualizeAttention(Config):
    """Set the attention weights of some keys to their mean, so that together they keep their mass.

    Attributes:
        layer, heads: which heads; `None` means all heads of the layer.
        rows: query rows by role.
        keys: keys by role, of which only those count that the row may see; a row that sees none is left alone.
    """

    kind: Literal["equalize_attention"] = "equalize_attention"
    layer: int = Field(ge=0)
    heads: tuple[int, ...] | None = None
    rows: Roles = {}
    keys: Roles


class SwapValues(Config):
    """Exchange what two positions hand on as *values*, while queries and keys stay as they are.

    Attributes:
        layer, heads: which heads read the exchanged values; `None` means all heads of the layer.
        what: the token's (or vector's) own embedding (`"symbol"`), its position code (`"position"`), or the whole
            residual stream that enters the layer (`"stream"`).
        first, second: the two positions.
    """

    kind: Literal["swap_values"] = "swap_values"
    layer: int = Field(ge=0)
    heads: tuple[int, ...] | None = None
    what: Literal["symbol", "position", "stream"]
    first: Site
    second: Site


class AblateHead(Config):
    """Replace the output of heads (before the output projection) at some rows.

    Attributes:
        by: `"zero"`; `"mean"` (over a reference batch, per position); `"resample"` (the same head and position in
            the sample's donor, see `Edits`).
    """

    kind: Literal["ablate_head"] = "ablate_head"
    layer: int = Field(ge=0)
    heads: tuple[int, ...] | None = None
    rows: Roles = {}
    by: Literal["zero", "mean", "resample"]


class AblateMLP(Config):
    """Replace the output of a layer's MLP at some rows; `by` as for `AblateHead`."""

    kind: Literal["ablate_mlp"] = "ablate_mlp"
    layer: int = Field(ge=0)
    rows: Roles = {}
    by: Literal["zero", "mean", "resample"]


Intervention = Annotated[
    ReplacePattern | SwapAttention | EqualizeAttention | SwapValues | AblateHead | AblateMLP,
    Field(discriminator="kind"),
]
"""An intervention of any kind.  Patterns are first replaced, then swapped, then equalised, however they are listed."""
