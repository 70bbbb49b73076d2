"""A small language model learns questions in equations (paper, section 4), from mixtures of depths (S6)."""

from collections.abc import Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from hopscope.claims import Claim, Samples, at_least
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.language import Equations
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.tiny_lm.measures import LEARNED, circuits, depths, exam, part_of
from hopscope.study.study import Configuration, Study
from hopscope.tasks.task import expect
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence

CORPUS, DEEPEST = "corpus", "deepest"
"""Mixtures that only some runs have: a text's, and the control's."""

PAPER_STEPS = 30_000
"""Training steps from which on a depth that was not learned counts against a mixture."""

S6 = at_least(LEARNED, "fraction")


class Options(Config):
    """Mixtures of depths, and what the trained models are asked.

    Attributes:
        mixtures: how often each depth is trained: all alike ("uniform"), or in proportion to 1 / D ("zipf").
        corpus: a text file in UTF-8: adds the mixture "corpus", in which each depth is as frequent as words of the text
            that need so many hops, by sentences.
        control: also train on texts of the largest depth alone ("deepest"), which no mixture helps to learn.
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
    questions: int = Field(300, ge=1)
    orders: int = Field(0, ge=0)
    further_orders: int = Field(3, ge=0)
    most_circuits: int = Field(2, ge=1)
    random_circuits: int = Field(20, ge=2)

    @model_validator(mode="after")
    def _can_be_mixed(self) -> Self:
        fits = bool(self.mixtures) and len({*self.mixtures}) == len(self.mixtures)
        expect(fits, "mixtures", "different ones", ", ".join(self.mixtures) or "none")
        return self


def configurations(options: Options, study: Any) -> list[Configuration]:
    """One configuration for each mixture.

    Raises:
        UserError: Inspect is missing (the exam needs it), or there is one depth alone, which needs no control.
    """
    if find_spec("inspect_ai") is None:
        raise UserError("inspect_ai: expected this package, found none; pip install 'hopscope[llm]'")
    every, mixtures = study.task.depths, dict[str, Any](zip(options.mixtures, options.mixtures, strict=True))
    if options.corpus is not None:
        mixtures[CORPUS] = shares(options.corpus, every)
    if options.control and len(every) == 1:
        raise UserError(f"control: expected several depths, found {every[0]} alone; take more, or no control")
    if options.control:
        mixtures[DEEPEST] = (*(0.0 for _ in every[:-1]), 1.0)
    return [Configuration(label=name, overrides={"task.mixture": each}) for name, each in mixtures.items()]


@lru_cache(maxsize=8)
def shares(corpus: str, depths: tuple[int, ...]) -> tuple[float, ...]:
    """Share of each depth among the words of a text that need as many hops as one of the depths.

    Raises:
        UserError: the text cannot be read, or no word needs as many hops as the largest depth.
    """
    from hopscope.language.hops import hops, text_of

    # By sentences, among the 256 content words before.
    found = hops(text_of("corpus", corpus), "sentences", window=256, limit=max(3, *depths))
    counts = [int((found == depth).sum()) for depth in depths]
    if not counts[-1]:
        words = f"expected words of {corpus} that need {depths[-1]} hops, the largest depth, found none"
        raise UserError(f"corpus: {words}; take a smaller depth, or a longer text")
    return tuple(count / sum(counts) for count in counts)


def right_at_once(mixture: str, depth: int, evidence: "Evidence") -> Any:
    """What each model of a mixture answers rightly at once at a depth; one that diverged has no number."""
    if mixture not in evidence.configurations.values():
        return Samples([], note="not trained in this run")
    return evidence.last("first_accuracy", measure="exam", part=part_of(depth), configuration=mixture)


def claims(options: Options, study: Any) -> list[Claim]:
    """The claim of the study: a part for each mixture.

    Where texts of the largest depth alone are enough, a mixture is no curriculum: such a control takes a verdict
    back, and without one there is none.
    """
    steps, deepest = study.training.steps, study.task.depths[-1]
    mixtures = ("zipf", "uniform") if options.corpus is None else ("zipf", "uniform", CORPUS)
    lacking = [f"{steps:,} of {PAPER_STEPS:,} steps"] * (steps < PAPER_STEPS)
    lacking += ["no control (texts of the largest depth alone)"] * (not options.control)
    control = {f"{DEEPEST}, texts of depth {deepest} alone": partial(right_at_once, DEEPEST, deepest)}

    def by_mixture(evidence: "Evidence") -> dict[str, Any]:
        return {mixture: right_at_once(mixture, deepest, evidence) for mixture in mixtures}

    return [
        Claim(
            id="S6",
            statement="A mixture of depths in which deep questions are rare, in proportion to 1 / D as frequencies in "
            "natural text are, supplies the curriculum for the deepest ones.",
            source="summary, open question 1",
            protocol="every independent member: share of held-out questions of the largest depth that it answers "
            "rightly at once, asked through Inspect, by mixture",
            value=by_mixture,
            must=dict.fromkeys(mixtures, S6),
            at_scale=lambda evidence: ", ".join(lacking),
            controls=control if options.control else {},
            must_not=S6 if options.control else None,
            trust="held-out questions ask a mapping of names to values that no training text has; the questions are "
            "those of any language model, asked through Inspect",
        )
    ]


def by_depth(depths: tuple[int, ...], evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Accuracy of every model in the exam, by depth, with its interval over questions."""
    import pandas as pd

    for depth in depths:
        place: Any = {"measure": "exam", "part": part_of(depth)}
        if evidence.has("accuracy", **place):
            ends = ("value", ""), ("low", "_low"), ("high", "_high")
            table = pd.DataFrame({name: evidence.last(f"accuracy{end}", **place) for name, end in ends})
            for member, row in table.dropna(subset=["value"]).to_dict("index").items():
                of = {"member": member, "seed": evidence.seeds[member], "depth": depth, **row}
                yield {"mixture": evidence.configurations[member], **of}


