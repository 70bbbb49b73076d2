"""Losses of ideal observers, against which a training loss is read."""

from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.tasks.config import training_mappings
from hopscope.theory.posteriors import (
    blind_to_repeats_floor,
    elimination_floor,
    training_floor,
    unbound_repeats_floor,
)

_UNIFORM, _TRAINING = "elimination floor", "training-mappings floor"
_NO_RECALL, _NO_BINDING = "repeats not noticed", "repeats noticed, not recalled"


def floors(config: PermutationStudyConfig) -> dict[str, float]:
    """Loss of ideal observers, in nats.

    One holds all V! mappings equally likely, one knows which are used in training.  Where training has repeats of the
    presentation's kind, one more sees the values used but never that an x came back, and one sees that too but not
    which value stood beside it.
    """
    found = {
        _UNIFORM: elimination_floor(config.values),
        _TRAINING: training_floor(config.values, training_mappings(config.values, config.held_out_share)),
    }
    page_repeats = not config.repeat_slots and not config.repeat_sources
    if page_repeats and any(configuration.data == "repeats" for configuration in config.grid()):
        found[_NO_RECALL] = blind_to_repeats_floor(config.values, config.repeat_ratio)
        found[_NO_BINDING] = unbound_repeats_floor(config.values, config.repeat_ratio)
    return found
