"""Configurations of the tasks: values without torch, so that jobs and help texts load fast."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hopscope.config import Config
from hopscope.tasks.equations_config import LINE as LINE
from hopscope.tasks.equations_config import EquationsConfig as EquationsConfig
from hopscope.tasks.permutation_config import LARGEST_VALUES as LARGEST_VALUES
from hopscope.tasks.permutation_config import SMALLEST_VALUES as SMALLEST_VALUES
from hopscope.tasks.permutation_config import PermutationConfig as PermutationConfig
from hopscope.tasks.permutation_config import training_mappings as training_mappings
from hopscope.tasks.task import Shape
from hopscope.tasks.vector_config import ConditionalConfig as ConditionalConfig
from hopscope.tasks.vector_config import RetrievalConfig as RetrievalConfig
from hopscope.tasks.vector_config import Targets as Targets
from hopscope.tasks.vector_config import TimeOrder as TimeOrder
from hopscope.tasks.vector_config import VectorTaskConfig as VectorTaskConfig

BuiltIn = PermutationConfig | RetrievalConfig | ConditionalConfig | EquationsConfig
"""A task of this package."""


class TaskReference(Config):
    """A task of a user in a job: where it is found, and all that a job has to know of it.

    A job is read without the file that the task is written in.

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


TaskConfig = Annotated[BuiltIn | TaskReference, Field(discriminator="kind")]
"""A task as it stands in a job."""
