"""A small language model learns questions in equations (paper, section 4), from mixtures of depths (S6).

In the evidence table the part of a depth is `depth_k`.  A member that diverged has null in the exam, and no other row.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.crossings import first_crossing
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.language import Equations, Questions, kinds
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration, Study
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence

Rows = Iterator[dict[str, Any]]

CORPUS, DEEPEST = "corpus", "deepest"
"""Mixtures that only some runs have: a text's, and the control's."""

PAPER_STEPS = 30_000
"""Training steps from which on a depth that was not learned counts against a mixture."""

LEARNED = 0.9
"""Held-out accuracy from which on a depth counts as learned."""

S6 = at_least(LEARNED, "fraction")


class Options(Config):
    """Mixtures of depths, and what the trained models are asked.

    Attributes:
        mixtures: how often each depth is trained: all alike ("uniform"), or in proportion to 1 / D ("zipf").
        corpus: a text file in UTF-8: adds the mixture "corpus", in which each depth is as frequent as words of the text
            that need so many hops, by sentences.
        control: also train on texts of the largest depth alone ("deepest"), without any mixture.
        questions: held-out questions of each depth that the trained models are asked through Inspect.
        orders: random orders of elimination by which a circuit is looked for.
        further_orders: at most so many more, until a circuit is explained and holds on questions drawn anew.
        most_circuits: after so many searches, orders included, none begins for a circuit without some path of the best.
        random_circuits: of the same size, for comparison.
    """

    mixtures: tuple[Literal["uniform", "zipf"], ...] = Field(("uniform", "zipf"), min_length=1)
    corpus: str | None = None
    control: bool = False
    questions: int = Field(300, ge=1)
    orders: int = Field(0, ge=0)
    further_orders: int = Field(3, ge=0)
    most_circuits: int = Field(2, ge=1)
    random_circuits: int = Field(20, ge=2)


def configurations(options: Options, study: Any) -> list[Configuration]:
    """One configuration for each mixture.

    `UserError`: the exam lacks a package, a model that can be written for it, or as many questions.
    """
    from hopscope.language.hops import text_of

    for package in ("inspect_ai", "transformers"):
        if find_spec(package) is None:
            raise UserError(f"{package}: expected this package, found none; pip install 'hopscope[llm,hf]'")
    study.model.for_task(study.task.shape()).check_gpt2()
    every, mixtures = study.task.depths, dict[str, Any](zip(options.mixtures, options.mixtures, strict=True))
    if options.corpus is not None:
        mixtures[CORPUS] = shares(text_of("corpus", options.corpus), every)
    if options.control:
        mixtures[DEEPEST] = (*(0.0 for _ in every[:-1]), 1.0)
    for each in questions_of(study.task, options):
        each.drawn()  # refuses more than there are
    return [Configuration(label=name, overrides={"task.mixture": each}) for name, each in mixtures.items()]


def questions_of(task: Any, options: Options) -> list[Questions]:
    held = {"held_out": task.held_out_share, "split_seed": task.split_seed}
    return kinds(("equations",), task.depths, task.chains, count=options.questions, **held)


@lru_cache(maxsize=8)
def shares(text: str, depths: tuple[int, ...]) -> tuple[float, ...]:
    """Share of each depth among the words of a text that need as many hops as one of the depths.

    `UserError`: no word needs as many hops as the largest depth.
    """
    from hopscope.language.hops import hops

    # By sentences, among the 256 content words before.
    found = hops(text, "sentences", window=256, limit=max(3, *depths))
    counts = [int((found == depth).sum()) for depth in depths]
    if not counts[-1]:
        words = f"expected a text with words that need {depths[-1]} hops, the largest depth, found none"
        raise UserError(f"corpus: {words}; take a smaller depth, or a longer text")
    return tuple(count / sum(counts) for count in counts)


@measure(when="training")
def depths(context: Context) -> Rows:
    """Loss and accuracy of the answers to held-out questions of each depth: `loss_depth_k`, `accuracy_depth_k`."""
    import torch

    from hopscope.tasks import Draws, losses

    task: Any = context.task
    seeds = torch.tensor([task.split_seed], device=context.ensemble.readout.weight.device)
    for depth in task.depths:
        batch = task.questions(Draws(seeds, "held-out", 0, context.job.held_out), depth)
        found = losses(task, context.ensemble(batch.inputs), batch)
        yield {"metric": f"loss_depth_{depth}", "value": found["loss_answer"]}
        yield {"metric": f"accuracy_depth_{depth}", "value": found["accuracy"]}


@measure
def exam(context: Context) -> Rows:
    """What every member answers to held-out questions, asked as any language model is, by depth.

    Metrics and their intervals as of `hopscope.language.answers.rows`, without single questions.  The models are
    written as folders `models/member-N`, which any tool reads.
    """
    task: Any = context.task
    yield from _of_each(context, _examined)
    for member, gone in zip(context.members, context.unit.diverged_at(context.step or 0), strict=True):
        for depth in task.depths if gone is not None else ():
            yield {"metric": "first_accuracy", "part": f"depth_{depth}", "value": None, "member": member}


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of every member, as numbers and as a file for the page's player; and when each depth was learned.

    `rose_at`, by depth: step at which the held-out accuracy reached 90 %, if it did.
    """
    return _of_each(context, _read)


