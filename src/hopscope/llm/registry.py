"""What Inspect finds under the name `hopscope` (entry point of the group `inspect_ai`): tasks and provider."""

from hopscope.llm.provider import hopscope as hopscope
from hopscope.llm.tasks import TASKS as TASKS
