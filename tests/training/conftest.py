"""Fixtures of the trainer's tests: small jobs, run folders for them, and a task that can be made to fail."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, UnitFolder, content_hash
from hopscope.studies.permutation.probes import predictions as probes
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES, EngineName
from hopscope.training.trainer import Evaluate, Progress, Trainer

VALUES = 3


def make_job(*seeds: int, first: int = 0, **training: object) -> TrainJob:
    """A job of members with these seeds, numbered from `first`: width 10, 2 heads, 3 values."""
    length = 2 * VALUES - 1
    model = TransformerConfig(
        heads=2,
        width=10,
        mlp_ratio=1.1,
        length=length,
        input_size=VALUES + 1,
        output_size=VALUES + 1,
        readout=tuple(range(0, length, 2)),
        norm="post",
        init="encoder",
    )
    settings = {"steps": 13, "batch_size": 7, "checkpoint_every": 5, "evaluate_every": 2, **training}
    # Checkpoints in the middle of the warm-up and of the cosine after it.
    settings.setdefault("warmup_steps", min(6, settings["steps"]))
    return TrainJob(
        label="small",
        task=PermutationConfig(values=VALUES, repeat_ratio=0.5),
        model=model,
        training=TrainingConfig.model_validate(settings),
        members=tuple(MemberPlan(member=first + n, seed=seed) for n, seed in enumerate(seeds)),
    )


def make_unit(root: Path, job: TrainJob) -> UnitFolder:
    """The folder of a run with this one unit, as the executor makes it."""
    name = content_hash(job.model_dump(mode="json"))
    members = [
        {"member": m.member, "unit": name, "index": i, "seed": m.seed, "overrides": {}}
        for i, m in enumerate(job.members)
    ]
    run = RunFolder.create(root, "permutation", job.model_dump(mode="json"), members, None)
    return run.unit(name).create({"plan": job.model_dump(mode="json")})


class FailingTask(PermutationTask):
    """A task whose loss is multiplied by `factor` for one member at one step."""

    def __init__(self, config: PermutationConfig, index: int, step: int, factor: float):
        super().__init__(config)
        self.index, self.step, self.factor, self.current = index, step, factor, -1

    def sample(self, seeds, stream, step, batch, *, start=0, annotate=True):
        self.current = step
        return super().sample(seeds, stream, step, batch, start=start, annotate=annotate)

    def losses(self, predictions, batch):
        found = super().losses(predictions, batch)
        if self.current != self.step:
            return found
        factors = torch.ones(len(found["loss"]))
        factors[self.index] = self.factor
        return {**found, "loss": found["loss"] * factors}


def evaluator(task: PermutationTask) -> Evaluate:
    """Loss on 11 held-out sequences."""
    batch = task.evaluation("plain", limit=11)

    def evaluate(model: Transformer, members: Sequence[int]) -> Mapping[tuple[str, str], torch.Tensor]:
        return {("held_out", "loss"): probes.cross_entropy(probes.predict(model, batch), batch)}

    return evaluate


@pytest.fixture
def job_of() -> Callable[..., TrainJob]:
    return make_job


@pytest.fixture
def failing() -> type[FailingTask]:
    return FailingTask


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Trainer]:
    """Makes a trainer for a job in a folder of this name, which may already hold a part of its training."""

    def begin(
        job: TrainJob, name: str = "run", task: PermutationTask | None = None, engine: EngineName = "general"
    ) -> Trainer:
        task = task or PermutationTask(job.task)
        unit = make_unit(tmp_path / name, job)
        return Trainer(job, task, unit, evaluator(task), engine=ENGINES[engine])

    return begin


@pytest.fixture
def finish() -> Callable[..., list[Progress]]:
    """Trains to the end, or until the budget is spent; returns what was reported."""

    def train(trainer: Trainer, seconds: float | None = None) -> list[Progress]:
        reports: list[Progress] = []
        trainer.run(TimeBudget(seconds), reports.append)
        return reports

    return train


@pytest.fixture
def record() -> Callable[[UnitFolder], dict[str, str]]:
    """Digest of every file of a unit but its lock."""

    def digests(unit: UnitFolder) -> dict[str, str]:
        files = (path for path in sorted(unit.path.rglob("*")) if path.is_file() and path.name != ".lock")
        return {
            path.relative_to(unit.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }

    return digests
