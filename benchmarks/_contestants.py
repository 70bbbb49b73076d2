"""Who plays: for every model that speeds are compared on, the scripts that train it and the settings worth trying."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Contestant:
    """A script that trains and prints one JSON line, and the settings worth trying."""

    name: str
    script: Path
    grid: Grid


@dataclass(frozen=True)
class Model:
    """What is trained.

    Attributes:
        name: of the model.
        ours: name of the contestant that the others are compared with.
        grids: settings that are tried, by contestant.  `processes` is the harness's own: so many at a time, which
            share `members` if the script trains several, and whose speeds add up.
        scripts: of contestants whose script has another name.
        batch, large_batch: samples of a step in the rounds, and those that a larger batch is tried with.
    """

    name: str
    ours: str
    grids: Mapping[str, Grid]
    batch: int
    large_batch: int
    scripts: Mapping[str, str] = field(default_factory=dict)

    def contestants(self) -> list[Contestant]:
        """All of them, ours first."""
        return [
            Contestant(name, HERE / f"{self.scripts.get(name, name)}.py", grid)
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


def _depth(name: str, **settings: Any) -> Model:
    """The paper's models on the retrieval problem, with settings that all contestants share."""
    shared = {key: (value,) for key, value in settings.items()}
    plain = {"rows": ("all", "loss"), "attention": ("sdpa", "softmax"), **shared}
    return Model(
        name=name,
        ours="hopscope_depth",
        grids={
            "hopscope_depth": {"members": (8,), "processes": (2,), "threads": (1,), **shared},
            "hopscope_depth_general": {
                "members": (8,), "processes": (1, 2), "threads": (1, 2), "engine": ("general",), **shared
            },
            "plain_pytorch_depth": {"processes": (1, 2), "threads": (1, 2), **plain},
            "jax_depth": {"members": (2, 8), "processes": (1, 2), "threads": (1, 2), **shared},
        },
        scripts={"hopscope_depth_general": "hopscope_depth"},
        batch=64,
        large_batch=256,
    )  # fmt: skip


MODELS = {
    model.name: model for model in (PERMUTATION, _depth("depth"), _depth("depth-mlp", **{"mlp-ratio": 4}))
}
