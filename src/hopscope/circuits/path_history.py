"""A circuit that was followed through training: its paths, and what the page's circuit player is given of it."""

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hopscope.circuits.config import (
    FORMED,
    READ,
    ReaderConfig,
    formation_name,
    maps_name,
    reading_name,
    reads_one_token,
    spaced,
)
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.runs import MemberRecord, RunFolder, UnitFolder
from hopscope.runs.curves import Curve
from hopscope.story.functions import PageFunctions
from hopscope.words import heads_in_short

DIVERGED = "diverged"
"""Stands for a verdict on a member whose training broke off."""

MOST_CHECKPOINTS = 16
"""Steps of the slider: enough to see a head form, few enough for a page that is sent by mail."""

MOST_PLAYERS = 6
"""Members whose circuits the page's player holds."""


@dataclass(frozen=True)
class PathHistory:
    """A path of a member's circuit through training.

    Attributes:
        layer, head, query, target, rule: where it is and what it reads, in words.
        attention: at each checkpoint; empty where the path was not followed.
        needed_for: the first step or depth that is lost without its read, if any is and targets are numbered.
        mean_attention: at the end, on other sequences.
        carries: what it brings.
        removed: loss without it, by mode.
    """

    layer: int
    head: int
    query: str
    target: str
    rule: str
    attention: tuple[float, ...]
    needed_for: int | None
    mean_attention: float
    carries: tuple[str, ...]
    removed: dict[str, float]

    @property
    def place(self) -> str:
        """Layer and head, counted from 0."""
        return f"{self.layer}.{self.head}"

    @property
    def read(self) -> str:
        """The read in short: query role → target role or rule."""
        return f"{self.query} → {self.target or self.rule}"

    @property
    def to_one_token(self) -> bool:
        """Whether it reads a single token: not all tokens of a role alike, and no mixture."""
        return reads_one_token(self.target)

    @property
    def name(self) -> str:
        """Its head, and what that reads."""
        return f"{self.place} {self.read}"


def path_histories(reading: Mapping[str, Any], followed: Mapping[str, Any]) -> tuple[PathHistory, ...]:
    """The paths of a reading that were followed.

    Args:
        reading: as `hopscope circuit --json` prints it.
        followed: the analysis of how its paths formed.
    """
    of = {_key(path): path for path in reading["paths"]}
    return tuple(_path_of(of[_key(path)], path["attention"]) for path in followed["paths"])


def number_of(target: str) -> int:
    """The step or depth that a target's name ends with: `step_3` → 3, `D = 2` → 2."""
    return int(re.split("[_ ]", target)[-1])


_NUMBERED = re.compile(r"[_ ]\d+$")
"""A target with a number; the skills of permutation lookup have none."""


def _path_of(found: Mapping[str, Any], attention: Sequence[float]) -> PathHistory:
    return PathHistory(
        layer=found["layer"],
        head=found["head"],
        query=found["query_role"],
        target=found["target_role"] or "",
        rule=found["rule"],
        attention=tuple(attention),
        needed_for=None
        if not _NUMBERED.search(found["needed_for"] or "")
        else number_of(found["needed_for"]),
        mean_attention=found["mean_attention"],
        carries=tuple(found["carries"]),
        removed=found["loss_if_removed"],
    )


def _key(path: Mapping[str, Any]) -> tuple[int, int, str]:
    return path["layer"], path["head"], path["query_role"]


