"""Models that learn chains in under a minute of a core, and what the studies of them have in common.

What makes them quick (docs/emergence.md, *What makes it quick*): both tokens of a pair share a position code, and there
are more layers than the chain needs.  `QUICK` starts and is trained as `torch-schedule` says; the older `MODEL` starts
as GPT-2 does, and makes up for that by a wide stream.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples
from hopscope.measures import measure
from hopscope.models.config import Model
from hopscope.studies.diagnosis import LEARNED
from hopscope.training.config import TrainingConfig

if TYPE_CHECKING:
    from hopscope.measures.context import Context
    from hopscope.runs.evidence import Evidence

WIDTH, STEPS = 512, 400
"""Width and training steps of the models."""

MODEL = Model(layers=4, heads=4, head_dim=8, width=WIDTH, mlp_ratio=0.0)

TRAINING = TrainingConfig(
    steps=STEPS,
    batch_size=128,
    optimizer="adamw",
    betas=(0.9, 0.95),
    weight_decay=0.1,
    clip_norm=1.0,
    evaluate_every=20,
)

QUICK = Model(layers=4, heads=8, head_dim=16, width=128, mlp_ratio=0.0)
"""The shape that learns chains of two and three steps soonest (`campaigns/quick_shapes.py`)."""

QUICK_TRAINING = TrainingConfig(steps=1_000, batch_size=64, learning_rate=4e-3, evaluate_every=20)

SHARE_SEEDS = 16
"""Seeds that a claim takes on a share of three quarters of them, whose exact interval is wide with fewer."""

SETTLED_STEPS = 4 * STEPS
"""Training steps by which a loss has settled, also of models that take longer than most."""

SMOKE = {"seeds": 2, "training.steps": 40, "model.width": 64}
"""Fields of a preset that only shows that a study works."""


def smaller_scale(evidence: "Evidence", steps: int = STEPS) -> str:
    """What a run lacks of its study as it is written, where its models are `MODEL`: see `smaller_than`."""
    return smaller_than(evidence, steps, WIDTH)


def smaller_than(evidence: "Evidence", steps: int, width: int) -> str:
    """What a run lacks of its study as it is written, for `Claim.at_scale`.

    Args:
        evidence: of the run.
        steps: training steps of the study.
        width: of its models.

    Returns:
        For example `40 of 400 steps, width 64, not 512`; empty if nothing is smaller.
    """
    found, own = evidence.config["training"]["steps"], evidence.config["model"]["width"]
    words = [f"{found} of {steps} steps"] * (found < steps)
    return ", ".join(words + [f"width {own}, not {width}"] * (own < width))


def unsettled(evidence: "Evidence") -> str:
    """What a run lacks to say that something is *not* learned, for `Claim.at_scale`: a loss that has settled."""
    steps = evidence.config["training"]["steps"]
    early = f"{steps:,} of {SETTLED_STEPS:,} steps to a settled loss" if steps < SETTLED_STEPS else ""
    return ", ".join(filter(None, [smaller_scale(evidence), early]))


@measure
def learned_at(context: "Context") -> Iterator[dict[str, Any]]:
    """First evaluation at which the held-out loss of each symbol was under 0.5; infinite where none was.

    Metric `learned_at`; the part is the symbol as its loss names it, such as `step_2`, and with the group of
    samples, if there are groups: `z@chain`.
    """
    from hopscope.runs.metrics import read_metrics

    assert context.unit is not None
    table = read_metrics(context.unit.path).to_pandas()
    table = table[(table["split"] == "held_out") & table["metric"].str.startswith("loss_")]
    names = table["metric"].str.removeprefix("loss_")
    if "part" in table:
        names = names.where(table["part"].isna(), names + "@" + table["part"].fillna(""))
    first = table[table["value"] < LEARNED].groupby(["member", names])["step"].min()
    for name in sorted(names.unique()):
        found = [float(first.get((member, name), math.inf)) for member in context.members]
        yield {"metric": "learned_at", "part": name, "value": found}


def times_learned(evidence: "Evidence", label: str, part: str) -> dict[int, float]:
    """Seed → training step at which a symbol was learned by a configuration; infinite where it was not."""
    found = evidence.last("learned_at", configuration=label, part=part)
    return {evidence.seeds[member]: float(time) for member, time in found.items()}


def learned(evidence: "Evidence", label: str, symbol: int | str) -> Any:
    """1 for each member of a configuration that learned a symbol, 0 for the others, `[member]`; diverged: no value.

    Args:
        evidence: of the run.
        label: of the configuration.
        symbol: number of its step, or its name.
    """
    metric = f"loss_step_{symbol}" if isinstance(symbol, int) else f"loss_{symbol}"
    losses = evidence.last(metric, configuration=label)
    return (losses < LEARNED).astype(float).where(losses.notna())


def learned_in(cells: Mapping[str, tuple[str, int | str]]) -> Callable[["Evidence"], dict[str, Any]]:
    """A function of the evidence: part → who learned; see `learned`.

    Args:
        cells: part → configuration and symbol.
    """
    return lambda evidence: {part: learned(evidence, *cell) for part, cell in cells.items()}


def smallest_depths(evidence: "Evidence", labels: Mapping[int, str], step: int) -> dict[int, float]:
    """Seed → the smallest number of layers that learned x_step; infinite where none did.

    Where a model with fewer layers diverged, nobody knows: NaN.

    Args:
        evidence: of the run.
        labels: number of layers → configuration.
        step: of the symbol.
    """
    found: dict[int, float] = {}
    for layers in sorted(labels):
        for member, loss in evidence.last(f"loss_step_{step}", configuration=labels[layers]).items():
            seed = evidence.seeds[member]
            if math.isinf(found.setdefault(seed, math.inf)) and not loss >= LEARNED:
                found[seed] = math.nan if math.isnan(loss) else float(layers)
    return found


def between_seeds(values: Mapping[int, float]) -> Samples:
    """By seed: how far its value is from that of the next one; not known where one of them is not finite."""
    around = [*values.values(), *list(values.values())[:1]]
    apart = [
        abs(one - other) if math.isfinite(one) and math.isfinite(other) else math.nan
        for one, other in pairwise(around)
    ]
    known = any(math.isfinite(each) for each in apart)
    return Samples(apart, unit="seed", note="" if known else "no two seeds have a value")
