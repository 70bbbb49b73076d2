"""Which models a claim is about: those of one panel of the paper's Figure 4, with what they lack of its protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Asked, Configuration, Reading

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

PAPER_DEPTHS = 8
"""Numbers of layers in the paper (section 7.1)."""


@dataclass(frozen=True)
class Runs:
    """The models of one configuration.

    Attributes:
        configuration: which one.
        seeds: seed → member.
    """

    configuration: Configuration
    seeds: dict[int, int]

    @property
    def members(self) -> list[int]:
        """Numbers of the members."""
        return list(self.seeds.values())


def study_config(evidence: "Evidence") -> DepthStudyConfig:
    """The configuration of the run that the evidence is of."""
    return DepthStudyConfig.model_validate(dict(evidence.config))


def all_runs(evidence: "Evidence") -> list[Runs]:
    """The models of the evidence by configuration, in the order of the grid."""
    members: dict[str, dict[int, int]] = {}
    for member, name in evidence.configurations.items():
        members.setdefault(name, {})[evidence.seeds[member]] = member
    grid = study_config(evidence).grid()
    return [Runs(each, members[each.name]) for each in grid if each.name in members]


def panel(evidence: "Evidence", asked: Asked) -> list[Runs]:
    """The models of one panel of Figure 4, by depth; those of the sweep over D are left out.

    Args:
        evidence: of one reading.
        asked: `IC` or `non-IC`.
    """
    config = study_config(evidence)
    steps = config.steps if asked == "IC" else config.steps_last
    found = [
        each
        for each in all_runs(evidence)
        if each.configuration.asked == asked and each.configuration.steps == steps
    ]
    return sorted(found, key=lambda each: each.configuration.layers)


def of_reading(evidence: "Evidence", reading: Reading) -> "Evidence":
    """The evidence of the models that were trained under one reading."""
    grid = study_config(evidence).grid()
    return evidence.where(configuration=[each.name for each in grid if each.reading == reading])


def as_configured(evidence: "Evidence") -> "Evidence":
    """The evidence of the models that were trained under the study's own reading."""
    return of_reading(evidence, Reading())


def departures(config: DepthStudyConfig, runs: Sequence[Runs]) -> list[str]:
    """How models depart from what the paper states, in words; the details that it leaves open are no departure."""
    return list(dict.fromkeys(words for each in runs for words in config.departures(each.configuration)))


def few_depths(runs: Sequence[Runs]) -> list[str]:
    """That there are fewer numbers of layers than in the paper, in words."""
    return [] if len(runs) >= PAPER_DEPTHS else [f"{len(runs)} of {PAPER_DEPTHS} depths"]


def reading_lacks(config: DepthStudyConfig, runs: Sequence[Runs], *, depths: bool = True) -> str:
    """What models lack because of their reading, in words; nothing under the study's own.

    What the run lacks under its own reading is said once, by the claim's `at_scale`.

    Args:
        config: of the study.
        runs: of one reading.
        depths: whether too few depths are a lack.
    """
    if not any(each.configuration.reading.changes for each in runs):
        return ""
    own = [Runs(each.configuration.with_reading(Reading()), each.seeds) for each in runs]
    plain = departures(config, own)
    of_reading = [words for words in departures(config, runs) if words not in plain]
    return ", ".join([*of_reading, *(few_depths(runs) if depths else [])])
