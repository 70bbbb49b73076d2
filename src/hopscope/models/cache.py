"""What happened inside a forward pass: every named site, or the few that probes need."""

from typing import NoReturn

from jaxtyping import Float
from torch import Tensor

from hopscope import display
from hopscope.models.sites import unknown_site


class Cache(dict[str, Tensor]):
    """The tensors of every named site of one forward pass, without gradients.

    `cache["blocks.0.attn.hook_pattern"]` is `[batch, head, query, key]`; `hopscope.models.sites` lists all names with
    their shapes.  The cache of an ensemble has a leading member axis.  A site that the model lacks is a `UserError`.
    """

    def __missing__(self, name: str) -> NoReturn:
        raise unknown_site(name, self)

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
        return [tensor for name, tensor in self.items() if name.endswith(f".{site}")]

    def __repr__(self) -> str:
        longest = max(map(len, self), default=0)
        lines = [f"{name:<{longest}}  {list(tensor.shape)}" for name, tensor in self.items()]
        return "\n".join([f"Cache of {len(self)} sites", *lines])

    def _repr_html_(self) -> str:
        """The attention patterns of the first sample (of the first member), and the shape of every site."""
        maps: list[str] = []
        more = 0
        for layer, pattern in enumerate(self.patterns):
            first = pattern.reshape(-1, *pattern.shape[-3:])[0]
            for head, shares in enumerate((first * 255).round().byte().cpu().tolist()):
                if len(maps) < MOST_MAPS:
                    maps.append(
                        display.heat_map([bytes(row) for row in shares], f"layer {layer}, head {head}")
                    )
                else:
                    more += 1
        said = "Attention of the first sample: rows read, columns are read, dark is 1."
        sites = display.table(
            ("site", "shape"), ((name, list(tensor.shape)) for name, tensor in self.items())
        )
        return (
            (display.paragraph(said) + "".join(maps) if maps else "")
            + (display.paragraph(f"and {more} more heads") if more else "")
            + display.folded(f"{len(self)} sites", sites)
        )


MOST_MAPS = 32
"""Heads whose patterns a notebook shows of one cache."""


class Recorder:
    """A visit that keeps the tensors of sites, and changes nothing.

    Attributes:
        kept: name → tensor, in the order of the forward pass.
    """

    def __init__(self, *endings: str):
        """Keep the sites whose names end in one of these, by default all."""
        self._endings = endings or ("",)
        self.kept = Cache()

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Keep the tensor, if its site is wanted."""
        if name.endswith(self._endings):
            self.kept[name] = tensor
        return tensor
