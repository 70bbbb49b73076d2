"""Which circuits do models of many layers learn (paper, section 8)?  The study as a value."""

from hopscope.studies.chains.circuits import QUICK, SMOKE, ChainOptions, shared_figures
from hopscope.studies.chains.measures import explorer, final, retrieval
from hopscope.studies.chains.readings import circuits, compared
from hopscope.studies.chains.recipe import chain_study
from hopscope.studies.circuits.claims import claims
from hopscope.studies.circuits.families import GALLERY

study = chain_study(
    name="circuits",
    question="models of many layers follow a chain: which heads do it, how, and whether seeds agree",
    options=ChainOptions(),
    configurations=lambda options: [options.configuration()],
    seeds=8,
    measures=(final, retrieval, circuits, compared, explorer),
    claims=claims,
    figures=lambda options: [GALLERY, *shared_figures(options)],
    members_per_unit=4,
    presets={
        "smoke": {**SMOKE, "checkpoint_every": 100, "evaluate_every": 50, "members_per_unit": 1},
        "laptop": {**QUICK, "seeds": 4, "read_again": 0},
        "workstation": {**QUICK, "seeds": 32},
        "paper": {
            **ChainOptions.paper, "seeds": 8, "checkpoint_every": 1_000, "evaluate_every": 100, "final_every": 1,
            "evaluation_samples": 1024, "members_per_unit": 6,
        },
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "two to three min on two quiet cores",
        "workstation": "about 45 min on two cores by estimate, half of it for reading",
        "paper": "8 models of 12 layers; made for a GPU",
    },
)  # fmt: skip
