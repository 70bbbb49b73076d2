"""How each task is put to the reader."""

from hopscope.circuits.equations_goal import EquationsSetting
from hopscope.circuits.goal import Setting
from hopscope.circuits.permutation_goal import PermutationSetting
from hopscope.circuits.vector_goal import VectorSetting
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, EquationsConfig, RetrievalConfig, TaskConfig
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.tasks.vector_task import VectorTask

ReadTask = VectorTask | PermutationTask | EquationsTask


def task_of(config: TaskConfig) -> ReadTask:
    """The task of a configuration, on the CPU: circuits are read there, wherever a unit was trained."""
    if isinstance(config, RetrievalConfig):
        return RetrievalTask(config)
    if isinstance(config, ConditionalConfig):
        return ConditionalTask(config)
    return EquationsTask(config) if isinstance(config, EquationsConfig) else PermutationTask(config)


def setting_of(task: ReadTask) -> Setting:
    """How a task is put to the reader."""
    if isinstance(task, EquationsTask):
        return EquationsSetting(task)
    return PermutationSetting(task) if isinstance(task, PermutationTask) else VectorSetting(task)
