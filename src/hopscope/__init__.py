"""Hopscope: grow small transformers on in-context retrieval tasks, and read out what they learned.

Names are loaded when they are first used, so that importing the package stays instant.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "api": ("run", "open_run", "train", "Run"),
    "claims": ("Claim", "Samples", "at_least", "at_most", "between"),
    "circuits.interventions": (
        "AblateHead", "AblateMLP", "EqualizeAttention", "ReplacePattern", "Site", "SwapAttention", "SwapValues",
    ),
    "errors": ("TimeBudgetReached", "UserError"),
    "models.config": ("Model",),
    "runs": ("Evidence",),
    "study.measure": ("Context", "measure"),
    "study.study": ("Configuration", "Study"),
    "tasks": ("Batch", "Draws", "Shape", "Task"),
    "training.config": ("Training",),
}  # fmt: skip
"""Module → the public names that it has."""

_MODULES = {"figures": "page.figures", "measures": "study.measures", "tasks": "tasks"}
"""Public name → module."""

_PLACES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_PLACES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
