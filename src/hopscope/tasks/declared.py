"""A task that is not of this package, as it stands in a plan: read without the file that it is written in."""

from typing import Any, Literal

from hopscope.config import Config
from hopscope.tasks.task import Shape


class TaskReference(Config):
    """Where a task is found, and all that a plan has to know of it.

    Attributes:
        reference: name of the task's class; where its file or package is, the run's `study.json` says.
        fields: its configuration.
        source: hash of its source and of the helpers it uses.
        shape: sizes of its inputs and predictions.
        gradient: whether the derivative of its loss is known without autograd, as some engines need.
    """

    kind: Literal["declared"] = "declared"
    reference: str
    fields: dict[str, Any] = {}
    source: str
    shape: Shape
    gradient: bool = True
