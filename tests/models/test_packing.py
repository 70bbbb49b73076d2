import base64
import json
import struct

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.packing import explorer_model
from hopscope.models.transformer import Transformer
from hopscope.report.record import ExplorerModel

SHAPE = {
    "heads": 2, "width": 7, "head_dim": 3, "mlp_ratio": 11 / 7, "activation": "relu", "norm": "post",
    "length": 9, "input_size": 6, "output_size": 6,
}  # fmt: skip


def member(index=1, **changes):
    config = TransformerConfig.model_validate({**SHAPE, **changes})
    return Transformer.initial(config, torch.tensor([3, 5])).member(index)


def numbers(packed):
    data = base64.b64decode(packed["data"])
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_weights_come_back_bit_for_bit():
    module = member()
    packed = explorer_model(module, "a model", "units/7/checkpoints/step.safetensors", "member 3")
    assert set(packed["weights"]) == set(module.state_dict())
    for name, tensor in module.state_dict().items():
        assert packed["weights"][name]["shape"] == list(tensor.shape)
        assert numbers(packed["weights"][name]) == tuple(tensor.flatten().tolist())
    assert packed["weights"]["layers.0.mlp.inner.weight"]["shape"] == [11, 7]


def test_it_is_what_the_page_reads():
    packed = explorer_model(member(), "a model", "checkpoint", "member 3")
    model = ExplorerModel.model_validate(json.loads(json.dumps(packed)))
    assert (model.name, model.file, model.key) == ("a model", "checkpoint", "member 3")
    assert model.config.model_dump() == {
        "values": 5, "length": 9, "width": 7, "heads": 2, "head_size": 3, "mlp_size": 11,
        "activation": "relu", "norm": "post", "positions": "learned",
    }  # fmt: skip


@pytest.mark.parametrize("changes", [{"layers": 2}, {"causal": False}, {"input_kind": "vectors"}])
def test_models_that_the_page_cannot_compute_are_refused(changes):
    with pytest.raises(ValueError, match="expected one causal layer that reads tokens"):
        explorer_model(member(0, **changes), "a model", "checkpoint")
