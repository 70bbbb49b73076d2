"""What is read of every member and how it formed: files of a unit, what they say of a member, and rows of the evidence.

Every row is held-out and stands at the member's last training step, except attention, which stands at its checkpoint.
A member that diverged has null for what every member has (the final losses, what it learned, whether it was read) and
no other row.

Measures `final` and `retrieval`: see `hopscope.studies.retrieval`.

Measures `reading`, `circuit` and `formation`: see `hopscope.circuits.history_rows`, which also says how a time is told.
The targets are the steps of the chain, parts `step_k`.  Besides, `reading` has
    `circuit_loss`, part `worst_recomputed`: of the learned step with the largest loss in mode recomputed;
    `first_read_links_pair`: 1 if the first head that reads a single token joins the two tokens of a pair;
and `formation` has
    `formed`, part `step_k` (no layer or head): when the last read of a step had formed; missing where the step has no
        read of its own, no circuit was read, or the first checkpoints were deleted before its paths were followed;
    `fell`, part `step_k`: when the held-out loss of a step fell under one half;
    `maps`: 1; its file has the attention of every head on one sequence, in 255ths, as `maps` (checkpoint, layer, head,
        query, key), and the `steps` of these checkpoints.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.circuits.config import ReaderConfig, followed_names, maps_name
from hopscope.circuits.history_rows import Add, member_rows, time_rows
from hopscope.circuits.path_history import MemberHistory, PathHistory, history_of, number_of
from hopscope.claims.crossings import Crossing, earliest, first_crossing, latest
from hopscope.runs import RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.runs.evidence import Row
from hopscope.runs.metrics import GATHERED
from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.circuit_study.config import FALLEN, ChainsConfig, name_of
from hopscope.words import symbol

if TYPE_CHECKING:
    from hopscope.circuits.grammar import Grammar
    from hopscope.models.interventions import Roles
    from hopscope.tasks.batch import Batch
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import TrainJob


# Files of a unit.


def files(options: ChainsConfig, job: "TrainJob") -> dict[str, str]:
    """Circuits, and how their paths formed."""
    return followed_names([member.member for member in job.members], options.reader())


def analyse(
    options: ChainsConfig, unit: UnitFolder, job: "TrainJob", task: Any, budget: "TimeBudget", device: str
) -> None:
    """Read and follow the members of a trained unit; errors as of `follow_members`."""

    def labels(batch: "Batch") -> list[str]:
        return [symbol(step) for step in batch.roles["holds"][0, 0].tolist()]

    def order(roles: "Roles") -> tuple[int, int]:  # of the chain
        return roles["step"], roles["kind"]

    follow_members(unit, job, options.reader(), labels, order, budget)


def follow_members(
    unit: UnitFolder,
    job: "TrainJob",
    reader: ReaderConfig,
    labels: "Callable[[Batch], Sequence[str]]",
    order: "Callable[[Roles], tuple[int, ...]]",
    budget: "TimeBudget",
) -> None:
    """Read the circuits of a unit's members and follow their paths through training; what is on record is kept.

    Both are done by the CPU, wherever the unit was trained.

    Args:
        unit, job: its folder, and what it was trained by.
        reader: how to read.
        labels: what the positions of the sequence hold that attention maps are of, in words.
        order: sorts row roles as a page shows them.
        budget: looked at between two members.

    Raises:
        TimeBudgetReached: between two members.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    from hopscope.circuits.built_in_tasks import circuit_task_of, task_of
    from hopscope.circuits.path_formation import read_and_follow

    def example(grammar: "Grammar") -> dict[str, Any]:
        roles = [grammar.words(each) for each in grammar.roles]
        of = grammar.rows[:, 0].int().argmax(0).tolist()
        known = grammar.batch.roles
        chains = known["chain"][0, 0].tolist() if "chain" in known else [-1] * len(of)
        tokens = [
            {"role": roles[role], "chain": chain, "label": label}
            for role, chain, label in zip(of, chains, labels(grammar.batch), strict=True)
        ]
        return {"tokens": tokens, "rows": [grammar.words(each) for each in sorted(grammar.roles, key=order)]}

    setting = circuit_task_of(task_of(job.task))
    for index, member in enumerate(job.members):
        budget.check()
        read_and_follow(unit, index, member.member, job.training.steps, reader, setting, example)


# What the files say of a member.


