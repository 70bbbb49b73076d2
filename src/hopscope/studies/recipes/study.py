"""What does it take for stacked heads to form?  Details of start and schedule switched off, on, and all ways."""

from collections.abc import Mapping
from typing import Any

import hopscope as hs
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import QUICK, QUICK_TRAINING, learned_at
from hopscope.studies.recipes.charts import figures
from hopscope.studies.recipes.claims import CLAIMS, deciding, has, mean_lost
from hopscope.studies.recipes.grid import (
    ALL_ON,
    OFF,
    SCHEDULE,
    SHAPES,
    STEPS,
    Options,
    Recipe,
    configurations,
    without,
)


def page_names(page: Any, options: Options) -> Mapping[str, Any]:
    """Names that the template may use."""
    evidence = page.evidence
    left_out = [
        name for name in OFF if all(has(evidence, Recipe(shape, without(name)).label) for shape in SHAPES)
    ]
    return {
        "steps": STEPS,
        "shapes": list(SHAPES),
        "all_on": lambda shape: Recipe(shape, ALL_ON).label,
        "without": lambda shape, name: Recipe(shape, without(name)).label,
        "all_off": lambda shape: Recipe(shape, ()).label,
        "left_out": left_out,
        "lost": lambda shape, name: mean_lost(evidence, shape, name),
        "deciding": deciding(evidence) if set(SCHEDULE) <= set(left_out) else [],
        "details": {
            "start": "weights and biases as torch.nn.Linear draws them; off: as GPT-2 does",
            "warm-up": "the rate rises over the first tenth of the steps, 200 at most; off: it is whole at once",
            "β₂": "Adam's mean of squares keeps 0.95 of itself in a step; off: 0.999",
            "cosine": "after the warm-up the rate falls to a tenth of itself; off: it stays",
            "clipping": "gradients have a norm of at most 1; off: of any size",
        },
        "learned_below": LEARNED,
    }


study = hs.Study(
    name="recipes",
    question="what does it take for stacked heads to form: which details of start and schedule, at which depth?",
    task=hs.tasks.Retrieval(steps=STEPS, chains=4, position="pair"),
    completion="torch-schedule",
    model=QUICK,
    training=QUICK_TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=3,
    measures=[learned_at],
    claims=CLAIMS,
    figures=figures,
    presets={
        "smoke": {"seeds": 1, "training.steps": 20, "model.width": 32},
        "laptop": {},
        "workstation": {
            "seeds": 4,
            "options.parts": ("without", "alone", "factorial", "starts"),
            "options.decisive_seeds": 8,
        },
    },
    costs={
        "smoke": "under half a minute on two cores",
        "laptop": "under 20 min on two cores: 36 models",
        "workstation": "three to five hours on two cores: 424 models",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=256,
)