@dataclass(frozen=True)
class MemberHistory(ABC):
    """A member whose circuit was read and followed.

    Attributes:
        member, seed: which one.
        diverged: whether its training broke off because it diverged.
        reading: what the reader found, as `hopscope circuit --json` prints it.
        checkpoints: steps at which attention was followed.
        paths: those that were.
        tokens, rows: of the example sequence and of the row roles, see the analysis.
        reading_file, formation_file: where both are in the run.
        unit: where its checkpoints are.
    """

    member: int
    seed: int
    diverged: bool
    reading: dict[str, Any]
    checkpoints: tuple[int, ...]
    paths: tuple[PathHistory, ...]
    tokens: list[dict[str, Any]]
    rows: list[str]
    reading_file: str
    formation_file: str
    unit: UnitFolder

    @property
    @abstractmethod
    def name(self) -> str:
        """What the member is called in tables and figures."""

    @property
    def every_path(self) -> tuple[PathHistory, ...]:
        """Every path of its smallest circuit, also those that were not followed."""
        return tuple(_path_of(path, ()) for path in self.reading["paths"])

    @property
    @abstractmethod
    def shown_losses(self) -> Mapping[str, Curve]:
        """Held-out losses through training that stand beside its circuit, by name."""

    @property
    def shown_rows(self) -> list[str]:
        """Row roles that the picture of its circuit has."""
        return self.rows

    @property
    def followed_heads(self) -> list[tuple[int, int]]:
        """Heads with a path that is followed through training."""
        return sorted({(path.layer, path.head) for path in self.paths})

    @property
    def was_read(self) -> bool:
        """Whether a circuit by rules accounts for what it has learned."""
        return bool(self.reading["verdict"] == READ)

    @property
    def reads(self) -> tuple[tuple[int, str, str], ...]:
        """What its smallest circuit reads, in its canonical form (`hopscope.circuits.circuit.Circuit.reads`)."""
        return tuple((depth, query, what) for depth, query, what in self.reading["reads"])

    @property
    def heads(self) -> list[tuple[int, int]]:
        """Heads with a path in its smallest circuit."""
        return sorted({(path["layer"], path["head"]) for path in self.reading["paths"]})

    @property
    def heads_needed(self) -> int:
        """Heads of its smallest circuit, less one if two of them could be one (paper, section 8.2, ii)."""
        return len(self.heads) - min(1, len(self.reading["merges"]))

    def formed(self, path: PathHistory) -> Crossing | None:
        """When the mean attention on a path rose over 0.5; none where its first checkpoints were gone."""
        seen = seen_from_start(self.checkpoints)
        return first_crossing(self.checkpoints, path.attention, FORMED) if seen else None


def seen_from_start(checkpoints: Sequence[int]) -> bool:
    """Whether checkpoints begin before the first training step, as those of a unit do until some are deleted.

    Where they do not, what has formed at the first of them may have formed at any step before it.
    """
    return checkpoints[0] == 0


def history_of(
    run: RunFolder, member: MemberRecord, reader: ReaderConfig, step: int, diverged: bool
) -> dict[str, Any]:
    """What was read of a member and how it formed, as fields of `MemberHistory`; nothing of one that diverged.

    Args:
        run: that the member is in.
        member: the member.
        reader: how members are read.
        step: of the last checkpoint.
        diverged: whether it diverged.

    Raises:
        UserError: a file is missing or damaged.
    """
    unit = run.unit(member.unit)
    names = {"reading": reading_name(member.member, reader), "formation": formation_name(member.member)}
    reading, followed = (unit.read_analysis(name, step) for name in names.values())
    if diverged:  # what was read of its last weights says nothing
        reading = {**reading, "verdict": DIVERGED, "learned": [], "paths": [], "minimal_circuits": []}
    return {
        "member": member.member,
        "seed": member.seed,
        "diverged": diverged,
        "reading": reading,
        "checkpoints": tuple(followed["checkpoints"]),
        "paths": () if diverged else path_histories(reading, followed),
        "tokens": followed["tokens"],
        "rows": followed["rows"],
        "unit": unit,
        **{f"{what}_file": unit.file_of(name, step) for what, name in names.items()},
    }


# For the player; the shape of a view is that of the run folder's documentation.


