"""What is measured of a unit: a few numbers during training, everything about its last checkpoint."""

import math
from typing import Any

from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.probes import permutation as probes
from hopscope.runs import UnitFolder
from hopscope.studies.permutation.config import ANALYSES
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.restore import load_ensemble
from hopscope.training.trainer import Evaluate

CURVE_SEQUENCES = 512
"""Held-out sequences of each kind on the curves; the last checkpoint is measured on all of them."""

PROBES = "probes"


def evaluator(task: PermutationTask) -> Evaluate:
    """Held-out loss, elimination and recall, for the curves."""
    plain = task.evaluation("plain", limit=CURVE_SEQUENCES)
    repeats = task.evaluation("repeats", limit=CURVE_SEQUENCES)

    def evaluate(model: Transformer) -> dict[tuple[str, str], Tensor]:
        predicted = probes.predict(model, plain)
        recall = probes.repeat_probe(probes.predict(model, repeats), repeats)
        return {
            ("held_out", "loss"): probes.cross_entropy(predicted, plain),
            ("held_out", "elimination"): probes.accuracy_by_slot(predicted, plain)[:, -1],
            ("held_out", "recall"): recall.recall,
            ("held_out", "mass_recalled"): recall.mass_recalled,
        }

    return evaluate


def analyse(
    unit: UnitFolder, plan: UnitPlan, task: PermutationTask, budget: TimeBudget, limit: int, device: str
) -> None:
    """Write the probes and the mean attention patterns of the last checkpoint, unless they are there.

    Raises:
        TimeBudgetReached: between two analyses.
        UserError: the checkpoint is damaged, or a file cannot be written.
    """
    step = plan.training.steps
    missing = [
        name for name, suffix in ANALYSES.items() if not unit.analysis_path(name, step, suffix).is_file()
    ]
    if not missing:
        return
    model = load_ensemble(unit, step, device)
    plain, repeats = task.evaluation("plain", limit=limit), task.evaluation("repeats", limit=limit)
    for number, name in enumerate(missing):
        if number:  # one analysis for each call, however small the budget, so that calls add up to an end
            budget.check()
        if name == PROBES:
            unit.write_analysis(name, step, _probed(model, task, plan, plain, repeats, limit))
        else:
            unit.write_analysis(name, step, _patterns(model, plain, repeats))


def _probed(
    model: Transformer, task: PermutationTask, plan: UnitPlan, plain: Batch, repeats: Batch, limit: int
) -> dict[str, Any]:
    """Every probe as lists over members (in the unit's order)."""
    on_plain, on_repeats = probes.predict(model, plain), probes.predict(model, repeats)
    probe = probes.repeat_probe(on_repeats, repeats)
    error = probes.posterior_error(on_plain, probes.uniform_posterior(plain))
    accuracy = probes.accuracy_by_slot(on_plain, plain)
    counts = {data: task.evaluation_count(data) for data in ("plain", "repeats")}
    return {
        "members": [member.member for member in plan.members],
        "step": plan.training.steps,
        "sequences": {"plain": plain.inputs.shape[1], "repeats": repeats.inputs.shape[1]},
        "exhaustive": {data: count <= limit for data, count in counts.items()},
        "held_out_loss": _numbers(probes.cross_entropy(on_plain, plain)),
        "accuracy_by_step": _numbers(accuracy),
        "elimination": _numbers(accuracy[:, -1]),
        "recall": _numbers(probe.recall),
        "trapped": _numbers(probe.trapped),
        "mass_recalled": _numbers(probe.mass_recalled),
        "mass_unused": _numbers(probe.mass_unused),
        "recall_by_slot": _numbers(probe.recall_by_source),
        "mae_by_step": _numbers(error.mean),
        "max_ae_by_step": _numbers(error.largest),
        "repeat_mae": _numbers(probe.mean_error),
        "repeat_max_ae": _numbers(probe.largest_error),
    }


def _patterns(model: Transformer, plain: Batch, repeats: Batch) -> dict[str, Any]:
    """Mean attention patterns `[member, layer, head, query, key]`: without a repeat, and by the repeated slot."""
    source = repeats.relations["same_symbol"][0].amax(-1) // 2
    sets = {"plain": plain}
    for slot in sorted(set(source.tolist())):
        sets[f"repeat_of_{slot + 1}"] = repeats.take(source == slot)
    return {name: probes.mean_patterns(model, batch).cpu().numpy() for name, batch in sets.items()}


def _numbers(values: Tensor) -> Any:
    """Nested lists, with null for what does not exist."""
    return _without_nan(values.double().tolist())


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return value if math.isfinite(value) else None
