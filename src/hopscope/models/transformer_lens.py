"""A member in TransformerLens: as its own `HookedTransformer` where that has a place for all weights, else adapted.

Token models with norms before attention and MLP, or with none, are such models.  Post-norm models and models on vectors
are not; `HookedMember` gives them the two calls that most analyses use.  Names and shapes of hooks are those of
TransformerLens in both cases (`hopscope.models.sites`).  Version 4 has no `HookedTransformer` any more, so the extra
asks for version 3.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hopscope.errors import UserError
from hopscope.models.cache import Cache, Recorder
from hopscope.models.config import TransformerConfig
from hopscope.models.member import Block, MemberTransformer
from hopscope.models.sites import site_names, unknown_site

Hook = tuple[str, Callable[..., Tensor | None]]
"""Name of a site, and a function of its tensor and `hook` that returns a tensor in its place, or `None`."""


def is_native(config: TransformerConfig) -> bool:
    """Whether TransformerLens has a model of this shape."""
    return config.input_kind == "tokens" and config.norm != "post"


def to_transformer_lens(module: MemberTransformer) -> Any:
    """The member as a `transformer_lens.HookedTransformer` with the same logits at every position, on the CPU.

    Raises:
        UserError: TransformerLens is not installed, or has no such model; `HookedMember` adapts those.
    """
    if not is_native(module.config):
        raise UserError(
            "model: expected one on tokens without post-norm, which TransformerLens has, found "
            f"{module.config.input_kind} with norm {module.config.norm!r}; wrap it in HookedMember of the same file"
        )
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        raise UserError(
            "transformer_lens: expected it to be installed, found none; pip install 'hopscope[transformer-lens]'"
        ) from None
    shape = module.config
    config = HookedTransformerConfig(
        n_layers=shape.layers, d_model=shape.width, n_heads=shape.heads, d_head=shape.head_size, n_ctx=shape.length,
        d_mlp=shape.mlp_size or None, attn_only=not shape.mlp_size, act_fn=shape.activation,
        normalization_type="LN" if shape.norm == "pre" else None, d_vocab=shape.input_size,
        d_vocab_out=shape.output_size, attention_dir="causal" if shape.causal else "bidirectional", eps=1e-5,
        init_weights=False, device="cpu", default_prepend_bos=False,
    )  # fmt: skip
    hooked = HookedTransformer(config)
    # What is not a weight (masks) stays as it is; a weight that is missing would be noticed by unequal logits.
    hooked.load_state_dict(hooked.state_dict() | _state(module))
    return hooked.eval()


def _state(module: MemberTransformer) -> dict[str, Tensor]:
    shape, embed = module.config, module.embed
    codes = torch.zeros(shape.length, shape.width)
    if shape.position_count:
        codes = embed.position.weight[list(shape.position_codes)]
    state = {
        "embed.W_E": embed.token.weight,
        "pos_embed.W_pos": codes,
        "unembed.W_U": module.readout.weight.T,
        "unembed.b_U": module.readout.bias,
    }
    if shape.norm == "pre":
        assert isinstance(module.final_norm, nn.LayerNorm)
        state |= {"ln_final.w": module.final_norm.weight, "ln_final.b": module.final_norm.bias}
    for number, block in enumerate(module.layers):
        assert isinstance(block, Block)
        state |= {f"blocks.{number}.{name}": tensor for name, tensor in _block(block, shape).items()}
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def _block(block: Block, shape: TransformerConfig) -> dict[str, Tensor]:
    by_head, attention = (shape.heads, shape.head_size), block.attention
    state = {"attn.W_O": attention.output.weight.T.unflatten(0, by_head), "attn.b_O": attention.output.bias}
    for name, linear in (("Q", attention.query), ("K", attention.key), ("V", attention.value)):
        state[f"attn.W_{name}"] = linear.weight.T.unflatten(1, by_head).transpose(0, 1)
        state[f"attn.b_{name}"] = linear.bias.unflatten(0, by_head)
    if shape.norm == "pre":
        state |= {"ln1.w": block.attention_norm.weight, "ln1.b": block.attention_norm.bias}
    if shape.mlp_size:
        state |= {"mlp.W_in": block.mlp.inner.weight.T, "mlp.b_in": block.mlp.inner.bias}
        state |= {"mlp.W_out": block.mlp.outer.weight.T, "mlp.b_out": block.mlp.outer.bias}
        if shape.norm == "pre":
            state |= {"ln2.w": block.mlp_norm.weight, "ln2.b": block.mlp_norm.bias}
    return state


class HookedMember:
    """Any member with the calls of TransformerLens: `run_with_cache` and `run_with_hooks`.

    Attributes:
        module: the member.
    """

    def __init__(self, module: MemberTransformer):
        self.module = module

    def __call__(self, inputs: Tensor) -> Tensor:
        """Predictions at every position `[batch, position, output]`."""
        return self.module(inputs)

    def run_with_cache(self, inputs: Tensor) -> tuple[Tensor, Cache]:
        """Predictions at every position, and the tensor of every site but `predictions`."""
        recorder = Recorder()
        return self.module(inputs, recorder), recorder.kept

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Sequence[Hook] = ()) -> Tensor:
        """Predictions at every position, where each hook's function is called with a site's tensor and `hook=name`.

        Raises:
            UserError: a hook names no site of the pass.
        """
        called: set[str] = set()

        def visit(name: str, tensor: Tensor) -> Tensor:
            for site, function in fwd_hooks:
                if site == name:
                    called.add(site)
                    found = function(tensor, hook=name)
                    tensor = tensor if found is None else found
            return tensor

        predictions: Tensor = self.module(inputs, visit)
        for site, _ in fwd_hooks:
            if site not in called:
                raise unknown_site(site, site_names(self.module.config)[:-1])
        return predictions
