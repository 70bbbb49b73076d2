"""What is asked: tasks whose batches carry roles and relations.

`Permutation`, `Retrieval`, `Conditional` and `Equations` are the tasks of this package.  Installed packages bring
others through entry points of the group `hopscope.tasks`, under their names.  Names are loaded when they are first
used, so that importing the package stays instant.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopscope.tasks.equations_config import EquationsConfig as Equations
    from hopscope.tasks.permutation_config import PermutationConfig as Permutation
    from hopscope.tasks.vector_config import ConditionalConfig as Conditional
    from hopscope.tasks.vector_config import RetrievalConfig as Retrieval

_HOMES = {
    "Conditional": ("hopscope.tasks.vector_config", "ConditionalConfig"),
    "Equations": ("hopscope.tasks.equations_config", "EquationsConfig"),
    "Permutation": ("hopscope.tasks.permutation_config", "PermutationConfig"),
    "Retrieval": ("hopscope.tasks.vector_config", "RetrievalConfig"),
}

__all__ = ["Conditional", "Equations", "Permutation", "Retrieval"]


GROUP = "hopscope.tasks"
"""Entry points of installed packages that bring tasks."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return _installed(name)
    import importlib

    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def _installed(name: str) -> Any:
    """The task of an entry point.

    Raises:
        AttributeError: there is none.
        UserError: it cannot be loaded, or is no task.
    """
    from importlib.metadata import entry_points

    found = [] if name.startswith("_") else [*entry_points(group=GROUP, name=name)]
    if not found:
        raise AttributeError(f"module 'hopscope.tasks' has no attribute {name!r}")
    from hopscope.config import in_words
    from hopscope.errors import UserError
    from hopscope.tasks.task import Task

    where = f"entry point {name!r} of {GROUP} ({found[0].value})"
    try:
        task = found[0].load()
    except Exception as error:
        words = in_words(error)
        raise UserError(
            f"{where}: expected a task that can be loaded, found {words}; mend or uninstall it"
        ) from None
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise UserError(f"{where}: expected a subclass of hopscope.Task, found {task!r}")
    return task


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
