"""A collection of members from run folders: rounded weights, readings that still hold, timelines, index and card.

The runs are read as they are.  A circuit that is not on record yet is read, and kept in its run, as `hopscope circuit`
does.  The same command makes the same folder, byte for byte.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import safetensors.numpy
import torch

import hopscope
from hopscope.circuits.any_task import lowest_floors
from hopscope.circuits.built_in_tasks import ReadTask, circuit_task_of, task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.comparison import fault_in
from hopscope.circuits.config import READ, SEQUENCES, ReaderConfig, formation_name
from hopscope.circuits.path_formation import formation
from hopscope.circuits.record import read_member
from hopscope.collection.card import card
from hopscope.collection.index import (
    CARD,
    CIRCUITS,
    INDEX,
    LEARNED_AT,
    READING,
    SHOWN,
    SUMS,
    TIMELINES,
    CollectedMember,
    read_index,
    sha256,
    slug,
    sums,
)
from hopscope.collection.learning import Part, learned_at, parts_of, record_of
from hopscope.collection.opening import declared, source_of
from hopscope.errors import UserError
from hopscope.finders.circuit_file import CircuitFile, FoundCircuit, ScoredRow
from hopscope.models.export import CONFIG, WEIGHTS, export_module
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.opened import Run
from hopscope.runs import (
    MemberRecord,
    UnitFolder,
    find_run,
    frozen_members,
    read_json,
    write_atomic,
    write_json,
)
from hopscope.runs.files import is_file, is_folder, read_bytes
from hopscope.runs.metrics import read_metrics, write_table
from hopscope.strict_json import canonical_json
from hopscope.studies.measuring import predict
from hopscope.tasks.batch import Batch
from hopscope.tasks.config import TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.training.config import TrainJob, is_trained, job_of
from hopscope.training.restore import load_ensemble

SAMPLES = 512
"""Held-out samples on which losses before and after rounding are measured."""

SHOWN_SAMPLES = 64
"""Samples of each configuration that the collection itself holds."""

FINDER = "hopscope reader"
"""Name of the finder in the file of circuits."""

_UNITS = "members"
"""What a unit's label may end with, behind a comma: which members it has."""


class Source(NamedTuple):
    """Members of a run that are collected.

    Attributes:
        run: its folder.
        chosen: numbers of the members; `None`: all.
        command: that trained them; empty where it is not told.
    """

    run: Path
    chosen: frozenset[int] | None = None
    command: str = ""

    @classmethod
    def of(cls, words: str, command: str = "") -> "Source":
        """A source as the command line has it: `RUN`, or `RUN:0-3,8` for some of its members.

        Raises:
            UserError: what stands behind the colon names no members.
        """
        path, _, numbers = words.rpartition(":")
        if not path or is_folder(Path(words)):
            return cls(Path(words), None, command)
        chosen: set[int] = set()
        for piece in numbers.split(","):
            first, _, last = piece.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()):
                raise UserError(
                    f"runs: expected RUN or RUN:NUMBERS, such as runs/depth/…:0-3,8, found {words!r}"
                )
            chosen |= set(range(int(first), int(last or first) + 1))
        return cls(Path(path), frozenset(chosen), command)


@dataclass(frozen=True)
class _Unit:
    """A unit whose members are collected, and what they have in common."""

    run: Run
    folder: UnitFolder
    job: TrainJob
    step: int
    reader: ReaderConfig
    command: str
    task: TaskOnDevice
    read: ReadTask
    held_out: Batch
    parts: Mapping[str, Part]
    metrics: pa.Table
    frozen: frozenset[int]

    @classmethod
    def of(cls, run: Run, folder: UnitFolder, command: str) -> "_Unit":
        job = job_of(folder)
        if not is_trained(folder):
            raise UserError(
                f"{folder.path}: expected a trained unit, found one that is not; finish the run first"
            )
        step = folder.checkpoint()[0]
        task = TaskOnDevice(declared(job.task, run.study), "cpu", job.training.examples)
        return cls(
            run=run,
            folder=folder,
            job=job,
            step=step,
            reader=run.reader,
            command=command,
            task=task,
            read=task if isinstance(job.task, TaskReference) else task_of(job.task),
            held_out=task.evaluation(SAMPLES),
            parts=parts_of(task),
            metrics=read_metrics(folder.path),
            frozen=frozenset(frozen_members(folder, step)),
        )

    def model(self, index: int, step: int | None = None) -> Transformer:
        return load_ensemble(self.folder, self.step if step is None else step).select([index])

    @property
    def configuration(self) -> str:
        """The label, without the members that only this unit has."""
        words, _, last = self.job.label.rpartition(", ")
        return words if words and last.startswith(_UNITS) else self.job.label


