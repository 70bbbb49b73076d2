"""Hopscope: grow small transformers on in-context retrieval tasks, and read out what they learned.

Names are loaded when they are first used, so that importing the package stays instant.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopscope.api import load_member as load_member
    from hopscope.api import open_run as open_run
    from hopscope.api import read_circuit as read_circuit
    from hopscope.api import run as run
    from hopscope.api import show as show
    from hopscope.models.export import load_module as load_module

__version__ = "0.1.0"

_HOMES = {
    "run": "hopscope.api",
    "open_run": "hopscope.api",
    "load_member": "hopscope.api",
    "read_circuit": "hopscope.api",
    "show": "hopscope.api",
    "load_module": "hopscope.models.export",
}

__all__ = ["load_member", "load_module", "open_run", "read_circuit", "run", "show"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hopscope' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
