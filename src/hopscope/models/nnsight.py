"""A member in nnsight, under the names of TransformerLens.

`to_nnsight(module)` opens a member so that every site of `hopscope.models.sites` is a place of the trace:
`model.blocks[0].attn.hook_pattern.output` has the name, the shape and the value of
`module.cache(inputs)["blocks.0.attn.hook_pattern"]`, and what is put in its place goes on.  `RENAME` gives the member's
own modules their names in TransformerLens, for whoever traces the plain module with
`nnsight.NNsight(module, rename=RENAME)`.

To import nnsight changes the whole process: it gives every object a method `save`.
"""

import warnings
from typing import Any, Final

from torch import Tensor, nn

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.member import MemberTransformer
from hopscope.models.sites import PREDICTIONS, site_names

RENAME: Final[dict[str, str]] = {
    "layers": "blocks",
    "attention": "attn",
    "attention_norm": "ln1",
    "mlp_norm": "ln2",
    "final_norm": "ln_final",
    "readout": "unembed",
    "attention.query": "attention.hook_q",
    "attention.key": "attention.hook_k",
    "attention.value": "attention.hook_v",
    "mlp.inner": "mlp.hook_pre",
}
"""Name of a member's module → its name in TransformerLens, as nnsight's `rename` takes it.

| traced | holds the site | shape |
| --- | --- | --- |
| `blocks[L].input`, `blocks[L].output` | `blocks.L.hook_resid_pre`, `hook_resid_post` | as there |
| `blocks[L].attn.hook_q.output`, `hook_k`, `hook_v` | the same | heads side by side |
| `blocks[L].attn.E_output.input`, `.output` | `attn.hook_z` (heads side by side), `hook_attn_out` | |
| `blocks[L].mlp.hook_pre.output`, `blocks[L].mlp.outer.input` | `mlp.hook_pre`, `mlp.hook_post` | as there |
| `blocks[L].mlp.output` | `hook_mlp_out` | as there |
| `ln_final.output` | `ln_final.hook_normalized` (pre-norm models) | as there |
| `unembed.output` | predictions at every position | `[batch, position, output]` |

The scores and patterns of attention are no module's output: `to_nnsight` has them.
"""


class HookPoint(nn.Module):
    """A place of the forward pass that does nothing: a trace reads or replaces what passes."""

    def forward(self, tensor: Tensor) -> Tensor:
        """The tensor that it was given."""
        return tensor


class SiteModules(nn.Module):
    """A member whose named sites are modules.

    Attributes:
        blocks: one for each layer, with `attn`, `mlp` and the hook points of the layer.
    """

    def __init__(self, module: MemberTransformer):
        super().__init__()
        self.member = module
        self.blocks = nn.ModuleList(nn.Module() for _ in range(module.config.layers))
        # A plain mapping: the hook points are modules of the tree that their names say.
        self._points: dict[str, HookPoint] = {name: self._placed(name) for name in _names(module.config)}

    def forward(self, inputs: Tensor) -> Tensor:
        """Predictions at every position `[batch, position, output]`, as of the member."""
        return self.member(inputs, lambda name, tensor: self._points[name](tensor))

    def _placed(self, name: str) -> HookPoint:
        place: nn.Module = self
        *parents, own = name.split(".")
        for parent in parents:
            if not hasattr(place, parent):
                place.add_module(parent, nn.Module())
            place = getattr(place, parent)
        point = HookPoint()
        place.add_module(own, point)
        return point


def _names(config: TransformerConfig) -> list[str]:
    return [name for name in site_names(config) if name != PREDICTIONS]


def to_nnsight(module: MemberTransformer) -> Any:
    """The member as an `nnsight.NNsight` model whose places have the names and shapes of `member.cache`.

    ```python
    model = to_nnsight(hopscope.load("member0"))
    with model.trace(inputs):                                        # in the order of the forward pass
        pattern = model.blocks[0].attn.hook_pattern.output.save()    # [batch, head, query, key]
        model.blocks[1].attn.hook_z.output[:, :, 0] = 0              # take away head 0 of layer 1
        predictions = model.output.save()                            # [batch, position, output]
    ```

    Raises:
        UserError: nnsight is not installed.
    """
    try:
        from nnsight import NNsight
    except ImportError:
        raise UserError(
            "nnsight: expected it to be installed, found none; pip install 'hopscope[nnsight]'"
        ) from None
    with warnings.catch_warnings():
        # Of the member's own modules, where that word means a value too; the names of sites are not concerned.
        warnings.filterwarnings("ignore", "Module '.*attention' has a submodule named 'output'")
        return NNsight(SiteModules(module).eval())
