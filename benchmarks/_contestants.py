"""Who plays: for every model that speeds are compared on, the scripts that train it and the settings worth trying."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _depth import Shape

HERE = Path(__file__).resolve().parent

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Contestant:
    """A script that trains and prints one JSON line, the settings worth trying, and those that every process has."""

    name: str
    script: Path
    grid: Grid
    given: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """What is trained.

    Attributes:
        name: of the model.
        ours: name of the contestant that the others are compared with.
        grids: settings that are tried, by contestant.  `processes` is the harness's own: so many at a time, which
            share `members` if the script trains several and whose speeds add up.
        scripts: of contestants whose script has another name.
        batch, large_batch: samples of a step in the rounds, and those that a larger batch is tried with, if any.
        shape: of the deep models, whose operations are counted.
        given: settings that every process has, beside the shape.
    """

    name: str
    ours: str
    grids: Mapping[str, Grid]
    batch: int
    large_batch: int | None
    scripts: Mapping[str, str] = field(default_factory=dict)
    shape: Shape | None = None
    given: Settings = field(default_factory=dict)

    def contestants(self) -> list[Contestant]:
        """All of them, ours first."""
        given = {**self.given, **(self.shape.options() if self.shape else {})}
        return [
            Contestant(name, HERE / f"{self.scripts.get(name, name)}.py", grid, given)
            for name, grid in self.grids.items()
        ]


PERMUTATION = Model(
    name="permutation",
    ours="hopscope_ensemble",
    # Two page loops at a time are not the page's way, but what a reader with two cores and many seeds would do.  Ours
    # is measured in the layout that a study runs in, one-thread workers, and by the engine that a study would choose;
    # once more by autograd, so that the gain of the fused way shows.
    grids={
        "hopscope_ensemble": {"members": (8,), "processes": (2,), "threads": (1,)},
        "hopscope_general": {"members": (8,), "processes": (2,), "threads": (1,), "engine": ("general",)},
        "page_loop": {"threads": (1, 2), "workers": (0, 2)},
        "page_loop_twice": {"processes": (2,), "threads": (1,), "workers": (0,)},
        "plain_pytorch": {"processes": (1, 2), "threads": (1, 2), "rows": ("all", "loss")},
        "jax_vmap": {"members": (8,), "processes": (1, 2), "threads": (1, 2)},
    },
    scripts={"page_loop_twice": "page_loop", "hopscope_general": "hopscope_ensemble"},
    batch=256,
    large_batch=1024,
)


LAYOUTS: Grid = {"processes": (1, 2), "threads": (1, 2)}


def _laptop(name: str, shape: Shape) -> Model:
    """A model of the laptop preset on the retrieval problem."""
    return Model(
        name=name,
        ours="hopscope_depth",
        grids={
            "hopscope_depth": {"members": (8,), "processes": (2,), "threads": (1,)},
            "hopscope_depth_general": {"members": (8,), **LAYOUTS, "engine": ("general",)},
            "plain_pytorch_depth": {**LAYOUTS, "rows": ("all", "loss"), "attention": ("sdpa", "softmax")},
            "jax_depth": {"members": (2, 8), **LAYOUTS},
        },
        scripts={"hopscope_depth_general": "hopscope_depth"},
        batch=64,
        large_batch=256,
        shape=shape,
    )


def _paper(name: str, shape: Shape, batch: int) -> Model:
    """A model of the paper on the retrieval problem: steps are long, so one member a process, and little is tried."""
    return Model(
        name=name,
        ours="hopscope_depth",
        grids={
            "hopscope_depth": {"processes": (2,), "threads": (1,)},
            "hopscope_depth_general": {**LAYOUTS, "engine": ("general",)},
            "plain_pytorch_depth": {**LAYOUTS, "rows": ("loss",), "attention": ("sdpa", "softmax")},
            "jax_depth": LAYOUTS,
        },
        scripts={"hopscope_depth_general": "hopscope_depth"},
        batch=batch,
        large_batch=None,
        shape=shape,
        given={"members": 1},
    )


MODELS = {
    model.name: model
    for model in (
        PERMUTATION,
        _laptop("depth", Shape()),
        _laptop("depth-mlp", Shape(mlp_ratio=4)),
        _paper("transformer-d", Shape(steps=4, layers=24, width=512, heads=1, head_dim=16), batch=256),
        _paper("transformer-a", Shape(steps=3, layers=12, width=128, heads=1, mlp_ratio=4), batch=128),
    )
}
