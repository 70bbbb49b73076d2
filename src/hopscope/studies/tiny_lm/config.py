"""Grid and presets of the study of a small language model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from tyro.constructors import PrimitiveConstructorSpec

from hopscope.circuits.config import MOST_CIRCUITS, ReaderConfig
from hopscope.config import Config
from hopscope.language.corpus.file import StepCounts, read_counts
from hopscope.models.config import Init, TransformerConfig
from hopscope.tasks.config import EquationsConfig
from hopscope.training.config import Beta, Cell, TrainingConfig, TrainJob, units_of

Mixture = Literal["uniform", "zipf"]

CORPUS, DEEPEST = "corpus", "deepest"
"""Mixtures that only some runs have: a text's, and the control's."""


def _of_file(given: object) -> object:
    """A file is read where the option is read; a run's record has the counts, and needs the file no more."""
    return read_counts(Path(given)) if isinstance(given, str | Path) else given


# By itself tyro would ask for every field of the counts.
_OPTION = PrimitiveConstructorSpec[object](
    nargs=1,
    metavar="FILE",
    instance_from_str=lambda words: None if words[0] == "None" else Path(words[0]),
    is_instance=lambda value: value is None or isinstance(value, StepCounts | Path),
    str_from_instance=lambda value: [value.text if isinstance(value, StepCounts) else str(value)],
)

Corpus = Annotated[StepCounts | None, BeforeValidator(_of_file), _OPTION]
"""How many words of a text need how many steps; given as a file (see `read_counts`), or as the counts themselves."""


def shares(corpus: StepCounts, depths: Sequence[int]) -> tuple[float, ...]:
    """Share of each depth among the words that need as many steps as one of the depths.

    Args:
        corpus: counts of a text.
        depths: ascending.

    Raises:
        ValueError: no word needs as many steps as the largest depth.
    """
    counts = [corpus.needing(depth) for depth in depths]
    if counts and not counts[-1]:
        found = ", ".join(f"{count:,} of {depth}" for depth, count in zip(depths, counts, strict=True))
        raise ValueError(
            f"corpus: expected words of {corpus.text} that need {depths[-1]} steps, the largest depth, found {found} "
            "steps; take a smaller depth, a longer text, or hopscope corpus --json with a larger --limit"
        )
    return tuple(count / sum(counts) for count in counts)


