"""What the pages of both studies of chains show beside their numbers: who was read, and the first useful heads."""

from collections.abc import Mapping
from typing import Any

from hopscope.circuits.path_history import CircuitsOnPage
from hopscope.circuits.places import FORMED, first_reads, followed_paths, times
from hopscope.story.functions import PageFunctions
from hopscope.story.text import chain_example
from hopscope.story.values import Said
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.figures import SHOWN_FROM
from hopscope.studies.circuit_study.members import gather
from hopscope.words import symbol

CHEAP, DEAR = 0.15, 0.5
"""Losses without a head that looks almost free, and without one that is needed."""


def names(page: PageFunctions, config: ChainsConfig) -> Mapping[str, Any]:
    """Names that the templates may use beside those of every page.

    `targets`: part of the evidence → symbol.  `chain_example()`: two chains as a model sees them.  `circuits`: see
    `CircuitsOnPage`.  `name_of`: number of each member → its name.  The others are numbers of members.  `whole`: those
    that learned the whole chain; `explained`: those of them that were read.  `partly`: those that learned a part of it
    and were read.  `unread`: those that learned something and were not.  `with_paths`: those whose circuit has a path
    to show; `read_paths`: those of them that were read.  `independent`: those among `with_paths` that are independent
    of each other; `not_from_start`: those of them whose first checkpoints were deleted before their circuit was read.
    `first_reads`: member → its costliest read of the first useful head.  `cheap`: members whose first useful head
    looks almost free where patterns are given; `dear`: those of them that need it; `limits`: the bounds of both.
    `from_others`: the mean distance of a model's circuits from those of the other models, by its metric.
    """
    evidence = page.evidence
    paths, seeds = followed_paths(evidence), independent(evidence)
    with_paths = sorted({place.member for place in paths})
    seen_forming = {place.member for place in times(evidence, FORMED) if place in paths}
    read, whole = ([member for member, value in evidence.last(flag).items() if value == 1.0]
                   for flag in ("was_read", "learned_all"))  # fmt: skip
    learned = evidence.rows("learned", measure="reading")
    some = sorted(set(learned.loc[learned["value"] == 1.0, "member"].astype(int)))
    reads = {
        member: place for member, place in first_reads(paths).items() if member in read and member in seeds
    }

    def from_others(metric: str) -> Said:
        rows = evidence.rows(metric, measure="reread")
        return page.mean(
            [*rows.groupby("member")["value"].mean()], f"{metric}, mean over the other models", decimals=2
        )

    cheap = [member for member, place in reads.items() if paths[place]["loss_without_rules"] < CHEAP]
    return {
        "targets": {f"step_{step}": symbol(step) for step in config.task().asked},
        "chain_example": lambda: page.block(chain_example()),
        "circuits": CircuitsOnPage(page, lambda: gather(page.run, config), config.task().plateau),
        "name_of": config.names,
        "whole": whole,
        "explained": [member for member in whole if member in read],
        "partly": [member for member in some if member in read and member not in whole],
        "unread": [member for member in some if member not in read],
        "with_paths": with_paths,
        "read_paths": [member for member in with_paths if member in read],
        "independent": [member for member in with_paths if member in seeds],
        "not_from_start": [member for member in with_paths if member in seeds and member not in seen_forming],
        "first_reads": reads,
        "cheap": cheap,
        "dear": [member for member in cheap if paths[reads[member]]["loss_without_recomputed"] >= DEAR],
        "from_others": from_others,
        "limits": {"cheap": CHEAP, "dear": DEAR},
        "left_out": f"{SHOWN_FROM / 255:.2f}",
    }
