"""What a study is to the rest of the house."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hopscope.config import Config
from hopscope.runs import RunFolder, UnitFolder

if TYPE_CHECKING:
    # Annotations only: listing studies and their presets must not load torch.
    from hopscope.tasks.batch import Task
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class StudyConfig(Config):
    """Fields that every study has.

    Attributes:
        seeds: number of seeds, 0 … seeds - 1, of every configuration.
    """

    seeds: int


class Study(Protocol):
    """A grid of trainings, their analysis, and what is concluded from them.

    Attributes:
        name, summary: for listings.
        presets: named configurations; `"laptop"` is the default.
        costs: preset → expected cost in words.
    """

    name: str
    summary: str
    presets: dict[str, Any]
    costs: dict[str, str]

    def plan(self, config: Any) -> "list[UnitPlan]":
        """The units of a configuration, members numbered through the run.  Loads no torch."""
        ...

    def analyses(self, config: Any, plan: "UnitPlan") -> dict[str, str]:
        """Name → file kind (json or npz) of what is analysed of a unit's last checkpoint.  Loads no torch."""
        ...

    def figures(self, config: Any) -> tuple[str, ...]:
        """Names of the figures that a run of a configuration has.  Loads no torch."""
        ...

    def task(self, plan: "UnitPlan", device: str) -> "Task":
        """The task of a unit."""
        ...

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: Any) -> "Evaluate":
        """What is measured during training."""
        ...

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: Any, budget: "TimeBudget", device: str
    ) -> None:
        """Write the analyses of a trained unit; those that are there already are kept."""
        ...

    def conclude(self, run: RunFolder) -> None:
        """Write claims, figures and story of a run whose units are all done."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A study that has work to do beside its units, such as asking somebody else's models.

    Attributes:
        gathered: files of the run that this work leaves, relative to its folder; where one is absent there is work.
    """

    gathered: tuple[str, ...]

    def gather(self, run: RunFolder, config: Any, budget: "TimeBudget", say: Callable[[str], None]) -> None:
        """Do what is left of the work, before the study concludes.

        Args:
            run: the run.
            config: as it was asked for; fields that are not on record (they change no result) only stand here.
            budget: seconds that it may take.
            say: hears, in words, how it goes.

        Raises:
            TimeBudgetReached: what is done is kept, and the same call goes on.
            UserError: something the user can mend; likewise.
        """
        ...
