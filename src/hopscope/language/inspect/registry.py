"""What Inspect finds under the name `hopscope` (entry point of the group `inspect_ai`): tasks and provider."""

from hopscope.language.inspect.provider import hopscope as hopscope
from hopscope.language.inspect.tasks import TASKS as TASKS
