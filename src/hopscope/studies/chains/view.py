"""What the page's circuit player is given of a study of chains."""

from collections.abc import Sequence

from hopscope.studies.blocks import Block
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.followed import Followed, view
from hopscope.studies.words import symbol


def player(config: ChainsConfig, members: Sequence[Member], title: str, caption: str) -> Block:
    """The block of a page that shows the circuits of some members."""
    return {
        "kind": "circuit",
        "title": title,
        "caption": caption,
        "circuits": [
            {
                "name": member.name,
                "file": member.formation_file,
                "key": "paths",
                "view": view(followed(config, member)),
            }
            for member in members
        ],
    }


def followed(config: ChainsConfig, member: Member) -> Followed:
    """A member's circuit through training."""
    return Followed(
        member=member.member,
        seed=member.seed,
        unit=member.unit,
        step=config.training_steps,
        layers=config.layers,
        heads=config.heads,
        reading=member.reading,
        checkpoints=member.checkpoints,
        paths=member.paths,
        partial={symbol(step): curve for step, curve in member.curves.items()},
        plateau=config.task().plateau,
        tokens=member.tokens,
        rows=member.rows,
    )
