"""What the page's explorer must know of a model to compute it in the reader's browser."""

from typing import Any

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import parameter_specs


def explorer_shape(config: TransformerConfig) -> dict[str, Any]:
    """The shape of a model as the page's forward pass reads it.

    Returns:
        `config`: its sizes and choices, and `codes`, the number of the learned code of each position (empty where none
        is learned); `layout`: name and shape of every weight, in the order in which a checkpoint's weights are put side
        by side (linear maps are `[in, out]`).
    """
    return {
        "config": {
            "inputs": config.input_kind,
            "input_size": config.input_size,
            "output_size": config.output_size,
            "length": config.length,
            "readout": list(config.readout_positions),
            "codes": list(config.position_codes) if config.position_count else [],
            "layers": config.layers,
            "heads": config.heads,
            "head_size": config.head_size,
            "width": config.width,
            "mlp_size": config.mlp_size,
            "activation": config.activation,
            "norm": config.norm,
            "causal": config.causal,
        },
        "layout": [[spec.name, list(spec.shape)] for spec in parameter_specs(config)],
    }
