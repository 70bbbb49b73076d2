"""Completions of a recipe: one word for all that a source leaves open about start and schedule (docs/protocols.md)."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

CompletionName = Literal["gpt2-base", "gpt2-schedule", "torch-base", "torch-schedule"]
COMPLETION_NAMES: Final[tuple[CompletionName, ...]] = get_args(CompletionName)

Schedule = Literal["constant", "cosine"]
"""What becomes of the learning rate after its warm-up."""


class Completion(NamedTuple):
    """What a completion sets; each field can still be given, and then wins.

    Attributes:
        init: start of the weights, as in `hopscope.Model`.
        warms_up: whether the rate rises over the first tenth of the steps, 200 at most.
        beta2: decay of the optimiser's second moment.
        schedule: of the rate afterwards.
        clip_norm: largest gradient norm of a member; `None` means no clipping.
        final_rate: share of the rate that a cosine ends at.
    """

    init: Literal["gpt2", "linear"]
    warms_up: bool
    beta2: float
    schedule: Schedule
    clip_norm: float | None
    final_rate: float = 0.1

    def warmup_steps(self, steps: int) -> int:
        """Steps of the warm-up of a training of `steps` steps."""
        return min(200, steps // 10) if self.warms_up else 0

    def values(self, steps: int) -> dict[str, Any]:
        """Field → value, for a training of `steps` steps."""
        return {
            "init": self.init,
            "warmup_steps": self.warmup_steps(steps),
            "beta2": self.beta2,
            "schedule": self.schedule,
            "final_rate": self.final_rate,
            "clip_norm": self.clip_norm,
        }


COMPLETIONS: Final[dict[CompletionName, Completion]] = {
    "gpt2-base": Completion("gpt2", False, 0.999, "constant", None),
    "gpt2-schedule": Completion("gpt2", True, 0.95, "cosine", 1.0),
    "torch-base": Completion("linear", False, 0.999, "constant", None),
    "torch-schedule": Completion("linear", True, 0.95, "cosine", 1.0),
}

DEFAULT: Final[CompletionName] = "torch-schedule"
"""What a model and its training start from where nothing is said."""


COMPLETION_FIELDS: Final = ("init", "warmup_steps", "betas", "schedule", "final_rate", "clip_norm")
"""Fields of `hopscope.Model` and `hopscope.Training` that a completion sets."""


def departures(name: CompletionName, steps: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not as a completion sets them.

    Args:
        name: of the completion.
        steps: of the training.
        found: field → value, of those of `Completion.values`.
    """
    said = COMPLETIONS[name].values(steps)
    return {field: value for field, value in found.items() if value != said[field]}
