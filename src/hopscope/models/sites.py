"""Named sites of a forward pass: what they are called, what they hold, and functions that are called at them.

Names and shapes are those of TransformerLens, without its hooks: a pass calls one function at every site and goes on
with what it returns.  docs/api/models.md says what each holds, and what differs.  An ensemble's tensors have a leading
member axis.

A post-norm model norms the stream itself, after each sum: there `hook_resid_mid` is the stream after the norm that
follows attention, and `hook_resid_post` the one after the last norm of the layer, which is what the next layer reads.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.layers import At

SiteFunction = Callable[[Tensor], Tensor]
"""Any function of the tensor at a site; it returns one of the same shape."""

_ATTENTION = (
    "hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_attn_scores", "attn.hook_v",
    "attn.hook_pattern", "attn.hook_z", "hook_attn_out",
)  # fmt: skip
_MLP = ("hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out")


def site_names(config: TransformerConfig) -> list[str]:
    """Names of all sites of a model, in the order of the forward pass."""
    code = ["hook_pos_embed"] if config.position_count or config.position_size else []
    layer = [*_ATTENTION, *(_MLP if config.mlp_size else ()), "hook_resid_post"]
    layers = [f"blocks.{number}.{name}" for number in range(config.layers) for name in layer]
    final = ["ln_final.hook_normalized"] if config.norm == "pre" else []
    return ["hook_embed", *code, *layers, *final, "predictions"]


def check_sites(names: Iterable[object], known: Sequence[str]) -> None:
    """Refuse a name that is not a known site, by a `UserError` with those that come close."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 4)
            close = close or [*dict.fromkeys(re.sub(r"^blocks\.\d+\.", "blocks.L.", each) for each in known)]
            words = f"found {name!r}; close to it: {', '.join(close)}"
            raise UserError(f"site: expected a site of this model, {words}")


class Cache(dict[str, Tensor]):
    """The tensors of named sites of one forward pass: `cache["blocks.0.attn.hook_pattern"]`.

    It is what a pass calls at its sites to keep them.  A site that was not kept is a `UserError`.
    """

    def __init__(self, names: Iterable[str] | None = None):
        """Keep these sites; by default all."""
        super().__init__()
        self.names = None if names is None else frozenset([names] if isinstance(names, str) else names)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Keep the tensor of a site, if it is wanted."""
        if self.names is None or name in self.names:
            self[name] = tensor
        return tensor

    def __missing__(self, name: str) -> NoReturn:
        kept = difflib.get_close_matches(name, self, 4) or [*self][:4] or ["none was"]
        raise UserError(f"site: expected one that was kept ({', '.join(kept)} …), found {name!r}")

    def __repr__(self) -> str:
        lines = (f"{name}  {list(tensor.shape)}" for name, tensor in self.items())
        return "\n".join([f"Cache of {len(self)} sites", *lines])

    def _repr_html_(self) -> str:
        """Attention of every head on the first sample: a row reads the columns, and what is darker it reads more."""
        maps = list[str]()
        for name in (each for each in self if each.endswith("hook_pattern")):
            heads = self[name][(0,) * (self[name].ndim - 3)].detach().float().cpu()
            words = f"layer {name.split('.')[1]}, head"
            maps += (f"<figure>{_map(each)}{words} {head}</figure>" for head, each in enumerate(heads))
        return f"<pre>{self!r}</pre><div style='display: flex; flex-wrap: wrap'>{''.join(maps)}</div>"


def _map(pattern: Tensor) -> str:
    cells = [
        f'<rect x="{key}" y="{row}" width="1" height="1" fill-opacity="{pattern[row, key]:.2f}"/>'
        for row, key in (pattern >= 0.02).nonzero().tolist()
    ]
    size = f'viewBox="0 0 {pattern.shape[1]} {pattern.shape[0]}" height="120"'
    return f'<svg {size} style="display: block; border: 1px solid" fill="currentColor">{"".join(cells)}</svg>'


def calling(functions: Mapping[str, Sequence[SiteFunction]]) -> At:
    """What calls functions at their sites, one after another; each is given a copy, which it may change in place."""

    def at(name: str, tensor: Tensor) -> Tensor:
        for function in functions.get(name, ()):
            found = function(tensor.clone())
            if not isinstance(found, Tensor) or (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                raise UserError(
                    f"{name}: expected a function that returns a tensor like the one it is given, "
                    f"{described(tensor)}, found {described(found)}; return the tensor, changed or not"
                )
            tensor = found
        return tensor

    return at


def described(value: object) -> str:
    """What a value is, in an error."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, Tensor):
        return f"{described(value.dtype)} {list(value.shape)}"
    return "None" if value is None else type(value).__name__
