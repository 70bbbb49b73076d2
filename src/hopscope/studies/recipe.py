"""The paper's recipe (sections 7.1, 8.1 and 9.1): GPT-2's blocks on vectors that carry their position, and AdamW."""

from collections.abc import Callable
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.completion import COMPLETIONS, CompletionName, Schedule, departures
from hopscope.config import Config
from hopscope.models.config import Init, TransformerConfig
from hopscope.tasks.config import RetrievalConfig, Targets, TimeOrder
from hopscope.theory.information_flow import Mask, Order, exact_layers, layers_per_step
from hopscope.training.config import Beta, TrainingConfig, check_warmup


def _by_completion(name: str) -> Callable[[dict[str, Any]], Any]:
    """Default of a field that follows from the completion, where both it and the length of training are sound."""
    return lambda given: COMPLETIONS[given["completion"]].values(given["training_steps"])[name]


class RecipeConfig(Config):
    """Task, model and training as the paper tells them; what it leaves open has a documented default.

    Attributes:
        seeds: number of seeds of every configuration.
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
        completion: start of the weights, and warm-up, β₂, schedule and clipping of the training, in one word; each of
            these fields can still be given, and then wins.
        training_steps: optimiser steps.
        batch_size: samples per step.
        learning_rate: of AdamW.
        beta1: decay of the optimiser's first moment.
        beta2: decay of its second moment (by the completion).
        weight_decay: decoupled.
        decay: whether weight decay touches matrices only, or every weight.
        init: start of the weights (by the completion): gpt2, linear, encoder, or a number γ (as of `hopscope.Model`).
        warmup_steps: steps over which the rate rises (by the completion).
        schedule: of the rate afterwards (by the completion): constant, or half a cosine.
        final_rate: share of the rate that a cosine ends at.
        clip_norm: largest gradient norm of a member (by the completion); none is no clipping.
        precision: of the matrix products in training.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        final_window: last steps whose mean held-out loss is the final loss (100 in the paper).
        final_every: steps between evaluations in the final window.
        evaluation_samples: held-out samples of every evaluation.
        analysis_samples: held-out samples on which the last checkpoint is measured.
        members_per_unit: most members that are trained as one program.
    """

    chains: int = Field(4, ge=1, le=64)
    symbol_dim: int = Field(4, ge=2)
    order: TimeOrder = "deepest-first"
    position: Literal["token", "pair"] = "token"
    frequencies: Literal["harmonic", "geometric"] = "harmonic"
    pool: int | None = Field(None, ge=1)
    split_seed: int = Field(0, ge=0)
    heads: int = Field(4, ge=1)
    width: int = Field(64, ge=1)
    mlp_ratio: float = Field(0.0, ge=0.0)
    causal: bool = True
    # A record that names none is of a run from before there were any; every preset of today names its own.
    completion: CompletionName = "gpt2-base"
    training_steps: int = Field(2_500, ge=1, le=10**8)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0.0)
    beta1: Beta = 0.9
    beta2: Beta = Field(default_factory=_by_completion("beta2"))
    weight_decay: float = Field(0.1, ge=0.0)
    decay: Literal["matrices", "all"] = "matrices"
    init: Init = Field(default_factory=_by_completion("init"))
    warmup_steps: int = Field(default_factory=_by_completion("warmup_steps"), ge=0)
    schedule: Schedule = Field(default_factory=_by_completion("schedule"))
    final_rate: float = Field(default_factory=_by_completion("final_rate"), ge=0.0, le=1.0)
    clip_norm: float | None = Field(default_factory=_by_completion("clip_norm"), gt=0.0)
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = Field(500, ge=1)
    evaluate_every: int = Field(50, ge=1)
    final_window: int = Field(100, ge=0)
    final_every: int = Field(20, ge=1)
    evaluation_samples: int = Field(512, ge=1)
    analysis_samples: int = Field(4096, ge=2)
    members_per_unit: int = Field(3, ge=1)

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        check_warmup(self.warmup_steps, self.training_steps, "training_steps")
        return self

    @property
    def departures(self) -> dict[str, Any]:
        """The fields of the completion that are given otherwise, with their values."""
        found = {
            name: getattr(self, name) for name in COMPLETIONS[self.completion].values(self.training_steps)
        }
        return departures(self.completion, self.training_steps, found)

    @model_validator(mode="after")
    def _pool_holds_a_batch(self) -> Self:
        if self.pool is not None and self.pool < self.batch_size:
            raise ValueError(
                f"pool: expected at least the {self.batch_size} samples of a batch, found {self.pool}; "
                f"enlarge pool or lower batch_size"
            )
        return self

    def task_of(self, steps: int, targets: Targets) -> RetrievalConfig:
        """The task with D = `steps`."""
        return RetrievalConfig(
            steps=steps,
            targets=targets,
            chains=self.chains,
            symbol_dim=self.symbol_dim,
            order=self.order,
            position=self.position,
            frequencies=self.frequencies,
            pool=self.pool,
            split_seed=self.split_seed,
        )

    def model_of(self, task: RetrievalConfig, layers: int, head_size: int | None = None) -> TransformerConfig:
        """The model for a task: GPT-2's blocks on vectors that carry their position."""
        return TransformerConfig(
            layers=layers,
            heads=self.heads,
            width=self.width,
            head_dim=head_size,
            mlp_ratio=self.mlp_ratio,
            activation="gelu",
            norm="pre",
            causal=self.causal,
            positions="carried",
            position_size=task.symbol_dim,
            length=task.positions,
            input_kind="vectors",
            input_size=2 * task.symbol_dim,
            output_size=len(task.asked) * task.symbol_dim,
            readout=tuple(range(task.positions - task.chains, task.positions)),
            init=self.init,
        )

    def adamw(self) -> TrainingConfig:
        """The training configuration, with AdamW as optimiser."""
        return TrainingConfig(
            steps=self.training_steps,
            batch_size=self.batch_size,
            optimizer="adamw",
            learning_rate=self.learning_rate,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
            decay=self.decay,
            warmup_steps=self.warmup_steps,
            schedule=self.schedule,
            final_rate=self.final_rate,
            clip_norm=self.clip_norm,
            checkpoint_every=self.checkpoint_every,
            evaluate_every=self.evaluate_every,
            final_window=self.final_window,
            final_every=self.final_every,
            precision=self.precision,
        )


# What the information-flow model says of a configuration's mask and order of pairs.


def mask_and_order(config: RecipeConfig) -> tuple[Mask, Order]:
    """Mask and order of pairs as the theory takes them.

    Where the order is random, a model must be right in every one, also in the worst; none is worse than deepest-first
    (docs/theory.md).
    """
    order: Order = "deepest-first" if config.order == "random" else config.order
    return ("causal" if config.causal else "none"), order


def exact_of(config: RecipeConfig, steps: int) -> int:
    """Exact minimum of layers for x_D."""
    return exact_layers(steps, *mask_and_order(config))


def exact_by_step(config: RecipeConfig, steps: int) -> dict[int, int]:
    """Exact minimum of layers for each x_k."""
    return layers_per_step(steps, *mask_and_order(config))
