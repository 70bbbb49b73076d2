"""What a page says of circuits beside their numbers: the player, and why a member was or was not read."""

from collections.abc import Callable, Sequence
from functools import cached_property

from hopscope.circuits.path_history import Followed, FollowedMember, player
from hopscope.story.functions import PageFunctions

MOST_PLAYERS = 6
"""Members whose circuits the page's player holds."""


class CircuitsOnPage:
    """The circuits of a run's members, as a template asks for them."""

    def __init__(
        self,
        page: PageFunctions,
        members: Callable[[], Sequence[FollowedMember]],
        options: Followed,
        plateau: float,
    ):
        """The study's code makes it.

        Args:
            page: the page.
            members: reads what is on record of every member; called when a template first asks.
            options: of the study.
            plateau: loss of a model that reads by position alone.
        """
        self._page, self._read = page, members
        self._options, self._plateau = options, plateau

    @cached_property
    def _members(self) -> dict[int, FollowedMember]:
        return {member.member: member for member in self._read()}

    def verdict(self, member: int) -> str:
        """What the reader says of a member, in words."""
        return str(self._members[member].reading["verdict"])

    def best(self, member: int) -> str:
        """The paths of a member's smallest circuit, in words."""
        return "; ".join(path.name for path in self._members[member].paths)

    def player(self, title: str, caption: str = "") -> str:
        """The circuits of the first members that have one, to be played through training; nothing without any."""
        shown = [member for member in self._members.values() if member.paths][:MOST_PLAYERS]
        if not shown:
            return ""
        return self._page.block(player(title, caption, shown, self._options, self._plateau))
