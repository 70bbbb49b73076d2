"""What the page's circuit player is given of a study of chains."""

from collections.abc import Sequence

from hopscope.studies import followed
from hopscope.studies.blocks import Block
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.words import symbol


def player(config: ChainsConfig, members: Sequence[Member], title: str, caption: str) -> Block:
    """The block of a page that shows the circuits of some members."""
    return followed.player(title, caption, [_followed(config, member) for member in members])


def _followed(config: ChainsConfig, member: Member) -> followed.Followed:
    return followed.Followed(
        of=member,
        step=config.training_steps,
        layers=config.layers,
        heads=config.heads,
        partial={symbol(step): curve for step, curve in member.curves.items()},
        plateau=config.task().plateau,
        rows=member.rows,
    )
