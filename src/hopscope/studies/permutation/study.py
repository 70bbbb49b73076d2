"""The permutation-lookup study: which small models eliminate, which recall, and how.

Source: the presentation *Can a Tiny Transformer Learn to Remember?*.  What it leaves open has a documented default.
"""

import math
from collections.abc import Iterator

from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.figures import figures
from hopscope.studies.permutation.measures import MEASURES
from hopscope.studies.permutation.options import CHANGES, Options
from hopscope.studies.permutation.readings import MODEL, TASK, TRAINING
from hopscope.study.study import Configuration, Study


def configurations(options: Options, study: Study) -> Iterator[Configuration]:
    """The grid; a configuration that is swept, and no claim hangs on it, has seeds of its own."""
    assert study.training is not None
    for name, cell in options.grid.items():
        changes = {CHANGES[key][0]: value for key, value in cell.changes.items() if key != "epochs"}
        batch_size = max(1, changes.get("training.batch_size", study.training.batch_size))
        steps = math.ceil(options.epochs(cell) * options.samples_per_epoch / batch_size)
        # A completion would change nothing: the presentation, or torch where it is silent, says all that one does.
        size = {"model.layers": 1, "model.width": cell.width, "model.heads": cell.heads}
        fields = {**size, "training.steps": steps, "completion": study.completion, **changes}
        fields |= {"task.repeat_ratio": 0.0} if cell.data == "plain" else {}
        seeds = None if name in options.claimed else options.sweep_seeds
        yield Configuration(label=name, overrides=fields, seeds=seeds)


study = Study(
    name="permutation",
    question="one-layer models look up a permutation: elimination, recall, and which model learns which",
    task=TASK, model=MODEL, training=TRAINING, fixed=("training.warmup_steps",), options=Options(),
    configurations=configurations,
    measures=MEASURES, claims=claims, figures=figures, page="page.md.j2",
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
