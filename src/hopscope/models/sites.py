"""Named sites of a forward pass: what they are called, what they hold, and functions that are called at them.

Names and shapes are those of TransformerLens, without its hooks: a pass calls one function at every site and goes on
with what it returns.  An ensemble's tensors have a leading member axis.  A *stream* is `[batch, position, width]`,
*heads* are `[batch, position, head, head_dim]`, and a *pattern* is `[batch, head, query, key]`.

| site | what it holds | shape |
| --- | --- | --- |
| `hook_embed` | embedded token or vector | stream |
| `hook_pos_embed` | position code; absent where it cannot be told apart from the vector | stream |
| `blocks.L.hook_resid_pre` | stream before layer L | stream |
| `blocks.L.attn.hook_q`, `hook_k`, `hook_v` | queries, keys, values | heads |
| `blocks.L.attn.hook_attn_scores` | scaled scores, -∞ where a key is hidden | pattern |
| `blocks.L.attn.hook_pattern` | attention pattern: the softmax of the scores | pattern |
| `blocks.L.attn.hook_z` | head outputs before the output projection | heads |
| `blocks.L.hook_attn_out` | what attention adds to the stream | stream |
| `blocks.L.hook_resid_mid` | stream between attention and MLP; absent without an MLP | stream |
| `blocks.L.mlp.hook_pre`, `hook_post` | MLP before and after its nonlinearity | `[batch, position, mlp]` |
| `blocks.L.hook_mlp_out` | what the MLP adds to the stream | stream |
| `blocks.L.hook_resid_post` | stream after layer L | stream |
| `ln_final.hook_normalized` | last stream after the final norm; only in pre-norm models | stream |
| `predictions` | predictions at the readout positions | `[batch, readout, output]` |

A post-norm model norms the stream itself, after each sum: there `hook_resid_mid` is the stream after the norm that
follows attention, and `hook_resid_post` the one after the last norm of the layer, which is what the next layer reads.
"""

import base64
import difflib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

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
    layer = [*_ATTENTION, *(_MLP if config.mlp_size else ()), "hook_resid_post"]
    return [
        "hook_embed",
        *(["hook_pos_embed"] if config.position_count or config.position_size else []),
        *(f"blocks.{number}.{name}" for number in range(config.layers) for name in layer),
        *(["ln_final.hook_normalized"] if config.norm == "pre" else []),
        "predictions",
    ]


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
        self._names = None if names is None else frozenset(names)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Keep the tensor of a site, if it is wanted."""
        if self._names is None or name in self._names:
            self[name] = tensor
        return tensor

    def __missing__(self, name: str) -> NoReturn:
        check_sites([name], [*self])
        raise KeyError(name)

    def __repr__(self) -> str:
        longest = max(map(len, self), default=0)
        lines = [f"{name:<{longest}}  {list(tensor.shape)}" for name, tensor in self.items()]
        return "\n".join([f"Cache of {len(self)} sites", *lines])

    def _repr_html_(self) -> str:
        """Attention of every head on the first sample: a row reads the columns, and what is darker it reads more."""
        maps = ""
        for name, tensor in self.items():
            if name.endswith("hook_pattern"):
                heads = tensor[(0,) * (tensor.ndim - 3)].detach().float().cpu()
                shown = (_picture(255 - (255 * each).round().byte()) for each in heads)
                places = (f"layer {name.split('.')[1]}, head {at}{each}" for at, each in enumerate(shown))
                maps += (
                    "".join(f'<div style="display: inline-block">{each}</div>' for each in places) + "<br>"
                )
        return f"<pre>{self!r}</pre>{maps}"


def _picture(grey: Tensor) -> str:
    # As a PNG, which takes no script and no network to see.
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(row) for row in grey.tolist()))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    style = (
        "display: block; height: 120px; margin: 0 8px 8px 0; border: 1px solid; image-rendering: pixelated"
    )
    return f'<img alt="" style="{style}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


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
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "None" if value is None else type(value).__name__
