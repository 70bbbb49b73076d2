"""What small language models are trained on, and how."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.config import Init
from hopscope.study.study import Configuration
from hopscope.training.config import Beta

CORPUS, DEEPEST = "corpus", "deepest"
"""Mixtures that only some runs have: a text's, and the control's."""

_FIELDS = {
    "task": ("chains", "depths", "lines", "asked", "repeated", "held_out_share", "split_seed"),
    "model": ("layers", "heads", "width", "mlp_ratio", "init"),
    "training": ("batch_size", "learning_rate", "weight_decay", "clip_norm", "checkpoint_every", "evaluate_every"),
}  # fmt: skip
"""Where options go."""

_WINDOW, _LIMIT = 256, 3  # content words that are looked back over; most hops


class Options(Config):
    """A word-level language model learns to answer questions in equations (paper, section 4, F1).

    Attributes:
        mixtures: how often each depth is trained: all alike ("uniform"), or in proportion to 1 / D ("zipf").
        corpus: a text file in UTF-8: adds the mixture "corpus", in which each depth is as frequent as words of the text
            that need so many hops, by sentences.
        control: also train on texts of the largest depth alone ("deepest"), which no mixture helps to learn.
        chains: interleaved chains N of a question; with two, what is not held out could be known by heart.
        depths: rounds D that a question may have, ascending.
        lines: what a training line may name: a symbol of the round before, each once, as in the paper ("paper"), or any
            name of an earlier round or value ("earlier").
        asked: what a training question is about: a name of the last round, as in the paper ("last"), or any.
        repeated: whether training texts repeat their lines behind the answer.
        held_out_share: of all mappings of names to values, those that training never sees.
        split_seed: seed of that split.
        layers: of the model.
        heads: per layer.
        width: size of the residual stream.
        mlp_ratio: hidden size of the MLPs in widths; 0 means no MLP.
        init: how weights begin.
        training_steps: optimiser steps.
        batch_size: texts per step.
        learning_rate: of AdamW.
        beta2: decay of the optimiser's second moment.
        weight_decay: decoupled.
        warmup_steps: steps over which the rate rises.
        clip_norm: largest gradient norm of a member.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations.
        evaluation_samples: held-out questions of each depth in every evaluation.
        questions: held-out questions of each depth that the trained models are asked through Inspect.
        orders: random orders of elimination by which a circuit is looked for.
        further_orders: at most so many more, as long as no circuit that was found is explained and holds on questions
            drawn anew.
        most_circuits: searches, those of all orders among them, after which none is begun for a circuit that does
            without a path of the one that was found.
        random_circuits: of the same size, that stand beside it.
    """

    mixtures: tuple[Literal["uniform", "zipf"], ...] = ("uniform", "zipf")
    corpus: str | None = None
    control: bool = False
    chains: int = Field(4, ge=3)
    depths: tuple[int, ...] = (1, 2)
    lines: Literal["paper", "earlier"] = "earlier"
    asked: Literal["last", "any"] = "last"
    repeated: bool = True
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0)
    split_seed: int = Field(0, ge=0)
    layers: int = Field(4, ge=1)
    heads: int = Field(8, ge=1)
    width: int = Field(128, ge=1)
    mlp_ratio: float = Field(0.0, ge=0.0)
    init: Init = "mimetic"
    training_steps: int = Field(2_000, ge=1, le=10**8)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(2.5e-3, gt=0.0)
    beta2: Beta = 0.999
    weight_decay: float = Field(0.01, ge=0.0)
    warmup_steps: int = Field(default_factory=lambda given: min(100, given["training_steps"]), ge=0)
    clip_norm: float | None = Field(1.0, gt=0.0)
    checkpoint_every: int = Field(100, ge=1)
    evaluate_every: int = Field(100, ge=1)
    evaluation_samples: int = Field(256, ge=1)
    questions: int = Field(300, ge=1)
    orders: int = Field(0, ge=0)
    further_orders: int = Field(3, ge=0)
    most_circuits: int = Field(2, ge=1)
    random_circuits: int = Field(20, ge=2)

    @model_validator(mode="after")
    def _can_be_mixed(self) -> Self:
        if not self.mixtures or len(set(self.mixtures)) < len(self.mixtures):
            raise ValueError(f"mixtures: expected different ones, found {', '.join(self.mixtures) or 'none'}")
        if self.control and len(self.depths) == 1:
            words = (
                f"expected several depths, of which the control has the last, found {self.depths[0]} alone"
            )
            raise ValueError(f"control: {words}; take more depths, or no control")
        return self

    @property
    def drawn(self) -> dict[str, Any]:
        """Name of each mixture of the run → how often its depths are drawn."""
        found: dict[str, Any] = {name: name for name in self.mixtures}
        if self.corpus is not None:
            found[CORPUS] = shares(self.corpus, self.depths)
        if self.control:
            found[DEEPEST] = (*(0.0 for _ in self.depths[:-1]), 1.0)
        return found

    @property
    def overrides(self) -> dict[str, Any]:
        """Every field of a configuration that options decide: none of them can be given apart."""
        return {
            **{f"{section}.{name}": getattr(self, name) for section, names in _FIELDS.items() for name in names},
            "training.steps": self.training_steps, "training.betas": (0.9, self.beta2),
            "training.warmup_steps": self.warmup_steps, "held_out": self.evaluation_samples,
        }  # fmt: skip


def configurations(options: Options) -> list[Configuration]:
    """One configuration for each mixture.

    Raises:
        UserError: Inspect is missing; said before training, because the exam needs it.
    """
    if find_spec("inspect_ai") is None:
        raise UserError("inspect_ai: expected this package, found none; pip install 'hopscope[llm]'")
    return [
        Configuration(label=name, overrides={**options.overrides, "task.mixture": mixture})
        for name, mixture in options.drawn.items()
    ]


@lru_cache(maxsize=8)
def shares(corpus: str, depths: tuple[int, ...]) -> tuple[float, ...]:
    """Share of each depth among the words of a text that need as many hops as one of the depths.

    Raises:
        UserError: the text cannot be read, or no word needs as many hops as the largest depth.
    """
    from hopscope.language.hops import hops

    try:
        text = Path(corpus).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8"
        raise UserError(f"corpus: expected a text file in UTF-8, found {corpus} ({why})") from None
    found = hops(text, "sentences", window=_WINDOW, limit=max(_LIMIT, *depths))
    counts = [int((found == depth).sum()) for depth in depths]
    if not counts[-1]:
        words = f"expected words of {corpus} that need {depths[-1]} hops, the largest depth, found none"
        raise UserError(f"corpus: {words}; take a smaller depth, or a longer text")
    return tuple(count / sum(counts) for count in counts)
