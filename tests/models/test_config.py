import pytest
from pydantic import ValidationError

from hopscope.models.config import TransformerConfig
from hopscope.models.interventions import AblateHead, ReplacePattern

GIVEN = {"length": 7, "input_size": 5, "output_size": 3}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"width": 17, "heads": 2}, "width: expected a multiple of heads = 2, found 17"),
        ({"positions": "carried"}, "'carried' expects input_kind 'vectors', found 'tokens'"),
        ({"position_size": 2, "input_kind": "vectors"}, "position_size: expected 0"),
        ({"position_size": 5, "input_kind": "vectors", "positions": "carried"}, "less than input_size = 5"),
        ({"readout": ()}, "readout: expected ascending positions from 0 to 6"),
        ({"readout": (2, 7)}, "readout: expected ascending positions from 0 to 6"),
        ({"readout": (3, 2)}, "readout: expected ascending positions"),
        ({"readout": (2, 2)}, "readout: expected ascending positions"),
        ({"readout": (-1,)}, "readout: expected ascending positions"),
        ({"layers": 0}, "layers"),
        ({"heads": 0}, "heads"),
        ({"mlp_ratio": -1.0}, "mlp_ratio"),
        ({"activation": "tanh"}, "activation"),
        ({"norm": "middle"}, "norm"),
        ({"depth": 3}, "depth"),
    ],
)
def test_what_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        TransformerConfig(**GIVEN, **changes)


def test_derived_sizes():
    config = TransformerConfig(**GIVEN, width=34, heads=2, mlp_ratio=0.5)
    assert (config.head_size, config.mlp_size, config.readout_positions) == (17, 17, tuple(range(7)))
    config = TransformerConfig(**GIVEN, width=17, heads=2, head_dim=11, mlp_ratio=0, readout=(1, 3))
    assert (config.head_size, config.mlp_size, config.readout_positions) == (11, 0, (1, 3))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"by": "one_hot"}, "relation: expected with by = 'one_hot'"),
        ({"by": "uniform", "relation": "past"}, "relation: expected with by = 'one_hot'"),
        ({"by": "matrix"}, "matrix: expected with by = 'matrix'"),
        ({"by": "identity", "matrix": ((1.0,),)}, "matrix: expected with by = 'matrix'"),
        ({"by": "identity", "keys": {"kind": 0}}, "keys: expected with by = 'uniform' only"),
        ({"by": "sharper"}, "by"),
    ],
)
def test_incomplete_patterns_are_refused(fields, complaint):
    with pytest.raises(ValidationError, match=complaint):
        ReplacePattern(layer=0, **fields)


def test_interventions_are_plain_values():
    ablation = AblateHead(layer=1, heads=(2,), rows={"kind": 0}, by="zero")
    assert AblateHead.model_validate_json(ablation.model_dump_json()) == ablation
    with pytest.raises(ValidationError, match="layer"):
        AblateHead(layer=-1, by="zero")
