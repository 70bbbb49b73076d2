"""What the page's explorer may show of a run: its members, the samples to put to them, and where a reader begins.

The weights are not part of this: the page takes them from the checkpoints when it is built
(`hopscope.report.explorer`).
Torch is loaded when there is something to explore.
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hopscope.errors import UserError
from hopscope.story.functions import PageFunctions
from hopscope.story.text import Block
from hopscope.tasks.task import token_words
from hopscope.training.config import TrainJob, job_of

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.models.transformer import Transformer
    from hopscope.tasks.batch import Batch
    from hopscope.tasks.device import TaskOnDevice

HEADING = "Take a model apart"

EXAMPLES = 6
"""Samples to choose from."""

MOST_MODELS = 400
"""Members that are listed: of a campaign with more, the first of each configuration come first."""

PROBED = 64
"""Samples over which the effect of a head is measured."""


class Explorer:
    """The explorer of one page; a template calls it."""

    def __init__(
        self,
        page: PageFunctions,
        task_of: "Callable[[TrainJob], TaskOnDevice]",
        examples: Callable[[TrainJob], list[dict[str, Any]]] | None = None,
        more: Mapping[str, Any] | None = None,
        shows: Callable[[Mapping[str, Any]], bool] = lambda example: True,
    ):
        """A study's program makes it, or the study's own code.

        Args:
            page: the page.
            task_of: the task of a unit, with which samples are drawn.
            examples: samples of the study's own choice for a unit, as `_examples` gives them; by default held-out ones.
            more: further fields of every task of the block.
            shows: whether an example shows what the study is about, so that a reader may begin with it.
        """
        self._shows = shows
        self._page, self._task_of, self._own_examples, self._more = page, task_of, examples, dict(more or {})
        self._shapes: list[dict[str, Any]] = []
        self._tasks: dict[str, int] = {}
        self._told: list[dict[str, Any]] = []

    __name__ = "explorer"

    def __call__(self, first: str | None = None) -> str:
        """A section with the explorer; nothing where no member has weights.

        Args:
            first: configuration whose first seed is shown first; by default that of the member whose loss fell most.
        """
        block = self.block(first)
        return "" if block is None else f"\n\n## {HEADING}\n\n{self._page.block(block)}"

    def block(self, first: str | None = None) -> Block | None:
        """The block of the story; `None` where no member has weights."""
        jobs = self._jobs()
        if not jobs:
            return None
        models = [self._model(member, *found) for member, found in jobs.items()]
        start = self._first(models, first)
        return {
            "kind": "explorer",
            "title": "",
            "caption": "",
            "shapes": self._shapes,
            "tasks": self._told,
            "models": models,
            "start": {"model": start, **self._view(jobs[models[start]["member"]], models[start])},
        }

    # Members.

    def _jobs(self) -> dict[int, tuple[TrainJob, int, str]]:
        """Of each member that has weights, in the order of the list: its job, its place there, its unit."""
        if not (self._page.run.path / "units").is_dir():  # a slim run folder has none
            return {}
        units = {unit.hash: unit for unit in self._page.run.units}
        with_weights = {name: job_of(unit) for name, unit in units.items() if unit.checkpoints()}
        records = [
            record
            for record in self._page.run.members
            if record.unit in with_weights and record.member not in self._page.gone
        ]
        seen: dict[str, int] = {}
        ranks = []
        for record in records:
            label = self._page.evidence.configurations.get(record.member, "")
            seen[label] = seen.get(label, -1) + 1
            ranks.append(seen[label])
        order = sorted(range(len(records)), key=lambda at: ranks[at])[:MOST_MODELS]
        return {
            records[at].member: (with_weights[records[at].unit], records[at].index, records[at].unit)
            for at in sorted(order)
        }

    def _model(self, member: int, job: TrainJob, index: int, unit: str) -> dict[str, Any]:
        from hopscope.models.packing import explorer_shape

        evidence = self._page.evidence
        shape = explorer_shape(job.model)
        if shape not in self._shapes:
            self._shapes.append(shape)
        return {
            "name": str(self._page.member(member)),
            "configuration": evidence.configurations.get(member, job.label),
            "member": member,
            "unit": unit,
            "index": index,
            "shape": self._shapes.index(shape),
            "task": self._task(job),
        }

    def _task(self, job: TrainJob) -> int:
        key = job.task.model_dump_json()
        if key not in self._tasks:
            self._tasks[key] = len(self._told)
            self._told.append(self._told_task(job))
        return self._tasks[key]

    def _first(self, models: Sequence[Mapping[str, Any]], first: str | None) -> int:
        """The model that a reader meets first."""
        if first is not None:
            return next((at for at, each in enumerate(models) if each["configuration"] == first), 0)
        fallen = dict.fromkeys((each["member"] for each in models), math.inf)
        with suppress(UserError):  # a study need not record the held-out loss
            curve = self._page.evidence.curve("loss")
            for member in set(curve.columns) & set(fallen):
                values = curve[member].dropna()
                if len(values):
                    fallen[member] = float(values.iloc[-1] / max(values.iloc[0], 1e-9))
        return min(range(len(models)), key=lambda at: (fallen[models[at]["member"]], at))

    # Samples.

    def _told_task(self, job: TrainJob) -> dict[str, Any]:
        task = self._task_of(job)
        shape, write = task.shape, token_words(task.task)
        tokens = range(max(shape.input_size, shape.output_size)) if shape.inputs == "tokens" else range(0)
        size = shape.input_size - shape.position_size
        return {
            "inputs": shape.inputs,
            "outputs": shape.outputs,
            "tokens": [_written(write, token) for token in tokens],
            "symbol_size": size if shape.outputs == "vectors" and shape.output_size % size == 0 else 0,
            "parts": list(getattr(task.task.on(), "names", ())) if shape.outputs == "vectors" else [],
            "examples": self._own_examples(job) if self._own_examples else _examples(task),
            "kind": "",
            "held_out": [],
            **self._more,
        }

    # Where a reader begins.

    def _view(self, found: tuple[TrainJob, int, str], model: Mapping[str, Any]) -> dict[str, int]:
        """The last readout, the head whose removal costs most there, and the example in which it costs most."""
        from hopscope.training.restore import load_ensemble

        job, index, unit = found
        ensemble = load_ensemble(self._page.run.unit(unit)).select([index])
        examples = self._told[model["task"]]["examples"]
        whole = [at for at, each in enumerate(examples) if each["size"] == job.model.length]
        whole = [at for at in whole if self._shows(examples[at])] or whole
        start = {
            "example": next(iter(whole), 0),
            "row": job.model.readout_positions[-1],
            "layer": 0,
            "head": 0,
        }
        if not whole:
            return start
        inputs, targets = _tensors(job, [examples[at] for at in whole])
        asked = _last_asked(targets)
        chosen = 0
        if job.model.heads * job.model.layers > 1 or len(whole) > 1:
            some = self._task_of(job).evaluation(PROBED, annotate=False).take(slice(0, PROBED))
            costs, _ = _costs(ensemble, some.inputs, _asked_targets(some))
            most = int(costs.mean(1).argmax())
            start["layer"], start["head"] = divmod(most, job.model.heads)
            # An example that the model answers well, and not without this head.
            costs, clean = _costs(ensemble, inputs, targets)
            chosen = int((costs[most] - clean).argmax())
        start["example"], start["row"] = whole[chosen], job.model.readout_positions[asked[chosen]]
        return start


def _written(write: Callable[[int], str], token: int) -> str:
    """A token as its task writes it; one that the task has no word for is a number."""
    try:
        return str(write(token))
    except (IndexError, KeyError, ValueError):
        return str(token)


def _examples(task: "TaskOnDevice") -> list[dict[str, Any]]:
    """Held-out samples: `name`; `size`, the number of positions; `inputs`, `targets`; `roles` in words, by position."""
    batch = task.evaluation(EXAMPLES).take(slice(0, EXAMPLES))
    roles, targets = _role_words(task, batch), _asked_targets(batch)
    return [
        {
            "name": f"sample {at + 1}",
            "size": batch.inputs.shape[2],
            "inputs": _told(batch.inputs[0, at]),
            "targets": _told(targets[0, at]),
            "roles": roles[at],
        }
        for at in range(batch.inputs.shape[1])
    ]


def _asked_targets(batch: "Batch") -> "Tensor":
    """Targets of a batch; classes that are not asked for, such as behind the end of a text, are -1."""
    from hopscope.tasks.losses import counted

    if batch.targets.is_floating_point():
        return batch.targets
    return batch.targets.where(counted(batch), -1)


def _last_asked(targets: "Tensor") -> "Tensor":
    """Number of the last readout of each sample that has a target, `[sample]`; of those without one, the last."""
    import torch

    readouts = targets.shape[2]
    if targets.is_floating_point():
        return torch.full((targets.shape[1],), readouts - 1)
    known = targets[0] >= 0
    last = torch.where(known, torch.arange(readouts), -1).amax(-1)
    return last.where(last >= 0, readouts - 1)


def _told(values: "Tensor") -> Any:
    """Token ids as numbers; vectors as base64 of little-endian float32."""
    if not values.is_floating_point():
        return values.tolist()
    return base64.b64encode(values.cpu().numpy().astype("<f4").tobytes()).decode("ascii")


def _tensors(job: TrainJob, examples: Sequence[Mapping[str, Any]]) -> "tuple[Tensor, Tensor]":
    """Inputs and targets of examples again, as a batch of one member."""
    import numpy as np
    import torch

    def read(name: str, size: int) -> "Tensor":
        values = [each[name] for each in examples]
        if not isinstance(values[0], str):
            return torch.tensor(values)[None]
        arrays = [np.frombuffer(base64.b64decode(value), "<f4").reshape(-1, size) for value in values]
        return torch.from_numpy(np.stack(arrays).astype(np.float32))[None]

    return read("inputs", job.model.input_size), read("targets", job.model.output_size)


def _role_words(task: "TaskOnDevice", batch: "Batch") -> list[list[str]]:
    """What each position of each sample is, in words; its number where the task names no roles."""
    from hopscope.circuits.grammar import ROW_ROLES

    known = [name for name in ROW_ROLES if name in batch.roles] or [
        name for name in batch.roles if name not in ("chain", "place", "holds")
    ]
    words, positions = task.role_values, batch.inputs.shape[2]
    found = []
    for sample in range(batch.inputs.shape[1]):
        columns = [(name, batch.roles[name][0, sample].tolist()) for name in known]
        found.append(
            [
                " ".join(word for name, values in columns if (word := _word(name, values[at], words)))
                or f"place {at + 1}"
                for at in range(positions)
            ]
        )
    return found


def _word(name: str, value: int, words: Mapping[str, Sequence[str]]) -> str:
    """A role in words; a number stands alone where other words say what it counts, as in `second 2`."""
    if name in words:
        return words[name][value]
    if not words:
        return f"{name} {value}"
    return str(value) if value > 0 else ""


def _costs(model: "Transformer", inputs: "Tensor", targets: "Tensor") -> "tuple[Tensor, Tensor]":
    """Rise of the loss at each sample's last target without each head, `[head, sample]`, layer by layer; that loss."""
    import torch
    from torch.nn import functional

    from hopscope.models.edits import Edits
    from hopscope.models.interventions import AblateHead
    from hopscope.tasks.batch import Batch

    samples, asked = torch.arange(targets.shape[1]), _last_asked(targets)
    wanted = targets[0, samples, asked]

    def loss(predictions: "Tensor") -> "Tensor":
        last = predictions[0, samples, asked]
        if targets.is_floating_point():
            return (last - wanted).square().mean(-1)
        return functional.cross_entropy(last, wanted.clamp(min=0), reduction="none")

    batch = Batch(inputs=inputs, targets=targets)
    with torch.no_grad():
        clean = loss(model(inputs))
        removed = [
            loss(model(inputs, Edits(model, [AblateHead(layer=layer, heads=(head,), by="zero")], batch)))
            for layer in range(model.config.layers)
            for head in range(model.config.heads)
        ]
    return torch.stack(removed) - clean, clean
