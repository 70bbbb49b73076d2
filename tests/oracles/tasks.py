"""The built-in tasks with a slow obvious reference, so that the public contract holds every sample to it."""

from typing import Any

from hopscope.tasks.config import ConditionalConfig, EquationsConfig, PermutationConfig, RetrievalConfig
from hopscope.tasks.plain_draws import PlainDraws
from hopscope.tasks.task import Task

from . import conditional, equations, permutation, retrieval


def reference_sample(task: Task, seed: int, stream: str, step: int, index: int) -> dict[str, Any]:
    """A training sample of a built-in task in plain Python, as nested lists by the names of a `Batch`."""
    return _reference(task, PlainDraws(seed, stream, step, index))


def with_reference(task: Task) -> Task:
    """The same task, of a subclass that brings its reference."""

    def reference(self: Task, draws: PlainDraws) -> dict[str, Any] | None:
        return _reference(self, draws)

    kind = type(type(task).__name__, (type(task),), {"__module__": __name__, "reference": reference})
    return kind.model_validate(task.model_dump())


def _reference(task: Task, draws: PlainDraws) -> dict[str, Any] | None:
    held_out = draws.use == "held-out"
    match task:
        case PermutationConfig():
            split = "held_out" if held_out else "train"
            return permutation.reference_sample(task, *draws.address, split=split)
        case RetrievalConfig():
            return retrieval.reference_sample(task, *draws.address)
        case ConditionalConfig():
            return conditional.reference_sample(task, *draws.address)
        case EquationsConfig():
            # Held-out questions are drawn another way, and are held to the texts of `tasks.text`.
            return None if held_out else equations.reference_tokens(task, *draws.address)
    raise TypeError(f"no reference of {type(task).__name__}")
