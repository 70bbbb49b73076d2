"""quick_shapes.py: what makes a chain of three steps quick to learn?

One thing at a time around one shape (`hopscope run campaigns/quick_shapes.py`: half an hour on two cores), then the
batch alone, at equal cost (`hopscope run campaigns/quick_shapes.py:batches`: twenty minutes).
"""

import hopscope as hs

BASE = {"model.layers": 16, "model.width": 512, "training.batch_size": 64}
CHANGES = {
    "8 layers": {"model.layers": 8},
    "12 layers": {"model.layers": 12},
    "24 layers": {"model.layers": 24},
    "width 128": {"model.width": 128},
    "width 256": {"model.width": 256},
    "width 768": {"model.width": 768},
    "head of 8": {"model.head_dim": 8},
    "head of 32": {"model.head_dim": 32},
    "2 heads of 8": {"model.heads": 2, "model.head_dim": 8},
    "batch 32": {"training.batch_size": 32},
    "batch 128": {"training.batch_size": 128},
    "β₂ 0.999": {"training.betas": (0.9, 0.999)},
    "rate 0.002": {"training.learning_rate": 0.002},
    "rate 0.0005": {"training.learning_rate": 0.0005},
}


def grid(options):
    """The base shape, and each change of it."""
    base = hs.Configuration(label="16 layers × 512, head of 16, batch 64, β₂ 0.95", overrides=BASE)
    return [
        base,
        *(hs.Configuration(label=name, overrides={**BASE, **each}) for name, each in CHANGES.items()),
    ]


study = hs.Study(
    name="quick-shapes",
    question="What makes a chain of three steps quick to learn?",
    task=hs.tasks.Retrieval(steps=3, chains=4),
    model=hs.Model(layers=16, heads=1, width=512, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=1_000,
        batch_size=64,
        optimizer="adamw",
        betas=(0.9, 0.95),
        weight_decay=0.1,
        evaluate_every=50,
        checkpoint_every=1_000,
    ),
    configurations=grid,
    seeds=2,
    held_out=256,
    figures=[
        hs.figures.bars("loss", by="configuration"),
        hs.figures.curves("loss_step_3", by="configuration"),
    ],
    presets={"smoke": {"seeds": 1, "training.steps": 20}},
)

SAMPLES = 153_600
"""Training samples of each model of `batches`."""

batches = hs.Study(
    name="quick-batches",
    question="How large a batch learns three steps soonest, when all models see equally many samples?",
    task=hs.tasks.Retrieval(steps=3, chains=4),
    model=study.model,
    training=study.training.model_copy(update={"clip_norm": 1.0}),
    configurations=lambda options: [
        hs.Configuration(
            label=f"batch {batch}",
            overrides={
                "training.batch_size": batch,
                "training.steps": SAMPLES // batch,
                "training.evaluate_every": 6_400 // batch,
                "training.checkpoint_every": SAMPLES // batch,
            },
        )
        for batch in (64, 128, 256)
    ],
    seeds=4,
    held_out=256,
    figures=[hs.figures.curves(f"loss_step_{step}", by="configuration") for step in (1, 2, 3)],
)
