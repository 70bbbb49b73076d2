"""What happened inside a forward pass: every named site, or the few that probes need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from hopscope.models.sites import unknown_site


class Cache(Mapping[str, Tensor]):
    """The tensors of every named site of one forward pass, without gradients.

    `cache["blocks.0.attn.hook_pattern"]` is `[batch, head, query, key]`; `hopscope.models.sites` lists all names with
    their shapes.  The cache of an ensemble has a leading member axis.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        self._tensors = dict(tensors)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of a site.

        Raises:
            UserError: the model has no such site.
        """
        if name not in self._tensors:
            raise unknown_site(name, self._tensors)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    # A mapping finds these two out by a KeyError, which an unknown site does not raise.
    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def get(self, name: str, default: Any = None) -> Any:
        """The tensor of a site, or `default` where the model has no such site."""
        return self._tensors.get(name, default)

    def __repr__(self) -> str:
        longest = max(map(len, self._tensors), default=0)
        lines = [f"{name:<{longest}}  {list(tensor.shape)}" for name, tensor in self._tensors.items()]
        return "\n".join([f"Cache of {len(self)} sites", *lines])


class Recorder:
    """A visit that keeps the tensors of sites, and changes nothing.

    Attributes:
        kept: name → tensor, in the order of the forward pass.
    """

    def __init__(self, *endings: str):
        """Keep the sites whose names end in one of these, by default all."""
        self._endings = endings or ("",)
        self.kept: dict[str, Tensor] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Keep the tensor, if its site is wanted."""
        if name.endswith(self._endings):
            self.kept[name] = tensor
        return tensor


@dataclass(frozen=True)
class Captured:
    """What probes need of one forward pass, one tensor per layer.

    Attributes:
        patterns: attention patterns, after edits.
        heads: head outputs before the output projection, after edits.
        mlps: MLP outputs, after edits (none for a model without MLP).
        streams: residual stream that enters each layer, and the one that leaves the last.
    """

    patterns: list[Float[Tensor, "*lead head query key"]]
    heads: list[Float[Tensor, "*lead head query head_dim"]]
    mlps: list[Float[Tensor, "*lead query model"]]
    streams: list[Float[Tensor, "*lead position model"]]

    @classmethod
    def recorder(cls) -> Recorder:
        """A visit that keeps what `of` needs."""
        return Recorder(
            "attn.hook_pattern", "attn.hook_z", "hook_mlp_out", "hook_resid_pre", "hook_resid_post"
        )

    @classmethod
    def of(cls, sites: Mapping[str, Tensor], layers: int) -> "Captured":
        """What a recorder kept, layer by layer."""

        def each(site: str) -> list[Tensor]:
            names = (f"blocks.{layer}.{site}" for layer in range(layers))
            return [sites[name] for name in names if name in sites]

        heads = [z.transpose(-3, -2) for z in each("attn.hook_z")]
        streams = [*each("hook_resid_pre"), *each("hook_resid_post")[-1:]]
        return cls(each("attn.hook_pattern"), heads, each("hook_mlp_out"), streams)
