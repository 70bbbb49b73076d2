"""An opened run: its evidence, its claims, and what it trained; and training without a run folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopscope import display
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.comparison import PathBounds, Transferred, path_bounds, transferred
from hopscope.circuits.config import Proof, ReaderConfig
from hopscope.circuits.record import model_and_task, read_again, read_member
from hopscope.circuits.rereading import Rereading, compared
from hopscope.claims import Ledger
from hopscope.completion import DEFAULT, CompletionName
from hopscope.config import check_seeds
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.models.ensemble import Ensemble
from hopscope.models.member import MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.report.record import read_ledger
from hopscope.report.record_graph import graph_of
from hopscope.runs import MemberRecord, RunFolder, UnitFolder
from hopscope.runs.evidence import Evidence
from hopscope.runs.evidence_table import field_of
from hopscope.runs.files import is_file, listed
from hopscope.studies.program import Program
from hopscope.studies.record import check_source, program_of
from hopscope.tasks.config import TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.task import Task
from hopscope.training import restore
from hopscope.training.config import MemberPlan, TrainingConfig, job_of

if TYPE_CHECKING:
    from hopscope.executors.exporting import Layout

_PROOF = {
    "full": "of the whole model",
    "rules": "of the circuit, every pattern given by its rule",
    "recomputed": "of the circuit, its rows with their own attention",
    "complement": "of everything but the circuit",
    "random_circuits": "of random circuits of this size, on average",
}


@dataclass(frozen=True)
class ReadCircuit:
    """The circuit of one trained member, as it was read.

    Attributes:
        circuit: which rows of which heads read what.
        record: everything that was found, as `hopscope circuit --json` prints it.
    """

    circuit: Circuit
    record: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """Whether the circuit accounts for what the member has learned."""
        return str(self.record["verdict"])

    def __str__(self) -> str:
        title = f"member {self.record['member']}, step {self.record['checkpoint']:,}: {self.verdict}"
        return f"{title}\n{self.circuit}" if self.circuit.paths else title

    def _repr_html_(self) -> str:
        """The verdict, the circuit as a graph and as a table, and the losses that prove it."""
        shown = display.paragraph(str(self).partition("\n")[0], strong=True)
        if not self.circuit.paths:
            return shown
        losses = self.record["loss"]
        proof = [
            (words, f"{losses[name]:.3f}") for name, words in _PROOF.items() if losses.get(name) is not None
        ]
        return (
            shown
            + graph_of(self.record)
            + self.circuit._repr_html_()
            + display.table(("loss over what is learned", ""), proof)
        )


@dataclass(frozen=True)
class Run(RunFolder):
    """A run, as a reader opens it.  Its evidence, claims and weights are there without the study's file.

    Attributes:
        path: the folder.
        given: the study, where the run was not left to find it.
    """

    given: Program | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.given is not None:
            check_source(self, self.given)

    @cached_property
    def evidence(self) -> Evidence:
        """Everything that was measured: one tidy table.

        Raises:
            UserError: the run has none yet, or it is damaged.
        """
        return Evidence.read(self)

    @cached_property
    def claims(self) -> Ledger:
        """Every claim with its verdict: a table in a notebook, a ledger when printed.

        Raises:
            UserError: the run has none yet, or they are damaged.
        """
        return read_ledger(self.path)

    def _repr_html_(self) -> str:
        """What was trained, how far it is, and the ledger of claims."""
        count, units = len(self.members), self.units
        facts = [
            ("folder", self.path),
            ("preset", self.preset or "none"),
            ("members", f"{count} in {len(units)} unit{'s' * (len(units) != 1)}"),
            ("state", "complete" if self.is_done else "not complete: the same command goes on"),
        ]
        if is_file(self.path / "report.html"):
            facts.append(("page", self.path / "report.html"))
        shown = display.paragraph(f"Run of the study {self.study}", strong=True) + display.table(
            ("", ""), facts
        )
        try:
            return shown + self.claims._repr_html_()
        except UserError as error:
            return shown + display.paragraph(str(error))

    @cached_property
    def program(self) -> Program:
        """The study, with the task that the run was made with.

        Raises:
            UserError: its file is gone or has changed.
        """
        return self.given if self.given is not None else program_of(self)

    def member(self, member: int, step: int | None = None) -> MemberTransformer:
        """One trained member as a plain `torch.nn.Module` that knows its task.

        Args:
            member: its number in the run.
            step: of the checkpoint; the last by default.

        Raises:
            UserError: no such member or checkpoint.
        """
        record = restore.member_record(self, member)
        unit = self.unit(record.unit)
        found = restore.load_member(self, member, step)
        return found.with_task(
            lambda: self._task(unit), row=0, seed=job_of(unit).members[record.index].data_seed
        )

    def export(
        self, member: int, to: Path | str, step: int | None = None, *, layout: "Layout" = "auto"
    ) -> None:
        """Write one trained member as a Hugging Face folder, with a model card written from the run's record.

        The folder has config.json, model.safetensors and README.md; `hopscope.load` opens it.

        Args:
            member: its number in the run.
            to: folder; made if absent, and an earlier export in it is replaced.
            step: of the checkpoint; the last by default.
            layout: `gpt2`, which transformers opens too; `hopscope`, our own; `auto`: the first where the model fits.

        Raises:
            UserError: no such member or checkpoint; the layout does not fit; or the folder holds something else.
        """
        from hopscope.executors.exporting import export_member

        export_member(self, member, Path(to), step, layout=layout, program=lambda: self.program)

    def ensemble(self, *, step: int | None = None, **where: Any) -> Ensemble:
        """The members of one configuration, as one ensemble.

        Args:
            step: of the checkpoint; the last by default.
            where: fields in which configurations differ, such as `**{"model.layers": 2}`; also `configuration`, by
                its label, `member` and `seed`, one or several.

        Raises:
            UserError: no member is meant, or members of several configurations are.
        """
        chosen = self._meant(where)
        units = [self.unit(hash) for hash in dict.fromkeys(record.unit for record in chosen)]
        if len({job_of(unit).model_dump_json(exclude={"members"}) for unit in units}) > 1:
            raise UserError(_unequal(chosen, where))
        if step is None:  # of a run that is still trained, the last step that all of them have
            every = [{found for found, _ in unit.checkpoints()} for unit in units]
            step = max(set.intersection(*every), default=None)
        parts = []
        for unit in units:
            indices = [record.index for record in chosen if record.unit == unit.hash]
            parts.append(restore.load_ensemble(unit, step).select(indices))
        data = {member.member: member.data_seed for unit in units for member in job_of(unit).members}
        return Ensemble(
            joined(parts),
            lambda: self._task(units[0]),
            members=[record.member for record in chosen],
            seeds=[data[record.member] for record in chosen],
            step=units[0].checkpoint(step)[0],
        )

    @property
    def reader(self) -> ReaderConfig:
        """How the run's study reads its members, so that what is on record is found; else as usual."""
        try:
            options = self.program.as_run(self.program.recorded(self)).options
        except UserError:  # the study's file is gone
            return ReaderConfig()
        reader = getattr(options, "reader", None)
        found = reader() if callable(reader) else None
        return found if isinstance(found, ReaderConfig) else ReaderConfig()

    def circuit(
        self,
        member: int,
        step: int | None = None,
        *,
        threshold: float | None = None,
        proof: Proof = "both",
        progress: Callable[[str], None] = lambda _: None,
    ) -> ReadCircuit:
        """Read the circuit of a member, or find it on record: see `hopscope.read_circuit`.

        Args:
            member, step, threshold: as there.
            proof: what the circuit must hold under: its rules and its own attention recomputed, or `rules` alone, as in
                the paper (appendix E).
            progress: is told what is being done.
        """
        config = self.reader.model_copy(update={"threshold": threshold, "proof": proof})
        record = read_member(self, member, step, config, progress, task=self._task)
        return ReadCircuit(Circuit.model_validate(record["circuit"]), record)

    def path_bounds(
        self,
        member: int,
        step: int | None = None,
        *,
        threshold: float | None = None,
        proof: Proof = "both",
        progress: Callable[[str], None] = lambda _: None,
    ) -> list[PathBounds]:
        """What each path of a member's circuit costs, between the same rows in other heads and in its whole layer.

        Args:
            member, step, threshold, proof, progress: as of `circuit`.

        Raises:
            UserError: as of `circuit`, or the member has learned nothing.
        """
        own = self.circuit(member, step, threshold=threshold, proof=proof, progress=progress)
        model, task = model_and_task(self, member, step, task=self._task)
        return path_bounds(model, task, own.circuit, ReaderConfig(threshold=threshold))

    def reread(
        self,
        member: int,
        times: int = 5,
        step: int | None = None,
        *,
        threshold: float | None = None,
        proof: Proof = "both",
        progress: Callable[[str], None] = lambda _: None,
    ) -> Rereading | None:
        """How far readings of one member are apart; `None` where fewer than two of them have a circuit.

        The search takes random orders and finite samples, so two readings of one model can end in different circuits.
        A difference between two models means something only beside this one.

        Args:
            member, step, threshold, proof, progress: as of `circuit`.
            times: how many times more the member is read, on other sequences and in other orders.

        Raises:
            UserError: as of `circuit`, or `times` is not positive.
        """
        if times < 1:
            raise UserError(f"times: expected at least 1, found {times}")
        first = self.circuit(member, step, threshold=threshold, proof=proof, progress=progress)
        config = self.reader.model_copy(update={"threshold": threshold, "proof": proof})
        anew = read_again(self, member, times, step, config, progress=progress, task=self._task)
        return compared([first.record, *anew])

    def transferred(self, member: int, circuit: Circuit, step: int | None = None) -> Transferred:
        """What a circuit, such as one that was read in another seed, reaches in a member.

        Args:
            member, step: as of `circuit`.
            circuit: whose layers and heads are meant as they are numbered.

        Raises:
            UserError: no such member or checkpoint; the circuit does not fit; the member has learned nothing.
        """
        model, task = model_and_task(self, member, step, task=self._task)
        return transferred(model, task, [circuit])[0]

    def _task(self, unit: UnitFolder) -> TaskOnDevice:
        job = job_of(unit)
        if not isinstance(job.task, TaskReference):
            return TaskOnDevice(job.task, "cpu", job.training.examples)
        return self.program.measured_task(job, "cpu")

    def _meant(self, where: dict[str, Any]) -> list[MemberRecord]:
        """Members that have all these values.

        Raises:
            UserError: a field in which configurations do not differ, or no member has the values.
        """
        fields = {name for record in self.members for name in record.overrides} | {
            "member",
            "seed",
            "configuration",
        }
        for name in where:
            if name not in fields:
                raise UserError(
                    f"ensemble: expected one of the fields {listed(sorted(fields))}, found {name!r}"
                )
        labels = {unit.hash: job_of(unit).label for unit in self.units} if "configuration" in where else {}
        chosen = [
            record
            for record in self.members
            if all(_is(_value(record, name, labels, self.config), wanted) for name, wanted in where.items())
        ]
        if not chosen:
            raise UserError(f"ensemble: expected members with {_words(where)}, found none in {self.path}")
        return chosen


