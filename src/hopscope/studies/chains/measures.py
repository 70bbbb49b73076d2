"""What is measured of every model that follows chains: losses at its end, times of learning, and what theory asks for.

All rows are held-out and stand at the last training step.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from hopscope.studies.chains.evidence import FOUR, LEARNED, of_plateau
from hopscope.studies.chains.recipe import exact_layers_of
from hopscope.study.measure import CHUNK, Context, measure

Rows = Iterator[dict[str, Any]]


@measure
def final(context: Context) -> Rows:
    """Loss at the end of training: the mean over the evaluations of the final window.

    Metric `final_loss`; part `step_k`: of step k of the chain alone.
    """
    steps = context.job.training.final_steps()
    for part in (None, *context.task.asked):  # type: ignore[attr-defined]
        curve = context.evidence.curve("loss" if part is None else f"loss_{part}")
        values = curve.reindex(steps).mean(skipna=False)[[*context.members]]
        yield {"metric": "final_loss", "part": part, "value": values.to_numpy()}


@measure
def retrieval(context: Context) -> Rows:
    """Losses and accuracies of the last checkpoint, on as many samples as the options say.

    Metrics `checkpoint_loss` and `checkpoint_loss_error`, its standard error over samples, of all and of each part
    `step_k`; `accuracy`, of the parts: how often the right candidate is the nearest to the prediction.
    """
    import torch

    from hopscope.tasks import Retrieval, held_out

    task = context.task
    assert isinstance(task, Retrieval)
    batch = held_out(task, context.options.analysis_samples)
    pieces = batch.pieces(max(1, CHUNK // len(context.ensemble)))
    predicted = torch.cat([context.ensemble(piece.inputs) for piece in pieces], 1)
    squared = (predicted - batch.targets).double().square()
    of_samples = squared.unflatten(-1, (len(task.asked), -1)).mean((2, 4))  # [member, sample, symbol]
    scores = task.scores(predicted, batch)
    parts = [(None, of_samples.mean(2)), *zip(task.asked, of_samples.unbind(2), strict=True)]
    for part, losses in parts:
        # The queries of one sample are not independent, so a sample counts once.
        error = losses.std(1) / math.sqrt(losses.shape[1])
        yield {"metric": "checkpoint_loss", "part": part, "value": losses.mean(1)}
        yield {"metric": "checkpoint_loss_error", "part": part, "value": error}
        if part is not None:
            yield {"metric": "accuracy", "part": part, "value": scores[f"accuracy_{part}"]}


@measure
def learned_at(context: Context) -> Rows:
    """First evaluation at which each symbol's held-out loss was under 0.5; infinite where none was.

    Of other chains than four at the same share of the plateau; a graph keeps 0.5.

    Metric `learned_at`; the part is the symbol as its loss names it, such as `step_2`, and with the group of
    samples, if there are groups: `z@chain`.
    """
    table = context.evidence.rows()
    table = table[table["metric"].str.startswith("loss_")]
    names = table["metric"].str.removeprefix("loss_")
    names = names.where(table["part"].isna(), names + "@" + table["part"].fillna(""))
    fields = context.task.model_dump()
    chains = FOUR if fields.get("graph") or fields.get("nodes") else fields.get("chains", FOUR)
    bound = of_plateau(LEARNED, chains)
    first = table[table["value"] < bound].groupby(["member", names])["step"].min()
    for name in sorted(names.unique()):
        found = [float(first.get((member, name), math.inf)) for member in context.members]
        yield {"metric": "learned_at", "part": name, "value": found}


@measure
def explorer(context: Context) -> Rows:
    """What the page's explorer shows of the first member, at as many checkpoints as a page has room for."""
    from hopscope.page.explorer import MOST_CHECKPOINTS, SAMPLES, explored, spread

    member = context.members[0]

    def at(step: int) -> Rows:
        shown = explored(context.at(context.unit, step).ensemble, context.task)
        file = context.save(f"explorer-{member}", shown)
        where = {"member": member, "step": step, "file": f"{file}.about"}
        yield {"metric": "explorer", "value": SAMPLES, **where}

    for step in spread(context.unit.steps, MOST_CHECKPOINTS):
        if context.unit.diverged_at(step)[0] is None:
            yield from context.part(f"step-{step}", partial(at, step))


@measure(when="run")
def least_layers(context: Context) -> Rows:
    """The least number of layers that theory asks for, for each step of the longest chain of the run.

    Metrics `exact_layers` (exact minimum of the information-flow model, under the mask and order of the first
    configuration), `bound` (log₃(2k)) and `bound_layers`; the part is the step.  Numbers of no member.
    """
    from hopscope.theory import bound_layers, theorem_bound

    task, model = context.run.units[0].job["task"]["fields"], context.run.units[0].job["model"]
    longest = max(unit.job["task"]["fields"]["steps"] for unit in context.run.units)
    for step, layers in exact_layers_of(longest, model["causal"], task["order"]).items():
        numbers = {"exact_layers": layers, "bound": theorem_bound(step), "bound_layers": bound_layers(step)}
        yield from ({"metric": name, "part": f"step_{step}", "value": each} for name, each in numbers.items())