def build(
    sources: Sequence[Source], to: Path, progress: Callable[[str], None] = lambda _: None
) -> list[CollectedMember]:
    """Make a collection of the members of some runs.

    Args:
        sources: the runs.
        to: folder; made if absent, and an earlier collection in it is replaced.
        progress: told which member is being collected.

    Returns:
        The rows of its index.

    Raises:
        UserError: a run is not complete, or of a task that cannot be found; two members have one name; weights that
            float16 cannot hold; or something else is in the folder.
    """
    if is_folder(to) and any(to.iterdir()) and not is_file(to / INDEX):
        raise UserError(
            f"{to}: expected an empty folder or an earlier collection, found other files; choose another --to"
        )
    chosen = list(_members(sources))
    names = [_name(unit, record) for unit, record in chosen]
    _check_names(names, to)
    rows: list[CollectedMember] = []
    timelines: list[dict[str, Any]] = []
    samples: dict[str, Any] = {}
    for name, (unit, record) in zip(names, chosen, strict=True):
        progress(name)
        row, timeline = _collected(unit, record, to, name)
        rows.append(row)
        timelines += timeline
        samples |= _samples(unit, row.samples_name)
    write_json(to / CIRCUITS, _circuit_file(rows, to).model_dump(mode="json", exclude_none=True))
    write_table(to / TIMELINES, pa.Table.from_pylist(timelines, schema=TIMELINE))
    write_table(to / LEARNED_AT, pa.Table.from_pylist(list(_learned(rows)), schema=LEARNED))
    write_atomic(to / SHOWN, safetensors.numpy.save(samples))
    write_atomic(to / CARD, card(rows, [source.chosen for source in sources], SHOWN_SAMPLES))
    write_atomic(to / INDEX, "".join(canonical_json(row.model_dump(mode="json")) + "\n" for row in rows))
    of_members = [f"{row.name}/{file}" for row in rows for file in row.files]
    write_atomic(to / SUMS, sums(to, [CARD, CIRCUITS, LEARNED_AT, INDEX, SHOWN, TIMELINES, *of_members]))
    return rows


def _check_names(names: Sequence[str], to: Path) -> None:
    """Refuse two members of one name, and a folder with other members."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(
            f"{twice[0]}: expected members of different names, found two; collect one of the two runs alone"
        )
    before = {row.name for row in read_index(to)} if is_file(to / INDEX) else set()
    gone = sorted(before - set(names))
    if gone:
        raise UserError(
            f"{to}: expected no members but those of these runs, found an earlier one, {gone[0]}; "
            "name its run too, or choose another --to"
        )


def _members(sources: Sequence[Source]) -> Iterator[tuple[_Unit, MemberRecord]]:
    for source in sources:
        run = Run(find_run(source.run).path)
        numbers = {record.member for record in run.members}
        missing = (source.chosen or frozenset()) - numbers
        if missing:
            raise UserError(
                f"{source.run}: expected members from {min(numbers)} to {max(numbers)}, found {min(missing)}"
            )
        unit: _Unit | None = None
        for record in run.members:
            if source.chosen is not None and record.member not in source.chosen:
                continue
            if unit is None or unit.folder.hash != record.unit:
                unit = _Unit.of(run, run.unit(record.unit), source.command)
            yield unit, record


def _collected(
    unit: _Unit, record: MemberRecord, to: Path, name: str
) -> tuple[CollectedMember, list[dict[str, Any]]]:
    """One member's folder, its row and its timeline."""
    job, plan = unit.job, unit.job.members[record.index]
    reading = read_member(unit.run, record.member, unit.step, unit.reader, task=lambda _: unit.task)
    circuit = Circuit.model_validate(reading["circuit"])
    model = unit.model(record.index)
    half = rounded(model, name)
    was_read = reading["verdict"] == READ
    origin = {
        "study": unit.run.study,
        "run": unit.run.hash,
        "member": record.member,
        "seed": record.seed,
        "step": unit.step,
        "configuration": unit.configuration,
        "task": job.task.model_dump(mode="json"),
    }
    export_module(half.member(0), to / name, origin, half=True)
    write_atomic(to / name / READING, canonical_json(reading) + "\n")
    curves = record_of(unit.metrics, record.member)
    row = CollectedMember(
        name=name,
        study=unit.run.study,
        run=unit.run.hash,
        member=record.member,
        command=unit.command,
        configuration=unit.configuration,
        seed=record.seed,
        init_seed=plan.init_seed,
        data_seed=plan.data_seed,
        task=job.task,
        task_source=source_of(job.task, unit.task.task),
        model=job.model,
        training=job.training,
        step=unit.step,
        parameters=sum(weights.numel() for weights in half.parameters.views().values()),
        diverged=record.index in unit.frozen,
        samples_name=slug(f"{unit.run.study} {unit.configuration}"),
        samples=unit.held_out.inputs.shape[1],
        held_out=_losses(unit, model),
        held_out_float16=_losses(unit, half),
        recorded={metric: _finite(curve[max(curve)]) for metric, curve in sorted(curves.items())},
        floors=_floors(unit),
        asked=tuple(unit.parts),
        learned=tuple(reading["learned"]),
        learned_at=learned_at(unit.parts, curves),
        verdict=reading["verdict"],
        heads=len(circuit.heads),
        paths=len(circuit.paths),
        holds_in_float16=fault_in(half, unit.read, circuit, unit.reader) is None if was_read else None,
        versions={**unit.folder.record["versions"], "hopscope": hopscope.__version__,
                  "source": unit.folder.record["source_hash"]},
        files={file: sha256(read_bytes(to / name / file, "restore it")) for file in (CONFIG, WEIGHTS, READING)},
    )  # fmt: skip
    return row, _timeline(unit, record, circuit, name)


