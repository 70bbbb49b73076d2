"""Why a member did not learn a chain: the failures that the summary of the paper lists, told from losses and depth.

The summary (`Architecture Onboarding`, *failure signatures*) names three: a loss that stays on the plateau where there
are too few layers; induction heads alone where depth is missing; and long chains that fail where the implicit
curriculum is missing.  A signature is what the losses show; its cause is what is known of the member beside them.
This module loads no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hopscope.errors import UserError
from hopscope.runs import RunFolder, diverged_members
from hopscope.runs.evidence import Evidence
from hopscope.tasks.config import RetrievalConfig
from hopscope.theory.information_flow import layers_per_step
from hopscope.training.config import TrainJob, job_of
from hopscope.words import symbol, symbols

Signature = Literal["learned", "early plateau", "only induction heads", "long chains fail", "diverged"]

LEARNED = 0.5
"""Partial loss under which a step of a chain counts as learned: half of the loss of a zero prediction."""

FALLING = 0.05
"""A loss that falls by this much over the last quarter of training has not come to rest."""


@dataclass(frozen=True)
class Diagnosis:
    """What the losses of a member show, and what that may come from.

    Attributes:
        member, seed: which member.
        configuration: what tells it from others, in words.
        signature: what the losses show.
        cause: what is known beside them, in words; empty for a member that learned all that it was asked for.
        learned: steps k of the chain whose held-out loss ended under `LEARNED`.
        layers: of the model.
        needed: the exact minimum of layers for each step (`hopscope theory`).
        curves: step that was asked for → held-out losses through training.
        steps: training steps at which these were measured.
    """

    member: int
    seed: int
    configuration: str
    signature: Signature
    cause: str
    learned: tuple[int, ...]
    layers: int
    needed: Mapping[int, int]
    curves: Mapping[int, tuple[float, ...]]
    steps: tuple[int, ...]

    @property
    def failing(self) -> int:
        """The first step that was asked for and not learned; the last one asked for where all were."""
        return next((step for step in self.curves if step not in self.learned), max(self.curves))


def diagnoses(run: RunFolder) -> list[Diagnosis]:
    """A diagnosis of every member.

    Raises:
        UserError: a member was trained on another task, or the run has no evidence.
    """
    return list(_diagnoses(run))


def _diagnoses(run: RunFolder) -> Iterator[Diagnosis]:
    evidence, diverged = Evidence.read(run), diverged_members(run)
    jobs = {unit.hash: job_of(unit) for unit in run.units}
    for job in jobs.values():
        if not isinstance(job.task, RetrievalConfig):
            raise UserError(
                f"diagnose: expected members trained to follow chains (task retrieval), found {job.label!r}"
            )
    asked = sorted({step for job in jobs.values() for step in _task(job).asked})
    curves = {step: evidence.curve(f"loss_step_{step}") for step in asked}
    for record in run.members:
        job, member = jobs[record.unit], record.member
        found = {step: curves[step][member].dropna() for step in _task(job).asked}
        steps = tuple(int(step) for step in next(iter(found.values())).index)
        losses = {step: tuple(map(float, values)) for step, values in found.items()}
        signature, learned, cause = diagnosed(job, losses, member in diverged)
        yield Diagnosis(
            member,
            record.seed,
            evidence.configurations[member],
            signature,
            cause,
            learned,
            job.model.layers,
            needed_layers(job),
            losses,
            steps,
        )


def _task(job: TrainJob) -> RetrievalConfig:
    assert isinstance(job.task, RetrievalConfig)
    return job.task


def needed_layers(job: TrainJob) -> dict[int, int]:
    """The exact minimum of layers for each step of a chain, under the mask and order of a member.

    Where the order is random, a model must be right in the worst one, and none is worse than deepest-first.
    """
    task = _task(job)
    order = "deepest-first" if task.order == "random" else task.order
    return layers_per_step(task.steps, "causal" if job.model.causal else "none", order)


def diagnosed(
    job: TrainJob, losses: Mapping[int, Sequence[float]], diverged: bool = False
) -> tuple[Signature, tuple[int, ...], str]:
    """The signature of a member, the steps that it learned, and the cause.

    Args:
        job: what it was trained by.
        losses: step that was asked for → held-out losses through training.
        diverged: whether its training broke off.
    """
    if diverged or not all(losses.values()):
        return (
            "diverged",
            (),
            "its loss stopped being a number: try a smaller learning rate, or clip gradients",
        )
    learned = tuple(step for step, values in losses.items() if values[-1] < LEARNED)
    left = [step for step in losses if step not in learned]
    if not left:
        return "learned", learned, ""
    first, task, needed = left[0], _task(job), needed_layers(job)
    if learned == (1,):
        signature: Signature = "only induction heads"
    elif learned or (min(losses) > 1 and job.model.layers >= needed[first]):
        signature = "long chains fail"
    else:
        signature = "early plateau"
    return signature, learned, _cause(job.model.layers, first, task, needed, losses[first])


def _cause(
    layers: int, first: int, task: RetrievalConfig, needed: Mapping[int, int], losses: Sequence[float]
) -> str:
    """What is known beside the losses: too few layers, no curriculum, or too short a training."""
    if layers < needed[first]:
        return f"too few layers: {symbol(first)} needs {needed[first]}, and there are {layers}"
    enough = f"{layers} layers are enough for {symbol(first)} ({needed[first]} are needed)"
    easier = [step for step in range(1, first) if step not in task.asked]
    if easier:
        return f"no curriculum: {enough}, but nothing asks for {' and '.join(symbols(easier))}"
    quarter = losses[-max(2, len(losses) // 4) :]
    if quarter[0] - quarter[-1] > FALLING:
        return f"still falling: {enough}; train longer"
    return f"not found: {enough}, and the loss rests; try more layers, width or steps"
