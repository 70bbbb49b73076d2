"""What is asked: tasks whose batches carry roles and relations.

`Permutation`, `Retrieval` and `Equations` are the tasks of this package.  Installed packages bring others through entry
points of the group `hopscope.tasks`.  What needs torch is loaded when it is first used.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from hopscope_next.config import in_words
from hopscope_next.errors import UserError
from hopscope_next.tasks.permutation import Permutation as Permutation
from hopscope_next.tasks.retrieval import Node as Node
from hopscope_next.tasks.retrieval import Retrieval as Retrieval
from hopscope_next.tasks.task import Floors as Floors
from hopscope_next.tasks.task import Shape as Shape
from hopscope_next.tasks.task import Task as Task
from hopscope_next.tasks.task import Use as Use
from hopscope_next.tasks.text import Equations as Equations

if TYPE_CHECKING:
    from hopscope_next.tasks.batch import NO_RELATION as NO_RELATION
    from hopscope_next.tasks.batch import Batch as Batch
    from hopscope_next.tasks.batch import joined as joined
    from hopscope_next.tasks.draws import Draws as Draws
    from hopscope_next.tasks.loss import accuracy as accuracy
    from hopscope_next.tasks.loss import counted as counted
    from hopscope_next.tasks.loss import default_gradient as default_gradient
    from hopscope_next.tasks.loss import default_parts as default_parts
    from hopscope_next.tasks.samples import check_task as check_task
    from hopscope_next.tasks.samples import draw as draw
    from hopscope_next.tasks.samples import has_standard_loss as has_standard_loss
    from hopscope_next.tasks.samples import held_out as held_out
    from hopscope_next.tasks.samples import losses as losses

_WITH_TORCH = {
    "batch": "NO_RELATION Batch joined",
    "draws": "Draws",
    "loss": "accuracy counted default_gradient default_parts",
    "samples": "check_task draw has_standard_loss held_out losses",
}


def __getattr__(name: str) -> Any:
    for module, names in _WITH_TORCH.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    for found in () if name.startswith("_") else entry_points(group="hopscope.tasks", name=name):
        where = f"entry point {name!r} of hopscope.tasks ({found.value})"
        try:
            task = found.load()
        except Exception as error:
            words = f"found {in_words(error)}; mend or uninstall it"
            raise UserError(f"{where}: expected a task that can be loaded, {words}") from None
        if not (isinstance(task, type) and issubclass(task, Task)):
            raise UserError(f"{where}: expected a subclass of hopscope.Task, found {task!r}")
        return task
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
