"""What is measured of a unit: losses and accuracies on held-out samples, during training and at the end."""

from collections.abc import Sequence

from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.probes.retrieval import held_out, measure_retrieval
from hopscope.runs import UnitFolder
from hopscope.studies.recipe import RecipeConfig
from hopscope.studies.retrieval_rows import RETRIEVAL
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.restore import load_ensemble
from hopscope.training.trainer import Evaluate


def evaluator(options: RecipeConfig, task: RetrievalTask) -> Evaluate:
    """Held-out losses and accuracies, for the curves."""
    batch = task.evaluation(options.evaluation_samples, annotate=False)

    def evaluate(model: Transformer, members: Sequence[int]) -> dict[tuple[str, str], Tensor]:
        return held_out(model, task, batch)

    return evaluate


def analyse(
    options: RecipeConfig,
    unit: UnitFolder,
    plan: UnitPlan,
    task: RetrievalTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Measure the last checkpoint on more samples than the curves, unless that is done.

    Raises:
        UserError: the checkpoint is damaged, or the file cannot be written.
    """
    step = plan.training.steps
    if unit.analysis_path(RETRIEVAL, step, "json").is_file():
        return
    model = load_ensemble(unit, step, device)
    members = [member.member for member in plan.members]
    unit.write_analysis(
        RETRIEVAL,
        step,
        {"members": members, "step": step, **measure_retrieval(model, task, options.analysis_samples)},
    )
