"""Presets of the study of circuits (paper, section 8)."""

from typing import ClassVar

from hopscope.studies.circuit_study.config import QUICK, ChainsConfig


class CircuitsConfig(ChainsConfig):
    """Which circuits do seeds learn (paper, section 8)?  What the paper leaves open has a documented default."""

    paper: ClassVar[dict[str, float | None]] = {
        "steps": 3, "chains": 4, "symbol_dim": 4, "layers": 12, "heads": 1, "width": 128, "mlp_ratio": 4.0,
        "training_steps": 24_000, "batch_size": 128, "pool": 2**18, "learning_rate": 1e-3, "weight_decay": 0.1,
    }  # fmt: skip


PRESETS = {
    "smoke": CircuitsConfig(
        completion="torch-schedule",
        seeds=2, layers=4, heads=2, width=32, steps=1, training_steps=500, batch_size=32, learning_rate=4e-3,
        checkpoint_every=100, evaluate_every=50, evaluation_samples=256, analysis_samples=512,
        orders=1, random_circuits=5, galleries=1, members_per_unit=1,
    ),
    "laptop": CircuitsConfig(**QUICK, seeds=4, read_again=0),
    "workstation": CircuitsConfig(**QUICK, seeds=32),
    "paper": CircuitsConfig(
        completion="torch-schedule",
        seeds=8, layers=12, heads=1, width=128, mlp_ratio=4.0, steps=3, pool=2**18, training_steps=24_000,
        batch_size=128, checkpoint_every=1_000, evaluate_every=100, final_every=1,
        evaluation_samples=1024, members_per_unit=6,
    ),
}  # fmt: skip
COSTS = {
    "smoke": "under a minute on two cores",
    "laptop": "three to eight min on two quiet cores",
    "workstation": "about 2 h on two quiet cores, most of it for reading",
    "paper": "8 models of 12 layers; made for a GPU",
}
