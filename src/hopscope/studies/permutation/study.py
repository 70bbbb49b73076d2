"""The permutation-lookup study: which small models eliminate, which recall, and how.

Source: the presentation *Can a Tiny Transformer Learn to Remember?*.  What it leaves open has a documented default.
"""

from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.figures import figures
from hopscope.studies.permutation.measures import MEASURES
from hopscope.studies.permutation.options import Options
from hopscope.studies.permutation.readings import MODEL, TASK, TRAINING
from hopscope.study.study import Configuration, Study


def configurations(options: Options, study: Study) -> list[Configuration]:
    """The grid; a configuration that is swept, and no claim hangs on it, has seeds of its own."""
    assert study.training is not None
    return [
        Configuration(label=cell.name, overrides=options.overrides(cell, study.training.batch_size),
                      seeds=None if cell in options.claimed else options.sweep_seeds)
        for cell in options.grid
    ]  # fmt: skip


study = Study(
    name="permutation",
    question="one-layer models look up a permutation: elimination, recall, and which model learns which",
    task=TASK,
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    measures=MEASURES,
    claims=claims,
    figures=figures,
    page="page.md.j2",
    presets={
        "smoke": {
            "seeds": 2, "epochs_plain": 2, "epochs_repeats": 2, "training.checkpoint_every": 200,
            "training.evaluate_every": 50, "members_per_unit": 2,
        },
        "laptop": {"seeds": 10, "circuits": True, "members_per_unit": 5},
        "paper": {
            "all_configurations": True, "seeds": 10, "members_per_unit": 5, "training.checkpoint_every": 200,
            "training.evaluate_every": 50,
            "sweeps": ("batch", "positions", "memorisation", "values", "capacity", "ratio", "slots"),
        },
        "readings": {
            "all_configurations": True, "seeds": 10, "training.evaluate_every": 50, "members_per_unit": 10,
            "sweeps": ("memorisation", "batch", "batches", "epochs", "splits"),
        },
    },
    costs={
        "smoke": "about a minute on two cores",
        "laptop": "5 to 7 min on two cores",
        "paper": "1 to 1.5 hours on two cores (190 models)",
        "readings": "about 2 hours on two cores (660 models)",
    },
)  # fmt: skip
