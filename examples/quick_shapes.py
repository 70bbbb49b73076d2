"""quick_shapes.py: which model learns a chain soonest, for the least work?  A search by a rule written before its runs.

Of the shapes whose every seed learns the last step (held-out loss under 0.25 at the end), take the one with the least
mean work until that step is under 0.5.  Each search changes one thing at a time around one shape.  Its seeds are its
own (studies train 0, 1, …).  `check` then trains the chosen shape for several numbers of steps, with fresh seeds.
"""

import math
from typing import Literal

from pydantic import BaseModel

import hopscope as hs

WIDTHS = {
    "width 96": {"model.width": 96},
    "width 192": {"model.width": 192},
    "width 256": {"model.width": 256},
}
HEADS = {
    "4 heads of 16": {"model.heads": 4},
    "4 heads of 32": {"model.heads": 4, "model.head_dim": 32},
    "2 heads of 32": {"model.heads": 2, "model.head_dim": 32},
    "8 heads of 8": {"model.head_dim": 8},
}
RATES = {"rate 0.002": {"training.learning_rate": 2e-3}, "rate 0.006": {"training.learning_rate": 6e-3}}
BATCHES = {"batch 32": {"training.batch_size": 32}, "batch 128": {"training.batch_size": 128}}
TOKEN, PAIR = {"task.position": "token"}, {"task.position": "pair"}


def layers(*counts):
    return {f"{count} layers": {"model.layers": count} for count in counts}


SEARCHES = {  # name → what all of its models have, and the changes of it
    "three": (
        {"task.steps": 3, "model.layers": 6, "training.steps": 800, **TOKEN},
        {**layers(4, 5, 8), **WIDTHS, **HEADS, **BATCHES, **RATES, "code per pair": PAIR},
    ),
    "pairs": (
        {"task.steps": 3, "model.layers": 6, "training.steps": 800, **PAIR},
        {**layers(4, 5), **HEADS, **RATES},
    ),
    "two": (
        {"task.steps": 2, "model.layers": 4, "training.steps": 400, **TOKEN},
        {**layers(3, 6), "width 64": {"model.width": 64}, **HEADS, **RATES, "code per pair": PAIR},
    ),
    "five": (
        {"task.steps": 5, "model.layers": 8, "training.steps": 2000, **PAIR},
        {**layers(6, 12), "batch 128": BATCHES["batch 128"], "rate 0.002": RATES["rate 0.002"]},
    ),
    "check": (
        {"task.steps": 3, "model.layers": 4, **PAIR},
        {f"{steps} steps": {"training.steps": steps} for steps in (600, 800, 1000)},
    ),
}


class Options(BaseModel, frozen=True):
    """Which search, and its first changes alone if a number is given."""

    search: Literal["three", "pairs", "two", "five", "check"] = "three"
    most: int | None = None
    shorter: int = 1  # divides the training steps


def configurations(options):
    base, changes = SEARCHES[options.search]
    cells = changes if options.search == "check" else {"base": {}, **changes}
    seeds = tuple(range(200, 208)) if options.search == "check" else (100, 101, 102)
    grid = []
    for name, change in list(cells.items())[: options.most]:
        fields = {**base, **change}
        steps = fields["training.steps"] // options.shorter
        fields |= {"training.steps": steps, "training.checkpoint_every": steps}
        fields["training.warmup_steps"] = min(200, steps // 10)
        grid.append(hs.Configuration(label=name, overrides=fields, seeds=seeds))
    return grid


@hs.measure
def work(context):
    """Training until the last step's held-out loss was under 0.5, in 10¹² multiply-adds; infinite: it never was.

    Three products of every weight with every position, one forward and two backward.  `final_loss` is that of the last
    step at the end.
    """
    model, training = context.job.config, context.job.training
    last = f"loss_{list(context.task.asked)[-1]}"
    weights = 4 * model.layers * model.width * model.heads * model.head_size
    of_step = 3e-12 * weights * context.task.shape().positions * training.batch_size
    found, at_end = [], []
    for member in context.members:
        curve = context.evidence.curve(last)[member]
        under = curve.index[curve < 0.5]
        found.append(of_step * float(under[0]) if len(under) else math.inf)
        at_end.append(float(curve.iloc[-1]))
    return {"work": found, "final_loss": at_end}


study = hs.Study(
    name="quick-shapes",
    question="Which model learns a chain soonest, for the least work?",
    task=hs.tasks.Retrieval(steps=3, chains=4),
    completion="torch-schedule",
    model=hs.Model(layers=6, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(steps=800, batch_size=64, learning_rate=4e-3, evaluate_every=20),
    options=Options(),
    configurations=configurations,
    held_out=256,
    measures=[work],
    figures=[
        hs.figures.bars("work", title="work until the last step's loss is under 0.5 (10¹² multiply-adds)"),
        hs.figures.bars("final_loss", title="final held-out loss of the last step"),
    ],
    presets={
        "smoke": {"most": 2, "shorter": 40, "held_out": 64},
        **{name: {"search": name} for name in SEARCHES},
    },
)
