"""Named sites of a forward pass: the one place that says what they are called and what they hold.

Names and shapes are those of TransformerLens, without its hooks: a pass calls one function, a `Visit`, at every site
and goes on with what it returns.  Shapes are those of one member; an ensemble's tensors have a leading member axis.
A *stream* is `[batch, position, width]`, *heads* are `[batch, position, head, head_dim]`, and a *pattern* is
`[batch, head, query, key]`.

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

A post-norm model norms the stream itself, after each sum.  There `hook_resid_mid` is the stream after the norm that
follows attention, `norm(hook_resid_pre + hook_attn_out)`, and `hook_resid_post` is the stream after the last norm of
the layer, which is what the next layer reads.  In a pre-norm model the norms stand before attention and MLP, and the
streams are plain sums.
"""

import difflib
import re
from collections.abc import Callable, Iterable

from jaxtyping import Float
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig

Visit = Callable[[str, Tensor], Tensor]
"""Called at a site with its name and tensor; the pass goes on with the tensor that it returns."""

PREDICTIONS = "predictions"

_CLOSE_NAMES = 4
"""Most names that are listed where a name is not known."""


_LAYER = (
    "hook_resid_pre",
    "attn.hook_q",
    "attn.hook_k",
    "attn.hook_attn_scores",
    "attn.hook_v",
    "attn.hook_pattern",
    "attn.hook_z",
    "hook_attn_out",
    "hook_resid_mid",
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
)
_ONLY_WITH_MLP = ("hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out")


def site_names(config: TransformerConfig) -> list[str]:
    """Names of all sites of a model, in the order of the forward pass."""
    layer = [name for name in _LAYER if config.mlp_size or name not in _ONLY_WITH_MLP]
    return [
        "hook_embed",
        *(["hook_pos_embed"] if has_position_code(config) else []),
        *(f"blocks.{number}.{name}" for number in range(config.layers) for name in layer),
        *(["ln_final.hook_normalized"] if config.norm == "pre" else []),
        PREDICTIONS,
    ]


def has_position_code(config: TransformerConfig) -> bool:
    """Whether a position code can be told apart from the token or vector: it is learned, or the last features."""
    return bool(config.position_count or config.position_size)


def readout_rows(config: TransformerConfig, positions: int) -> list[int]:
    """Readout positions that inputs of this length have."""
    return [position for position in config.readout_positions if position < positions]


def unchanged(name: str, tensor: Tensor) -> Tensor:
    """The visit that does nothing."""
    return tensor


def in_turn(*visits: Visit | None) -> Visit:
    """One visit after another, those that are `None` left out."""
    several = [visit for visit in visits if visit is not None]

    def visit_all(name: str, tensor: Tensor) -> Tensor:
        for visit in several:
            tensor = visit(name, tensor)
        return tensor

    return visit_all


def visit_heads(
    visit: Visit, name: str, heads: Float[Tensor, "*lead head position head_dim"]
) -> Float[Tensor, "*lead head position head_dim"]:
    """Visit a site whose tensor has the position before the head."""
    return visit(name, heads.transpose(-3, -2)).transpose(-3, -2)


def at_layer(visit: Visit, layer: int) -> Visit:
    """The visit of one layer, which knows its sites by short names such as `attn.hook_pattern`."""
    return lambda name, tensor: visit(f"blocks.{layer}.{name}", tensor)


def unknown_site(name: object, known: Iterable[str]) -> UserError:
    """The error for a name that is no site, with the names that come close."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, _CLOSE_NAMES, 0.6)
    if not close:
        generic = (re.sub(r"^blocks\.\d+\.", "blocks.L.", each) for each in names)
        close = list(dict.fromkeys(generic))
    layers = 1 + max((int(each.split(".")[1]) for each in names if each.startswith("blocks.")), default=-1)
    return UserError(
        f"site: expected a site of this model ({layers} layer{'s' * (layers != 1)}, counted from 0), "
        f"found {name!r}; close to it: {', '.join(close)}"
    )
