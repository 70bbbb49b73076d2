"""What is measured of models that learn induction: where they look, and when that began."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import hopscope as hs
from hopscope.studies.formation.task import Induction

HALFWAY = 0.5
"""Share of the way from the plateau to 1 at which a head counts as formed."""

SIGNS = ("accuracy", "attention")
"""What shows that a head formed: answers, or where the model looks."""


@hs.measure(when="training")
def to_answers(context: hs.Context) -> dict[str, Any]:
    """Attention of a question to the values that answer it: that of the best head, mean over questions, `[member]`."""
    import torch

    batch, config = context.held_out, context.ensemble.config
    mask, asked = questions(batch.inputs, config.readout_positions)
    cache = context.ensemble.cache(batch.inputs)
    found = [
        (cache[f"blocks.{layer}.attn.hook_pattern"][:, :, :, config.readout_positions] * mask[:, :, None])
        .sum(-1).mul(asked[:, :, None]).sum((1, 3)) / asked.sum((1, 2))[:, None]
        for layer in range(config.layers)
    ]  # fmt: skip
    return {"to_answers": torch.cat(found, 1).amax(1)}


def questions(tokens: Any, readout: Sequence[int]) -> tuple[Any, Any]:
    """Which positions answer each readout, `[member, batch, readout, key]`, and which readouts have any."""
    import torch

    mask = torch.zeros(*tokens.shape[:2], len(readout), tokens.shape[-1])
    matches = Induction.matches(tokens)[:, :, [row // 2 for row in readout]]
    mask[..., 1::2] = matches.float()
    return mask, matches.any(-1)


@hs.measure
def formed(context: hs.Context) -> Iterator[dict[str, Any]]:
    """First evaluation at which accuracy, and attention, was half of the way from its plateau to 1.

    Metrics by part (`accuracy`, `attention`): `plateau`, what is possible without matching keys; `formed_at`, infinite
    where it never was; `not_before`, the evaluation before that one, or the last.
    """
    import torch

    from hopscope.runs.metrics import read_metrics

    assert context.unit is not None
    mask, asked = questions(context.held_out.inputs, context.ensemble.config.readout_positions)
    seen = torch.tensor([row + 1 for row in context.ensemble.config.readout_positions])
    chance = Induction.chance(context.held_out.inputs, context.ensemble.config.readout_positions)
    plateaus = {"accuracy": chance, "attention": float((mask.sum(-1) / seen)[asked].mean())}
    table = read_metrics(context.unit.path).to_pandas()
    table = table[table["split"] == "held_out"]
    for sign, metric in zip(SIGNS, ("accuracy", "to_answers"), strict=True):
        curve = table[table["metric"] == metric].pivot_table(index="step", columns="member", values="value")
        past = {member: curve.index[curve[member] >= halfway(plateaus[sign])] for member in context.members}
        times = [float(past[member][0]) if len(past[member]) else math.inf for member in context.members]
        before = [float(curve.index[curve.index < time].max()) if time else 0.0 for time in times]
        yield {"metric": "plateau", "part": sign, "value": [plateaus[sign]] * len(times)}
        yield {"metric": "formed_at", "part": sign, "value": times}
        yield {"metric": "not_before", "part": sign, "value": before}


def halfway(plateau: float) -> float:
    """The level at which a head counts as formed."""
    return plateau + HALFWAY * (1 - plateau)