def _value(record: MemberRecord, name: str, labels: dict[str, str], config: Mapping[str, Any]) -> Any:
    if name == "configuration":
        return labels[record.unit]
    if name in ("member", "seed"):
        return getattr(record, name)
    return record.overrides.get(name, field_of(config, name))


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple | set | range) and not isinstance(value, list | tuple):
        return value in wanted
    # A study writes tuples, a record holds lists.
    return bool(
        (list(value) if isinstance(value, tuple) else value)
        == (list(wanted) if isinstance(wanted, tuple) else wanted)
    )


def _words(where: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in where.items()) or "anything"


def _unequal(records: Sequence[MemberRecord], where: dict[str, Any]) -> str:
    names = dict.fromkeys(name for record in records for name in record.overrides)
    differ = {}
    for name in names:
        values = list({repr(record.overrides.get(name)): None for record in records})
        if name not in ("init_seed", "data_seed") and len(values) > 1:
            differ[name] = values
    found = (
        "; ".join(f"{name}: {listed(values)}" for name, values in differ.items()) or "several configurations"
    )
    return f"ensemble: expected members of one configuration, found {found}; choose one value of each"


def joined(parts: Sequence[Transformer]) -> Transformer:
    """The members of several ensembles of one shape, side by side."""
    import torch

    from hopscope.models.parameters import Parameters, parameter_specs

    first = parts[0]
    if len(parts) == 1:
        return first
    together = Parameters(
        parameter_specs(first.config), sum(part.members for part in parts), first.parameters.flat.device
    )
    with torch.no_grad():
        together.flat.copy_(torch.cat([part.parameters.flat for part in parts]))
    return Transformer(first.config, together)


