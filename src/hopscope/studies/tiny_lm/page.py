"""What the page of small language models shows beside its numbers: a question, a text's mixture, and circuits."""

import math
from collections.abc import Mapping
from typing import Any, cast

from hopscope.circuits.on_page import CircuitsOnPage
from hopscope.circuits.path_history import Followed, FollowedMember
from hopscope.story.functions import PageFunctions
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.studies.tiny_lm.corpus import shares
from hopscope.studies.tiny_lm.evidence import Member, gather
from hopscope.tasks.text import TextConfig, questions


def names(page: PageFunctions, config: TinyLmConfig) -> Mapping[str, Any]:
    """Names that the template may use: `example`, `corpus_shares` and `circuits`."""
    asked = TextConfig(formulation="equations", depth=config.depths[-1], chains=config.chains)
    example = next(questions(asked, 1, 0))
    *lines, question = example.prompt.split("\n")
    return {
        "example": {"lines": "; ".join(lines), "question": question, "answer": example.answer},
        "corpus_shares": [] if config.corpus is None else shares(config.corpus, config.depths),
        "circuits": CircuitsOnPage(
            page, lambda: gather(page.run, config), lambda member: followed(config, cast(Member, member))
        ),
    }


def followed(config: TinyLmConfig, member: Member) -> Followed:
    """A member's circuit through training."""
    named = {"given 1", *(path.query for path in member.paths), *_targets(member)}
    return Followed(
        of=member,
        step=config.training_steps,
        layers=config.layers,
        heads=config.heads,
        partial={f"D = {depth}": curve for depth, curve in member.loss.items()},
        plateau=math.log(config.chains),
        rows=[row for row in member.rows if row in named],
    )


def _targets(member: FollowedMember) -> set[str]:
    both = (target for path in member.paths for target in path.target.split(" + "))
    return {target.removeprefix("all ") for target in both}
