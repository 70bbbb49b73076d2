"""What a run says of its members: losses, circuits, and when each path formed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import formation_name, reading_name
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.claims.precedence import earliest, latest
from hopscope.runs import MemberRecord, RunFolder, diverged_members
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.followed import DIVERGED, FollowedMember, FollowedPath, every_path, followed_paths
from hopscope.studies.metrics import Metrics
from hopscope.studies.rows import Curve
from hopscope.training.config import MemberPlan

FALLEN = 0.5
"""A partial loss below this counts as learned (paper, section 7.2)."""


@dataclass(frozen=True)
class Member(FollowedMember):
    """One member of a run.

    Attributes:
        init_seed, data_seed: of its weights and its data.
        loss: final held-out loss, the mean over the final window; `None` if frozen.
        partial: step k → final partial loss.
        curves: step k → held-out partial loss through training.
        held_out, train: the loss over all targets through training.
    """

    init_seed: int
    data_seed: int
    loss: float | None
    partial: dict[int, float]
    curves: dict[int, Curve]
    held_out: Curve
    train: Curve

    @property
    def name(self) -> str:
        """For people."""
        if not self.crossed:
            return f"seed {self.seed}"
        return f"init {self.init_seed}, data {self.data_seed}"

    @property
    def learned(self) -> tuple[int, ...]:
        """Steps of the chain that it has learned, by the reader's measure."""
        return tuple(map(step_of, self.reading["learned"]))

    @property
    def learned_all(self) -> bool:
        """Whether it has learned the whole chain."""
        return not self.frozen and len(self.learned) == len(self.partial)

    @cached_property
    def circuit(self) -> Circuit:
        """Its smallest circuit."""
        return Circuit.model_validate(self.reading["circuit"])

    @property
    def crossed(self) -> bool:
        """Whether its weights and its data have different seeds: it is not independent of the others."""
        return self.init_seed != self.data_seed

    @property
    def every_path(self) -> tuple[FollowedPath, ...]:
        """Every path of its smallest circuit, also those that were not followed."""
        return every_path(self.reading, step_of)

    @property
    def first_reads(self) -> list[FollowedPath]:
        """Reads of single tokens by the first head that does any; none in a circuit without."""
        sharp = [path for path in self.paths if path.to_one_token]
        return [path for path in sharp if (path.layer, path.head) == (sharp[0].layer, sharp[0].head)]

    def fallen(self, step: int) -> Crossing:
        """When the partial loss of a step fell under 0.5."""
        return first_crossing(*self.curves[step], FALLEN, rising=False)

    def hop(self, step: int) -> list[FollowedPath]:
        """Reads of single tokens without which a step of the chain is the first that is lost.

        Rows that read all tokens of a role alike do so by position, many of them from the first step on.
        """
        return [path for path in self.paths if path.needed_for == step and path.to_one_token]

    def hop_formed(self, step: int) -> Crossing | None:
        """When the last read of a hop had formed; never, for a step that the member has not learned.

        Several heads may do one read; it has formed when the first of them has.

        Returns:
            None for a member that was not read, or has learned the step without a read of its own for it.
        """
        if not self.was_read:
            return None
        if step not in self.learned:
            return Crossing(None, None, None, float(self.checkpoints[-1]))
        by_read: dict[str, list[Crossing]] = {}
        for path in self.hop(step):
            by_read.setdefault(path.read, []).append(self.formed(path))
        return latest([earliest(times) for times in by_read.values()]) if by_read else None


def step_of(target: str) -> int:
    """The step of a target's name: `step_3` → 3."""
    return int(target.removeprefix("step_"))


def gather(run: RunFolder, config: ChainsConfig) -> list[Member]:
    """Every member of a run, from the metrics and analyses on disk.

    Raises:
        UserError: a file is missing or damaged.
    """
    held_out, train = Metrics(run), Metrics(run, "train")
    plans, diverged = {plan.member: plan for plan in config.members()}, diverged_members(run)
    return [
        _member(run, config, record, plans[record.member], record.member in diverged, held_out, train)
        for record in run.members
    ]


def seeds_of(members: Sequence[Member]) -> list[Member]:
    """Members whose weights and data have one seed: independent of each other."""
    return [member for member in members if not member.crossed]


def _member(
    run: RunFolder,
    config: ChainsConfig,
    record: MemberRecord,
    plan: MemberPlan,
    frozen: bool,
    held_out: Metrics,
    train: Metrics,
) -> Member:
    training, unit, number = config.training(), run.unit(record.unit), record.member
    name = reading_name(number, config.reader())
    reading = unit.read_analysis(name, training.steps)
    if frozen:  # what was read of its last weights says nothing
        reading = {**reading, "verdict": DIVERGED, "learned": [], "paths": [], "minimal_circuits": []}
    followed = unit.read_analysis(formation_name(number), training.steps)
    final = training.final_steps()
    asked = config.task().asked

    def file(analysis: str) -> str:
        return str(unit.analysis_path(analysis, training.steps).relative_to(run.path))

    return Member(
        member=number,
        seed=record.seed,
        init_seed=plan.init_seed,
        data_seed=plan.data_seed,
        frozen=frozen,
        loss=None if frozen else held_out.final("loss", number, final),
        partial={} if frozen else {k: held_out.final(f"loss_step_{k}", number, final) for k in asked},
        curves={k: held_out.curve(f"loss_step_{k}", number) for k in asked},
        held_out=held_out.curve("loss", number),
        train=train.curve("loss", number),
        reading=reading,
        checkpoints=tuple(followed["checkpoints"]),
        paths=() if frozen else followed_paths(reading, followed, step_of),
        tokens=followed["tokens"],
        rows=followed["rows"],
        reading_file=file(name),
        formation_file=file(formation_name(number)),
        unit=unit,
    )