def train(
    task: Task,
    model: Model,
    training: TrainingConfig,
    seeds: int | Sequence[int] = 1,
    *,
    completion: CompletionName = DEFAULT,
    device: str = "cpu",
) -> Ensemble:
    """Train members in this process, without a run folder.

    Args:
        task, model, training: as in a study.
        seeds: how many seeds, or which.
        completion: start and schedule in one word; fields that `model` and `training` give themselves win.
        device: where.

    Returns:
        The members after the last step; one whose loss was not finite keeps the weights from before.

    Raises:
        UserError: the model does not fit the task, or there is no such completion.
    """
    from hopscope.executors.timing import Steps
    from hopscope.training.engines import chosen_engine

    if isinstance(seeds, int):
        check_seeds("seeds", seeds)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    program = Program(_study(task, model, training, completion))
    config = program.configured(None, {})
    job = program.jobs(config)[0].model_copy(
        update={"members": tuple(MemberPlan(member=n, seed=seed) for n, seed in enumerate(numbers))}
    )
    steps = Steps(job, task.on(device, training.examples), chosen_engine(job, device), device)
    for _ in range(training.steps):
        steps.take()
    steps.model.parameters.flat.requires_grad_(False)
    on_device = TaskOnDevice(task, device, training.examples)
    return Ensemble(
        steps.model, on_device, members=list(range(len(numbers))), seeds=numbers, step=training.steps
    )


def _study(task: Task, model: Model, training: TrainingConfig, completion: CompletionName) -> Any:
    from hopscope.studies.study import Study

    return Study(name="train", task=task, completion=completion, model=model, training=training, seeds=1)
