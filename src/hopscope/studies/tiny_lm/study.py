"""A small language model learns questions in equations (paper, section 4), from mixtures of depths (S6)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least
from hopscope.language import Equations
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.tiny_lm.measures import LEARNED, circuits, depths, exam, part_of
from hopscope.studies.tiny_lm.options import CORPUS, DEEPEST, Options, configurations
from hopscope.study.study import Study
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence

PAPER_STEPS = 30_000
"""Training steps from which on a depth that was not learned counts against a mixture."""

S6 = at_least(LEARNED, "fraction")


def right_at_once(mixture: str, depth: int, evidence: "Evidence") -> Any:
    """What each model of a mixture answers rightly at once at a depth; one that diverged has no number."""
    if mixture not in evidence.configurations.values():
        return Samples([], note="not trained in this run")
    return evidence.last("first_accuracy", measure="exam", part=part_of(depth), configuration=mixture)


def by_mixture(mixtures: Sequence[str], depth: int, evidence: "Evidence") -> dict[str, Any]:
    """The same for several mixtures."""
    return {mixture: right_at_once(mixture, depth, evidence) for mixture in mixtures}


def lacks(words: str, evidence: "Evidence") -> str:
    """What the run lacks of the protocol's scale, in words; nothing where it is at scale."""
    return words


def claims(options: Options) -> list[Claim]:
    """The claim of the study: a part for each mixture.

    Where texts of the largest depth alone are enough, a mixture is no curriculum: such a control takes a verdict
    back, and without one there is none.
    """
    steps, deepest = options.training_steps, options.depths[-1]
    mixtures = ("zipf", "uniform") if options.corpus is None else ("zipf", "uniform", CORPUS)
    lacking = [f"{steps:,} of {PAPER_STEPS:,} steps"] * (steps < PAPER_STEPS)
    lacking += ["no control (texts of the largest depth alone)"] * (not options.control)
    control = {f"{DEEPEST}, texts of depth {deepest} alone": partial(right_at_once, DEEPEST, deepest)}
    return [
        Claim(
            id="S6",
            statement="A mixture of depths in which deep questions are rare, in proportion to 1 / D as frequencies in "
            "natural text are, supplies the curriculum for the deepest ones.",
            source="summary, open question 1",
            protocol="every independent member: share of held-out questions of the largest depth that it answers "
            "rightly at once, asked through Inspect, by mixture",
            value=partial(by_mixture, mixtures, deepest),
            must=dict.fromkeys(mixtures, S6),
            at_scale=partial(lacks, ", ".join(lacking)),
            controls=control if options.control else {},
            must_not=S6 if options.control else None,
            trust="held-out questions ask a mapping of names to values that no training text has; the questions are "
            "those of any language model, asked through Inspect",
        )
    ]


def by_depth(options: Options, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Accuracy of every model in the exam, by depth, with its interval over questions."""
    for depth in options.depths:
        place: Any = {"measure": "exam", "part": part_of(depth)}
        if not evidence.has("accuracy", **place):
            continue
        ends = {
            name: evidence.last(f"accuracy{end}", **place)
            for name, end in (("low", "_low"), ("high", "_high"))
        }
        for member, value in evidence.last("accuracy", **place).dropna().items():
            row = {name: float(each[member]) for name, each in ends.items()}
            row |= {"member": member, "seed": evidence.seeds[member], "value": value}
            yield {"mixture": evidence.configurations[member], "depth": depth, **row}


def figures(options: Options) -> list[charts.Figure]:
    """The right panel of the paper's Figure 2, of models of our own; and accuracy during training."""
    names = {f"accuracy_{part_of(depth)}": f"D = {depth}" for depth in options.depths}
    look: Any = {"levels": {"a guess": 1.0 / options.chains}, "ends": (0.0, 1.0)}
    rows = partial(by_depth, options)
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
    training=Training(steps=2_000, batch_size=64, schedule="constant", betas=(0.9, 0.999)),
    options=Options(),
    configurations=configurations,
    seeds=1,
    measures=(depths, exam, circuits),
    claims=claims,
    figures=figures,
    presets={
        "smoke": {
            "seeds": 1, "mixtures": ("uniform",), "chains": 3, "depths": (1,), "width": 32, "heads": 4, "layers": 3,
            "training_steps": 800, "batch_size": 64, "learning_rate": 4e-3, "questions": 18, "evaluation_samples": 64,
        },
        "laptop": {},
        "paper": {
            "seeds": 12, "depths": (1, 2, 3), "layers": 6, "heads": 8, "width": 128, "mlp_ratio": 4.0,
            "training_steps": 30_000, "batch_size": 128, "learning_rate": 1e-3, "questions": 400, "members_per_unit": 4,
            "checkpoint_every": 500, "evaluate_every": 100, "orders": 4, "further_orders": 8, "most_circuits": 12,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "under 10 min on two quiet cores",
        "paper": "24 models; made for a GPU",
    },
    page="page.md.j2",
    members_per_unit=2,
)  # fmt: skip
