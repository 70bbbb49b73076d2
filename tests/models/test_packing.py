import math

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.packing import explorer_shape
from hopscope.models.transformer import Transformer
from hopscope.report.explorer import ExplorerShape

SHAPE = {
    "heads": 2, "width": 7, "head_dim": 3, "mlp_ratio": 11 / 7, "activation": "relu", "norm": "post",
    "length": 13, "input_size": 5, "output_size": 17, "layers": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{}, {"input_kind": "vectors", "norm": "pre"}, {"positions": "pair", "mlp_ratio": 0.0}],
    ids=str,
)
def test_the_layout_is_that_of_the_weights(changes):
    config = TransformerConfig.model_validate({**SHAPE, **changes})
    model = Transformer.initial(config, torch.tensor([3, 5]))
    found = explorer_shape(config)
    assert found["layout"] == [[name, list(view.shape[1:])] for name, view in model.weights.items()]
    shape = ExplorerShape.model_validate(found)
    assert shape.size == sum(math.prod(view.shape[1:]) for view in model.weights.values())


def test_it_is_what_the_page_reads():
    config = TransformerConfig.model_validate({**SHAPE, "positions": "pair", "readout": (2, 12)})
    shape = ExplorerShape.model_validate(explorer_shape(config))
    assert shape.config.model_dump() == {
        "inputs": "tokens", "input_size": 5, "output_size": 17, "length": 13, "readout": [2, 12],
        "codes": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6], "layers": 2, "heads": 2, "head_size": 3, "width": 7,
        "mlp_size": 11, "activation": "relu", "norm": "post", "causal": True,
    }  # fmt: skip