def _of_each(context: Context, function: Callable[[Context, int, int], Rows]) -> Rows:
    gone = context.unit.diverged_at(context.step or 0)
    for place, member in enumerate(context.members):
        if gone[place] is None:
            yield from context.part(f"member-{member}", partial(function, context, place, member))


def _examined(context: Context, place: int, member: int) -> Rows:
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask
    from hopscope.language.local import export

    task: Any = context.task
    folder, logs = (context.run.path / name / f"member-{member}" for name in ("models", "logs"))
    export(context.ensemble.member(place), task.vocabulary, folder)
    asked = questions_of(task, context.options)
    found = ask(
        [f"hf/{folder}"], asked, logs, temperature=0.0, device="cpu", budget=context.budget, say=context.say
    )
    for row in (each for each in rows(found) if each["metric"] != "correct"):
        depth, colon, what = row["part"].rpartition("D = ")[2].partition(": ")
        yield {**row, "part": f"depth_{depth}{colon}{what}", "member": member}


def _read(context: Context, place: int, member: int) -> Rows:
    from hopscope.circuits.reader import READ, ReaderConfig, read
    from hopscope.page.explorer import MOST_CHECKPOINTS, circuit, spread

    task: Any = context.task
    row: Callable[..., dict[str, Any]] = partial(dict, member=member)
    for part in (f"depth_{depth}" for depth in task.depths):
        curve = context.evidence.curve(f"accuracy_{part}")[member].dropna()
        rose = first_crossing([*map(float, curve.index)], curve.tolist(), LEARNED, rising=True)
        if rose.time is not None:
            yield row(metric="rose_at", value=rose.time, part=part)
    config = ReaderConfig(**context.options.model_dump(include={*ReaderConfig.model_fields}))
    shown = spread(context.unit.steps, MOST_CHECKPOINTS)
    models = [(step, context.at(context.unit, step).ensemble.member(place)) for step in shown]
    reading = read(models[-1][1], task, config)
    yield row(metric="was_read", value=float(reading.verdict == READ))
    if not reading.circuit.paths:
        return
    file = context.save(f"circuit-{member}", circuit(reading, models, task))
    yield row(metric="circuit", value=1.0, file=file)
    heads, paths = reading.circuit.heads, reading.circuit.paths
    for name, several in (("heads", heads), ("paths", paths), ("minimal_circuits", reading.minimal)):
        yield row(metric=name, value=float(len(several)))
    for part in ("full", "rules"):
        yield row(metric="circuit_loss", part=part, value=reading.loss[part])


def right_at_once(mixture: str, depth: int, evidence: "Evidence") -> Any:
    """What each model of a mixture answers rightly at once at a depth; one that diverged has no number."""
    if mixture not in evidence.configurations.values():
        return Samples([], note="not trained in this run")
    return evidence.last("first_accuracy", measure="exam", part=f"depth_{depth}", configuration=mixture)


def claims(options: Options, study: Any) -> Iterator[Claim]:
    """The claim of the study: a part for each mixture.

    Where texts of the largest depth alone are enough, a mixture is no curriculum: such a control takes a verdict
    back, and without one there is none.
    """
    steps, deepest = study.training.steps, study.task.depths[-1]
    mixtures = ("zipf",) if options.corpus is None else ("zipf", CORPUS)  # in the uniform one none is rare
    lacking = [f"{steps:,} of {PAPER_STEPS:,} steps"] * (steps < PAPER_STEPS)
    lacking += ["no control (texts of the largest depth alone)"] * (not options.control)
    control = {f"{DEEPEST}, texts of depth {deepest} alone": partial(right_at_once, DEEPEST, deepest)}

    def by_mixture(evidence: "Evidence") -> dict[str, Any]:
        return {mixture: right_at_once(mixture, deepest, evidence) for mixture in mixtures}

    yield Claim(
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
        trust="held-out questions ask a mapping of last names to values that no training text has; the questions "
        "are those of any language model, asked through Inspect",
    )


def figures(options: Options, study: Any) -> Iterator[charts.Figure]:
    """The right panel of the paper's Figure 2, of models of our own; and accuracy during training."""
    names = {f"accuracy_depth_{depth}": f"D = {depth}" for depth in study.task.depths}
    look: Any = {"levels": {"a guess": 1.0 / study.task.chains}, "ends": (0.0, 1.0)}
    told = {f"depth_{depth}": f"D = {depth}" for depth in study.task.depths}
    yield charts.sweep("accuracy", "part", by="configuration", where={"measure": "exam"}, names=told, name="exam",
                       title="accuracy", **look)  # fmt: skip
    yield charts.curves([*names], by="metric", panel="configuration", names=names, name="curves",
                        title="held-out accuracy", **look)  # fmt: skip


study = Study(
    name="tiny-lm",
    question="a small language model learns questions in equations and is asked them as any language model is",
    task=Equations(asked="last"),
    model=Model(layers=4, heads=8, width=128, mlp_ratio=0.0, positions="learned", init="mimetic"),
    training=Training(
        steps=2_000, batch_size=64, learning_rate=2.5e-3, betas=(0.9, 0.999), weight_decay=0.01, warmup_steps=100,
        schedule="constant", clip_norm=1.0, checkpoint_every=100, evaluate_every=100,
    ),
    options=Options(), configurations=configurations, seeds=1, held_out=256, members_per_unit=2,
    measures=(depths, exam, circuits), claims=claims, figures=figures, page="page.md.j2",
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
)  # fmt: skip