class CircuitsOnPage:
    """The circuits of a run's members, as a template asks for them."""

    def __init__(
        self,
        page: PageFunctions,
        members: Callable[[], Sequence[MemberHistory]],
        plateau: float | None,
        measured: str = "loss",
    ):
        """The study's code makes it.

        Args:
            page: the page.
            members: reads what is on record of every member; called when a template first asks.
            plateau: loss of a model that reads by position alone, where that is one number.
            measured: what the curves beside a circuit are, in a word or two.
        """
        self._page, self._read, self._plateau, self._measured = page, members, plateau, measured

    @cached_property
    def _members(self) -> dict[int, MemberHistory]:
        return {member.member: member for member in self._read()}

    def verdict(self, member: int) -> str:
        """What the reader says of a member, in words."""
        return heads_in_short(str(self._members[member].reading["verdict"]))

    def best(self, member: int) -> str:
        """The paths of a member's smallest circuit, in words."""
        return "; ".join(path.name for path in self._members[member].paths)

    def player(self, title: str, caption: str = "", published: str = "") -> str:
        """The circuits of the first members that have one, to be played through training; nothing without any.

        Args:
            title, caption: words around them.
            published: the figure of the study's source that they answer, such as `fig-5`.
        """
        shown = [member for member in self._members.values() if member.paths][:MOST_PLAYERS]
        if not shown:
            return ""
        circuits = [
            {
                "name": each.name,
                "file": each.formation_file,
                "key": "paths",
                "view": {**view(each, self._plateau), "measured": self._measured},
            }
            for each in shown
        ]
        block = {"kind": "circuit", "title": title, "caption": caption, "circuits": circuits}
        return self._page.block(block | ({"published": published} if published else {}))


def view(member: MemberHistory, plateau: float | None) -> dict[str, Any]:
    """One member: its circuit, and what became of its attention through training; the plateau as of the page."""
    reading = member.reading
    kept = member.unit.read_analysis(maps_name(member.member), reading["checkpoint"])
    maps, measured = np.asarray(kept["maps"]), np.asarray(kept["steps"]).tolist()
    # A model that was collected keeps the maps of its last checkpoint alone: too few for a slider.
    slides = len(measured) == len(member.checkpoints) or len(measured) > 1
    steps = spaced(measured if slides else member.checkpoints, MOST_CHECKPOINTS)
    followed = {(path.layer, path.head, path.query): path for path in member.paths}
    written = {_key(found): found for found in reading["paths"]}
    return {
        "member": member.member,
        "seed": member.seed,
        "checkpoint": reading["checkpoint"],
        "verdict": reading["verdict"],
        "layers": maps.shape[1],
        "heads": maps.shape[2],
        "rows": member.shown_rows,
        "tokens": member.tokens,
        "checkpoints": steps,
        "partial": {name: _at(steps, *curve) for name, curve in member.shown_losses.items()},
        "plateau": plateau,
        "threshold": reading["threshold"],
        "loss": reading["loss"],
        "paths": [
            {
                **_listed(written[key]),
                "attention": _at(steps, member.checkpoints, path.attention),
                "hop": path.needed_for,
            }
            for key, path in followed.items()
        ],
        # No rule names what their rows read, so they are not followed and cannot be drawn.
        "listed": [_listed(found) for key, found in written.items() if key not in followed],
        "undrawn": len(reading["paths"]) - len(member.paths),
        "undrawn_heads": len(member.heads) - len(member.followed_heads),
        "maps": _maps(member, maps, measured, steps) if slides else None,
    }


def _listed(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a path at the end of training."""
    names = ("layer", "head", "query_role", "rule", "target_role", "mean_attention", "carries", "composition")
    return {name: found[name] for name in (*names, "loss_if_removed")}


def _at(steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Values of a curve at steps that it was measured at."""
    of = {int(time): value for time, value in zip(times, values, strict=True)}
    return [round(of[step], 4) for step in steps]


def _maps(
    member: MemberHistory, maps: np.ndarray, measured: Sequence[int], steps: Sequence[int]
) -> list[dict[str, Any]]:
    """Attention maps of the circuit's heads at the slider's steps, as bytes."""
    places = [list(measured).index(step) for step in steps]
    return [
        {
            "layer": layer,
            "head": head,
            "shape": [len(steps), *maps.shape[-2:]],
            "data": base64.b64encode(np.ascontiguousarray(maps[places, layer, head]).tobytes()).decode(),
        }
        for layer, head in member.followed_heads
    ]
