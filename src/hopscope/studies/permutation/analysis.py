"""What is measured of a unit: a few numbers during training, everything about its last checkpoint."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.runs import UnitFolder
from hopscope.studies.permutation.config import PermutationStudyConfig, analyses
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.studies.permutation.probes.causal_cases import LIMIT
from hopscope.studies.permutation.probes.causal_tests import measure_causal_tests
from hopscope.studies.permutation.probes.decoding import measure_answer, measure_decoding
from hopscope.studies.permutation.probes.formation import measure_formation, order_of_formation
from hopscope.studies.permutation.probes.head_roles import measure_roles
from hopscope.studies.permutation.probes.posterior import measure_posteriors
from hopscope.studies.permutation.probes.slots import recall_by_slot_pair
from hopscope.studies.permutation.probes.worked import worked_sequence
from hopscope.studies.permutation.published import worked_examples
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob
from hopscope.training.restore import load_ensemble
from hopscope.training.trainer import Evaluate

CURVE_SEQUENCES = 512
"""Held-out sequences of each kind on the curves; the last checkpoint is measured on all of them."""


def evaluator(options: PermutationStudyConfig, task: PermutationTask) -> Evaluate:
    """Held-out loss, elimination and recall, for the curves."""
    plain = task.evaluation("plain", limit=CURVE_SEQUENCES)
    repeats = task.evaluation("repeats", limit=CURVE_SEQUENCES)

    def evaluate(model: Transformer, members: Sequence[int]) -> dict[tuple[str, str], Tensor]:
        predicted = probes.predict(model, plain)
        recall = probes.repeat_probe(probes.predict(model, repeats), repeats)
        return {
            ("held_out", "loss"): probes.cross_entropy(predicted, plain),
            ("held_out", "elimination"): probes.accuracy_by_slot(predicted, plain)[:, -1],
            ("held_out", "recall"): recall["recall"],
            ("held_out", "mass_recalled"): recall["mass_recalled"],
        }

    return evaluate


def analyse(
    options: PermutationStudyConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: PermutationTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Write the analyses of a trained unit; those that are there already are kept.

    Raises:
        TimeBudgetReached: between two analyses.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    step, wanted = job.training.steps, analyses(options, job)
    missing = [name for name, kind in wanted.items() if not unit.analysis_path(name, step, kind).is_file()]
    if not missing:
        return
    trained = _Trained(unit, job, task, options.evaluation_limit, device, load_ensemble(unit, step, device))
    about = {"members": [member.member for member in job.members], "step": step}
    for number, name in enumerate(missing):
        if number:  # one analysis for each call, however small the budget, so that calls add up to an end
            budget.check()
        found = _MEASURES[name](trained)
        unit.write_analysis(name, step, {**about, **found} if wanted[name] == "json" else found)


class _Trained(NamedTuple):
    """A unit, and its members at its last checkpoint; see `analyse`."""

    unit: UnitFolder
    job: TrainJob
    task: PermutationTask
    limit: int
    device: str
    model: Transformer


def _probed(trained: _Trained) -> dict[str, Any]:
    """Both skills and the distance from the ideal observer, on every held-out sequence."""
    task, limit = trained.task, trained.limit
    plain, repeats = task.evaluation("plain", limit=limit), task.evaluation("repeats", limit=limit)
    on_plain, on_repeats = probes.predict(trained.model, plain), probes.predict(trained.model, repeats)
    error = probes.posterior_error(on_plain, probes.uniform_posterior(plain))
    accuracy = probes.accuracy_by_slot(on_plain, plain)
    numbers = {
        "held_out_loss": probes.cross_entropy(on_plain, plain),
        "accuracy_by_step": accuracy,
        "elimination": accuracy[:, -1],
        **probes.repeat_probe(on_repeats, repeats),
        "mae_by_step": error.mean,
        "max_ae_by_step": error.largest,
    }
    return {
        "sequences": {"plain": plain.inputs.shape[1], "repeats": repeats.inputs.shape[1]},
        "exhaustive": {data: task.evaluation_count(data) <= limit for data in ("plain", "repeats")},
        **probes.as_json(numbers),
    }


def _patterns(trained: _Trained) -> dict[str, Any]:
    """Mean attention patterns `[member, layer, head, query, key]`: without a repeat, and by the repeated slot."""
    task, limit = trained.task, trained.limit
    repeats = task.evaluation("repeats", limit=limit)
    source = repeats.relations["same_symbol"][0].amax(-1) // 2
    sets: dict[str, Batch] = {"plain": task.evaluation("plain", limit=limit)}
    for slot in sorted(set(source.tolist())):
        sets[f"repeat_of_{slot + 1}"] = repeats.take(source == slot)
    return {name: probes.mean_patterns(trained.model, batch).cpu().numpy() for name, batch in sets.items()}


def _formation(trained: _Trained) -> dict[str, Any]:
    """What formed when, checkpoint by checkpoint, and in which order."""
    models = (
        (step, load_ensemble(trained.unit, step, trained.device)) for step, _ in trained.unit.checkpoints()
    )
    found = measure_formation(models, trained.task, samples_per_step=trained.job.training.batch_size)
    order = order_of_formation(found)
    # The checkpoints' own axis is named apart, because a list at the top is one over members.
    return {"checkpoints": {name: found.pop(name) for name in ("step", "samples")}, **found, "order": order}


def _decoding(trained: _Trained) -> dict[str, Any]:
    """Linear and MLP probes of the trained members, and of the same members before training."""
    untrained = load_ensemble(trained.unit, 0, trained.device)
    found = measure_decoding(trained.model, trained.task)
    return {**found, "untrained": measure_answer(untrained, trained.task)}


def _worked(trained: _Trained) -> dict[str, Any]:
    """Worked sequences of every member."""
    sequences = {
        name: worked_sequence(trained.model, list(tokens), trained.task.split)
        for name, tokens in worked_examples(trained.task.config.values).items()
    }
    return {"sequences": sequences}


_MEASURES: dict[str, Callable[[_Trained], dict[str, Any]]] = {
    "probes": _probed,
    "patterns": _patterns,
    "posteriors": lambda t: measure_posteriors(t.model, t.task, t.limit),
    "slots": lambda t: recall_by_slot_pair(t.model, t.task, t.limit),
    "battery": lambda t: measure_causal_tests(t.model, t.task, min(t.limit, LIMIT)),
    "roles": lambda t: measure_roles(t.model, t.task, min(t.limit, LIMIT)),
    "decoding": _decoding,
    "formation": _formation,
    "worked": _worked,
}
