"""How each task is put to the reader."""

from hopscope.circuits.declared import DeclaredSetting
from hopscope.circuits.equations_goal import EquationsSetting
from hopscope.circuits.goal import Setting
from hopscope.circuits.permutation_goal import PermutationSetting
from hopscope.circuits.vector_goal import VectorSetting
from hopscope.errors import UserError
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, EquationsConfig, RetrievalConfig, TaskConfig
from hopscope.tasks.declared import TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.tasks.vector_task import VectorTask

ReadTask = VectorTask | PermutationTask | EquationsTask | TaskOnDevice
"""A task that circuits can be read on: one of the package, or any `hs.Task` on a device."""


def task_of(config: TaskConfig) -> ReadTask:
    """The task of a configuration, on the CPU: circuits are read there, wherever a unit was trained.

    Raises:
        UserError: the task is written in a file or a package, and only its name is known here.
    """
    if isinstance(config, TaskReference):
        raise UserError(
            f"task {config.reference}: expected the task itself to draw samples of it, found its name alone; "
            "open the run with hopscope.open_run and call its circuit(member)"
        )
    if isinstance(config, RetrievalConfig):
        return RetrievalTask(config)
    if isinstance(config, ConditionalConfig):
        return ConditionalTask(config)
    return EquationsTask(config) if isinstance(config, EquationsConfig) else PermutationTask(config)


def setting_of(task: ReadTask) -> Setting:
    """How a task is put to the reader."""
    if isinstance(task, TaskOnDevice):
        return DeclaredSetting(task)
    if isinstance(task, EquationsTask):
        return EquationsSetting(task)
    return PermutationSetting(task) if isinstance(task, PermutationTask) else VectorSetting(task)