def _name(unit: _Unit, record: MemberRecord) -> str:
    """Study, configuration and seed."""
    plan = unit.job.members[record.index]
    one = plan.init_seed == plan.data_seed
    seed = f"seed-{plan.init_seed}" if one else f"init-{plan.init_seed}-data-{plan.data_seed}"
    return slug(f"{unit.run.study} {unit.configuration} {seed}")


def rounded(model: Transformer, name: str = "model") -> Transformer:
    """The model with every weight rounded to float16 and kept as float32.

    Args:
        model: any number of members.
        name: of the model, for the error.

    Raises:
        UserError: a weight that float16 cannot hold.
    """
    parameters = Parameters(parameter_specs(model.config), model.members)
    with torch.no_grad():
        parameters.load({key: view.half().float() for key, view in model.parameters.views().items()})
    if not bool(torch.isfinite(parameters.flat).all()):
        largest = float(model.parameters.flat.abs().max())
        raise UserError(f"{name}: expected weights that float16 holds, up to 65504, found one of {largest:g}")
    return Transformer(model.config, parameters)


def _losses(unit: _Unit, model: Transformer) -> dict[str, float | None]:
    """Metric → value on the held-out samples."""
    losses = unit.task.losses(predict(model, unit.held_out), unit.held_out)
    return {name: _finite(float(values[0])) for name, values in losses.items()}


def _samples(unit: _Unit, name: str) -> dict[str, Any]:
    """Some held-out samples, without a member axis; all members of a configuration answer the same."""
    few = unit.held_out.take(slice(SHOWN_SAMPLES))
    tensors = {"inputs": few.inputs, "targets": few.targets, "weights": few.weights}
    return {f"{name}/{key}": tensor[0].numpy() for key, tensor in tensors.items() if tensor is not None}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _floors(unit: _Unit) -> dict[str, dict[str, float]]:
    """What the task tells, of the loss and of other metrics; else the loss of a guess, as the reader counts it."""
    told = unit.task.task.floors()
    of_loss = {name: value for name, value in told.items() if not isinstance(value, Mapping)}
    others = {name: dict(values) for name, values in told.items() if isinstance(values, Mapping)}
    if of_loss or others:
        return {"loss": of_loss, **others} if of_loss else others
    floors = lowest_floors(unit.task, unit.held_out)
    return {name: {"guess": value} for name, value in floors.items()}


# Files of the whole collection.

TIMELINE = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("layer", pa.int32(), nullable=False),
        pa.field("head", pa.int32(), nullable=False),
        pa.field("rows", pa.string(), nullable=False),
        pa.field("reads", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("attention", pa.float64(), nullable=False),
    ]
)
"""Columns of the timelines: the mean attention of a path's rows on what they read, at a checkpoint."""

LEARNED = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("learned", pa.bool_(), nullable=False),
        pa.field("step", pa.int64()),
    ]
)
"""Columns of the times: whether a part was learned, and the first evaluation from which on it was, null if never."""


def _timeline(unit: _Unit, record: MemberRecord, circuit: Circuit, name: str) -> list[dict[str, Any]]:
    """The rows of a member; paths that only a mean map or no rule describes have none."""
    if not circuit.paths:
        return []
    kept = unit.folder.analysis_path(formation_name(record.member), unit.step)
    if is_file(kept):
        found = unit.folder.read_analysis(formation_name(record.member), unit.step)
    else:
        task = circuit_task_of(unit.read)
        batch = task.batch(0, SEQUENCES, "watch")
        steps = [step for step, _ in unit.folder.checkpoints()]
        models = ((step, task.model(unit.model(record.index, step))) for step in steps)
        found = formation(circuit, models, task, batch)
    return [
        {
            "name": name,
            "step": step,
            "layer": path["layer"],
            "head": path["head"],
            "rows": path["query_role"],
            "reads": path["target_role"] or "",
            "rule": path["rule"],
            "attention": attention,
        }
        for path in found["paths"]
        for step, attention in zip(found["checkpoints"], path["attention"], strict=True)
    ]


def _learned(rows: Sequence[CollectedMember]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for part in row.asked:
            yield {
                "name": row.name,
                "part": part,
                "learned": part in row.learned,
                "step": row.learned_at[part],
            }


def _circuit_file(rows: Sequence[CollectedMember], to: Path) -> CircuitFile:
    """Every circuit that was read, as head rows."""
    found = []
    for row in rows:
        if not row.was_read:
            continue
        circuit = Circuit.model_validate(read_json(to / row.name / READING)["circuit"])
        heads = tuple(
            ScoredRow(layer=path.layer, head=path.head, rows=path.query, reads=path.target or None)
            for path in circuit.paths
        )
        found.append(FoundCircuit(model=row.name, heads=heads))
    return CircuitFile(finder=FINDER, circuits=tuple(found))
