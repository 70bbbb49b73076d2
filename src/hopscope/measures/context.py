"""The context of a measure: members at a checkpoint, their task, held-out samples, and earlier rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hopscope.errors import UserError
from hopscope.measures import FILE_NAME
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.arrays import npz_bytes
from hopscope.runs.evidence import Row
from hopscope.runs.files import listed, write_atomic

if TYPE_CHECKING:
    from hopscope.measures import Measure
    from hopscope.models.ensemble import Ensemble
    from hopscope.tasks.batch import Batch
    from hopscope.tasks.device import DeviceTask
    from hopscope.training.budget import TimeBudget

_T = TypeVar("_T")


class Context:
    """The argument of a measure.

    A measure of a checkpoint (`when="end"`, `"checkpoints"` or `"training"`) has an ensemble; one of the whole run has
    `run`, `units` and `at(unit, step)`, which is the context of a checkpoint.

    Attributes:
        run: the run's folder.
        unit: folder of the unit that the members are trained in; `None` for the whole run.
        step: training steps of the checkpoint; `None` where it is not known (during training) or makes no sense.
        samples: training samples that each member has seen by then.
        members: run-global numbers of the members, in the order of every member axis; all of the run for a measure of
            the whole run.
        seeds: the members' seeds.
        budget: seconds that are left; work that can be taken up again looks at it (`budget.check()`).
    """

    def __init__(
        self,
        measure: "Measure",
        run: RunFolder,
        budget: "TimeBudget",
        *,
        members: Sequence[int],
        seeds: Sequence[int],
        ensemble: "Ensemble | None" = None,
        unit: UnitFolder | None = None,
        step: int | None = None,
        samples: int | None = None,
        held_out: "Batch | None" = None,
        needed: Mapping[str, Sequence[Row]] | None = None,
        at: "Callable[[UnitFolder, int | None], Context] | None" = None,
    ):
        """The runner makes it.

        Args:
            measure: whom it is for.
            run, budget, members, seeds, unit, step, samples: as above.
            ensemble, held_out: the members at the checkpoint and the held-out samples; `None` for the whole run.
            needed: rows of the measures that this one names in `needs`.
            at: makes the context of a unit's checkpoint (`None`: the last), for a measure of the whole run.
        """
        self.run, self.budget, self.unit = run, budget, unit
        self.step, self.samples = step, samples
        self.members, self.seeds = tuple(members), tuple(seeds)
        self._measure, self._ensemble, self._held_out, self._at = measure, ensemble, held_out, at
        self._needed = dict(needed or {})

    @property
    def ensemble(self) -> "Ensemble":
        """The members at the checkpoint.

        Raises:
            UserError: the measure is of the whole run.
        """
        return self._of_checkpoint(self._ensemble, "ensemble")

    @property
    def task(self) -> "DeviceTask":
        """The task on its device.

        Raises:
            UserError: the measure is of the whole run.
        """
        task: DeviceTask = self.ensemble.task
        return task

    @property
    def held_out(self) -> "Batch":
        """The held-out samples that the curves are measured on, with a member axis of 1, or of all members.

        Raises:
            UserError: the measure is of the whole run.
        """
        return self._of_checkpoint(self._held_out, "held_out")

    def _of_checkpoint(self, value: _T | None, name: str) -> _T:
        if value is None:
            raise UserError(
                f"measure {self._measure.name}: expected a measure of a checkpoint to ask for the {name}, found one "
                f"of the whole run; use context.at(unit).{name} for a unit of context.units"
            )
        return value

    def batch(self, n: int = 64, use: str = "held-out") -> "Batch":
        """Samples of the task: `"held-out"`, `"train"` or `"probe"`.

        Raises:
            UserError: the measure is of the whole run, or there is no such use.
        """
        return self.ensemble.batch(n, use)

    def rows(self, measure: str) -> list[Row]:
        """Return the rows of a measure that this one names in `needs`: of the same checkpoint, or of the whole run.

        Raises:
            UserError: it is not named there.
        """
        if measure not in self._measure.needs:
            raise UserError(
                f"measure {self._measure.name}: expected one of the measures that it needs "
                f"({listed(self._measure.needs) or 'none'}), found {measure!r}; name it: needs=({measure!r},)"
            )
        return list(self._needed.get(measure, ()))

    @property
    def units(self) -> list[UnitFolder]:
        """All units of the run, in the order of their first members."""
        return self.run.units

    def at(self, unit: UnitFolder, step: int | None = None) -> "Context":
        """The context of a unit's checkpoint (by default the last), for a measure of the whole run.

        Raises:
            UserError: the measure is of a checkpoint itself, or there is no such checkpoint.
        """
        if self._at is None:
            raise UserError(
                f"measure {self._measure.name}: expected a measure of the whole run to ask for other checkpoints, "
                'found one of a checkpoint; write @hopscope.measure(when="run")'
            )
        return self._at(unit, step)

    def save(self, name: str, array: Any) -> str:
        """Keep an array (or arrays by name) in the run's folder, as an npz file.

        Args:
            name: of the file, which also says the measure and the step.
            array: a tensor, an array, or a mapping of them; a single one is called `array` in the file.

        Returns:
            The file's name relative to the run, for the column `file` of a row.

        Raises:
            UserError: the name cannot be part of a file's name, or the file cannot be written.
        """
        if not FILE_NAME.fullmatch(name):
            raise UserError(
                f"measure {self._measure.name}: expected a name of letters, digits, '_', '.' and '-', found {name!r}"
            )
        named = array if isinstance(array, Mapping) else {"array": array}
        try:
            arrays = npz_bytes({key: as_array(value) for key, value in named.items()})
        except (TypeError, ValueError) as error:
            raise UserError(
                f"measure {self._measure.name}: expected arrays of numbers, found {error}"
            ) from None
        if self.unit is None:
            path = self.run.path / "analysis" / f"{self._measure.name}+{name}.npz"
        elif self.step is None:
            raise UserError(
                f"measure {self._measure.name}: expected numbers alone during training, found an array to be kept; "
                'write @hopscope.measure(when="checkpoints")'
            )
        else:
            path = self.unit.analysis_path(f"{self._measure.name}+{name}", self.step, "npz")
        write_atomic(path, arrays)
        return path.relative_to(self.run.path).as_posix()


def as_array(value: Any) -> Any:
    """A tensor, array or number as a NumPy array."""
    import numpy as np

    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