class TinyLmConfig(Config):
    """A word-level language model learns to answer questions in equations (paper, section 4, F1).

    Attributes:
        seeds: number of seeds of every mixture.
        mixtures: how often each depth is trained: all alike ("uniform"), or in proportion to 1 / D ("zipf").
        corpus: a text, or what hopscope corpus --json says of one: adds the mixture "corpus", in which each depth is as
            frequent as words of the text that need so many steps.
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
        members_per_unit: most members that are trained as one program.
        orders: random orders of elimination by which a circuit is looked for.
        further_orders: at most so many more, as long as no circuit that was found is explained and holds on questions
            drawn anew.
        most_circuits: searches, those of all orders among them, after which none is begun for a circuit that does
            without a path of the one that was found.
        random_circuits: of the same size, that stand beside it.
    """

    seeds: int = Field(1, ge=1)
    mixtures: tuple[Mixture, ...] = ("uniform", "zipf")
    corpus: Corpus = None
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
    members_per_unit: int = Field(2, ge=1)
    orders: int = Field(0, ge=0)
    further_orders: int = Field(3, ge=0)
    most_circuits: int = Field(2, ge=1)
    random_circuits: int = Field(20, ge=2)

    @model_validator(mode="after")
    def _plans(self) -> Self:
        if not self.mixtures or len(set(self.mixtures)) < len(self.mixtures):
            raise ValueError(f"mixtures: expected different ones, found {', '.join(self.mixtures) or 'none'}")
        if self.control and len(self.depths) == 1:
            raise ValueError(
                f"control: expected several depths, of which the control has the last, found {self.depths[0]} alone; "
                "take more depths, or no control"
            )
        # Whatever is wrong with a model or a task is wrong with the study: say so before anything is written.
        for mixture in self.drawn:
            model = self.model(self.task(mixture))
            if model.heads * model.head_size != model.width or model.input_size > model.width:
                raise ValueError(
                    f"width: expected a multiple of heads, and at least the {model.input_size} tokens of the "
                    f"vocabulary, found {self.width}; take another one"
                )
        return self

    @property
    def drawn(self) -> dict[str, Mixture | tuple[float, ...]]:
        """Name of each mixture of the run → how often its depths are drawn."""
        found: dict[str, Mixture | tuple[float, ...]] = {name: name for name in self.mixtures}
        if self.corpus is not None:
            found[CORPUS] = shares(self.corpus, self.depths)
        if self.control:
            found[DEEPEST] = (*(0.0 for _ in self.depths[:-1]), 1.0)
        return found

    def task(self, mixture: str) -> EquationsConfig:
        """The task under one mixture."""
        return EquationsConfig(mixture=self.drawn[mixture], **self._given_to(EquationsConfig))

    def model(self, task: EquationsConfig) -> TransformerConfig:
        """The model: GPT-2's blocks, which any tool reads."""
        return TransformerConfig(
            **self._given_to(TransformerConfig),
            activation="gelu",
            norm="pre",
            causal=True,
            positions="learned",
            length=task.positions,
            input_kind="tokens",
            input_size=len(task.vocabulary),
            output_size=len(task.vocabulary),
            readout=task.readout,
        )

    def reader(self) -> ReaderConfig:
        """The circuit reader's configuration for the members."""
        return ReaderConfig(**self._given_to(ReaderConfig))

    def training(self) -> TrainingConfig:
        """The training configuration of the language models."""
        given = self._given_to(TrainingConfig)
        return TrainingConfig(
            steps=self.training_steps,
            optimizer="adamw",
            betas=(0.9, self.beta2),
            schedule="constant",
            **given,
        )

    def _given_to(self, kind: type[Config]) -> dict[str, Any]:
        """The fields of the study that are fields of another configuration, under the same names."""
        return {name: getattr(self, name) for name in kind.model_fields if name in type(self).model_fields}


def jobs(config: TinyLmConfig) -> list[TrainJob]:
    """Units by mixture; one with many seeds is cut into several."""
    seeds, training, most = range(config.seeds), config.training(), config.members_per_unit
    tasks = {mixture: config.task(mixture) for mixture in config.drawn}
    return units_of(
        Cell(mixture, seeds, {"mixture": mixture}, task, config.model(task), training, most)
        for mixture, task in tasks.items()
    )


EXAM = "exam"
"""Name of the analysis that holds what the trained models answered through Inspect."""

LEARNED = 0.9
"""Held-out accuracy from which on a depth counts as learned."""


def part_of(depth: int) -> str:
    """What a depth is called in the evidence table."""
    return f"depth_{depth}"


PRESETS = {
    "smoke": TinyLmConfig(
        seeds=1, mixtures=("uniform",), chains=3, depths=(1,), width=32, heads=4, layers=3, training_steps=800,
        batch_size=64, learning_rate=4e-3, questions=18, evaluation_samples=64,
    ),
    "laptop": TinyLmConfig(),
    "paper": TinyLmConfig(
        seeds=12, depths=(1, 2, 3), layers=6, heads=8, width=128, mlp_ratio=4.0, training_steps=30_000, batch_size=128,
        learning_rate=1e-3, questions=400, members_per_unit=4, checkpoint_every=500, evaluate_every=100,
        orders=4, further_orders=8, most_circuits=MOST_CIRCUITS,
    ),
}  # fmt: skip
COSTS = {
    "smoke": "under a minute on two cores",
    "laptop": "under 10 min on two quiet cores",
    "paper": "24 models; made for a GPU",
}
