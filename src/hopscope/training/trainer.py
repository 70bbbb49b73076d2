"""The trainer: members of a unit in one loop, any task, resumable at any point.

Between two checkpoints nothing is carried but the weights, the optimiser's state and the step number, and every
random draw is addressed by the step.  So a run that was killed repeats from its last checkpoint exactly what an
undisturbed run would have done.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.runs import (
    CheckpointDamaged,
    UnitFolder,
    drop_parts_after,
    save_checkpoint,
    strip_checkpoint,
    write_part,
)
from hopscope.runs.metrics import METRICS_SCHEMA, PLACES
from hopscope.tasks.device import GROUP, DeviceTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob
from hopscope.training.engines import ENGINES, Engine
from hopscope.training.optimizer import Optimizer
from hopscope.training.steps import Fitting, TrainingSteps

Key = tuple[Any, ...]
"""Split and metric, and maybe more: measure, part, layer and head (`hopscope.runs.metrics.PLACES`), `None` or given.

The metric `accuracy@repeat` is `accuracy` with the part `repeat`.
"""

Evaluate = Callable[[Transformer, Sequence[int]], Mapping[Key, Float[Tensor, " member"]]]
"""Measures members: a model and their numbers in the unit → for all that is measured one number for each.

The model holds all members of the unit, or fewer where memory is short.
"""

HEALTHY = -1


@dataclass(frozen=True)
class Progress:
    """The state of training after an interval.

    Attributes:
        step, steps: steps done, and to do in all.
        losses: each member's mean training loss over the interval; NaN for a diverged member.
        samples_per_second: member-samples trained per second of the interval.
        diverged: members (run-global) whose training broke off.
    """

    step: int
    steps: int
    losses: list[float]
    samples_per_second: float
    diverged: list[int]


class Trainer:
    """Trains the members of one unit.

    Attributes:
        model: the members.
        optimizer: its optimiser.
        step: steps taken so far.
        diverged_at: step at which each member diverged, `HEALTHY` for those that did not.
    """

    def __init__(
        self,
        job: TrainJob,
        task: DeviceTask,
        unit: UnitFolder,
        evaluate: Evaluate,
        device: torch.device | str = "cpu",
        engine: Engine = ENGINES["general"],
        initial: Mapping[str, Tensor] | None = None,
    ):
        """`initial` are weights to begin from, by name, `[member, …]`; by default they are drawn."""
        self.job, self.task, self.unit, self.evaluate = job, task, unit, evaluate
        self.model = Transformer.initial(job.model, _seeds(job, "init_seed"), device)
        if initial is not None:
            with torch.no_grad():
                self.model.parameters.load(initial)
        self.optimizer = Optimizer(self.model.parameters, job.training)
        self.step = 0
        self.diverged_at = [HEALTHY] * len(job.members)
        seeds = _seeds(job, "data_seed").to(device)
        notice = partial(self._split, "training")
        self._steps = TrainingSteps(engine, self.model, task, job.training, seeds, self.optimizer, notice)
        remedy = "measure on fewer held-out samples, use a smaller model, or --device cpu"
        self._fitting = Fitting(self.model.members, "evaluation", remedy, partial(self._split, "evaluation"))

    def run(self, budget: TimeBudget, report: Callable[[Progress], None]) -> None:
        """Train to the end, from the last sound checkpoint if there is one.

        Raises:
            TimeBudgetReached: the next interval would not fit; at least one interval was trained.
            UserError: something could not be written or read.
        """
        self._resume()
        checkpoints = [step for step in self.job.training.checkpoint_steps() if step > self.step]
        per_step = 0.0
        for number, target in enumerate(checkpoints):
            if number:
                budget.check(needed=per_step * (target - self.step))
            started, first = time.monotonic(), self.step
            rows = _Rows(self.job)
            for stop in (step for step in self.job.training.evaluation_steps() if first < step <= target):
                began, count = time.monotonic(), stop - self.step
                losses = self._train_until(stop, rows)
                seconds = max(time.monotonic() - began, 1e-9)
                rate = count * self.job.training.batch_size * len(losses) / seconds
                report(Progress(stop, self.job.training.steps, losses, rate, self._diverged_members()))
            write_part(self.unit.path, first + 1, target, rows.columns)
            self._save()
            per_step = (time.monotonic() - started) / (target - first)

    def _train_until(self, stop: int, rows: "_Rows") -> list[float]:
        """Train to step `stop`, record mean training losses and an evaluation; returns the members' mean losses."""
        total: dict[str, Tensor] = {}
        first = self.step
        while self.step < stop:
            for name, value in self._steps.take(self.step).items():
                total[name] = total[name] + value if name in total else value
            self.step += 1
        self._notice_diverged()
        means: dict[Key, Tensor] = {("train", name): value / (stop - first) for name, value in total.items()}
        self._record(rows, {**means, **self._evaluated()})
        return [float(value) for value in means["train", "loss"]]

    def _evaluated(self) -> Mapping[Key, Tensor]:
        with torch.no_grad():
            return self._fitting.run(self._evaluated_in_parts)

    def _evaluated_in_parts(self) -> Mapping[Key, Tensor]:
        parts = self._fitting.parts
        if len(parts) == 1:
            return self.evaluate(self.model, range(self.model.members))
        together: dict[Key, Tensor] = {}
        for part in parts:
            members = range(*part.indices(self.model.members))
            for key, values in self.evaluate(self.model.select(list(members)), members).items():
                together.setdefault(key, values.new_zeros(self.model.members))[part] = values
        return together

    def _split(self, work: str, size: int) -> None:
        """Say that memory was too short for all members at once."""
        self.unit.event(
            "unit split",
            unit=self.unit.hash,
            work=work,
            step=self.step,
            members=self.model.members,
            at_a_time=size,
        )

    def _record(self, rows: "_Rows", measured: Mapping[Key, Tensor]) -> None:
        for key, values in measured.items():
            rows.add(self.step, key, values, self.diverged_at)

    def _notice_diverged(self) -> None:
        """Report members that have diverged since the last look (exact to the interval)."""
        # The last step of an interval may have overflowed weights from a loss that was still finite.
        self.optimizer.alive &= self.model.parameters.flat.isfinite().all(1)
        for index, alive in enumerate(self.optimizer.alive.tolist()):
            if not alive and self.diverged_at[index] == HEALTHY:
                self.diverged_at[index] = self.step
                member = self.job.members[index].member
                self.unit.event("member frozen", unit=self.unit.hash, member=member, step=self.step)

    def _diverged_members(self) -> list[int]:
        pairs = zip(self.job.members, self.diverged_at, strict=True)
        return [member.member for member, step in pairs if step != HEALTHY]

    # Checkpoints.

    def _resume(self) -> None:
        point = self.unit.resume_point()
        if point is not None:
            drop_parts_after(self.unit.path, point[0])
            point = point if self.unit.has_record_of(point[0]) else None
        if point is None:
            self.unit.drop_checkpoints()  # of a record that was lost
            drop_parts_after(self.unit.path, -1)
            rows = _Rows(self.job)
            self._record(rows, self._evaluated())
            write_part(self.unit.path, 0, 0, rows.columns)
            self._save()
            return
        self.step, tensors, metadata = point
        weights = {name: torch.from_numpy(tensors[f"weights/{name}"]) for name in self.model.weights}
        with torch.no_grad():
            self.model.parameters.load(weights)
            self.optimizer.first_moment.copy_(torch.from_numpy(tensors["optimiser/first_moment"]))
            self.optimizer.second_moment.copy_(torch.from_numpy(tensors["optimiser/second_moment"]))
        self.diverged_at = [int(step) for step in metadata["frozen_at"]]
        self.optimizer.alive.copy_(torch.tensor(self.diverged_at) == HEALTHY)
        self._strip()

    def _save(self) -> None:
        """Write a checkpoint."""
        tensors = {f"weights/{name}": _array(view) for name, view in self.model.weights.items()}
        tensors["optimiser/first_moment"] = _array(self.optimizer.first_moment)
        tensors["optimiser/second_moment"] = _array(self.optimizer.second_moment)
        path = self.unit.checkpoint_path(self.step)
        save_checkpoint(path, tensors, {"step": self.step, "frozen_at": self.diverged_at})
        self._strip()

    def _strip(self) -> None:
        """Keep the optimiser's state in the last two checkpoints only; an interrupted stripping is caught up."""
        earlier = [path for step, path in self.unit.checkpoints() if step < self.step]
        for path in earlier[:-1][-2:]:
            with suppress(
                CheckpointDamaged
            ):  # one that is damaged is of no use for resuming, and is left as it is
                strip_checkpoint(path)


class _Rows:
    """Metric rows of one interval, as columns."""

    def __init__(self, job: TrainJob):
        self.job = job
        self.columns: dict[str, list[object]] = {name: [] for name in (*METRICS_SCHEMA.names, *PLACES.names)}

    def add(self, step: int, key: Key, values: Tensor, diverged_at: list[int]) -> None:
        """One row for each member that has not diverged; `metric@group` is the metric of a group of samples."""
        split, metric, *rest = key
        measure, part, layer, head = rest or (None, None, None, None)
        metric, _, group = metric.partition(GROUP)
        samples = step * self.job.training.batch_size
        for member, value, diverged in zip(self.job.members, values.tolist(), diverged_at, strict=True):
            if diverged == HEALTHY:
                known = {"member": member.member, "step": step, "samples": samples, "split": split}
                place = {"measure": measure, "part": part or group or None, "layer": layer, "head": head}
                row = {**known, "metric": metric, "value": value, **place}
                for name, column in self.columns.items():
                    column.append(row[name])


def _seeds(job: TrainJob, which: str) -> Tensor:
    return torch.tensor([getattr(member, which) for member in job.members])


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()
