"""The circuit block of a story: what the page and the picture know of a circuit that was read.

The shapes are those of the circuit's record, with what changes over the training added.  They are checked here, so that
nothing later has to ask whether a role is known or a list is long enough.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config

Share = Annotated[float, Field(ge=0.0, le=1.0001)]
"""A sum of attention: a little rounding above 1 is no fault."""

Loss = Annotated[float, Field(ge=0.0)]

PUBLISHED = r"^(fig-[A-Za-z0-9-]+)?$"
"""What a source calls one of its figures; empty for none."""

UNNAMED = ("any", "all", "itself")
"""Targets that are no role."""

_TWO = re.compile(r"(.+) (\d+)% \+ (.+)")


class PackedBytes(Config):
    """An array as base64 of uint8 in row-major order."""

    shape: list[Annotated[int, Field(ge=1)]]
    data: str

    @model_validator(mode="after")
    def _fills_its_shape(self) -> Self:
        expected = math.prod(self.shape)
        try:
            found = len(base64.b64decode(self.data, validate=True))
        except binascii.Error:
            raise ValueError(f"base64 of {expected} bytes") from None
        if found != expected:
            raise ValueError(f"{expected} bytes for the shape {self.shape}, not {found}")
        return self


@dataclass(frozen=True)
class Target:
    """One thing that a path reads.

    Attributes:
        role: of what is read, in words; one of `UNNAMED`, or empty for a rule that names no target.
        every: whether all tokens of the role are read alike.
        rule: by which it is found, such as `hop_1`.
        share: of the path's attention that is meant for it.
    """

    role: str
    every: bool
    rule: str
    share: float


class Token(Config):
    """One token of the example sequence: its role in words, its chain (-1: of none), what it holds (such as ``x₂``)."""

    role: str
    chain: int = Field(ge=-1)
    label: str


class Reader(Config):
    """Another path that uses this one."""

    layer: int
    head: int
    query_role: str


class Use(Config):
    """One use of a path: by the readout, or by another path as its queries, keys or values; and the loss without it."""

    reader: Literal["readout"] | Reader
    part: Literal["Q", "K", "V", "queries", "keys", "values"] | None
    rise: float


class RemovalLoss(Config):
    """Loss without one path, in three modes."""

    rules: Loss
    clean: Loss
    recomputed: Loss


_LEARNED = 0.25
"""A target is learned once its partial loss is below this share of its largest."""


class CircuitLoss(Config):
    """Losses over the learned targets; all are missing where nothing was learned.

    Attributes:
        full: of the model.
        rules, recomputed: of the circuit alone, in two modes.
        complement: of everything but the circuit.
        random_circuits, random_circuits_range: mean, least and largest of random circuits of the same size.
    """

    full: Loss | None = None
    rules: Loss | None = None
    recomputed: Loss | None = None
    complement: Loss | None = None
    random_circuits: Loss | None = None
    random_circuits_range: tuple[Loss, Loss] | None = None


class ListedPath(Config):
    """One path, as it stands in the circuit's record.

    Attributes:
        layer, head: where, from 0.
        query_role: of the rows that read.
        rule: by which they read, such as `hop_1` or `previous 60% + over_role`.
        target_role: of what is read, such as `first 1`, `all first 2` or `first 1 + all first 2`; None where the rule
            names no target (a mean map, a head's own softmax).
        mean_attention: on what the rule names.
        carries: what the path brings (`x_2`, `position`), with or without the rise of the loss.
        composition: who uses it.
        loss_if_removed: loss without it.
    """

    layer: int = Field(ge=0)
    head: int = Field(ge=0)
    query_role: str
    rule: str
    target_role: str | None = None
    mean_attention: Share
    carries: list[str] | dict[str, float] = Field(default_factory=list)
    composition: list[Use] = Field(default_factory=list)
    loss_if_removed: RemovalLoss

    @property
    def place(self) -> tuple[int, int]:
        """Layer and head of the path."""
        return self.layer, self.head

    @property
    def brings(self) -> tuple[str, ...]:
        """Names of what the path carries: symbols in their order, then the rest."""
        return tuple(sorted(self.carries, key=lambda name: (not name.startswith("x_"), len(name), name)))

    @property
    def targets(self) -> list[Target]:
        """Targets of the path: one, or two where the rule names two."""
        roles = (self.target_role or "").split(" + ")
        two = _TWO.fullmatch(self.rule)
        if two is None or len(roles) != 2:
            return [_target(self.target_role or "", self.rule, 1.0)]
        share = int(two[2]) / 100
        return [_target(roles[0], two[1], share), _target(roles[1], two[3], 1.0 - share)]


def _target(role: str, rule: str, share: float) -> Target:
    return Target(role=role.removeprefix("all "), every=role.startswith("all "), rule=rule, share=share)


class CircuitPath(ListedPath):
    """A path that is drawn.

    Attributes:
        attention: `mean_attention` at each checkpoint.
        hop: hop of the task that the path makes, where it is known.
    """

    attention: list[Share]
    hop: int | None = None


class AttentionMaps(PackedBytes):
    """Attention of one head on the example sequence: `[checkpoint, query, key]`, 255 is attention 1."""

    layer: int
    head: int


class CircuitView(Config):
    """A circuit, and how it formed.

    Attributes:
        member, seed, checkpoint: what was read.
        verdict: `read`, or why not.
        layers, heads: of the model.
        rows: row roles in words, in the order of the chain.
        tokens: of the example sequence, in its order.
        checkpoints: training steps, ascending.
        partial: held-out partial loss of each target at each checkpoint.
        measured: what these curves are, in a word or two, where they are no losses.
        plateau: partial loss of a model that reads by position alone, for a line.
        threshold: loss that the circuit may have.
        loss: of model, circuit and what stands beside it.
        paths: the circuit, as far as it is drawn.
        listed: further paths of it, which stand in the table alone: no rule names what their rows read.
        undrawn: how many further paths it has; stories of before list none of them.
        undrawn_heads: heads that have only such paths.
        maps: attention of each head that is drawn; None in a slim run folder, which has no attention maps.
    """

    member: int
    seed: int
    checkpoint: int
    verdict: str
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    rows: list[str] = Field(min_length=1)
    tokens: list[Token] = Field(min_length=1)
    checkpoints: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    partial: dict[str, list[Loss]]
    measured: str = "loss"
    plateau: Loss | None = None
    threshold: Loss
    loss: CircuitLoss
    paths: list[CircuitPath]
    listed: list[ListedPath] = Field(default_factory=list)
    undrawn: int = Field(0, ge=0)
    undrawn_heads: int = Field(0, ge=0)
    maps: list[AttentionMaps] | None

    @property
    def shown(self) -> int:
        """Number of the checkpoint that is shown first: the one that was read, or else the last."""
        known = self.checkpoint in self.checkpoints
        return self.checkpoints.index(self.checkpoint) if known else len(self.checkpoints) - 1

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if any(
            after <= before for before, after in zip(self.checkpoints, self.checkpoints[1:], strict=False)
        ):
            raise ValueError(f"checkpoints in ascending order, not {self.checkpoints}")
        if len(set(self.rows)) < len(self.rows):
            raise ValueError(f"rows that differ, not {self.rows}")
        self._check_lengths()
        for path in self.paths:
            self._check_path(path)
        if self.listed and len(self.listed) != self.undrawn:
            raise ValueError(f"as many listed paths as undrawn ones ({self.undrawn}), not {len(self.listed)}")
        self._check_maps()
        return self

    def _check_lengths(self) -> None:
        lists = {f"partial {name}": losses for name, losses in self.partial.items()}
        lists |= {f"attention of path {at}": path.attention for at, path in enumerate(self.paths)}
        for name, numbers in lists.items():
            if len(numbers) != len(self.checkpoints):
                raise ValueError(
                    f"{name}: {len(self.checkpoints)} numbers, one for each checkpoint, not {len(numbers)}"
                )

    def _check_path(self, path: CircuitPath) -> None:
        if path.layer >= self.layers or path.head >= self.heads:
            raise ValueError(
                f"paths in {self.layers} layers of {self.heads} heads, not layer {path.layer}, head {path.head}"
            )
        _among([path.query_role], self.rows)
        _among([target.role for target in path.targets], [*self.rows, *UNNAMED, ""])

    def _check_maps(self) -> None:
        if self.maps is None:
            return
        shape = [len(self.checkpoints), len(self.tokens), len(self.tokens)]
        for found in self.maps:
            if found.shape != shape:
                raise ValueError(f"maps of shape {shape} (checkpoint, query, key), not {found.shape}")
        known = [(found.layer, found.head) for found in self.maps]
        missing = sorted({path.place for path in self.paths} - set(known))
        if missing or len(set(known)) < len(known):
            raise ValueError(f"one map for each head of the circuit; missing {missing}, there are {known}")


def _among(names: Iterable[str], known: list[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"roles among {known}, not {unknown}")


class NamedCircuit(Config):
    """One circuit of the block; ``file`` and ``key`` say where in the run it is from."""

    name: str
    file: str
    key: str = ""
    view: CircuitView


class CircuitBlock(Config):
    """Circuits as graphs, with their attention and how they formed.

    Attributes:
        circuits: what can be chosen.
        title, caption: words around it.
        published: what the study's source calls the figure that these answer, such as `fig-5`.
    """

    kind: Literal["circuit"]
    title: str = ""
    caption: str = ""
    circuits: list[NamedCircuit] = Field(min_length=1)
    published: str = Field("", pattern=PUBLISHED)

    @property
    def first(self) -> int:
        """Number of the circuit that is shown first: the one from which there is most to learn.

        Those that hold come first, and of these those that were read: their drawing lacks no path.  Then those of
        models that learned most targets, those with most hops, and those with most paths.
        """
        return max(range(len(self.circuits)), key=lambda at: (*_worth(self.circuits[at].view), -at))


def _worth(view: CircuitView) -> tuple[bool, bool, int, int, int]:
    held = view.loss.rules is not None and view.loss.rules <= view.threshold
    learned = sum(losses[view.shown] < _LEARNED * max(losses) for losses in view.partial.values())
    hops = len({path.hop for path in view.paths} - {None})
    return held, view.verdict == "read", learned, hops, len(view.paths)
