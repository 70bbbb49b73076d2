"""Configurations of the tasks: values without torch, so that plans and help texts load fast."""

from typing import Annotated

from pydantic import Field

from hopscope.tasks.declared import TaskReference as TaskReference
from hopscope.tasks.equations_config import LINE as LINE
from hopscope.tasks.equations_config import EquationsConfig as EquationsConfig
from hopscope.tasks.permutation_config import LARGEST_VALUES as LARGEST_VALUES
from hopscope.tasks.permutation_config import SMALLEST_VALUES as SMALLEST_VALUES
from hopscope.tasks.permutation_config import PermutationConfig as PermutationConfig
from hopscope.tasks.permutation_config import training_mappings as training_mappings
from hopscope.tasks.vector_config import ConditionalConfig as ConditionalConfig
from hopscope.tasks.vector_config import RetrievalConfig as RetrievalConfig
from hopscope.tasks.vector_config import Targets as Targets
from hopscope.tasks.vector_config import TimeOrder as TimeOrder
from hopscope.tasks.vector_config import VectorTaskConfig as VectorTaskConfig

BuiltIn = PermutationConfig | RetrievalConfig | ConditionalConfig | EquationsConfig
"""A task of this package."""

TaskConfig = Annotated[BuiltIn | TaskReference, Field(discriminator="kind")]
"""A task as it stands in a plan."""
