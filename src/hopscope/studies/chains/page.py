"""What the pages of both studies of chains show beside their numbers: who was read, and the first useful heads."""

from collections.abc import Mapping
from typing import Any

from hopscope.circuits.on_page import CircuitsOnPage
from hopscope.circuits.places import Place, first_reads, followed_paths
from hopscope.runs.evidence import Evidence
from hopscope.story.blocks import chain_example
from hopscope.story.functions import PageFunctions
from hopscope.studies.chains.claims import independent
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import gather
from hopscope.studies.chains.figures import SHOWN_FROM
from hopscope.words import symbol

CHEAP, DEAR = 0.15, 0.5
"""Losses without a head that looks almost free, and without one that is needed."""


def names(page: PageFunctions, config: ChainsConfig) -> Mapping[str, Any]:
    """Names that the templates may use beside those of every page.

    `targets`: part of the evidence → symbol.  `chain_example()`: two chains as a model sees them.  `circuits`: see
    `CircuitsOnPage`.  `name_of`: number of each member → its name.  The others are numbers of members.  `whole`: those
    that learned the whole chain; `explained`: those of them that were read.  `unread`: those that learned something
    and were not.  `with_paths`: those whose circuit has a path to show; `read_paths`: those of them that were read.
    `independent`: those among `with_paths` that are independent of each other.  `first_reads`: member → its costliest
    read of the first useful head.  `cheap`, `dear`: see `free_heads`; `limits`: its bounds.
    """
    evidence = page.evidence
    paths, read = followed_paths(evidence), having(evidence, "was_read")
    whole, some = having(evidence, "learned_all"), sorted(_learned_some(evidence))
    seeds, with_paths = independent(evidence), sorted({place.member for place in paths})
    reads = {
        member: place for member, place in first_reads(paths).items() if member in read and member in seeds
    }
    cheap, dear = free_heads(paths, reads)
    return {
        "targets": {f"step_{step}": symbol(step) for step in config.task().asked},
        "chain_example": lambda: page.block(chain_example()),
        "circuits": CircuitsOnPage(page, lambda: gather(page.run, config), config, config.task().plateau),
        "name_of": config.names,
        "whole": whole,
        "explained": [member for member in whole if member in read],
        "unread": [member for member in some if member not in read],
        "with_paths": with_paths,
        "read_paths": [member for member in with_paths if member in read],
        "independent": [member for member in with_paths if member in seeds],
        "first_reads": reads,
        "cheap": cheap,
        "dear": dear,
        "limits": {"cheap": CHEAP, "dear": DEAR},
        "left_out": f"{SHOWN_FROM / 255:.2f}",
    }


def having(evidence: Evidence, flag: str) -> list[int]:
    """Members of which a flag is 1; those that diverged have none."""
    return [member for member, value in evidence.last(flag).items() if value == 1.0]


def _learned_some(evidence: Evidence) -> set[int]:
    rows = evidence.rows("learned", measure="reading")
    return set(rows.loc[rows["value"] == 1.0, "member"].astype(int))


def free_heads(
    paths: Mapping[Place, Mapping[str, float]], reads: Mapping[int, Place]
) -> tuple[list[int], list[int]]:
    """Members whose first useful head looks almost free where patterns are given, and those of them that need it.

    Args:
        paths: as `hopscope.circuits.places.followed_paths` gives them.
        reads: member → the read of its first useful head.
    """
    cheap = [member for member, place in reads.items() if paths[place]["loss_without_rules"] < CHEAP]
    return cheap, [member for member in cheap if paths[reads[member]]["loss_without_recomputed"] >= DEAR]
