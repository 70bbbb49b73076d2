"""Analyses: what a study measures with code that keeps files of its own, and makes rows of the evidence of them.

A measure (`hopscope.measure`) returns its rows.  An analysis is for what is large, what other commands read as well, or
what is done member by member and taken up again: its files stay as they are, and rows are made of them at the end.
This module loads no torch; what does is named, and imported when it is called (`deferred`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopscope.runs import RunFolder, UnitFolder
    from hopscope.runs.evidence import Row
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import TrainJob
    from hopscope.training.trainer import Evaluate


def deferred(place: str) -> Callable[..., Any]:
    """Return the function `package.module:name`, whose module is imported when it is first called."""

    def call(*arguments: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(*arguments)

    call.__name__ = place
    return call


@dataclass(frozen=True)
class UnitAnalysis:
    """What is measured of a unit: of its last checkpoint, and maybe during training.

    Attributes:
        files: from options and a unit's job to the name of every file and its kind, `json` or `npz`; see
            `UnitFolder.analysis_path`.
        work: writes the files of a trained unit from options, unit, job, task, time budget and device; those that
            are there already are kept.
        rows: rows of the evidence table, from a run whose files are there, and its options.
        evaluate: what is recorded during training, from the options and the task on its device; the study's own way
            in place of the task's losses; one analysis of a study may say so.
    """

    files: "Callable[[Any, TrainJob], Mapping[str, str]]"
    work: "Callable[[Any, UnitFolder, TrainJob, Any, TimeBudget, str], None]"
    rows: "Callable[[RunFolder, Any], Iterable[Row]]"
    evaluate: "Callable[[Any, Any], Evaluate] | None" = None


@dataclass(frozen=True)
class RunAnalysis:
    """What is measured once for the whole run, beside its units, such as the answers of somebody else's models.

    Attributes:
        files: that the work leaves, relative to the run's folder; there is work where one is absent.
        work: does what is left of it, from the run, the options as they were asked for (fields that change no result
            are not on record), the time budget, and a function that hears in words how it goes.  It raises
            `TimeBudgetReached` where the same call goes on.
        rows: as in `UnitAnalysis`.
        check: raises `UserError` for options that leave it nothing to do; called before anything is written.
    """

    files: tuple[str, ...]
    work: "Callable[[RunFolder, Any, TimeBudget, Callable[[str], None]], None]"
    rows: "Callable[[RunFolder, Any], Iterable[Row]]"
    check: "Callable[[Any], None]" = lambda options: None
