"""Which circuits do models of many layers learn (paper, section 8)?  The study as a value."""

from typing import ClassVar

from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.chains.circuit_figures import shared_figures
from hopscope.studies.chains.circuits import QUICK, SMOKE, ChainOptions
from hopscope.studies.chains.comparisons import compared, transfers
from hopscope.studies.chains.measures import explorer, final, retrieval
from hopscope.studies.chains.readings import circuits
from hopscope.studies.chains.recipe import chains_of
from hopscope.studies.circuits.claims import claims
from hopscope.study.study import Configuration, Study
from hopscope.training.config import Training


class Options(ChainOptions):  # noqa: D101 - which has that of the shared options, for the flags
    __doc__ = ChainOptions.__doc__ or ""

    paper: ClassVar[dict[str, float | None]] = {
        "steps": 3, "chains": 4, "symbol_dim": 4, "layers": 12, "heads": 1, "width": 128, "mlp_ratio": 4.0,
        "training_steps": 24_000, "batch_size": 128, "pool": 2**18, "learning_rate": 1e-3, "weight_decay": 0.1,
    }  # fmt: skip


def configurations(options: Options) -> list[Configuration]:
    """The one configuration."""
    return [options.configuration()]


def figures(options: Options) -> list[charts.Figure]:
    """What seeds read, what it is worth, and how they learned."""
    found = shared_figures(options)
    names = ("losses", "reads", "controls", "modes", "bounds", "transfers", "timeline")
    return [found[name] for name in names]


study = Study(
    name="circuits",
    question="models of many layers follow a chain: which heads do it, how, and whether seeds agree",
    task=chains_of(2),
    model=Model(),
    training=Training(steps=1),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=(final, retrieval, circuits, compared, transfers, explorer),
    claims=claims,
    figures=figures,
    members_per_unit=4,
    presets={
        "smoke": {**SMOKE, "checkpoint_every": 100, "evaluate_every": 50, "members_per_unit": 1},
        "laptop": {**QUICK, "seeds": 4, "read_again": 0},
        "workstation": {**QUICK, "seeds": 32},
        "paper": {
            "seeds": 8, "layers": 12, "heads": 1, "width": 128, "mlp_ratio": 4.0, "steps": 3, "pool": 2**18,
            "training_steps": 24_000, "batch_size": 128, "checkpoint_every": 1_000, "evaluate_every": 100,
            "final_every": 1, "evaluation_samples": 1024, "members_per_unit": 6,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "two to three min on two quiet cores",
        "workstation": "about 2 h on two quiet cores, most of it for reading",
        "paper": "8 models of 12 layers; made for a GPU",
    },
    page="page.md.j2",
)  # fmt: skip
