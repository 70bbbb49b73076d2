"""What the figures of the permutation study show, as far as it follows from the configuration."""

from collections.abc import Iterable, Sequence

from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import PUBLISHED, Configuration
from hopscope.tasks.config import training_mappings
from hopscope.theory.posteriors import (
    blind_to_repeats_floor,
    elimination_floor,
    training_floor,
    unbound_repeats_floor,
)


def main(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that the presentation shows results of; without any of them, the first two others."""
    known = config.base()
    return [each for each in known if each.name in PUBLISHED] or known[:2]


def largest_with_repeats(known: Iterable[Configuration]) -> list[Configuration]:
    """Those that train with repeats, the largest model first."""
    with_repeats = (each for each in known if each.data == "repeats")
    return sorted(with_repeats, key=lambda each: (each.width, each.heads), reverse=True)


def taken_apart(config: PermutationStudyConfig) -> list[Configuration]:
    """The two largest base configurations that train with repeats, if the mechanism of recall is measured at all."""
    return largest_with_repeats(each for each in config.base() if config.is_whole(each))[:2]


def swept(config: PermutationStudyConfig, data: str, *changed: str) -> list[Configuration]:
    """Configurations that differ in nothing but the fields `changed`, of the model that has most of them."""
    by_model: dict[tuple[int, int], list[Configuration]] = {}
    for each in config.grid():
        if each.data == data and set(each.changes) <= set(changed):
            by_model.setdefault((each.width, each.heads), []).append(each)
    return max(by_model.values(), key=len, default=[])


def floors(config: PermutationStudyConfig) -> dict[str, float]:
    """Loss of ideal observers, in nats, by name.

    One holds all V! mappings equally likely, one knows which are used in training.  Where training has repeats of the
    presentation's kind, one more sees the values used but never that an x came back, and one sees that too but not
    which value stood beside it.
    """
    found = {
        "elimination floor": elimination_floor(config.values),
        "training-mappings floor": training_floor(
            config.values, training_mappings(config.values, config.held_out_share)
        ),
    }
    page_repeats = not config.repeat_slots and not config.repeat_sources
    if page_repeats and any(configuration.data == "repeats" for configuration in config.grid()):
        found["repeats not noticed"] = blind_to_repeats_floor(config.values, config.repeat_ratio)
        found["repeats noticed, not recalled"] = unbound_repeats_floor(config.values, config.repeat_ratio)
    return found


POSITIONS = {
    "learned": "a code for each position",
    "pair": "one code for each pair",
    "none": "no position codes",
}


def reading_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Batch size and position codes in words."""
    batch = config.training(configuration).batch_size
    return f"batch {batch}, {POSITIONS[config.model(configuration).positions]}"


def training_words(config: PermutationStudyConfig, configuration: Configuration) -> str:
    """Which slots repeat in a configuration's training, in words."""
    task = config.task(configuration)
    slots = _listed("slot", sorted(set(task.repeat_slots or (task.values,))))
    if not task.repeat_sources:
        return f"{slots} repeats any before"
    return f"{slots} repeats {_listed('slot', sorted(set(task.repeat_sources)))}"


def _listed(word: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    return f"{word}s {', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"
