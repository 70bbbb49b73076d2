"""What is asked: tasks whose batches carry roles and relations.

`Permutation` and `Retrieval` are the tasks of this room.  Installed packages bring others through entry points of the
group `hopscope.tasks`.  What needs torch is loaded when it is first used.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from hopscope.config import in_words
from hopscope.errors import UserError
from hopscope.tasks.permutation import Permutation
from hopscope.tasks.retrieval import Node, Retrieval
from hopscope.tasks.task import Floors, Shape, Task, Use

if TYPE_CHECKING:
    from hopscope.tasks.batch import NO_RELATION, Batch, counted, default_gradient, default_parts
    from hopscope.tasks.draws import Draws
    from hopscope.tasks.samples import check_task, draw, has_standard_loss, held_out, losses

__all__ = [
    "NO_RELATION", "Batch", "Draws", "Floors", "Node", "Permutation", "Retrieval", "Shape", "Task", "Use",
    "check_task", "counted", "default_gradient", "default_parts", "draw", "has_standard_loss", "held_out",
    "losses",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (import_module(f"{__name__}.{home}") for home in ("batch", "samples"))
        return next(getattr(home, name) for home in homes if hasattr(home, name))
    for found in () if name.startswith("_") else entry_points(group="hopscope.tasks", name=name):
        try:
            task = found.load()
        except Exception as error:
            task = in_words(error)
        if not (isinstance(task, type) and issubclass(task, Task)):
            wanted = f"entry point {name!r} of hopscope.tasks ({found.value}): expected a subclass of hopscope.Task"
            raise UserError(f"{wanted}, found {task}; mend or uninstall it")
        return task
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
