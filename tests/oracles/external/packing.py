"""The last step, and the only one that knows the laboratory: arrays become one of its models."""

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer

from .plant import Plant


def packed(plant: Plant) -> Transformer:
    """A plant's weights as a transformer of one member."""
    config = TransformerConfig.model_validate(dict(plant.shape))
    parameters = Parameters(parameter_specs(config), 1)
    parameters.load({name: torch.tensor(array).float()[None] for name, array in plant.weights.items()})
    return Transformer(config, parameters)
