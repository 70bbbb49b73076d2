"""The page's explorer: which members and checkpoints it holds, and their weights from the run's folder.

A page is one file, so it holds a few models: of the member that a reader meets first several checkpoints, of some other
configurations the last one, and of another seed what is left.  Which ones is decided here, by the bytes that they take.
"""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.runs import UnitFolder
from hopscope.runs.arrays import Array
from hopscope.runs.files import listed

MOST_CHARACTERS = 1_500_000
"""Of all weights on a page, as text: with its charts' library a page stays below 3 MB."""

MOST_CHECKPOINTS = 8
MOST_CONFIGURATIONS = 8

_CHARACTERS = 8 / 3
"""Of one weight: two bytes as base64."""

Count = Annotated[int, Field(ge=0)]
_Size = Annotated[int, Field(ge=0, le=2**40)]


class ExplorerConfig(Config):
    """The shape of a model, as far as the page's forward pass needs it; see `hopscope.models.packing`."""

    inputs: Literal["tokens", "vectors"]
    input_size: int = Field(ge=1)
    output_size: int = Field(ge=1)
    length: int = Field(ge=1)
    readout: list[Count]
    codes: list[Count]
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    width: int = Field(ge=1)
    mlp_size: Count
    activation: Literal["relu", "gelu"]
    norm: Literal["post", "pre", "none"]
    causal: bool


