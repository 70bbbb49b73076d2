"""What a study is to the rest of the house."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import ValidationError

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.runs import RunFolder, UnitFolder

if TYPE_CHECKING:
    # Annotations only: listing studies and their presets must not load torch.
    from hopscope.claims import Claim, Ledger
    from hopscope.runs.evidence import Evidence, Row
    from hopscope.studies.figures import Figure
    from hopscope.tasks.device import DeviceTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate

DEFAULT_PRESET = "laptop"
"""Preset of a run that names none, where the study has it; otherwise the study runs as it is written."""


class StudyConfig(Config):
    """Fields that every built-in study has.

    Attributes:
        seeds: number of seeds, 0 … seeds - 1, of every configuration.
    """

    seeds: int


@runtime_checkable
class Program(Protocol):
    """What the executor needs of a study: units to train, what is measured of them, what is claimed and shown.

    A declared study (`hopscope.Study`) becomes one in `studies.declared`; the built-in studies are ones themselves.
    """

    @property
    def name(self) -> str:
        """Names the folder of its runs."""
        ...

    @property
    def summary(self) -> str:
        """What it asks, in a sentence."""
        ...

    @property
    def presets(self) -> Mapping[str, Any]:
        """Named configurations."""
        ...

    @property
    def costs(self) -> Mapping[str, str]:
        """Preset → expected cost in words."""
        ...

    def plan(self, config: Any) -> "list[UnitPlan]":
        """The units of a configuration, members numbered through the run.  Loads no torch."""
        ...

    def analyses(self, config: Any, plan: "UnitPlan") -> dict[str, str]:
        """Name → file kind (json or npz) of what is analysed of a unit's last checkpoint.  Loads no torch."""
        ...

    def figures(self, config: Any) -> "tuple[Figure, ...]":
        """The figures that a run of a configuration has, with different names.  Loads no torch."""
        ...

    def task(self, plan: "UnitPlan", device: str) -> "DeviceTask":
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

    def measurements(self, run: RunFolder, config: Any) -> "Iterable[Row]":
        """Rows for the evidence table: everything that was measured after training."""
        ...

    def claims(self, config: Any) -> "Sequence[Claim]":
        """What is claimed; values of a claim come from the evidence table alone."""
        ...

    def present(self, run: RunFolder, config: Any, evidence: "Evidence", ledger: "Ledger") -> None:
        """Write figures and story."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A study that has work to do beside its units, such as asking somebody else's models.

    `gathered` are the files of the run that this work leaves, relative to its folder; there is work
    where one is absent.
    """

    @property
    def gathered(self) -> tuple[str, ...]:
        """Files that the work leaves."""
        ...

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


def chosen_preset(program: Program, preset: str | None) -> str | None:
    """The preset that was asked for, else the default one where the study has it.

    Raises:
        UserError: the study has no such preset.
    """
    if preset is None:
        return DEFAULT_PRESET if DEFAULT_PRESET in program.presets else None
    if preset not in program.presets:
        known = ", ".join(program.presets) or "none: leave --preset out"
        raise UserError(f"preset: expected one of {known}, found {preset!r}; see hopscope studies")
    return preset


def configured(program: Program, preset: str | None, fields: Mapping[str, Any]) -> Any:
    """The configuration of a preset, with other values of some fields.

    Raises:
        UserError: no such preset or field, or a value that does not fit.
    """
    from hopscope.studies.declared import DeclaredStudy

    preset = chosen_preset(program, preset)
    if isinstance(program, DeclaredStudy):
        return program.configured(preset, fields)
    assert preset is not None, "every built-in study has the default preset"
    base = program.presets[preset]
    try:
        return type(base).model_validate({**base.model_dump(), **fields})
    except ValidationError as error:
        raise UserError(validation_line(error)) from None


def recorded(program: Program, run: RunFolder) -> Any:
    """The configuration of a run, from its record.

    Raises:
        UserError: it does not fit the study as it is now.
    """
    from hopscope.studies.declared import DeclaredConfig, DeclaredStudy

    kind = (
        DeclaredConfig if isinstance(program, DeclaredStudy) else type(next(iter(program.presets.values())))
    )
    try:
        return kind.model_validate(run.config)
    except ValidationError as error:
        raise UserError(
            f"{run.path / 'config.json'}: expected a configuration of the study {program.name}, found "
            f"{validation_line(error)}"
        ) from None
