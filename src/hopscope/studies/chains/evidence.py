"""What the metrics and analyses of a run say of its members: the ground of its evidence rows and of the player."""

from dataclasses import dataclass

from hopscope.circuits.config import maps_name
from hopscope.circuits.path_history import FollowedMember, FollowedPath, history_of
from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.claims.precedence import earliest, latest
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, diverged_members
from hopscope.runs.curves import Curve, Metrics
from hopscope.studies.chains.config import FALLEN, ChainsConfig, name_of
from hopscope.training.config import MemberPlan
from hopscope.words import symbol


@dataclass(frozen=True)
class Member(FollowedMember):
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
        """For people."""
        return name_of(self.init_seed, self.data_seed)

    @property
    def shown_losses(self) -> dict[str, Curve]:
        """Held-out partial losses through training, by symbol."""
        return {symbol(step): curve for step, curve in self.curves.items()}

    @property
    def learned(self) -> tuple[int, ...]:
        """Steps of the chain that it has learned, by the reader's measure."""
        return tuple(map(step_of, self.reading["learned"]))

    @property
    def learned_all(self) -> bool:
        """Whether it has learned the whole chain."""
        return not self.frozen and len(self.learned) == len(self.curves)

    @property
    def crossed(self) -> bool:
        """Whether its weights and its data have different seeds: it is not independent of the others."""
        return self.init_seed != self.data_seed

    @staticmethod
    def number(target: str) -> int:
        """The step of the chain that a target is."""
        return step_of(target)

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
    metrics, diverged = Metrics(run), diverged_members(run)
    plans = {plan.member: plan for plan in config.members()}
    return [
        _member(
            run.unit(record.unit), config, record, plans[record.member], record.member in diverged, metrics
        )
        for record in run.members
    ]


def _member(
    unit: UnitFolder,
    config: ChainsConfig,
    record: MemberRecord,
    plan: MemberPlan,
    frozen: bool,
    metrics: Metrics,
) -> Member:
    step, number = config.training_steps, record.member
    return Member(
        **history_of(unit, record, config.reader(), step, frozen, step_of),
        init_seed=plan.init_seed,
        data_seed=plan.data_seed,
        curves={k: metrics.curve(f"loss_step_{k}", number) for k in config.task().asked},
        maps_file=unit.file_of(maps_name(number), step, "npz"),
    )
