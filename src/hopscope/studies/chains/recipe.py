"""The paper's recipe (sections 7.1, 8.1 and 9.1): GPT-2's blocks on vectors that carry their position, and AdamW.

`QUICK` is what learns chains of two and three steps soonest, in under a minute of a core: both tokens of a pair share a
position code, and there are more layers than the chain needs.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.models.config import Init, Model
from hopscope.study.study import Study
from hopscope.tasks import Retrieval
from hopscope.tasks.retrieval import Order
from hopscope.theory.information_flow import Mask, layers_per_step
from hopscope.theory.information_flow import Order as PairOrder
from hopscope.training.config import Beta, Training

QUICK = Model(layers=4, heads=8, head_dim=16, width=128, mlp_ratio=0.0)
QUICK_TRAINING = Training(steps=1_000, batch_size=64, learning_rate=4e-3, evaluate_every=20)

_FIELDS = {
    "task": ("chains", "symbol_dim", "order", "position", "frequencies", "split_seed"),
    "model": ("heads", "width", "mlp_ratio", "causal"),
    "training": ("batch_size", "learning_rate", "weight_decay", "decay", "precision", "checkpoint_every",
                 "evaluate_every", "final_window", "final_every"),
}  # fmt: skip
"""Where options go."""

_COMPLETED = {"init": "model", "warmup_steps": "training", "schedule": "training", "final_rate": "training"}

COMPLETED = (*_COMPLETED, "beta2", "clip_norm")
"""Options that follow from the completion where they are not given."""

FIXED = (
    *(f"{section}.{name}" for name, section in _COMPLETED.items()),
    "training.betas",
    "training.clip_norm",
    "task.schedule",
    "model.norm",
    "training.optimizer",
)
"""Fields that only these options give, or the paper does: claims and labels read the completion from them."""


class Recipe(Config):
    """Options of a study of chains: task, model and training as the paper tells them, and what it leaves open.

    Attributes:
        chains: chains N of a sample.
        symbol_dim: dimensions K of a symbol, and of a position code.
        order: in which order the steps are shown.
        position: a position code for every token, or one for the tokens of a pair.
        frequencies: of the position codes.
        pool: number of training samples of each seed; none draws fresh ones without end.
        split_seed: seed of the held-out samples.
        heads: heads per layer.
        width: size of the residual stream.
        mlp_ratio: hidden size of the MLPs in widths; 0 means no MLP.
        causal: whether a position is kept from attending to later ones.
        training_steps: optimiser steps.
        batch_size: samples per step.
        learning_rate: of AdamW.
        beta1: decay of the optimiser's first moment.
        beta2: decay of its second moment (by the completion).
        weight_decay: decoupled.
        decay: whether weight decay touches matrices only, or every weight.
        init: start of the weights, as of `model.init` (by the completion).
        warmup_steps: steps over which the rate rises (by the completion).
        schedule: of the rate afterwards (by the completion).
        final_rate: share of the rate that a cosine ends at (by the completion).
        clip_norm: largest gradient norm of a member, or "none" for no clipping (by the completion).
        precision: of the matrix products in training.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        final_window: last steps whose mean held-out loss is the final loss (100 in the paper).
        final_every: steps between evaluations in the final window.
        evaluation_samples: held-out samples of every evaluation.
        analysis_samples: held-out samples on which the last checkpoint is measured.
    """

    chains: int = Field(4, ge=1, le=64)
    symbol_dim: int = Field(4, ge=2)
    order: Order = "deepest-first"
    position: Literal["token", "pair"] = "token"
    frequencies: Literal["harmonic", "geometric"] = "harmonic"
    pool: int | None = Field(None, ge=1)
    split_seed: int = Field(0, ge=0)
    heads: int = Field(4, ge=1)
    width: int = Field(64, ge=1)
    mlp_ratio: float = Field(0.0, ge=0.0)
    causal: bool = True
    training_steps: int = Field(2_500, ge=1, le=10**8)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0.0)
    beta1: Beta = 0.9
    beta2: Beta | None = None
    weight_decay: float = Field(0.1, ge=0.0)
    decay: Literal["matrices", "all"] = "matrices"
    init: Init | None = None
    warmup_steps: int | None = Field(None, ge=0)
    schedule: Literal["constant", "cosine"] | None = None
    final_rate: float | None = Field(None, ge=0.0, le=1.0)
    clip_norm: float | Literal["none"] | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(50, ge=1)
    final_window: int = Field(100, ge=0)
    final_every: int = Field(20, ge=1)
    evaluation_samples: int = Field(512, ge=1)
    analysis_samples: int = Field(4096, ge=2)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pool is not None and self.pool < self.batch_size:
            raise ValueError(
                f"pool: expected at least the {self.batch_size} samples of a batch, found {self.pool}; "
                f"enlarge pool or lower batch_size"
            )
        if self.beta1 != 0.9 and self.beta2 is None:
            raise ValueError(f"beta1: expected beta2 beside it, found {self.beta1} alone; give both")
        return self

    def overrides(
        self, steps: int, targets: str, layers: int, head_size: int | None = None
    ) -> dict[str, Any]:
        """Every field of a configuration that options decide: none of them can be given apart."""
        given = {name: value for name in COMPLETED if (value := getattr(self, name)) is not None}
        beta2, clip_norm = given.pop("beta2", None), given.pop("clip_norm", None)
        return {
            "task.steps": steps, "task.targets": targets, "model.layers": layers, "model.head_dim": head_size,
            "training.steps": self.training_steps, "training.examples": self.pool, "held_out": self.evaluation_samples,
            **{f"{section}.{name}": getattr(self, name) for section, names in _FIELDS.items() for name in names},
            **{f"{_COMPLETED[name]}.{name}": value for name, value in given.items()},
            **({} if beta2 is None else {"training.betas": (self.beta1, beta2)}),
            **({} if clip_norm is None else {"training.clip_norm": None if clip_norm == "none" else clip_norm}),
        }  # fmt: skip

    @property
    def departs(self) -> bool:
        """Whether something else is given than the completion has."""
        return any(getattr(self, name) is not None for name in COMPLETED)

    @property
    def plateau(self) -> float:
        """Loss of a model that knows which symbols a step could lead to, but not which of them is right."""
        return 1.0 - 1.0 / self.chains

    def exact(self, steps: int) -> dict[int, int]:
        """Exact minimum of layers for each step of a chain, under the mask and the order of the pairs.

        Where the order is random, a model must be right in the worst one, and none is worse than deepest-first.
        """
        return exact_layers_of(steps, self.causal, self.order)


def exact_layers_of(steps: int, causal: bool, order: Any) -> dict[int, int]:
    """Exact minimum of layers for each step, by the fields of a model and a task."""
    mask: Mask = "causal" if causal else "none"
    pairs: PairOrder = "deepest-first" if order == "random" else order
    return layers_per_step(steps, mask, pairs)


def chains_of(steps: int) -> Retrieval:
    """The task of the quick shape."""
    return Retrieval(steps=steps, chains=4, position="pair")


chain_study = partial(Study, task=chains_of(2), model=Model(), training=Training(steps=1), fixed=FIXED,
                      page="page.md.j2")  # fmt: skip
"""A study whose configurations say all of task, model and training, by `Recipe.overrides`."""


def check_names(field: str, asked: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that a field of a study's options does not know, by a `ValueError`."""
    for name in asked:
        if name not in known:
            raise ValueError(f"{field}: expected some of {', '.join(known)}, found {name!r}")
