"""A one-layer token model as JSON values, for a page that computes it in the reader's browser."""

import base64
from typing import Any

import numpy as np
from torch import Tensor

from hopscope.models.member import MemberTransformer


def explorer_model(module: MemberTransformer, name: str, file: str, key: str = "") -> dict[str, Any]:
    """One member as the page's explorer reads it.

    Args:
        module: the member; `Transformer.member(index)` gives one of an ensemble.
        name: what the reader chooses it by.
        file: the file in the run that the weights are from.
        key: which of them, in words.

    Returns:
        `name`, `file`, `key`; `config`, the shape of the model; `weights`, name → `shape` and `data`, the base64 of
        little-endian float32 in row-major order, named and shaped as in `module.state_dict()` (`[out, in]`).

    Raises:
        ValueError: the model has several layers, reads vectors, or lets positions see later ones.
    """
    config = module.config
    if config.layers != 1 or config.input_kind != "tokens" or not config.causal:
        raise ValueError(
            "explorer model: expected one causal layer that reads tokens, found "
            f"{config.layers} layers, input {config.input_kind!r}, causal {config.causal}"
        )
    return {
        "name": name,
        "file": file,
        "key": key,
        "config": {
            "values": config.input_size - 1,
            "length": config.length,
            "width": config.width,
            "heads": config.heads,
            "head_size": config.head_size,
            "mlp_size": config.mlp_size,
            "activation": config.activation,
            "norm": config.norm,
            "positions": config.positions,
        },
        "weights": {name: _packed(tensor) for name, tensor in module.state_dict().items()},
    }


def _packed(tensor: Tensor) -> dict[str, Any]:
    array = tensor.detach().cpu().numpy().astype(np.dtype("<f4"))
    return {"shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode("ascii")}
