"""What the figures of the permutation study share: which configurations they show."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import PUBLISHED, Configuration
from hopscope.studies.rows import Drawn

if TYPE_CHECKING:
    # It takes torch along, which the names of the figures do not need.
    from hopscope.studies.permutation.evidence import Evidence

SKILLS = ("elimination", "recall")
"""In the order of their colours."""

Shows = Callable[[PermutationStudyConfig], list[Configuration]]


@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn.

    Attributes:
        name: of its files.
        shows: the configurations that it shows, from the study's configuration; a run where there is none has no such
            figure.
        draw: from run, configuration and the evidence of what it shows, in the same order, to chart and data.
    """

    name: str
    shows: Shows
    draw: "Callable[[RunFolder, PermutationStudyConfig, list[Evidence]], Drawn]"


# What is shown.


def base(config: PermutationStudyConfig) -> list[Configuration]:
    """See `PermutationStudyConfig.base`."""
    return config.base()


def main(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that the presentation shows results of; without any of them, the first two others."""
    known = base(config)
    return [each for each in known if each.name in PUBLISHED] or known[:2]


def largest_with_repeats(known: Iterable[Configuration]) -> list[Configuration]:
    """Those that train with repeats, the largest model first."""
    with_repeats = (each for each in known if each.data == "repeats")
    return sorted(with_repeats, key=lambda each: (each.width, each.heads), reverse=True)


def taken_apart(config: PermutationStudyConfig) -> list[Configuration]:
    """The two largest base configurations that train with repeats, if the mechanism of recall is measured at all."""
    return largest_with_repeats(each for each in base(config) if config.is_whole(each))[:2]


def swept(config: PermutationStudyConfig, data: str, *changed: str) -> list[Configuration]:
    """Configurations that differ in nothing but the fields `changed`, of the model that has most of them."""
    by_model: dict[tuple[int, int], list[Configuration]] = {}
    for each in config.grid():
        if each.data == data and set(each.changes) <= set(changed):
            by_model.setdefault((each.width, each.heads), []).append(each)
    return max(by_model.values(), key=len, default=[])