@dataclass(frozen=True)
class Member(MemberHistory):
    """One member of a run.

    Attributes:
        init_seed, data_seed: of its weights and its data.
        curves: step k → held-out partial loss through training.
        maps_file: its attention maps, relative to the run.
    """

    init_seed: int
    data_seed: int
    curves: dict[int, Curve]
    maps_file: str

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return name_of(self.init_seed, self.data_seed)

    @property
    def shown_losses(self) -> dict[str, Curve]:
        """Held-out partial losses through training, by symbol."""
        return {symbol(step): curve for step, curve in self.curves.items()}

    @property
    def learned(self) -> tuple[int, ...]:
        """Steps of the chain that it has learned, by the reader's measure."""
        return tuple(map(number_of, self.reading["learned"]))

    @property
    def learned_all(self) -> bool:
        """Whether it has learned the whole chain."""
        return not self.diverged and len(self.learned) == len(self.curves)

    @property
    def crossed(self) -> bool:
        """Whether its weights and its data have different seeds: it is not independent of the others."""
        return self.init_seed != self.data_seed

    @property
    def first_reads(self) -> list[PathHistory]:
        """Reads of single tokens by the first head that does any; none in a circuit without."""
        sharp = [path for path in self.paths if path.to_one_token]
        return [path for path in sharp if path.place == sharp[0].place]

    def learned_at(self, step: int) -> Crossing:
        """When the partial loss of a step fell under 0.5."""
        return first_crossing(*self.curves[step], FALLEN, rising=False)

    def hop(self, step: int) -> list[PathHistory]:
        """Reads of single tokens without which a step of the chain is the first that is lost.

        Rows that read all tokens of a role alike do so by position, many of them from the first step on.
        """
        return [path for path in self.paths if path.needed_for == step and path.to_one_token]

    def hop_formed(self, step: int) -> Crossing | None:
        """When the last read of a hop had formed; never, for a step that the member has not learned.

        Several heads may do one read; it has formed when the first of them has.

        Returns:
            None for a member that was not read or not seen from the start, or has learned the step without a read of
            its own for it.
        """
        if not self.was_read:
            return None
        if step not in self.learned:
            return Crossing(None, None, None, float(self.checkpoints[-1]))
        by_read: dict[str, list[Crossing]] = {}
        for path in self.hop(step):
            formed = self.formed(path)
            if formed is not None:
                by_read.setdefault(path.read, []).append(formed)
        return latest([earliest(times) for times in by_read.values()]) if by_read else None


def links_a_pair(path: PathHistory) -> bool:
    """Whether a path joins the two tokens of a pair: the second reads the first, or the other way round."""
    query, target = path.query.split(), path.target.split()
    return (
        len(query) == len(target) == 2
        and {query[0], target[0]} == {"first", "second"}
        and query[1] == target[1]
    )


def gather(run: RunFolder, config: ChainsConfig) -> list[Member]:
    """Every member of a run, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    metrics, diverged = Metrics(run), diverged_members(run)
    step, plans = config.training_steps, {plan.member: plan for plan in config.members()}
    return [
        Member(
            **history_of(run, record, config.reader(), step, record.member in diverged),
            init_seed=plans[record.member].init_seed,
            data_seed=plans[record.member].data_seed,
            curves={k: metrics.curve(f"loss_step_{k}", record.member) for k in config.task().asked},
            maps_file=run.unit(record.unit).file_of(maps_name(record.member), step, "npz"),
        )
        for record in run.members
    ]


# Rows of the evidence.


def measurements(run: RunFolder, config: ChainsConfig) -> Iterator[Row]:
    """The rows of a run whose analyses are done.

    Raises:
        UserError: a file is missing or damaged.
    """
    yield from of_members(gather(run, config), config)


def of_members(members: Sequence[Member], config: ChainsConfig) -> Iterator[Row]:
    """The rows of some members: their circuits and formation."""
    targets = {f"step_{step}": f"step_{step}" for member in members[:1] for step in member.curves}
    for member, add, rows in member_rows(members, config.training_steps, targets, "circuit_loss"):
        yield from rows
        if member.diverged:
            continue
        file = member.reading_file
        if member.reading["paths"]:
            links = any(map(links_a_pair, member.first_reads))
            yield add("reading", "first_read_links_pair", float(links), file=file)
        yield from _formation(add, member)


def _formation(add: Add, member: Member) -> Iterator[Row]:
    """When the steps of the chain had their reads, when their losses fell, and where the attention maps are."""
    yield add("formation", "maps", 1.0, file=member.maps_file)
    yield from step_rows(add, member)
    for step in member.curves:
        fell = member.learned_at(step)
        yield from time_rows(add, "formation", "fell", fell, part=f"step_{step}", file=GATHERED)


def step_rows(add: Add, member: Member, measure: str = "formation", prefix: str = "") -> Iterator[Row]:
    """When the steps of the chain had their reads; arguments as of `formation_rows`."""
    for step in member.curves:
        hop = member.hop_formed(step)
        if hop is not None:
            where = {"part": f"step_{step}", "file": member.formation_file}
            yield from time_rows(add, measure, f"{prefix}formed", hop, **where)


circuits_of_members = UnitAnalysis(files, analyse, measurements)
"""Every member read and followed through training."""
