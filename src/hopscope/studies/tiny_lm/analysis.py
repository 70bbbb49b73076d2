"""What is measured of small language models: held-out accuracy in training, an exam through Inspect at the end, and
each member's circuit, followed back to the beginning."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hopscope.errors import UserError
from hopscope.language.gpt2_folder import write_folder
from hopscope.language.inspect.evaluation import evaluate
from hopscope.language.inspect.failures import check_installed
from hopscope.language.questions.answers import rows, tallies
from hopscope.language.questions.sets import question_set
from hopscope.models.interventions import Roles
from hopscope.models.transformer import Transformer
from hopscope.runs import UnitFolder
from hopscope.studies.circuit_study.members import follow_members
from hopscope.studies.tiny_lm.config import EXAM, TinyLmConfig
from hopscope.tasks.batch import Batch
from hopscope.tasks.equations import EquationsTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob
from hopscope.training.restore import load_member
from hopscope.training.trainer import Evaluate

EXAM_SEED = 0
"""Of the questions of the exam: all members answer the same."""


def evaluator(options: TinyLmConfig, task: EquationsTask) -> Evaluate:
    """Loss and accuracy of the answers to held-out questions, by depth.

    Raises:
        UserError: Inspect is missing; said before training, because the exam needs it.
    """
    check_installed()
    batches = {
        depth: task.evaluation(options.evaluation_samples, depth, annotate=False)
        for depth in task.config.depths
    }

    def evaluate_members(model: Transformer, members: Sequence[int]) -> dict[tuple[str, str], Tensor]:
        found: dict[tuple[str, str], Tensor] = {}
        for depth, batch in batches.items():
            logits, answers = task.answered(model(batch.inputs), batch)
            right = logits.argmax(-1) == answers
            of_answers = logits.log_softmax(-1).gather(-1, answers.expand(right.shape)[..., None])
            found["held_out", f"loss_depth_{depth}"] = -of_answers[..., 0].mean(-1)
            found["held_out", f"accuracy_depth_{depth}"] = right.float().mean(-1)
        return found

    return evaluate_members


def analyse(
    config: TinyLmConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: EquationsTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Export, examine, read and follow every member of a unit, as far as that is not done.

    Raises:
        TimeBudgetReached: between two members.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    step = job.training.steps
    if not unit.analysis_path(EXAM, step, "json").is_file():
        found = []
        for member in job.members:
            budget.check()
            found.append({"member": member.member, **_examined(config, unit, task, member.member, step)})
        unit.write_analysis(EXAM, step, {"step": step, "members": found})

    def labels(batch: Batch) -> list[str]:
        return [task.vocabulary[token] for token in batch.inputs[0, 0].tolist()]

    def order(roles: Roles) -> tuple[Any, ...]:  # round by round, padding last
        return roles["kind"] == 0, roles["round"], roles["kind"], roles["slot"]

    follow_members(unit, job, config.reader(), labels, order, budget)


def _examined(
    config: TinyLmConfig, unit: UnitFolder, task: EquationsTask, member: int, step: int
) -> dict[str, Any]:
    """Answers of one member through Inspect, by depth; a model that diverged has none."""
    run = unit.run
    module = load_member(run, member, step)
    if not all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values()):
        return {"folder": None, "tallies": []}
    folder = unit.run_path / "models" / f"member-{member}"
    origin = {"study": run.study, "run": run.hash, "member": member, "step": step}
    write_folder(module, task.vocabulary, folder, origin | {"task": task.config.model_dump(mode="json")})
    asked = question_set(
        formulations=("equations",),
        depths=config.depths,
        chains=config.chains,
        count=config.questions,
        seed=EXAM_SEED,
        held_out=config.held_out_share,
        split_seed=config.split_seed,
    )
    logs = evaluate(
        [f"hopscope/{folder}"], [asked], log_dir=unit.path / "logs" / f"member-{member}", temperature=0.0
    )
    summed = tallies(row for log in logs for row in rows(log))
    if len(summed) != len(config.depths):
        raise UserError(
            f"{unit.path / 'logs'}: expected answers at every depth, found some; delete the folder"
        )
    # The name of the model holds a path of this machine.
    told = [{**tally.model_dump(mode="json"), "model": f"member-{member}"} for tally in summed]
    return {"folder": f"models/member-{member}", "tallies": told}