def figures(options: Options, study: Any) -> list[charts.Figure]:
    """The right panel of the paper's Figure 2, of models of our own; and accuracy during training."""
    names = {f"accuracy_{part_of(depth)}": f"D = {depth}" for depth in study.task.depths}
    look: Any = {"levels": {"a guess": 1.0 / study.task.chains}, "ends": (0.0, 1.0)}
    rows = partial(by_depth, study.task.depths)
    return [
        charts.sweep("accuracy", "depth", by="mixture", rows=rows, name="exam", title="accuracy", **look),
        charts.curves([*names], by="metric", panel="configuration", names=names, name="curves",
                      title="held-out accuracy", **look),
    ]  # fmt: skip


study = Study(
    name="tiny-lm",
    question="a small language model learns questions in equations and is asked them as any language model is",
    task=Equations(asked="last"),
    model=Model(layers=4, heads=8, width=128, mlp_ratio=0.0, positions="learned", init="mimetic"),
    training=Training(
        steps=2_000, batch_size=64, learning_rate=2.5e-3, betas=(0.9, 0.999), weight_decay=0.01, warmup_steps=100,
        schedule="constant", clip_norm=1.0, checkpoint_every=100, evaluate_every=100,
    ),
    options=Options(),
    configurations=configurations,
    seeds=1,
    measures=(depths, exam, circuits),
    claims=claims,
    figures=figures,
    presets={
        "smoke": {
            "mixtures": ("uniform",), "task.chains": 3, "task.depths": (1,), "model.width": 32, "model.heads": 4,
            "model.layers": 3, "training.steps": 800, "training.learning_rate": 4e-3, "questions": 18, "held_out": 64,
        },
        "laptop": {},
        "paper": {
            "seeds": 12, "task.depths": (1, 2, 3), "model.layers": 6, "model.mlp_ratio": 4.0, "training.steps": 30_000,
            "training.batch_size": 128, "training.learning_rate": 1e-3, "training.checkpoint_every": 500,
            "questions": 400, "members_per_unit": 4, "orders": 4, "further_orders": 8, "most_circuits": 12,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "under 10 min on two quiet cores",
        "paper": "24 models; made for a GPU",
    },
    page="page.md.j2",
    held_out=256,
    members_per_unit=2,
)  # fmt: skip
