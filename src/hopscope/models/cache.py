"""What happened inside a forward pass: every named site, or the few that probes need."""

from collections.abc import Iterator, Mapping
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

    # The same tensors layer by layer, for probes.

    @property
    def patterns(self) -> list[Float[Tensor, "*lead head query key"]]:
        """Attention patterns of each layer."""
        return self._layers("attn.hook_pattern")

    @property
    def heads(self) -> list[Float[Tensor, "*lead head query head_dim"]]:
        """Head outputs of each layer before the output projection."""
        return [z.transpose(-3, -2) for z in self._layers("attn.hook_z")]

    @property
    def mlps(self) -> list[Float[Tensor, "*lead query model"]]:
        """MLP outputs of each layer; none for a model without MLP."""
        return self._layers("hook_mlp_out")

    @property
    def streams(self) -> list[Float[Tensor, "*lead position model"]]:
        """Residual stream that enters each layer, and the one that leaves the last."""
        return [*self._layers("hook_resid_pre"), *self._layers("hook_resid_post")[-1:]]

    def _layers(self, site: str) -> list[Tensor]:
        return [tensor for name, tensor in self._tensors.items() if name.endswith(f".{site}")]

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