class ExplorerShape(Config):
    """A shape of models: its configuration, and name and shape of every weight in the order of packing."""

    config: ExplorerConfig
    layout: list[tuple[str, Annotated[list[_Size], Field(max_length=8)]]] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Number of weights of one model."""
        return sum(math.prod(shape) for _, shape in self.layout)


class ExplorerExample(Config):
    """A sample: token ids, or base64 of float32 vectors; targets by readout (-1: none); a role for each position."""

    name: str
    size: int = Field(ge=1)
    inputs: list[Count] | str
    targets: list[int] | str
    roles: list[str]


class ExplorerTask(Config):
    """What the models of a block are asked.

    Attributes:
        inputs, outputs: tokens or vectors; classes or vectors.
        tokens: how each token is written.
        symbol_size: features of a symbol in vectors, before the position code; 0 where outputs are no symbols.
        parts: names of the symbols of a prediction.
        examples: samples to choose from.
        kind: `permutation` for the task whose answers the page itself knows.
        held_out: its held-out mappings, to say on which side a sequence is.
    """

    inputs: Literal["tokens", "vectors"]
    outputs: Literal["classes", "vectors"]
    tokens: list[str]
    symbol_size: Count = 0
    parts: list[str] = Field(default_factory=list)
    examples: list[ExplorerExample] = Field(min_length=1)
    kind: Literal["", "permutation"] = ""
    held_out: list[list[int]] = Field(default_factory=list)


class ExplorerModel(Config):
    """A member: what it is called, its configuration, and where its weights are in the run."""

    name: str
    configuration: str
    member: int
    unit: str = Field(pattern=r"^[0-9A-Za-z]+$", max_length=100)
    index: Count
    shape: Count
    task: Count


class ExplorerStart(Config):
    """What a reader sees first."""

    model: Count
    example: Count
    row: Count
    layer: Count
    head: Count


class ExplorerBlock(Config):
    """Models that the page runs in the reader's browser.

    Attributes:
        title, caption: words around it.
        shapes, tasks: of the models.
        models: every member that has weights.
        start: what is shown first.
    """

    kind: Literal["explorer"]
    title: str = ""
    caption: str = ""
    shapes: list[ExplorerShape] = Field(default_factory=list)
    tasks: list[ExplorerTask] = Field(default_factory=list)
    models: list[ExplorerModel] = Field(default_factory=list)
    start: ExplorerStart | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, given: Any) -> Any:
        """A block of before the explorer read checkpoints held other models: it says where to find them now."""
        if isinstance(given, Mapping) and "sequences" in given:
            return {name: given[name] for name in ("kind", "title", "caption") if name in given}
        return given

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        ends = {"shape": len(self.shapes), "task": len(self.tasks)}
        for model in self.models:
            for name, end in ends.items():
                if getattr(model, name) >= end:
                    raise ValueError(
                        f"{name} below {end}, not {getattr(model, name)}, of member {model.member}"
                    )
        if (self.start is None) == bool(self.models):
            raise ValueError("where to begin, if and only if there are models")
        if self.start is not None and self.start.model >= len(self.models):
            raise ValueError(f"a model below {len(self.models)}, not {self.start.model}")
        return self


@dataclass(frozen=True)
class _Held:
    """A member on the page, with the checkpoints that are."""

    model: ExplorerModel
    shape: ExplorerShape
    steps: tuple[int, ...]


def explorer_payload(run: Path, block: ExplorerBlock, members: Sequence[int] = ()) -> dict[str, Any] | None:
    """What the page shows of an explorer; `None` where the run has no weights that fit a page.

    Args:
        run: the run folder.
        block: of its story.
        members: those that the page must hold first; by default the one that the story begins with.

    Returns:
        `script`: what its script is given, models with their weights; `held`: in words what is there; `other`: number
        of a member that is not, or else of the first.

    Raises:
        UserError: a member that is asked for has no weights.
        CheckpointDamaged: a checkpoint cannot be trusted.
    """
    if block.start is None:
        return None
    known = [model.member for model in block.models]
    for member in members:
        if member not in known:
            raise UserError(
                f"{run}: expected members with weights to explore, {listed(known)}, found {member}; choose one of them"
            )
    held = list(_held(run, block, members))
    if not held:
        return None
    weights: dict[int, dict[int, dict[str, str]]] = {each.model.member: {} for each in held}
    for each in held:
        unit = _unit(run, each.model)
        for step in each.steps:
            _, arrays, _ = unit.checkpoint(step)
            weights[each.model.member][step] = packed(arrays, each.shape, each.model.index)
    dumped = block.model_dump(mode="json")
    begun = block.models[block.start.model].member == held[0].model.member
    here = {each.model.member for each in held}
    missing = [model.member for model in block.models if model.member not in here]
    return {
        "held": _words(held, len(block.models)),
        "other": (missing or [held[0].model.member])[0],
        "script": {
            "shapes": dumped["shapes"],
            "tasks": dumped["tasks"],
            "models": [
                {
                    **each.model.model_dump(mode="json"),
                    "checkpoints": [
                        {"step": step, **weights[each.model.member][step]} for step in each.steps
                    ],
                }
                for each in held
            ],
            "start": dumped["start"] if begun else {**dumped["start"], "layer": 0, "head": 0},
        },
    }


def explorer_missing(run: Path, block: ExplorerBlock) -> str:
    """Why an explorer holds no model, in a sentence; empty where it holds some."""
    if block.start is not None and any(_held(run, block, ())):
        return ""
    with_weights = [model for model in block.models if any(_unit(run, model).checkpoints())]
    if not with_weights:
        return (
            "This run folder has no weights, so there is no model to try here; the command that made the run makes "
            "them again."
        )
    smallest = min(block.shapes[model.shape].size for model in with_weights)
    room = int(MOST_CHARACTERS / _CHARACTERS)
    return (
        f"A model of this run has {smallest:,} weights, and a page has room for {room:,}. "
        "So there is none to try here; in Python, hopscope.open_run(…).member(0) is such a model."
    )


def _words(held: Sequence[_Held], models: int) -> str:
    """What is on the page, in a sentence."""
    checkpoints = ", ".join(f"{len(each.steps)} of {each.model.name}" for each in held if len(each.steps) > 1)
    rest = "; of the others the last" if any(len(each.steps) == 1 for each in held) else ""
    more = f": {checkpoints}{rest}" if checkpoints else "; of each the last"
    return f"Here are {len(held)} of {models} models, with their checkpoints{more}."


def packed(arrays: Mapping[str, Array], shape: ExplorerShape, index: int) -> dict[str, str]:
    """The weights of one member side by side: `weights` in base64, little-endian, and their `format`.

    The format is float16, or float32 where a weight is too large for that, as those of hand-built solutions are.

    Raises:
        UserError: the checkpoint has no such member, or no weights of these names and shapes.
    """
    for name, size in shape.layout:
        found = arrays[f"weights/{name}"].shape if f"weights/{name}" in arrays else ()
        if found[1:] != tuple(size) or not index < next(iter(found), 0):
            raise UserError(
                f"story.json: expected the weights {name} of shape {size} of member {index} of a unit, found a "
                f"checkpoint that has {listed(found) or 'none'}; run the same command again to make it anew"
            )
    parts = [np.asarray(arrays[f"weights/{name}"][index]).ravel() for name, _ in shape.layout]
    flat = np.concatenate(parts)
    kind = "float16" if np.abs(flat).max(initial=0) <= np.finfo(np.float16).max else "float32"
    data = flat.astype(np.dtype(kind).newbyteorder("<")).tobytes()
    return {"format": kind, "weights": base64.b64encode(data).decode("ascii")}


def _unit(run: Path, model: ExplorerModel) -> UnitFolder:
    return UnitFolder(run / "units" / model.unit)


def _held(run: Path, block: ExplorerBlock, members: Sequence[int]) -> Iterator[_Held]:
    """The members that fit, the first one first, each with its checkpoints."""
    steps = {
        at: [step for step, _ in _unit(run, model).checkpoints()] for at, model in enumerate(block.models)
    }
    cost = [_CHARACTERS * block.shapes[model.shape].size for model in block.models]
    order = _order(block, members)
    taken: dict[int, int] = {}
    left = float(MOST_CHARACTERS)
    for at, most in order:
        # More checkpoints of a model that is there already, or a model with its last one.
        wanted = min(most, len(steps[at])) - taken.get(at, 0)
        more = min(wanted, int(left // cost[at]))
        if more > 0:
            taken[at] = taken.get(at, 0) + more
            left -= more * cost[at]
    for at, count in taken.items():
        model = block.models[at]
        yield _Held(model, block.shapes[model.shape], tuple(_spread(steps[at], count)))


def _order(block: ExplorerBlock, members: Sequence[int]) -> list[tuple[int, int]]:
    """Models with the number of checkpoints that each may have by then, the most wanted first."""
    known = {model.member: at for at, model in enumerate(block.models)}
    asked = [known[member] for member in members]
    first = asked[0] if asked or block.start is None else block.start.model
    others, seen = [], {block.models[first].configuration}
    for at, model in enumerate(block.models):
        if model.configuration not in seen:
            seen.add(model.configuration)
            others.append(at)
    twins = [
        at
        for at, model in enumerate(block.models)
        if at != first and model.configuration == block.models[first].configuration
    ]
    spread = _spread(others, min(len(others), MOST_CONFIGURATIONS - 1))
    return [
        *((at, 1) for at in [first, *asked]),
        *((at, 1) for at in twins[:1]),
        *((at, 1) for at in spread),
        *((at, MOST_CHECKPOINTS) for at in [first, *asked, *twins[:1], *spread]),
    ]


def _spread(values: Sequence[int], count: int) -> list[int]:
    """So many of some values, evenly spread; of one alone the last."""
    if count >= len(values):
        return list(values)
    if count < 2:
        return list(values[-count:]) if count else []
    return [values[round(at * (len(values) - 1) / (count - 1))] for at in range(count)]
