"""Hopscope: grow small transformers on in-context retrieval tasks, and read out what they learned.

Names are loaded when they are first used, so that importing the package stays instant.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopscope import figures as figures
    from hopscope import measures as measures
    from hopscope import tasks as tasks
    from hopscope import testing as testing
    from hopscope.api import load as load
    from hopscope.api import load_member as load_member
    from hopscope.api import load_module as load_module
    from hopscope.api import open_run as open_run
    from hopscope.api import read_circuit as read_circuit
    from hopscope.api import run as run
    from hopscope.api import show as show
    from hopscope.claims import Claim as Claim
    from hopscope.claims import Samples as Samples
    from hopscope.claims import at_least as at_least
    from hopscope.claims import at_most as at_most
    from hopscope.claims import between as between
    from hopscope.errors import TimeBudgetReached as TimeBudgetReached
    from hopscope.errors import UserError as UserError
    from hopscope.measures import measure as measure
    from hopscope.measures.context import Context as Context
    from hopscope.models.config import Model as Model
    from hopscope.models.ensemble import Ensemble as Ensemble
    from hopscope.models.interventions import AblateHead as AblateHead
    from hopscope.models.interventions import AblateMLP as AblateMLP
    from hopscope.models.interventions import EqualizeAttention as EqualizeAttention
    from hopscope.models.interventions import ReplacePattern as ReplacePattern
    from hopscope.models.interventions import Site as Site
    from hopscope.models.interventions import SwapAttention as SwapAttention
    from hopscope.models.interventions import SwapValues as SwapValues
    from hopscope.opened import Run as Run
    from hopscope.opened import train as train
    from hopscope.runs.evidence import Evidence as Evidence
    from hopscope.studies.study import Configuration as Configuration
    from hopscope.studies.study import Study as Study
    from hopscope.tasks.batch import Batch as Batch
    from hopscope.tasks.draws import Draws as Draws
    from hopscope.tasks.task import Shape as Shape
    from hopscope.tasks.task import Task as Task
    from hopscope.training.config import TrainingConfig

    Training = TrainingConfig

__version__ = "0.1.0"

_NAMES = {
    "api": ("run", "open_run", "load", "load_member", "load_module", "read_circuit", "show"),
    "opened": ("train", "Run"),
    "tasks.task": ("Task", "Shape"),
    "tasks.draws": ("Draws",),
    "tasks.batch": ("Batch",),
    "models.config": ("Model",),
    "models.ensemble": ("Ensemble",),
    "training.config": ("Training",),
    "studies.study": ("Study", "Configuration"),
    "measures": ("measure",),
    "measures.context": ("Context",),
    "runs.evidence": ("Evidence",),
    "claims": ("Claim", "Samples", "at_least", "at_most", "between"),
    "errors": ("UserError", "TimeBudgetReached"),
    "models.interventions": (
        "AblateHead",
        "AblateMLP",
        "EqualizeAttention",
        "ReplacePattern",
        "Site",
        "SwapAttention",
        "SwapValues",
    ),
}
"""Module → the public names that it has."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_RENAMED = {"Training": "TrainingConfig"}
_MODULES = ("figures", "measures", "tasks", "testing")
"""Public modules."""

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"hopscope.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'hopscope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hopscope.{_HOMES[name]}"), _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
